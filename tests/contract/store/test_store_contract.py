"""What every store must do."""

import threading
import time
from dataclasses import replace

import pytest

from controlplane.domain.budget import Account, Amounts, Limits
from controlplane.domain.identity import EVERY_TENANT
from controlplane.domain.ids import Fence
from controlplane.domain.job_state import JobState, Parked, Stop
from controlplane.domain.lease import Lease
from controlplane.domain.receipts import link as receipt_link
from controlplane.domain.task import Step, TaskState
from controlplane.errors import VersionConflict
from controlplane.ports import Checkpoint, JobFilter, JobRow, LedgerEntry, ReceiptRow, TaskRow
from rlm_worker.contracts.trace import GENESIS, NoProgress, link


def a_task_row(task_id: str = "t", **fields) -> TaskRow:
    steps = (Step(step_id="s", kind="analyze", status="started", job_id="j"),)
    state = TaskState(task_id=task_id, tenant_id="local", goal="gö\ud800al", steps=steps, folded=("j",))
    return TaskRow(**{"state": state, "version": 1, "created_ms": 1, "updated_ms": 2, **fields})


def a_job_row(job_id: str = "j", **fields) -> JobRow:
    state = JobState(
        job_id=job_id,
        task_id="t",
        step_id="s",
        tenant_id="local",
        generation=1,
        stop=Stop(order="kill", requested_ms=4, observed_ms=5, survivors=(1, 2)),
        parked=Parked(reason="rate_limited", detail="slow", not_before_ms=9),
    )
    account = Account(
        limits=Limits(subcalls=3, tokens=9),
        spent=Amounts(1, 2, 3, 4),
        held=Amounts(5, 6, 7, 8),
        open={3: Amounts(5, 6, 7, 8)},
        is_priced=False,
        iterations=2,
    )
    given = {"state": state, "spec_digest": "d" * 64, "account": account, "created_ms": 1, "updated_ms": 2}
    given["tenant_settled"] = Amounts(1, 0, 2, 0)
    return JobRow(**{**given, **fields})


def a_lease(until_ms: int, job_id: str = "j") -> Lease:
    return Lease(
        job_id=job_id,
        tenant_id="local",
        worker_id="w",
        fence=Fence(1),
        attempt=1,
        granted_ms=1,
        until_ms=until_ms,
        renewed_ms=1,
    )


@pytest.fixture
def with_job(store):
    with store.write() as tx:
        tx.tasks.add(a_task_row())
        tx.jobs.add(a_job_row(), spec="{}")
    return store


def test_rows_come_back_as_they_went_in(with_job):
    with with_job.read() as tx:
        assert tx.tasks.get("t", scope=EVERY_TENANT) == a_task_row()
        assert tx.jobs.get("j", scope=EVERY_TENANT) == a_job_row()
        assert tx.jobs.spec("j") == "{}"
        assert tx.jobs.get("nobody", scope=EVERY_TENANT) is None


def test_an_exception_undoes_the_whole_transaction(store):
    def fail_halfway() -> None:
        with store.write() as tx:
            tx.tasks.add(a_task_row())
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_halfway()
    with store.read() as tx:
        assert tx.tasks.get("t", scope=EVERY_TENANT) is None


@pytest.mark.requirement("S1-CONC-6", "S1-CONC-12")
def test_a_save_over_another_version_is_refused(with_job):
    with pytest.raises(VersionConflict), with_job.write() as tx:
        tx.tasks.save(a_task_row(version=9), version=8)


@pytest.mark.requirement("LESSON-5")
def test_time_is_the_databases_and_goes_on(store):
    with store.read() as tx:
        first = tx.now_ms
    with store.write() as tx:
        assert first <= tx.now_ms < first + 60_000
    assert abs(first - time.time() * 1000) < 60_000


