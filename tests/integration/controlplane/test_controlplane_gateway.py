"""The way of one job through the gateway, on a real database."""

import threading
from dataclasses import replace
from decimal import Decimal

import pytest
import sqlalchemy as sa

from controlplane.adapters import schema
from controlplane.bootstrap import App, open_app
from controlplane.domain.budget import Amounts, Limits
from controlplane.domain.identity import EVERY_TENANT
from controlplane.errors import InvalidRequest, NotFound, Tampered
from controlplane.handlers.verify import replayed
from controlplane.watchdogs import lease_reaper
from rlm_worker.contracts import Budget
from rlm_worker.contracts.gateway import (
    AwaitOrdersRequest,
    ChainRefused,
    Claimed,
    HoldRefused,
    LeaseLost,
    NotClaimed,
    ReadTraceRequest,
    RecordRequest,
    RenewRequest,
)
from rlm_worker.contracts.result import TraceRef
from rlm_worker.contracts.trace import AttemptStarted, CellProposed, StopObserved, StopVerified, SubcallLost
from tests.integration.controlplane.hands import KEY, Hands, a_request, answered, asked

STORES = ("sqlite", "postgres")


def expire(app: App, job_id: str) -> None:
    """Let the lease of a job run out."""
    with app.store.write() as tx:
        lease = tx.leases.get(job_id)
        assert lease is not None
        tx.leases.extend(job_id, fence=lease.fence, until_ms=tx.now_ms - 1)


def execute(app: App, statement: sa.Executable) -> None:
    with app.store.database.writer.begin() as connection:
        connection.execute(statement)


def ledger_sums(app: App) -> tuple[Amounts, Amounts]:
    """What the ledger says is spent and held at the tenant."""
    spent = held = Amounts()
    with app.store.read() as tx:
        for entry in tx.budgets.entries("tenant:local"):
            if entry.kind == "settle":
                spent = spent.plus(entry.amount)
            elif entry.kind == "hold":
                held = held.plus(entry.amount)
            else:
                held = held.minus(entry.amount)
    return spent, held


@pytest.mark.requirement("S1-QUEUE-1", "S1-QUEUE-3", "CARD-16", "CARD-17")
def test_a_job_goes_from_submit_to_a_folded_result(app, hands):
    worker = hands()
    assert app.job(worker.job_id).state == "queued"

    worker.work()

    view = app.job(worker.job_id)
    assert view.state == "succeeded"
    assert view.lease is None
    task = app.task(view.task_id)
    assert task.status == "completed"
    assert [receipt.kind for receipt in task.receipts] == ["job_submitted", "job_leased", "result_folded"]
    assert task.receipts[-1].receipt_id == view.receipt_id
    assert task.receipts[-1].body["trace_head"] == view.trace_head
    assert app.verify_trace(view.job_id) == view.trace_events == 4
    assert app.verify_receipts(view.task_id) == 3
    assert ledger_sums(app) == (Amounts(1, 80, 10, 0), Amounts())


@pytest.mark.requirement("S1-EVENT-18")
def test_folding_all_events_gives_the_job_and_the_newest_checkpoint(app, hands):
    worker = hands()
    worker.work()
    view = app.job(worker.job_id)

    with app.store.read() as tx:
        events = tx.history.events(view.task_id)
        row = tx.jobs.get(view.job_id, scope=EVERY_TENANT)
        task = tx.tasks.get(view.task_id, scope=EVERY_TENANT)
        kept = tx.history.checkpoint(view.task_id)
    assert row is not None
    assert task is not None
    assert kept is not None
    assert replayed(events, view.job_id) == row.state
    assert kept.seq == events[-1].seq
    assert kept.state["status"] == task.state.status == "completed"


def test_a_job_is_claimed_once(app, hands):
    first, second = hands(), None
    second = replace(first, worker_id="other")

    assert isinstance(first.claim(), Claimed)
    answer = second.claim()

    assert isinstance(answer, NotClaimed)
    assert answer.reason == "leased"


