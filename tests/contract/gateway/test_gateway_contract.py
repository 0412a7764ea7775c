"""What every gateway promises a worker. The fake of the worker's tests is only trusted because it passes here too."""

import threading
import time
from datetime import UTC, datetime

import pytest

from rlm_worker.contracts import JobResult
from rlm_worker.contracts.gateway import (
    AwaitOrdersRequest,
    ChainRefused,
    Claimed,
    ClaimRequest,
    LeaseLost,
    NotClaimed,
    ParkAnswer,
    ParkRequest,
    ReadTraceRequest,
    RecordRequest,
    RenewRequest,
    SettleRequest,
)
from rlm_worker.contracts.result import TraceRef
from rlm_worker.contracts.trace import (
    GENESIS,
    AttemptStarted,
    Hold,
    ModelAsked,
    NoProgress,
    TraceRecord,
    link,
)

WORKER = "elsewhere/contract/1/1"


def claim(job, **changes) -> Claimed | NotClaimed:
    given = {"worker_id": WORKER, "job_id": job.job_id, "generation": job.generation, **changes}
    return job.gateway.claim(ClaimRequest(**given))


@pytest.fixture
def claimed(job) -> Claimed:
    answer = claim(job)
    assert isinstance(answer, Claimed), answer
    return answer


def chain(count: int, *, seq: int = 0, prev: str = GENESIS) -> list[TraceRecord]:
    records: list[TraceRecord] = []
    for number in range(seq, seq + count):
        event = (
            AttemptStarted(attempt=1, worker_id=WORKER)
            if number == 0
            else NoProgress(iteration=number, detail="é")
        )
        records.append(link(event, seq=number, at_ms=number, prev=prev))
        prev = records[-1].hash
    return records


def record(job, claimed: Claimed, records, **changes):
    given = {"job_id": job.job_id, "fence": claimed.lease.fence, "records": tuple(records), **changes}
    return job.gateway.record(RecordRequest(**given))


def read(job, claimed: Claimed, **page):
    return job.gateway.read_trace(ReadTraceRequest(job_id=job.job_id, fence=claimed.lease.fence, **page))


def await_orders(job, claimed: Claimed, **asked):
    return job.gateway.await_orders(AwaitOrdersRequest(job_id=job.job_id, fence=claimed.lease.fence, **asked))


def renew(job, claimed: Claimed, **asked):
    return job.gateway.renew(RenewRequest(job_id=job.job_id, fence=claimed.lease.fence, **asked))


def result(job, claimed: Claimed, *, events: int = 0, head: str = GENESIS, **changes) -> JobResult:
    given = {
        "job_id": job.job_id,
        "attempt": claimed.lease.attempt,
        "status": "succeeded",
        "structured_output": {"answer": "x"},
        "answered_by": "submit",
        "trace_ref": TraceRef(job_id=job.job_id, events=events, head=head),
    }
    return JobResult.model_validate({**given, **changes})


def settle(job, claimed: Claimed, said: JobResult):
    return job.gateway.settle(SettleRequest(job_id=job.job_id, fence=claimed.lease.fence, result=said))


def park(job, claimed: Claimed, **changes) -> ParkAnswer:
    given = {
        "job_id": job.job_id,
        "fence": claimed.lease.fence,
        "reason": "rate_limited",
        "detail": "slow down",
        "not_before": datetime(2100, 1, 1, tzinfo=UTC),
        **changes,
    }
    return job.gateway.park(ParkRequest(**given))


