"""What every store must tell of jobs that wait for their turn, of workers and of duties."""

from collections import Counter
from dataclasses import replace

import pytest
import sqlalchemy as sa

from controlplane.adapters import schema, schema_access
from controlplane.domain.job_state import JobState
from controlplane.domain.queueing import Kind, Lane, Share
from controlplane.ports_queue import Wake, WorkerRow
from tests.contract.store.test_store_contract import a_job_row, a_lease, a_task_row

KIND = Kind("local", "", "m")
LANE = Lane(0, KIND)


def add(tx, job_id: str, *, created_ms: int = 1, **state) -> None:
    given = {
        "job_id": job_id,
        "task_id": "t",
        "step_id": "s",
        "tenant_id": "local",
        "generation": 1,
        "sub_model": "m",
    }
    row = a_job_row(job_id, state=JobState(**{**given, **state}), created_ms=created_ms)
    tx.jobs.add(row, spec="{}")


@pytest.fixture
def filled(store):
    with store.write() as tx:
        tx.tasks.add(a_task_row())
        for number, job_id in enumerate(("old", "new", "newest")):
            add(tx, job_id, created_ms=number)
        add(tx, "urgent", priority=7)
        add(tx, "foreign", tenant_id="other", model="x")
        add(tx, "waiting", state="parked")
        add(tx, "paused", desired="pause")
    return store


def names(wakes) -> list[str]:
    return [wake.job_id for wake in wakes]


def insert(tx, table, **columns) -> None:
    tx.backlog._connection.execute(sa.insert(table), columns)


def test_lanes_come_by_priority_each_with_the_number_of_its_jobs(filled):
    with filled.read() as tx:
        assert tx.backlog.lanes(after="", most=9, count_to=2) == [
            (Lane(7, KIND), 1),
            (LANE, 2),
            (Lane(0, Kind("other", "x", "m")), 1),
        ]
        assert len(tx.backlog.lanes(after=Lane(7, KIND).text, most=1, count_to=9)) == 1


def test_the_oldest_of_a_lane_come_first_and_one_that_was_sent_does_not_come_again(filled):
    with filled.write() as tx:
        assert names(tx.backlog.first_of(LANE, limit=2, spares_switched=False)) == ["old", "new"]
        tx.backlog.mark_sent([Wake(job_id="old", generation=1), Wake(job_id="new", generation=9)])

        assert names(tx.backlog.first_of(LANE, limit=9, spares_switched=True)) == ["new", "newest"]
        assert tx.backlog.sent() == Counter({KIND: 1})


def test_a_job_that_was_sent_is_ready_again_in_a_new_generation_and_not_by_being_saved(filled):
    with filled.write() as tx:
        tx.backlog.mark_sent([Wake(job_id="old", generation=1)])
        row = a_job_row(
            "old", state=JobState(job_id="old", task_id="t", tenant_id="local", generation=1, sub_model="m")
        )
        tx.jobs.save(row)
        assert "old" not in names(tx.backlog.first_of(LANE, limit=9, spares_switched=False))
        tx.jobs.save(replace(row, state=replace(row.state, state="leased")))
        tx.jobs.save(replace(row, state=replace(row.state, generation=2)))

        (found,) = [w for w in tx.backlog.first_of(LANE, limit=9, spares_switched=False) if w.job_id == "old"]
        assert found.generation == 2
        assert tx.backlog.sent() == Counter()


def test_lost_and_refused_jobs_come_back_only_after_a_while(filled):
    with filled.write() as tx:
        tx.backlog.mark_sent([Wake(job_id="old", generation=1)])
        tx.backlog.refuse("new", at_once=False)
        tx.backlog.refuse("newest", at_once=True)
        signs = tx.backlog.signs()
        assert signs.oldest_sent_ms == signs.oldest_refused_ms == tx.now_ms
        assert names(tx.backlog.first_of(LANE, limit=9, spares_switched=False)) == ["newest"]

        assert tx.backlog.put_back_lost(sent_before_ms=tx.now_ms - 1, limit=9) == 0
        assert tx.backlog.put_back_refused(refused_before_ms=tx.now_ms - 1, limit=9) == 0
        assert tx.backlog.put_back_lost(sent_before_ms=tx.now_ms, limit=9) == 1
        assert tx.backlog.put_back_refused(refused_before_ms=tx.now_ms, limit=9) == 1
        assert names(tx.backlog.first_of(LANE, limit=9, spares_switched=False)) == ["old", "new", "newest"]