@pytest.mark.requirement("S1-CONC-2", "S1-CONC-7")
def test_of_many_claimers_at_once_one_wins(app, hands):
    job = hands()
    workers = [replace(job, worker_id=f"w{number}") for number in range(8)]
    threads = [threading.Thread(target=worker.claim) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sum(worker.claimed is not None for worker in workers) == 1


@pytest.mark.parametrize(
    ("generation", "order", "reason"), [(7, None, "stale_generation"), (1, "stop", "stopped")]
)
def test_a_wake_up_that_came_too_late_is_told_why(app, hands, generation, order, reason):
    worker = replace(hands(), generation=generation)
    if order:
        app.stop(worker.job_id, order=order, by="me")

    answer = worker.claim()

    assert isinstance(answer, NotClaimed)
    assert answer.reason == reason


@pytest.mark.requirement("LESSON-1", "LESSON-3", "LESSON-6", "S1-QUEUE-2", "N3-RESULT-10")
def test_after_its_lease_was_taken_a_worker_can_write_nothing(app, hands):
    zombie = hands()
    zombie.claim()
    zombie.record(AttemptStarted(attempt=1, worker_id="z"))
    expire(app, zombie.job_id)
    assert lease_reaper.run_once(app.desk) == 1
    heir = replace(zombie, generation=2, worker_id="heir", claimed=None)
    taken = heir.claim()
    assert isinstance(taken, Claimed)
    assert (taken.lease.fence, taken.lease.attempt, taken.trace_events) == (2, 2, 1)

    for write in (
        lambda: zombie.record(asked(0)),
        zombie.settle,
        lambda: app.gateway().renew(RenewRequest(job_id=zombie.job_id, fence=1)),
        lambda: app.gateway().read_trace(ReadTraceRequest(job_id=zombie.job_id, fence=1)),
        lambda: app.gateway().await_orders(AwaitOrdersRequest(job_id=zombie.job_id, fence=1)),
    ):
        with pytest.raises(LeaseLost):
            write()

    heir.settle()
    view = app.job(heir.job_id)
    kinds = [receipt.kind for receipt in app.receipts(view.task_id)]
    assert kinds.count("late_write_rejected") == 2
    assert kinds.count("result_folded") == 1
    app.verify_receipts(view.task_id)


def test_an_expired_lease_is_not_revived_by_its_holder(app, hands):
    worker = hands()
    worker.claim()
    expire(app, worker.job_id)

    with pytest.raises(LeaseLost):
        app.gateway().renew(RenewRequest(job_id=worker.job_id, fence=1))
    with pytest.raises(LeaseLost):
        worker.settle()


@pytest.mark.requirement("N3-PLAN-4")
def test_a_worker_that_dies_three_times_brings_its_job_into_quarantine(app, hands):
    worker = hands()
    for generation in (1, 2, 3):
        worker = replace(worker, generation=generation)
        assert isinstance(worker.claim(), Claimed)
        expire(app, worker.job_id)
        lease_reaper.run_once(app.desk)

    view = app.job(worker.job_id)
    assert view.state == "quarantined"
    assert view.result is not None
    assert view.result.failure_class == "quarantined"
    assert "died 3 times" in view.result.message
    assert app.task(view.task_id).status == "failed"
    assert ledger_sums(app)[1] == Amounts()


def test_the_same_result_again_is_accepted_and_changes_nothing(app, hands):
    worker = hands()
    worker.claim()
    first = worker.settle()
    version = app.task(app.job(worker.job_id).task_id).version

    assert worker.settle() == first
    assert app.task(app.job(worker.job_id).task_id).version == version
    with pytest.raises(LeaseLost):
        worker.settle(structured_output={"answer": "something else"})
    assert app.job(worker.job_id).result.structured_output == {"answer": "x"}


@pytest.mark.parametrize(
    "lie",
    [
        {"structured_output": {"answer": 3}},
        {"structured_output": {}},
        {"attempt": 9},
        {"trace_ref": TraceRef(job_id="other", events=0, head="0" * 64)},
        {"trace_ref": None},
    ],
    ids=["wrong type", "missing field", "another attempt", "another job's trace", "shorter trace"],
)
def test_a_result_that_is_not_true_is_refused_and_the_job_goes_on(app, hands, lie):
    worker = hands()
    worker.claim()
    worker.record(AttemptStarted(attempt=1, worker_id="w"))
    if lie.get("trace_ref", 0) is None:
        lie = {"trace_ref": TraceRef(job_id=worker.job_id, events=0, head="0" * 64)}

    with pytest.raises(ChainRefused):
        worker.settle(**lie)

    assert app.job(worker.job_id).state == "running"
    assert worker.settle().accepted


@pytest.mark.parametrize(
    ("costs", "claimed"),
    [
        (("0.000000001", "0.0000375"), "0.000037502"),
        (("0.000000001", None), "0.000000001"),
        (("0.000000001", "0.0000375"), None),
    ],
    ids=["a billionth too much", "a sum of what is known", "unknown though all is known"],
)
def test_a_cost_that_is_not_the_sum_of_the_recorded_costs_is_refused(app, hands, costs, claimed):
    worker = hands()
    worker.claim()
    for ordinal, cost in enumerate(costs):
        worker.record(asked(ordinal, cost_usd=cost), answered(ordinal, cost_usd=cost))

    with pytest.raises(ChainRefused, match="USD"):
        worker.settle(usage=worker.usage().model_copy(update={"cost_usd": claimed and Decimal(claimed)}))

    assert worker.settle().accepted
    expected = None if None in costs else Decimal("0.000037501")
    assert app.job(worker.job_id).usage.cost_usd == expected
    with app.store.read() as tx:
        assert tx.budgets.get("tenant:local").spent.cost_nano_usd == (1 if expected is None else 37_501)


def test_records_that_do_not_continue_the_trace_are_refused_whole(app, hands):
    worker = hands()
    worker.claim()
    good = worker.links(
        AttemptStarted(attempt=1, worker_id="w"), CellProposed(iteration=0, driver="model", code="x")
    )
    forged = good[1].model_copy(update={"event": {**good[1].event, "code": "y"}})

    for records in ((good[1],), (good[0], forged), (good[1], good[0])):
        with pytest.raises(ChainRefused):
            app.gateway().record(RecordRequest(job_id=worker.job_id, fence=1, records=records))
    assert app.job(worker.job_id).trace_events == 0


def test_records_sent_again_after_a_lost_answer_are_taken_once(app, hands):
    worker = hands()
    worker.claim()
    records = worker.links(asked(0), asked(1))
    request = RecordRequest(job_id=worker.job_id, fence=1, records=records)

    assert app.gateway().record(request) == app.gateway().record(request)
    assert app.job(worker.job_id).usage.subcalls == 2


@pytest.mark.requirement("CARD-19")
@pytest.mark.parametrize(
    ("budget", "named"),
    [
        (Budget(max_subcalls=2), "subcalls"),
        (Budget(max_tokens=400), "tokens"),
        (Budget(max_input_tokens=250), "input_tokens"),
        (Budget(max_output_tokens=120), "output_tokens"),
        (Budget(max_cost_usd="0.000025"), "cost_usd: 0.00003 of 0.000025"),
    ],
)
def test_a_hold_that_passes_a_limit_is_refused_and_nothing_is_written(app, hands, budget, named):
    worker = hands(budget=budget)
    worker.claim()
    worker.record(asked(0, cost_usd="0.00001"), asked(1, cost_usd="0.00001"))

    with pytest.raises(HoldRefused, match=named):
        worker.record(AttemptStarted(attempt=1, worker_id="w"), asked(2, cost_usd="0.00001"))

    assert app.job(worker.job_id).trace_events == 2
    worker.record(answered(0, input_tokens=1, output_tokens=1), answered(1, input_tokens=1, output_tokens=1))
    if named != "subcalls":
        worker.record(asked(2, cost_usd="0.00001"))


def test_the_tenants_budget_is_held_once_and_settled_by_what_was_used(app, hands):
    with app.store.write() as tx:
        tx.budgets.set_limits("tenant:local", Limits(subcalls=15))
    first, second = hands(), hands()
    first.claim()

    refused = second.claim()
    assert isinstance(refused, NotClaimed)
    assert refused.reason == "over_budget"

    expire(app, first.job_id)
    lease_reaper.run_once(app.desk)
    first = replace(first, generation=2)
    first.claim()
    assert ledger_sums(app)[1] == Amounts(10)
    first.record(
        asked(0), asked(1), SubcallLost(ordinal=1, key=KEY, charged=asked(1).hold), answered(0), asked(2)
    )
    first.settle()

    assert ledger_sums(app) == (Amounts(3, 280, 110, 0), Amounts())
    assert isinstance(second.claim(), Claimed)
    with app.store.read() as tx:
        account = tx.budgets.get("tenant:local")
    assert (account.spent, account.held) == ledger_sums(app)


def test_a_tenant_runs_no_more_jobs_at_once_than_it_may(settings):
    app = open_app(replace(settings, tenant_concurrency=1))
    first, second = (Hands(gateway=app.gateway(), job_id=app.submit(a_request()).job_id) for _ in range(2))
    first.claim()

    refused = second.claim()

    assert isinstance(refused, NotClaimed)
    assert refused.reason == "at_capacity"
    first.settle()
    assert isinstance(second.claim(), Claimed)
    app.close()


@pytest.mark.requirement("CARD-22", "LESSON-23", "S1-QUEUE-5")
def test_a_stop_is_requested_observed_and_verified_in_this_order(app, hands):
    worker = hands()
    worker.claim()
    heard = []
    request = AwaitOrdersRequest(job_id=worker.job_id, fence=1, timeout_ms=30_000)
    listener = threading.Thread(target=lambda: heard.append(app.gateway().await_orders(request)))
    listener.start()

    view = app.stop(worker.job_id, by="me", reason="enough")
    listener.join(timeout=10)

    assert (view.state, view.desired) == ("stopping", "stop")
    assert (heard[0].desired, heard[0].reason) == ("stop", "enough")
    worker.record(StopObserved(order="stop"), StopVerified(kill_ms=3, survivors=(42,)))
    worker.settle(status="stopped", structured_output=None, answered_by="nobody", failure_class="stopped")
    stop = app.job(worker.job_id).stop
    assert stop is not None
    assert stop.requested_at <= stop.observed_at <= stop.verified_at
    assert stop.survivors == (42,)
    assert app.task(view.task_id).status == "cancelled"


def test_a_queued_job_is_stopped_at_once_and_a_finished_one_is_too_late(app, hands):
    queued, done = hands(), hands()
    done.work()

    stopped, late = app.stop(queued.job_id, by="me"), app.stop(done.job_id, by="me", order="kill")

    assert stopped.state == "stopped"
    assert stopped.stop is not None
    assert stopped.stop.verified_at is not None
    assert stopped.result is not None
    assert (late.state, late.stop) == ("succeeded", None)


def test_a_stopped_job_whose_worker_died_ends_with_its_trace_and_spend(app, hands):
    worker = hands()
    worker.claim()
    worker.record(asked(0), answered(0), asked(1))
    app.stop(worker.job_id, by="me")
    expire(app, worker.job_id)
    lease_reaper.run_once(app.desk)

    view = app.job(worker.job_id)
    assert view.state == "stopped"
    assert view.result.trace_ref.events == 3
    assert (view.usage.subcalls, view.usage.input_tokens) == (2, 80)


@pytest.mark.requirement("CARD-23", "S1-CONC-1")
def test_a_steer_reaches_the_worker_once(app, hands):
    worker = hands()
    worker.claim()

    steer_id = app.steer(worker.job_id, "look at the dates", by="me")

    gateway = app.gateway()
    heard = gateway.await_orders(AwaitOrdersRequest(job_id=worker.job_id, fence=1, timeout_ms=5_000))
    assert [steer.text for steer in heard.steers] == ["look at the dates"]
    renewed = gateway.renew(RenewRequest(job_id=worker.job_id, fence=1, steer_seen=steer_id))
    assert renewed.steers == ()


def test_a_paused_job_gives_its_lease_back_and_goes_on_where_it_was(app, hands):
    worker = hands()
    worker.claim()
    worker.record(asked(0), answered(0))
    app.stop(worker.job_id, order="pause", by="me")
    worker.record(StopObserved(order="pause"), StopVerified(kill_ms=1))
    held = app.job(worker.job_id)
    assert (held.state, held.lease) == ("held", None)

    resumed = app.resume(worker.job_id)
    assert (resumed.state, resumed.generation) == ("queued", 2)
    taken = replace(worker, generation=2).claim()
    assert isinstance(taken, Claimed)
    assert taken.trace_events == 4


def test_the_trace_is_read_in_pages_by_the_holder(app, hands):
    worker = hands()
    worker.claim()
    worker.record(*(CellProposed(iteration=n, driver="model", code="x") for n in range(5)))

    page = app.gateway().read_trace(ReadTraceRequest(job_id=worker.job_id, fence=1, after=1, limit=3))
    assert ([record.seq for record in page.records], page.more) == ([1, 2, 3], True)
    rest = app.gateway().read_trace(ReadTraceRequest(job_id=worker.job_id, fence=1, after=4, limit=3))
    assert ([record.seq for record in rest.records], rest.more) == ([4], False)


def test_a_submit_with_the_same_id_is_one_job_and_other_content_is_refused(app):
    first = app.submit(a_request(job_id="mine"))

    assert app.submit(a_request(job_id="mine")).task_id == first.task_id
    with pytest.raises(InvalidRequest, match="another content"):
        app.submit(a_request(job_id="mine", task="Something else?"))
    assert len(app.jobs()) == 1


def test_a_further_job_of_a_task_is_a_further_step(app):
    first = app.submit(a_request())
    second = app.submit(a_request(task_id=first.task_id))

    Hands(gateway=app.gateway(), job_id=first.job_id).work()
    assert app.task(first.task_id).status == "running"
    Hands(gateway=app.gateway(), job_id=second.job_id).work()
    assert app.task(first.task_id).status == "completed"
    app.verify_receipts(first.task_id)


@pytest.mark.parametrize(
    "fields",
    [
        {"task": ""},
        {"output_schema": {"type": "string"}},
        {"output_schema": {"type": "object", "properties": {"a": {"type": 3}}}},
    ],
)
def test_a_bad_request_is_refused_and_leaves_nothing(app, fields):
    with pytest.raises(InvalidRequest):
        app.submit(a_request(**fields))
    assert app.jobs() == []


def test_a_job_is_found_by_a_beginning_that_fits_one(app):
    first, _ = app.submit(a_request(job_id="abc-1")), app.submit(a_request(job_id="abd-1"))

    assert app.job("abc").job_id == first.job_id
    with pytest.raises(InvalidRequest, match="several"):
        app.job("ab")
    with pytest.raises(NotFound, match="custody jobs"):
        app.job("zzz")
    assert [view.job_id for view in app.jobs(limit=1)] == ["abd-1"]
    assert [view.job_id for view in app.jobs(before="abd-1")] == ["abc-1"]


def verify(app, view) -> None:
    app.verify_trace(view.job_id)
    app.verify_receipts(view.task_id)


def changes():
    trace, receipt, job = schema.trace_event, schema.receipt, schema.job
    text = sa.func.replace
    return [
        ("event 2", sa.update(trace).where(trace.c.seq == 2).values(body=text(trace.c.body, "100", "101"))),
        ("event 1", sa.update(trace).where(trace.c.seq == 1).values(body=text(trace.c.body, "{", "["))),
        ("event 1", sa.update(trace).where(trace.c.seq == 1).values(kind="other")),
        ("event 1", sa.update(trace).where(trace.c.seq == 1).values(body=text(trace.c.body, ": ", ":"))),
        ("up to event 3", sa.delete(trace).where(trace.c.seq == 3)),
        ("event 2", sa.delete(trace).where(trace.c.seq == 2)),
        ("link 1", sa.update(receipt).where(receipt.c.seq == 1).values(at_ms=0)),
        ("receipt .* is missing|up to link 2", sa.delete(receipt).where(receipt.c.seq == 2)),
        ("result digest", sa.update(job).values(result=text(job.c.result, '"x"', '"y"'))),
        ("spec digest", sa.update(schema.job_spec).values(spec=text(schema.job_spec.c.spec, "What", "Who"))),
        ("its row says", sa.update(job).values(attempts=2)),
    ]


@pytest.mark.parametrize(
    ("place", "change"), changes(), ids=[f"{n}-{p}" for n, (p, _) in enumerate(changes())]
)
def test_a_change_behind_our_back_is_found_and_named(app, hands, place, change):
    worker = hands()
    worker.work()
    view = app.job(worker.job_id)
    execute(app, change)

    with pytest.raises(Tampered, match=place):
        verify(app, view)


def test_a_schema_that_points_outside_itself_is_refused_and_nothing_is_fetched(app, tmp_path):
    (tmp_path / "other.json").write_text('{"type": "string"}')
    schema = {"type": "object", "properties": {"a": {"$ref": f"file://{tmp_path}/other.json"}}}

    with pytest.raises(InvalidRequest, match="inside the schema"):
        app.submit(a_request(output_schema=schema))
