"""The record: in order, many at a time, and never past a gap."""

import asyncio
import threading

import pytest

from rlm_worker.contracts.gateway import ChainRefused, ClaimRequest, GatewayDown, LeaseLost, RecordAnswer
from rlm_worker.contracts.trace import GENESIS, DraftRecorded, check_link
from rlm_worker.errors import LostAuthority
from rlm_worker.trace import TraceWriter
from tests.builders import a_spec
from tests.memory_gateway import MemoryGateway


class Recorder:
    """Keeps what it is sent; the first request waits at the gate, and a failure may be planted."""

    def __init__(self, *, fails_with: Exception | None = None) -> None:
        self.groups: list[tuple] = []
        self.gate = threading.Event()
        self.gate.set()
        self.fails_with = fails_with

    @property
    def records(self) -> list:
        return [record for group in self.groups for record in group]

    def record(self, request) -> RecordAnswer:
        self.gate.wait(10)
        if self.fails_with is not None:
            raise self.fails_with
        self.groups.append(request.records)
        return RecordAnswer(events=len(self.records), head=self.records[-1].hash)


def draft(number: int) -> DraftRecorded:
    return DraftRecorded(iteration=1, fields={"n": number})


def a_writer(recorder, observe=lambda _: None) -> TraceWriter:
    return TraceWriter(recorder, job_id="job-1", fence=1, events=0, head=GENESIS, observe=observe)


def numbers(recorder: Recorder) -> list[int]:
    return [record.event["fields"]["n"] for record in recorder.records]


def test_events_are_recorded_in_the_order_they_were_added_and_the_chain_holds():
    recorder = Recorder()

    async def write() -> None:
        writer = a_writer(recorder)
        await asyncio.gather(*(writer.write(draft(2 * n), draft(2 * n + 1)) for n in range(50)))
        await writer.close()

    asyncio.run(write())

    assert numbers(recorder) == list(range(100))
    head = GENESIS
    for seq, record in enumerate(recorder.records):
        check_link(record, seq=seq, prev=head)
        head = record.hash


def test_many_writes_share_few_requests():
    recorder = Recorder()
    recorder.gate.clear()

    async def write() -> None:
        writer = a_writer(recorder)
        first = asyncio.create_task(writer.write(draft(0)))
        await asyncio.sleep(0)
        others = [asyncio.create_task(writer.write(draft(n))) for n in range(1, 400)]
        await asyncio.sleep(0)
        recorder.gate.set()
        await asyncio.gather(first, *others)
        await writer.close()

    asyncio.run(write())

    assert numbers(recorder) == list(range(400))
    assert len(recorder.groups) <= 3


def test_a_write_returns_only_when_its_events_are_durable():
    recorder = Recorder()
    recorder.gate.clear()

    async def write() -> None:
        writer = a_writer(recorder)
        writing = asyncio.create_task(writer.write(draft(1)))
        await asyncio.sleep(0.01)
        assert not writing.done()
        recorder.gate.set()
        await writing
        assert numbers(recorder) == [1]
        await writer.close()

    asyncio.run(write())


def test_a_write_without_events_waits_for_all_that_was_added_before():
    recorder = Recorder()

    async def write() -> None:
        writer = a_writer(recorder)
        for number in range(1_200):
            writer.add_later(draft(number))
        await writer.write()
        assert len(recorder.records) == 1_200
        await writer.close()

    asyncio.run(write())


def test_what_nobody_waits_for_is_durable_when_the_writer_is_closed():
    recorder = Recorder()

    async def write() -> None:
        writer = a_writer(recorder)
        writer.add_later(draft(1))
        await writer.close()

    asyncio.run(write())

    assert numbers(recorder) == [1]


def test_the_reference_stands_for_what_is_durable():
    recorder = Recorder()

    async def write():
        writer = a_writer(recorder)
        await writer.write(draft(1), draft(2))
        await writer.close()
        return writer.ref

    ref = asyncio.run(write())

    assert (ref.events, ref.head) == (2, recorder.records[-1].hash)


def test_events_are_observed_once_in_order_and_only_when_durable():
    seen: list[int] = []
    recorder = Recorder()
    recorder.gate.clear()

    async def write() -> None:
        writer = a_writer(recorder, lambda event: seen.append(event.fields["n"]))
        writing = asyncio.create_task(writer.write(*map(draft, range(600))))
        await asyncio.sleep(0.01)
        assert seen == []
        recorder.gate.set()
        await writing
        await writer.close()

    asyncio.run(write())

    assert seen == list(range(600))


@pytest.mark.requirement("LESSON-6")
@pytest.mark.parametrize(
    "failure",
    [
        LeaseLost("stale"),
        ChainRefused("gap"),
        GatewayDown("gone"),
        ValueError("a defect"),
        OSError(5, "disk"),
    ],
    ids=lambda failure: type(failure).__name__,
)
def test_a_failure_fails_every_waiter_and_every_later_write(failure):
    recorder = Recorder(fails_with=failure)
    recorder.gate.clear()

    async def write() -> None:
        writer = a_writer(recorder)
        writing = [asyncio.create_task(writer.write(draft(n))) for n in range(5)]
        await asyncio.sleep(0)
        writing.append(asyncio.create_task(writer.write()))
        recorder.gate.set()
        failed = await asyncio.gather(*writing, return_exceptions=True)
        assert [type(error) for error in failed] == [LostAuthority] * 6
        recorder.fails_with = None
        with pytest.raises(LostAuthority, match="job-1"):
            await writer.write(draft(9))
        writer.add_later(draft(10))
        await writer.close()

    asyncio.run(asyncio.wait_for(write(), 10))

    assert recorder.groups == []


def test_a_cancelled_writer_of_one_event_does_not_take_it_back():
    recorder = Recorder()
    recorder.gate.clear()

    async def write() -> None:
        writer = a_writer(recorder)
        writing = asyncio.create_task(writer.write(draft(1)))
        await asyncio.sleep(0)
        writing.cancel()
        recorder.gate.set()
        await writer.write(draft(2))
        await writer.close()

    asyncio.run(write())

    assert numbers(recorder) == [1, 2]


def test_a_writer_goes_on_where_an_earlier_attempt_ended():
    gateway = MemoryGateway(a_spec())

    async def write(number: int) -> None:
        claimed = gateway.claim(ClaimRequest(worker_id="w", job_id="job-1", generation=0))
        writer = TraceWriter(
            gateway,
            job_id="job-1",
            fence=claimed.lease.fence,
            events=claimed.trace_events,
            head=claimed.trace_head,
        )
        await writer.write(draft(number))
        await writer.close()
        gateway.expire()

    asyncio.run(write(1))
    asyncio.run(write(2))

    assert [record.event["fields"]["n"] for record in gateway.records] == [1, 2]
