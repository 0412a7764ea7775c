"""What looks like a secret is kept out of every kind of event, and what only resembles one is left alone."""

from typing import Any

import pytest
from pydantic import TypeAdapter

from rlm_worker.contracts.trace import EVENT_KINDS, TraceEvent
from rlm_worker.redaction import redact, redact_json, redact_text
from tests.contract.wire.values import EVENTS

_EVENT: TypeAdapter[TraceEvent] = TypeAdapter(TraceEvent)
#: Made up for these tests, each in pieces, so that no scanner takes this file for a leak.
_END = "PRIVATE KEY-----"
_PEM = f"-----BEGIN RSA {_END}\nMIIEpAIBAAKCAQEA7\nxyz\n-----END RSA {_END}"
SECRETS = {
    "provider key": "sk-" + "ant-api03-" + "A1b2C3d4E5f6G7h8I9j0K1l2",
    "project key": "sk-" + "proj-" + "Zz9" * 12,
    "google key": "AIza" + "Sy" + "A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q",
    "groq key": "gsk_" + "A1b2C3d4E5" * 4,
    "hub token": "hf_" + "AbCdEfGhIj" * 4,
    "cloud key": "AKIA" + "IOSFODNN7EXAMPL9",
    "forge token": "ghp_" + "a1B2c3D4e5F6" * 3,
    "chat token": "xoxb-" + "123456789012-abcdefABCDEF",
    "signed token": "eyJhbGciOiJIUzI1" + "." + "eyJzdWIiOiIxMjM0" + "." + "c2lnbmF0dXJl",
    "bearer": "Authorization: Bearer " + "a1b2c3d4e5f6g7h8i9",
    "basic": "Authorization: Basic " + "dXNlcjpwYXNzMTIzNDU2",
    "address": "postgres://ada:" + "s3cret-pa55" + "@db.example/evidence",
    "environment": "export DB_PASSWORD=" + "hunter2hunter2",
    "private key": _PEM,
}
#: The part that must not be seen.
HIDDEN = {
    name: text.rsplit(" ", 1)[-1] if name in ("bearer", "basic") else text for name, text in SECRETS.items()
} | {"address": "s3cret-pa55", "environment": "hunter2hunter2", "private key": "MIIEpAIBAAKCAQEA7"}


def planted(part: Any, secret: str) -> Any:
    """The same value with the secret behind every text in it that may hold any text."""
    if isinstance(part, dict):
        return {name: planted(item, secret) for name, item in part.items()}
    if isinstance(part, list):
        return [planted(item, secret) for item in part]
    return f"{part} {secret}\nand more" if isinstance(part, str) else part


def with_secret(event: TraceEvent, secret: str) -> list[TraceEvent]:
    """The event once for each of its fields that takes the secret."""
    body = event.model_dump(mode="json")
    made = []
    for name in body:
        if name == "kind":
            continue
        try:
            changed = _EVENT.validate_python({**body, name: planted(body[name], secret)})
        except ValueError:
            continue  # a number, a digest, one of a few words
        if changed != event:
            made.append(changed)
    return made


@pytest.mark.requirement("N3-PLAN-7")
@pytest.mark.parametrize("name", sorted(SECRETS))
@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.kind)
def test_a_secret_in_any_field_of_any_event_is_not_written(event, name):
    for changed in with_secret(event, SECRETS[name]):
        body = redact(changed).model_dump_json()

        assert HIDDEN[name] not in body
        assert "[redacted]" in body


def test_every_kind_of_event_is_tried_and_all_that_hold_free_text_take_a_secret():
    taking = {event.kind for event in EVENTS if with_secret(event, "x" * 20)}

    assert {event.kind for event in EVENTS} == set(EVENT_KINDS)
    assert set(EVENT_KINDS) - taking <= {"clock_read", "stop_verified"}


def test_what_stands_around_a_secret_stays():
    assert redact_text(f"before {SECRETS['provider key']} after") == "before [redacted] after"
    assert redact_text(SECRETS["address"]) == "postgres://ada:[redacted]@db.example/evidence"
    assert redact_text(SECRETS["bearer"]) == "Authorization: Bearer [redacted]"
    assert redact_text(SECRETS["environment"]) == "export DB_PASSWORD=[redacted]"


@pytest.mark.parametrize(
    "text",
    [
        "the bearer responsibilities are basic characteristics",
        "api_key = get_key(name)\ntoken = tokens[0]\npassword = getpass()",
        "KEY=value TOKEN=$TOKEN SECRET=secret",
        "see http://127.0.0.1:8080/v1#model and mail ada@example.org at 10:30",
        "class sk-learn: risk-free task-oriented desk-12345",
        "0123456789abcdef" * 4,
        "@dataclass\nclass A: pass  # f(x) @ g",
    ],
)
def test_ordinary_text_is_left_as_it_is(text):
    assert redact_text(text) == text


def test_redacting_twice_changes_nothing_more():
    once = redact_json({"a": list(SECRETS.values())})

    assert redact_json(once) == once


def test_an_event_without_a_secret_is_the_same_object():
    for event in EVENTS:
        assert redact(event) is event
