"""One owner of retries: which errors are asked again, when, and for how long."""

import asyncio

import pytest

from rlm_worker import asking
from rlm_worker.asking import Models
from rlm_worker.config import WorkerSettings
from rlm_worker.models import Completion
from rlm_worker.models.errors import (
    ContextTooLong,
    Malformed,
    NotAuthorised,
    Overloaded,
    RateLimited,
    Unreachable,
)
from rlm_worker.models.port import TokenUsage

DONE = Completion(
    text="x",
    value=None,
    probability=None,
    usage=TokenUsage(input_tokens=1, output_tokens=1),
    cost_usd=None,
    model="m",
    finish_reason="stop",
    raw=None,
)


class Scripted:
    """Raises or returns what it is given, in turn; a number is time that passes first."""

    name = "m"

    def __init__(self, *replies: object) -> None:
        self.replies = list(replies)
        self.asked = 0
        self.timeouts: list[float] = []

    async def complete(self, messages, *, schema=None, max_output_tokens, timeout_seconds, sampling):
        self.asked += 1
        self.timeouts.append(timeout_seconds)
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply


@pytest.fixture
def clock(monkeypatch):
    """Time that passes only while somebody sleeps."""
    slept: list[float] = []

    class Loop:
        now = 1000.0

        def time(self) -> float:
            return self.now

    loop = Loop()

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        loop.now += seconds

    class Asyncio:
        get_running_loop = staticmethod(lambda: loop)

    Asyncio.sleep = staticmethod(sleep)
    Asyncio.loop, Asyncio.slept = loop, slept
    monkeypatch.setattr(asking, "asyncio", Asyncio)
    return Asyncio


def ask(model: Scripted, *, seconds: float = 60.0, retries: int = 3):
    models = Models(WorkerSettings(retries=retries, retry_seconds=1.0))
    return asyncio.run(models.ask(model, [], schema=None, max_output_tokens=9, seconds=seconds))


@pytest.mark.parametrize(
    "error", [Overloaded("m", "busy"), Unreachable("m", "gone"), RateLimited("m", "slow")]
)
def test_what_may_pass_is_asked_again(clock, error):
    model = Scripted(error, error, DONE)

    assert ask(model).requests == 3
    assert 0.75 <= clock.slept[0] <= 1.25
    assert 1.5 <= clock.slept[1] <= 2.5


def test_a_provider_that_names_a_pause_gets_it(clock):
    ask(Scripted(RateLimited("m", "slow", retry_after_seconds=7.5), DONE))

    assert clock.slept == [7.5]


@pytest.mark.parametrize("error", [ContextTooLong("m", "x"), Malformed("m", "x"), NotAuthorised("m", "x")])
def test_what_will_fail_again_is_not_asked_again(clock, error):
    model = Scripted(error, DONE)

    with pytest.raises(type(error)):
        ask(model)

    assert model.asked == 1


def test_a_request_that_may_have_been_answered_is_not_sent_twice(clock):
    model = Scripted(Unreachable("m", "cut", may_have_spent=True), DONE)

    with pytest.raises(Unreachable):
        ask(model)

    assert model.asked == 1


def test_retries_are_bounded(clock):
    model = Scripted(*[Overloaded("m", "busy")] * 10)

    with pytest.raises(Overloaded):
        ask(model, retries=2)

    assert model.asked == 3


def test_a_pause_that_the_job_has_no_time_for_is_not_made(clock):
    model = Scripted(RateLimited("m", "slow", retry_after_seconds=100), DONE)

    with pytest.raises(RateLimited):
        ask(model, seconds=60)

    assert clock.slept == []


def test_time_that_the_failed_request_took_counts(clock):
    class Slow(Scripted):
        async def complete(self, messages, **kwargs):
            clock.loop.now += 9.9
            return await super().complete(messages, **kwargs)

    model = Slow(RateLimited("m", "slow", retry_after_seconds=1), DONE)

    with pytest.raises(RateLimited):
        ask(model, seconds=10)

    assert clock.slept == []


def test_no_request_may_last_longer_than_the_job(clock):
    model = Scripted(RateLimited("m", "slow", retry_after_seconds=4), DONE)

    ask(model, seconds=10)

    assert model.timeouts == [10.0, 6.0]


def test_a_model_is_connected_once():
    models = Models(WorkerSettings())

    assert models.get("http://127.0.0.1:9/v1#m") is models.get("http://127.0.0.1:9/v1#m")