def test_a_switch_on_a_job_or_its_task_spares_the_others(filled):
    with filled.write() as tx:
        order = {"action": "stop", "reason": "why", "by": "me", "at_ms": 1, "tenant_id": ""}
        insert(tx, schema.control_order, scope_kind="job", scope_id="old", **order)
        insert(tx, schema.control_order, scope_kind="job", scope_id="new", released_ms=2, **order)
        insert(tx, schema.control_order, scope_kind="task", scope_id="t", **{**order, "tenant_id": "other"})

        assert names(tx.backlog.first_of(LANE, limit=9, spares_switched=True)) == ["new", "newest"]
        foreign = Lane(0, Kind("other", "x", "m"))
        assert tx.backlog.first_of(foreign, limit=9, spares_switched=True) == []


def test_who_is_at_work_and_what_share_a_tenant_has(filled):
    with filled.write() as tx:
        tx.leases.put(a_lease(tx.now_ms + 9_000, job_id="foreign"))
        insert(tx, schema_access.tenant, tenant_id="other", name="", weight=3, max_jobs=4, created_ms=1)

        assert tx.backlog.busy() == Counter({Kind("other", "x", "m"): 1})
        assert tx.backlog.shares({"other", "local"}) == {"other": Share(weight=3, max_jobs=4)}


def test_jobs_past_their_deadline_are_found_until_they_are_stopped(filled):
    with filled.write() as tx:
        for job_id, state in (("over", {}), ("ending", {"desired": "stop"}), ("ended", {"state": "failed"})):
            add(tx, job_id, deadline_ms=tx.now_ms, **state)
        add(tx, "later", deadline_ms=tx.now_ms + 9_000)

        assert tx.backlog.overdue(limit=9) == ["over"]


def test_a_store_with_nothing_to_do_says_so(store):
    with store.read() as tx:
        signs = tx.backlog.signs()

    assert not signs.has_ready
    assert not signs.has_waited
    assert signs.oldest_sent_ms is signs.oldest_refused_ms is None


def test_workers_are_live_while_they_are_seen(store):
    with store.write() as tx:
        tx.workers.put(WorkerRow(worker_id="w", host="h", slots=4, image="i", facts={"python": "3"}))
        tx.workers.set_draining("w", is_draining=True)
        tx.workers.put(WorkerRow(worker_id="w", host="h2", slots=5))
        tx.workers.seen("w")

        (found,) = tx.workers.live(seen_since_ms=tx.now_ms)
        assert (found.host, found.slots, found.is_draining) == ("h2", 5, True)
        assert tx.workers.live(seen_since_ms=tx.now_ms + 1) == []
        tx.workers.mark_gone("w")
        assert tx.workers.live(seen_since_ms=0) == []
        assert [row.gone_ms for row in tx.workers.all(limit=9)] == [tx.now_ms]
        tx.workers.forget(gone_before_ms=tx.now_ms + 1)
        assert tx.workers.get("w") is None


def test_a_duty_is_one_holders_until_it_ends_is_left_or_the_holder_is_gone(store):
    with store.write() as tx:
        assert tx.duties.take("d", holder="a", ttl_ms=60_000)
        assert tx.duties.take("d", holder="a", ttl_ms=60_000)
        assert not tx.duties.take("d", holder="b", ttl_ms=60_000)
        assert not tx.duties.take("d", holder="b", ttl_ms=60_000, instead_of="c")
        assert tx.duties.take("d", holder="b", ttl_ms=60_000, instead_of="a")
        assert not tx.duties.take("d", holder="a", ttl_ms=60_000)
        tx.duties.leave("d", holder="a")
        assert tx.duties.holder("d") == "b"
        tx.duties.leave("d", holder="b")
        assert tx.duties.take("d", holder="a", ttl_ms=0)
        assert tx.duties.take("d", holder="b", ttl_ms=0)
