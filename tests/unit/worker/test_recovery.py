"""Each kind of model error has one remedy, and a wait has one length."""

from datetime import UTC, datetime, timedelta

import pytest

from rlm_worker.config import WorkerSettings
from rlm_worker.models.errors import (
    ContextTooLong,
    Malformed,
    ModelUnavailable,
    NotAuthorised,
    Overloaded,
    RateLimited,
    Refused,
    UnknownModel,
    Unreachable,
)
from rlm_worker.models.port import Message
from rlm_worker.models.resets import seconds_until_reset
from rlm_worker.recovery import parking, remedy
from rlm_worker.shortening import shorten, size

SETTINGS = WorkerSettings(retries=2, parks_in_a_row=3)
NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.requirement("LESSON-14", "N3-FAIL-11")
@pytest.mark.parametrize(
    ("error", "wanted"),
    [
        (RateLimited("m", "slow"), "park"),
        (Overloaded("m", "busy"), "fail"),
        (Overloaded("m", "failed", may_have_spent=True), "ask_again"),
        (Unreachable("m", "cut", may_have_spent=True), "ask_again"),
        (Unreachable("m", "nobody there"), "fail"),
        (ContextTooLong("m", "long"), "shorten"),
        (Refused("m", "no"), "tell"),
        (Malformed("m", "bad request"), "fail"),
        (Malformed("m", "bad answer", may_have_spent=True), "ask_again"),
        (NotAuthorised("m", "key"), "fail"),
        (UnknownModel("m", "name"), "fail"),
        (ModelUnavailable("m", "file"), "fail"),
    ],
)
def test_each_kind_of_error_has_its_remedy(error, wanted):
    assert remedy(error, tries=0, settings=SETTINGS, parks=0) == wanted


def test_a_conversation_that_can_start_anew_does_before_it_is_shortened():
    long = ContextTooLong("m", "long")

    assert remedy(long, tries=0, settings=SETTINGS, parks=0, can_roll_over=True) == "roll_over"
    assert remedy(long, tries=0, settings=SETTINGS, parks=0, can_roll_over=False) == "shorten"


def test_asking_again_is_bounded_and_garbage_is_asked_once_more():
    cut = Unreachable("m", "cut", may_have_spent=True)
    garbage = Malformed("m", "bad answer", may_have_spent=True)

    assert [remedy(cut, tries=n, settings=SETTINGS, parks=0) for n in range(4)] == [
        "ask_again",
        "ask_again",
        "fail",
        "fail",
    ]
    assert remedy(garbage, tries=1, settings=SETTINGS, parks=0) == "fail"


def test_a_job_is_not_parked_for_ever():
    assert remedy(RateLimited("m", "slow"), tries=0, settings=SETTINGS, parks=2) == "park"
    assert remedy(RateLimited("m", "slow"), tries=0, settings=SETTINGS, parks=3) == "fail"


@pytest.mark.parametrize(("told", "seconds"), [(3600.0, 3600), (0.1, 1), (None, 60)])
def test_a_parked_job_waits_as_long_as_the_provider_says(told, seconds):
    wait = parking(RateLimited("m", "slow", retry_after_seconds=told), now=NOW)

    assert (wait.reason, wait.not_before) == ("rate_limited", NOW + timedelta(seconds=seconds))


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7),
        ({"retry-after": "2.5"}, 2.5),
        ({"retry-after-ms": "250"}, 0.25),
        ({"retry-after": "Sat, 31 Jan 2026 12:02:00 GMT"}, 120),
        ({"retry-after": "Sat, 31 Jan 2026 11:00:00 GMT"}, 0),
        ({"retry-after": "7", "x-ratelimit-reset-requests": "1h"}, 7),
        ({"x-ratelimit-reset-requests": "1s", "x-ratelimit-reset-tokens": "6m0s"}, 360),
        (
            {
                "x-ratelimit-remaining-requests": "0",
                "x-ratelimit-reset-requests": "1.5s",
                "x-ratelimit-remaining-tokens": "9000",
                "x-ratelimit-reset-tokens": "6m0s",
            },
            1.5,
        ),
        ({"anthropic-ratelimit-requests-reset": "2026-01-31T12:00:30Z"}, 30),
        ({"ratelimit-reset": "12"}, 12),
        ({"x-ratelimit-reset": str(int(NOW.timestamp()) + 45)}, 45),
        ({"x-ratelimit-reset": str((int(NOW.timestamp()) + 45) * 1000)}, 45),
        ({"x-ratelimit-reset-tokens": "120ms"}, 0.12),
        ({"retry-after": "in a while"}, None),
        ({"retry-after": "99999999"}, 7 * 86_400),
        ({}, None),
    ],
)
def test_the_end_of_a_rate_limit_is_read_in_every_form_in_use(headers, seconds):
    told = seconds_until_reset(headers, now=NOW)

    assert told == (None if seconds is None else pytest.approx(seconds))


def test_the_end_of_a_rate_limit_is_read_from_an_error_body():
    body = '{"error": {"details": [{"@type": "google.rpc.RetryInfo", "retryDelay": "34.5s"}]}}'

    assert seconds_until_reset({}, body=body) == 34.5


def a_conversation(turns: int) -> list[Message]:
    said = [Message(role="system", content="rules"), Message(role="user", content="THE TASK " * 50)]
    for turn in range(turns):
        said.append(Message(role="assistant", content=f"code {turn}"))
        said.append(Message(role="user", content=f"observation {turn} " * 100))
    return said


def test_older_observations_are_left_out_and_never_the_task_the_code_or_the_latest():
    long = a_conversation(6)

    short = shorten(long, most=size(long) // 2)

    assert size(short) <= size(long) // 2
    assert short[:2] == long[:2]
    assert short[-1] == long[-1]
    assert [m for m in short if m.role == "assistant"] == [m for m in long if m.role == "assistant"]
    assert "left out" in short[3].content


def test_a_task_that_alone_is_too_long_is_never_cut():
    long = a_conversation(0)

    assert shorten(long, most=10) == long
