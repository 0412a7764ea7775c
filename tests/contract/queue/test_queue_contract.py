"""What every queue of wake-ups must do. What it need not do: deliver. Nothing depends on a message."""

import threading

import pytest
from dramatiq import Message

from rlm_worker.contracts.gateway import RUN_JOB
from rlm_worker.serving import TRACEPARENT, Manner, Serving


def wake(broker, job_id: str, **options) -> Message:
    message = Message(queue_name="q", actor_name=RUN_JOB, args=(job_id, 1), kwargs={}, options=options)
    return broker.enqueue(message)


def take(consumer, count: int = 1) -> list:
    """As many messages as there are, up to `count`."""
    found = []
    for _ in range(20):
        message = next(consumer)
        if message is not None:
            found.append(message)
        if len(found) == count:
            break
    return found


def jobs(messages) -> list[str]:
    return [message.args[0] for message in messages]


def test_wake_ups_come_in_the_order_in_which_they_were_sent(open_broker):
    sender, taker = open_broker(), open_broker()
    for job_id in ("a", "b", "c"):
        wake(sender, job_id)

    taken = take(taker.consume("q", prefetch=3, timeout=1), 3)

    assert jobs(taken) == ["a", "b", "c"]


def test_a_wake_up_goes_to_one_consumer_and_is_gone_when_it_is_acknowledged(open_broker):
    sender, first, second = open_broker(), open_broker(), open_broker()
    wake(sender, "a")
    mine, other = first.consume("q", timeout=1), second.consume("q", timeout=1)

    (taken,) = take(mine)
    assert take(other) == []
    mine.ack(taken)
    mine.ack(taken)

    assert take(mine) == take(other) == []
    assert sender.depth("q") == 0


def test_depth_counts_what_nobody_has_taken(open_broker):
    broker = open_broker()
    for job_id in ("a", "b", "c"):
        wake(broker, job_id)
    assert broker.depth("q") == 3

    take(broker.consume("q", timeout=1))

    assert broker.depth("q") == 2


def test_what_is_given_back_is_delivered_again(open_broker):
    broker = open_broker()
    wake(broker, "a")
    first, second = broker.consume("q", timeout=1), broker.consume("q", timeout=1)

    first.requeue(take(first))

    assert jobs(take(second)) == ["a"]


def test_the_same_wake_up_may_be_sent_twice(open_broker):
    broker = open_broker()
    for _ in range(2):
        wake(broker, "a")

    assert jobs(take(broker.consume("q", prefetch=2, timeout=1), 2)) == ["a", "a"]


def test_a_consumer_takes_no_more_than_it_may(open_broker):
    broker = open_broker()
    for job_id in ("a", "b", "c"):
        wake(broker, job_id)
    consumer = broker.consume("q", prefetch=2, timeout=1)

    taken = take(consumer, 3)

    assert jobs(taken) == ["a", "b"]
    consumer.ack(taken[0])
    assert jobs(take(consumer)) == ["c"]


def test_what_a_consumer_held_when_it_vanished_does_not_come_back_by_itself_soon(open_broker):
    """The dispatcher sends it again: a queue that redelivers by a clock of its own would double long jobs."""
    sender, dead, alive = open_broker(), open_broker(), open_broker()
    wake(sender, "a")
    take(dead.consume("q", timeout=1))
    dead.close()

    assert take(alive.consume("q", timeout=1)) == []
    wake(sender, "a")
    assert jobs(take(alive.consume("q", timeout=1))) == ["a"]


def test_a_wake_up_that_is_refused_for_good_blocks_nobody(open_broker):
    broker = open_broker()
    for job_id in ("bad", "good"):
        wake(broker, job_id)
    consumer = broker.consume("q", timeout=1)

    consumer.nack(take(consumer)[0])

    assert jobs(take(consumer)) == ["good"]


def test_flushing_removes_every_wake_up(open_broker):
    broker = open_broker()
    wake(broker, "a")

    broker.flush("q")

    assert take(broker.consume("q", timeout=1)) == []


class Roll:
    def __init__(self):
        self.said = []

    def register(self):
        self.said.append("register")

    def beat(self):
        return False

    def leave(self):
        self.said.append("leave")
        return 0


def test_a_worker_takes_each_wake_up_with_its_trace_context(open_broker):
    worked, done, roll = [], threading.Semaphore(0), Roll()
    broker, sender = open_broker(), open_broker()

    def run(job_id, generation):
        worked.append((job_id, generation, TRACEPARENT.get()))
        done.release()

    serving = Serving(broker, run=run, registry=roll, manner=Manner(threads=2, queue_name="q"))
    serving.start()
    try:
        for job_id in ("a", "b"):
            wake(sender, job_id, traceparent=f"trace of {job_id}")
        assert all(done.acquire(timeout=10) for _ in range(2))
    finally:
        serving.stop()
        serving.stop()

    assert sorted(worked) == [("a", 1, "trace of a"), ("b", 1, "trace of b")]
    assert roll.said == ["register", "leave", "leave"]
    assert sender.depth("q") == 0


@pytest.mark.parametrize("drain", ["finish", "hand_back"])
def test_a_worker_that_stops_finishes_or_hands_back_what_it_has(open_broker, drain):
    at_work, may_end, roll = threading.Event(), threading.Event(), Roll()
    ended_before_leaving = []

    def run(job_id, generation):
        at_work.set()
        assert may_end.wait(10)
        ended_before_leaving.append("leave" not in roll.said)

    class Telling(Roll):
        def leave(self):
            may_end.set()
            return super().leave()

    roll = Telling()
    broker = open_broker()
    manner = Manner(threads=1, queue_name="q", drain=drain)
    serving = Serving(broker, run=run, registry=roll, manner=manner)
    serving.start()
    wake(broker, "a")
    assert at_work.wait(10)
    if drain == "finish":
        threading.Timer(0.05, may_end.set).start()

    serving.stop(timeout=10)

    assert ended_before_leaving == [drain == "finish"]


def test_no_queue_brings_retries_limits_or_results_of_its_own(open_broker):
    assert open_broker().middleware == []