def test_leases_count_only_while_they_live(with_job):
    with with_job.write("normal") as tx:
        tx.leases.put(a_lease(tx.now_ms + 60_000))
        assert tx.leases.live_of_tenant("local") == 1
        tx.leases.extend("j", fence=1, until_ms=tx.now_ms - 1)
        assert tx.leases.live_of_tenant("local") == 0
        tx.leases.extend("j", fence=2, until_ms=tx.now_ms + 60_000)
        assert tx.leases.live_of_tenant("local") == 0
        assert len(tx.leases.all()) == 1
        tx.leases.drop("j", outcome="lost", ended_ms=8)
        tx.leases.drop("j", outcome="again", ended_ms=99)
        assert tx.leases.get("j") is None
        assert tx.leases.spent_ms("j") == 7


def test_traces_come_back_in_order_from_any_place(with_job):
    first = link(NoProgress(iteration=0, detail="half a pair \ud83d, ä, \x00"), seq=0, at_ms=1, prev=GENESIS)
    second = link(NoProgress(iteration=1, detail=""), seq=1, at_ms=1, prev=first.hash)
    with with_job.write() as tx:
        tx.traces.append("j", [first, second])

    with with_job.read() as tx:
        assert tx.traces.read("j", after=0, limit=9) == [first, second]
        assert tx.traces.read("j", after=1, limit=9) == [second]
        assert list(tx.traces.checked("j")) == [first, second]


def test_history_keeps_events_and_receipts(with_job):
    made = receipt_link(stream="event", seq=0, at_ms=3, body={"a": [1]}, prev=GENESIS, kind="k")
    with with_job.write() as tx:
        tx.history.append_events("t", [made], actor="me")
        tx.history.add_receipts("t", [ReceiptRow(receipt_id="r", link=made)])

    with with_job.read() as tx:
        assert tx.history.events("t") == [made]
        assert tx.history.events("t", after=0) == []
        assert tx.history.receipts("t") == [ReceiptRow(receipt_id="r", link=made)]


@pytest.mark.requirement("S1-CKPT-20", "S1-CKPT-21", "S1-CKPT-22", "S1-CKPT-23", "S1-CKPT-24", "S1-CKPT-25")
def test_checkpoints_are_loaded_listed_ended_and_expired(with_job):
    with with_job.write() as tx:
        for seq in (1, 2, 3, 4):
            tx.history.save_checkpoint("t", Checkpoint(seq=seq, state={"seq": seq}, digest="d" * 64))
        tx.history.mark_terminal("t", seq=2)
        saved_ms = tx.now_ms

    with with_job.write() as tx:
        newest = tx.history.checkpoint("t")
        assert newest == Checkpoint(seq=4, state={"seq": 4}, digest="d" * 64, at_ms=saved_ms)
        assert tx.history.checkpoint("t", seq=2).is_terminal
        assert tx.history.checkpoint("t", seq=9) is None
        assert tx.history.checkpoint("other") is None
        assert [found.seq for found in tx.history.checkpoints("t")] == [1, 2, 3, 4]
        assert tx.history.expire_checkpoints("t", before_ms=saved_ms) == 0
        assert tx.history.expire_checkpoints("t", before_ms=saved_ms + 1) == 2
        assert [found.seq for found in tx.history.checkpoints("t")] == [2, 4]


STRANGE = "zero \0, half a pair \ud83d, ä, \x1bjson:\"marked\", 'quoted', %s %(x)s :name ?"