class TestPark:
    def test_a_parked_job_has_no_lease_and_is_not_claimed(self, job, claimed):
        record(job, claimed, chain(2))

        assert park(job, claimed).parked

        with pytest.raises(LeaseLost):
            renew(job, claimed)
        refused = claim(job)
        assert isinstance(refused, NotClaimed)
        assert (refused.reason, refused.detail) == ("not_ready", "parked")

    def test_an_unparked_job_goes_on_from_its_trace_under_a_higher_fence(self, job, claimed):
        records = chain(3)
        record(job, claimed, records)
        park(job, claimed, reason="asked", not_before=None)
        job.unpark()

        again = claim(job)

        assert isinstance(again, Claimed)
        assert (again.lease.fence, again.lease.attempt) == (2, 2)
        assert (again.trace_events, again.trace_head) == (3, records[-1].hash)

    def test_a_park_that_is_sent_again_is_answered_the_same(self, job, claimed):
        assert park(job, claimed) == park(job, claimed)

    def test_a_stale_fence_cannot_park(self, job, claimed):
        job.take_lease_away()
        claim(job)

        with pytest.raises(LeaseLost):
            park(job, claimed)

    def test_a_job_that_shall_stop_is_not_parked(self, job, claimed):
        job.order("stop")

        assert not park(job, claimed).parked
        assert renew(job, claimed).desired == "stop"

    def test_a_job_with_an_unsettled_call_is_not_parked(self, job, claimed):
        first = chain(1)
        asked = ModelAsked(iteration=1, ordinal=1, model="m", prompt_digest="a" * 64, hold=Hold())
        record(job, claimed, [*first, link(asked, seq=1, at_ms=1, prev=first[-1].hash)])

        with pytest.raises(ChainRefused):
            park(job, claimed)

    def test_a_wait_for_a_rate_limit_must_say_until_when(self):
        with pytest.raises(ValueError, match="until when"):
            ParkRequest(job_id="j", fence=1, reason="rate_limited")


