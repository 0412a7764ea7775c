"""The worker's own secrets never reach the gateway, whatever a cell, a model or an operator does with them."""

import asyncio
import os

import pytest

from rlm_worker import redaction
from rlm_worker.contracts.gateway import ClaimRequest
from rlm_worker.contracts.result import JobResult, TraceRef
from rlm_worker.contracts.trace import (
    GENESIS,
    CellFinished,
    DraftRecorded,
    Hold,
    ModelAnswered,
    Spend,
    StopObserved,
    SubcallFinished,
    SubcallStarted,
)
from rlm_worker.redaction import redact
from rlm_worker.trace import TraceWriter
from tests.builders import a_spec
from tests.memory_gateway import MemoryGateway

PLAIN = "sk-planted-0123456789"
ODD = 'line one\n"quoted"\\ \tand é'


@pytest.fixture
def planted(monkeypatch):
    """An environment with secrets, as a worker finds it when it starts."""
    for name in ("OPENAI_API_KEY", "HF_TOKEN", "DB_PASSWORD", "SIGNING_KEY"):
        monkeypatch.setenv(name, PLAIN)
    monkeypatch.setenv("TLS_PRIVATE_KEY", ODD)
    monkeypatch.setenv("SHORT_TOKEN", "abc")
    monkeypatch.setenv("HARMLESS", "an ordinary sentence")
    forget()
    yield
    forget()


def forget() -> None:
    redaction._secrets.cache_clear()
    redaction._encoded.cache_clear()


def a_cell(**said) -> CellFinished:
    given = {
        "iteration": 1,
        "outcome": "ok",
        "stdout": "",
        "stderr": "",
        "stdout_bytes": 0,
        "stderr_bytes": 0,
    }
    return CellFinished.model_validate({**given, "digest": "0" * 64, **said})


KEY = "1" * 64


def events_that_hold(secret: str):
    yield a_cell(stdout=f"it is {secret}!", stderr=secret, error_message=secret, traceback=secret)
    yield SubcallStarted(
        iteration=1,
        ordinal=1,
        key=KEY,
        model="m",
        signature="t -> n: int",
        inputs={"t": [secret, {"deep": secret, secret: 1}]},
        instructions=secret,
        hold=Hold(),
    )
    yield SubcallFinished(
        iteration=1, ordinal=1, key=KEY, model="m", ok=True, value={"n": f"x{secret}y"}, spend=Spend()
    )
    yield ModelAnswered(iteration=1, ordinal=2, model="m", text=f"```python\n{secret}\n```", spend=Spend())
    yield DraftRecorded(iteration=1, fields={"answer": secret})
    yield StopObserved(order="stop", detail=secret)


@pytest.mark.requirement("N3-FAIL-11")
@pytest.mark.parametrize("secret", [PLAIN, ODD], ids=["plain", "quotes and line ends"])
def test_a_planted_secret_never_reaches_the_gateway_through_the_writer(planted, secret):
    gateway = MemoryGateway(a_spec())
    fence = gateway.claim(ClaimRequest(worker_id="w", job_id="job-1", generation=0)).lease.fence

    async def write() -> None:
        writer = TraceWriter(gateway, job_id="job-1", fence=fence, events=0, head=GENESIS)
        await writer.write(*events_that_hold(secret))
        await writer.close()

    asyncio.run(write())

    assert len(gateway.records) == 6
    assert not any(secret in text for record in gateway.records for text in _strings(record.event))
    assert all("[redacted]" in str(record.event) for record in gateway.records)


def _strings(value: object) -> list[str]:
    if isinstance(value, dict):
        return [text for pair in value.items() for part in pair for text in _strings(part)]
    if isinstance(value, list):
        return [text for part in value for text in _strings(part)]
    return [value] if isinstance(value, str) else []


def test_a_result_can_be_cleaned_too(planted):
    result = JobResult(
        job_id="j",
        attempt=1,
        status="succeeded",
        structured_output={"answer": PLAIN},
        answered_by="submit",
        trace_ref=TraceRef(job_id="j", events=0, head=GENESIS),
        stdout_summary=f"key {PLAIN}",
    )

    clean = redact(result)

    assert PLAIN not in clean.model_dump_json()
    assert clean.trace_ref == result.trace_ref


def test_what_holds_no_secret_stays_the_same_value(planted):
    event = a_cell(stdout="an ordinary sentence with abc")

    assert redact(event) is event


def test_a_secret_that_is_also_a_word_of_the_contract_does_not_break_it(planted, monkeypatch):
    monkeypatch.setenv("ODD_TOKEN", "stop_observed")
    forget()

    assert redact(StopObserved(order="stop", detail="stop_observed")).detail == "[redacted]"


def test_without_secrets_nothing_is_looked_at(monkeypatch):
    for name in list(os.environ):
        monkeypatch.delenv(name)
    forget()
    event = a_cell(stdout=PLAIN)

    assert redact(event) is event
    forget()


@pytest.mark.requirement("N3-FAIL-11", "N3-PLAN-7")
@pytest.mark.parametrize(
    "secret",
    [
        "sk_live_" + "4eC39HqLyjWDarjtT1zdp7dc",
        "rk_test_" + "4eC39HqLyjWDarjtT1zdp7dc",
        "npm_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8",
        "pypi-" + "AgEIcHlwaS5vcmcCJDNhYjQ5" * 3,
        "dop_v1_" + "0a1b2c3d" * 8,
        "SG." + "ngeVfQFYQlKU0ufo8x5d1A" + "." + "TwL2iGABf9DHoTf09kqeF8tAmbihYzrnopKc1s5cr",
        "xapp-" + "1-A0123456789-0123456789-abcdef",
        "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    ],
)
def test_keys_of_services_are_known_by_their_shape(secret):
    line = f"aws_secret_access_key = {secret}" if secret.startswith("wJ") else f"found {secret} there"

    assert secret not in redact(a_cell(stdout=line)).stdout


@pytest.mark.parametrize(
    "text", ["npm_config_registry", "sk_live_demo", "SG.1.2", "the secret_access_key is unset"]
)
def test_words_that_only_begin_like_a_key_stay(text):
    assert redact(a_cell(stdout=text)).stdout == text