def test_text_of_people_comes_back_whatever_it_holds(with_job):
    with with_job.write() as tx:
        row = tx.jobs.get("j", scope=EVERY_TENANT)
        tx.jobs.save(replace(row, refusal=STRANGE, state=replace(row.state, reason=STRANGE)))
        tx.steers.add("j", text=STRANGE, by="me")
        tx.answers.add("j", question=1, value=[STRANGE], by="me")
        assert tx.answers.of("j")[0].value == [STRANGE]
        assert tx.steers.after("j", seen=0)[0].text == STRANGE

    with with_job.read() as tx:
        row = tx.jobs.get("j", scope=EVERY_TENANT)
        assert (row.refusal, row.state.reason) == (STRANGE, STRANGE)
        assert tx.jobs.search(JobFilter(), scope=EVERY_TENANT, limit=1, after=None) == ([row], None)
    with with_job.watch() as watch:
        orders, _ = watch.read("j", steer_seen=0)
        assert (orders.reason, orders.steers[0].text) == (STRANGE, STRANGE)


def test_what_somebody_else_entered_first_is_a_conflict_and_changes_nothing(with_job):
    def enter_again() -> None:
        with with_job.write() as tx:
            tx.budgets.set_limits("b", Limits(subcalls=4))
            tx.jobs.add(a_job_row(), spec='{"another": 1}')

    with pytest.raises(VersionConflict):
        enter_again()

    with with_job.read() as tx:
        assert tx.jobs.spec("j") == "{}"
        assert tx.budgets.get("b") == Account()


def test_a_reader_sees_one_moment_whatever_is_written_meanwhile(with_job):
    with with_job.read() as tx:
        before = tx.jobs.get("j", scope=EVERY_TENANT)
        with with_job.write() as other:
            other.jobs.save(replace(before, refusal="changed"))
        assert tx.jobs.get("j", scope=EVERY_TENANT) == before


def test_budgets_and_their_ledger(store):
    entry = LedgerEntry(budget_id="b", job_id="j", kind="hold", amount=Amounts(1, 2, 3, 4))
    with store.write() as tx:
        assert tx.budgets.get("b") == Account()
        tx.budgets.set_limits("b", Limits(subcalls=4))
        tx.budgets.save("b", Account(limits=tx.budgets.get("b").limits, held=entry.amount))
        tx.budgets.enter(entry)

    with store.read() as tx:
        assert tx.budgets.get("b") == Account(limits=Limits(subcalls=4), held=entry.amount)
        assert tx.budgets.entries("b") == [entry]


def test_steers_are_numbered_and_given_once_seen_only(store):
    with store.write() as tx:
        first = tx.steers.add("j", text="one", by="me")
        second = tx.steers.add("j", text="two", by="me")
        assert second > first
        assert [steer.text for steer in tx.steers.after("j", seen=first)] == ["two"]


def test_writers_of_two_processes_take_turns(open_store):
    stores = [open_store(), open_store()]
    with stores[0].write() as tx:
        tx.budgets.save("b", Account())

    def add(store) -> None:
        for _ in range(25):
            with store.write("normal") as tx:
                account = tx.budgets.get("b")
                tx.budgets.save("b", Account(spent=account.spent.plus(Amounts(1))))

    threads = [threading.Thread(target=add, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    with stores[0].read() as tx:
        assert tx.budgets.get("b").spent.subcalls == 50


@pytest.mark.parametrize("is_told", [True, False], ids=["same process", "another process"])
def test_a_watch_sees_a_commit_without_waiting_for_any_writer(open_store, is_told):
    ours, other = open_store(), open_store()
    with ours.write() as tx:
        tx.tasks.add(a_task_row())
        tx.jobs.add(a_job_row(), spec="{}")
    with ours.watch() as watch:
        assert watch.read("j", steer_seen=0)[0] is not None
        assert watch.read("nobody", steer_seen=0)[0] is None
        writer = ours if is_told else other
        with writer.write() as tx:
            tx.steers.add("j", text="hello", by="me")
            # The write lock is held: reading goes on, and sees nothing yet.
            orders, _ = watch.read("j", steer_seen=0)
            assert orders is not None
            assert orders.steers == ()
        writer.announce()

        assert watch.wait(timeout=5)
        orders, _ = watch.read("j", steer_seen=0)
        assert orders is not None
        assert [steer.text for steer in orders.steers] == ["hello"]