class TestClaim:
    def test_a_job_is_claimed_once(self, job, claimed):
        assert claimed.lease.job_id == claimed.spec.job_id == job.job_id
        assert (claimed.lease.fence, claimed.lease.attempt) == (1, 1)
        assert (claimed.trace_events, claimed.trace_head) == (0, GENESIS)

        assert claim(job) == NotClaimed(reason="leased", detail=claim(job).detail)

    def test_one_of_many_workers_gets_it(self, job):
        generation, answers = job.generation, []
        threads = [
            threading.Thread(target=lambda: answers.append(claim(job, generation=generation)))
            for _ in range(6)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert sum(isinstance(answer, Claimed) for answer in answers) == 1
        assert len(answers) == 6

    @pytest.mark.parametrize(
        ("changes", "reason"),
        [
            ({"job_id": "job-nobody-knows"}, "unknown_job"),
            ({"generation": 77}, "stale_generation"),
            ({"protocol": 99}, "protocol"),
        ],
    )
    def test_a_claim_that_cannot_be_granted_says_why(self, job, changes, reason):
        answer = claim(job, **changes)

        assert isinstance(answer, NotClaimed)
        assert answer.reason == reason

    def test_the_next_attempt_has_a_higher_fence_and_finds_the_trace(self, job, claimed):
        records = chain(3)
        record(job, claimed, records)
        job.take_lease_away()

        again = claim(job)

        assert isinstance(again, Claimed)
        assert (again.lease.fence, again.lease.attempt) == (2, 2)
        assert (again.trace_events, again.trace_head) == (3, records[-1].hash)

    def test_a_settled_job_is_not_claimed_again(self, job, claimed):
        settle(job, claimed, result(job, claimed))

        assert isinstance(claim(job), NotClaimed)


class TestRecord:
    def test_records_continue_the_chain(self, job, claimed):
        first, second = chain(5)[:2], chain(5)[2:]

        assert record(job, claimed, first).events == 2
        answer = record(job, claimed, second)

        assert (answer.events, answer.head) == (5, second[-1].hash)
        assert list(read(job, claimed).records) == chain(5)

    def test_a_group_sent_again_is_taken_once(self, job, claimed):
        record(job, claimed, chain(3))

        answer = record(job, claimed, chain(3))

        assert answer.events == 3

    def test_no_records_change_nothing(self, job, claimed):
        record(job, claimed, chain(2))

        assert record(job, claimed, []).events == 2

    @pytest.mark.parametrize(
        "spoiled",
        [
            lambda good: chain(1, seq=3, prev=good[-1].hash),
            lambda good: chain(1, seq=2, prev="1" * 64),
            lambda good: [chain(3)[2].model_copy(update={"hash": "1" * 64})],
            lambda good: [chain(3)[2].model_copy(update={"at_ms": 99})],
            lambda good: [
                chain(3)[2].model_copy(update={"event": {"kind": "no_progress", "detail": "other"}})
            ],
            lambda good: [chain(4)[3], chain(4)[2]],
            lambda good: chain(2, seq=1, prev="1" * 64),
            lambda good: [link(NoProgress(iteration=9, detail="else"), seq=1, at_ms=0, prev=good[0].hash)],
        ],
        ids=["gap", "prev", "hash", "time", "event", "order", "other branch", "rewrite"],
    )
    def test_records_that_do_not_continue_the_chain_are_refused_and_nothing_is_kept(
        self, job, claimed, spoiled
    ):
        good = chain(2)
        record(job, claimed, good)

        with pytest.raises(ChainRefused):
            record(job, claimed, spoiled(good))

        assert list(read(job, claimed).records) == good

    def test_a_group_with_one_bad_record_is_refused_whole(self, job, claimed):
        records = chain(4)
        records[3] = records[3].model_copy(update={"hash": "1" * 64})

        with pytest.raises(ChainRefused):
            record(job, claimed, records)

        assert read(job, claimed).records == ()

    @pytest.mark.requirement("LESSON-6")
    def test_a_stale_fence_writes_nothing(self, job, claimed):
        record(job, claimed, chain(1))
        job.take_lease_away()
        again = claim(job)

        with pytest.raises(LeaseLost):
            record(job, claimed, chain(1, seq=1, prev=chain(1)[-1].hash))

        assert len(read(job, again).records) == 1

    def test_a_fence_of_the_future_writes_nothing(self, job, claimed):
        with pytest.raises(LeaseLost):
            record(job, claimed, chain(1), fence=9)

    def test_another_jobs_trace_cannot_be_written(self, job, claimed):
        with pytest.raises(LeaseLost):
            record(job, claimed, chain(1), job_id="job-nobody-knows")


class TestReadTrace:
    def test_pages_join_to_the_whole(self, job, claimed):
        record(job, claimed, chain(7))
        found: list[TraceRecord] = []
        more = True
        while more:
            page = read(job, claimed, after=len(found), limit=3)
            found.extend(page.records)
            more = page.more

        assert found == chain(7)

    @pytest.mark.parametrize(
        ("after", "limit", "count", "more"), [(0, 7, 7, False), (0, 6, 6, True), (7, 5, 0, False)]
    )
    def test_a_page_says_whether_there_is_more(self, job, claimed, after, limit, count, more):
        record(job, claimed, chain(7))

        page = read(job, claimed, after=after, limit=limit)

        assert (len(page.records), page.more) == (count, more)

    def test_only_the_holder_of_the_lease_reads(self, job, claimed):
        job.take_lease_away()

        with pytest.raises(LeaseLost):
            read(job, claimed)


class TestOrders:
    def test_a_renewal_says_what_is_wanted(self, job, claimed):
        assert renew(job, claimed).desired == "run"

        job.steer("hurry")
        job.order("stop")

        answer = renew(job, claimed)
        assert (answer.desired, [steer.text for steer in answer.steers]) == ("stop", ["hurry"])

    @pytest.mark.requirement("LESSON-3")
    def test_a_lost_lease_is_not_renewed(self, job, claimed):
        job.take_lease_away()

        with pytest.raises(LeaseLost):
            renew(job, claimed)

    def test_steers_are_numbered_and_those_seen_are_not_sent_again(self, job, claimed):
        job.steer("one")
        first = renew(job, claimed).steers[-1].steer_id
        job.steer("two")

        assert [steer.text for steer in renew(job, claimed).steers] == ["one", "two"]
        assert [steer.text for steer in renew(job, claimed, steer_seen=first).steers] == ["two"]

    @pytest.mark.requirement("CARD-22")
    @pytest.mark.parametrize("desired", ["pause", "stop", "kill"])
    def test_an_order_ends_the_wait_at_once(self, job, claimed, desired):
        answers, waiting = [], threading.Event()

        def wait() -> None:
            waiting.set()
            answers.append((await_orders(job, claimed, timeout_ms=20_000), time.monotonic()))

        thread = threading.Thread(target=wait)
        thread.start()
        waiting.wait(5)
        job.order(desired)
        ordered = time.monotonic()
        thread.join(10)

        answer, at = answers[0]
        assert answer.desired == desired
        assert at - ordered < 2

    def test_a_steer_ends_the_wait_at_once(self, job, claimed):
        job.steer("hurry")

        answer = await_orders(job, claimed, timeout_ms=20_000)

        assert [steer.text for steer in answer.steers] == ["hurry"]

    def test_an_order_that_was_seen_is_waited_past(self, job, claimed):
        job.order("stop")

        answer = await_orders(job, claimed, seen="stop", timeout_ms=50)

        assert answer.desired == "stop"

    def test_without_orders_the_wait_ends_with_its_time(self, job, claimed):
        began = time.monotonic()

        answer = await_orders(job, claimed, timeout_ms=50)

        assert (answer.desired, answer.steers) == ("run", ())
        assert 0.04 < time.monotonic() - began < 5

    def test_a_lease_lost_while_waiting_ends_the_wait(self, job, claimed):
        errors, waiting = [], threading.Event()

        def wait() -> None:
            waiting.set()
            try:
                await_orders(job, claimed, timeout_ms=20_000)
            except LeaseLost as error:
                errors.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        waiting.wait(5)
        job.take_lease_away()
        thread.join(10)

        assert not thread.is_alive()
        assert len(errors) == 1


class TestSettle:
    def test_a_result_is_accepted_once_and_the_same_again_is_answered_the_same(self, job, claimed):
        records = chain(2)
        record(job, claimed, records)
        said = result(job, claimed, events=2, head=records[-1].hash)

        first = settle(job, claimed, said)

        assert first.accepted
        assert first.receipt_id
        assert settle(job, claimed, said) == first

    def test_another_result_afterwards_is_refused(self, job, claimed):
        settle(job, claimed, result(job, claimed))

        with pytest.raises(LeaseLost):
            settle(job, claimed, result(job, claimed, structured_output={"answer": "changed"}))

    @pytest.mark.requirement("LESSON-6")
    def test_a_stale_fence_settles_nothing(self, job, claimed):
        job.take_lease_away()
        again = claim(job)

        with pytest.raises(LeaseLost):
            settle(job, claimed, result(job, claimed))

        assert settle(job, again, result(job, again)).accepted

    @pytest.mark.parametrize(
        "changes",
        [
            {"events": 1, "head": GENESIS},
            {"events": 2, "head": "1" * 64},
            {"events": 3, "head": chain(3)[-1].hash},
            {"events": 1, "head": chain(2)[0].hash},
            {"events": 2, "head": chain(2)[-1].hash, "job_id": "job-other"},
            {"events": 2, "head": chain(2)[-1].hash, "attempt": 5},
            {"events": 2, "head": chain(2)[-1].hash, "structured_output": {"other": 1}},
        ],
        ids=["too short", "another head", "too long", "earlier", "another job", "another attempt", "schema"],
    )
    def test_a_result_that_does_not_match_its_job_and_trace_is_refused(self, job, claimed, changes):
        record(job, claimed, chain(2))

        with pytest.raises(ChainRefused):
            settle(job, claimed, result(job, claimed, **changes))

        good = result(job, claimed, events=2, head=chain(2)[-1].hash)
        assert settle(job, claimed, good).accepted

    def test_after_the_settlement_the_lease_is_over(self, job, claimed):
        settle(job, claimed, result(job, claimed))

        for act in (
            lambda: renew(job, claimed),
            lambda: record(job, claimed, chain(1)),
            lambda: read(job, claimed),
        ):
            with pytest.raises(LeaseLost):
                act()
