"""What a job asks of its sandbox is given or refused, never left out; what the worker knows stays with it."""

import pytest

from rlm_worker import redaction
from rlm_worker.contracts.job import ArtifactPolicy, RecordingDriver, SandboxPolicy
from tests.builders import a_spec
from tests.engine import run_job

BOOK = "# %%\nSUBMIT(answer='x')\n"


@pytest.mark.requirement("N3-FAIL-1", "N3-FAIL-3")
def test_a_backend_that_is_not_there_fails_the_job_and_no_other_takes_its_place(monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "unix:///no/such/engine.sock")

    ran = run_job(a_spec(playbook=BOOK, sandbox_policy=SandboxPolicy(backend="docker")))

    assert (ran.result.status, ran.result.failure_class) == ("failed", "backend_unavailable")
    assert ran.of("sandbox_opened") == []


@pytest.mark.requirement("N3-FAIL-1")
def test_a_policy_that_contradicts_itself_is_refused():
    ran = run_job(a_spec(playbook=BOOK, sandbox_policy=SandboxPolicy(backend="landlock")))

    assert (ran.result.status, ran.result.failure_class) == ("failed", "invalid_request")
    assert "strict" in ran.result.model_dump_json()


@pytest.mark.requirement("N3-FAIL-1", "N3-FAIL-5", "N3-PLAN-3")
@pytest.mark.parametrize(
    ("asked", "failure"),
    [
        ({"allowed_tools": ("search",)}, "tool_policy_denied"),
        ({"artifact_policy": ArtifactPolicy(collect=("*.csv",))}, "invalid_request"),
        ({"driver": RecordingDriver(job_id="other")}, "invalid_request"),
    ],
)
def test_what_cannot_be_had_is_refused_and_not_left_out(asked, failure):
    ran = run_job(a_spec(playbook=BOOK, **asked))

    assert (ran.result.status, ran.result.failure_class) == ("failed", failure)
    assert ran.of("cell_proposed") == []


@pytest.mark.requirement("N3-FAIL-11")
def test_no_secret_of_the_worker_is_in_the_trace_or_the_result(monkeypatch):
    secret = "sk-planted-0123456789"
    monkeypatch.setenv("OPENAI_API_KEY", secret)
    redaction._secrets.cache_clear()
    redaction._encoded.cache_clear()
    try:
        book = f"# %%\nprint('{secret}')\nnote('x', '{secret}')\n# %%\nSUBMIT(answer='{secret}')\n"
        ran = run_job(a_spec(playbook=book))
    finally:
        redaction._secrets.cache_clear()
        redaction._encoded.cache_clear()

    assert ran.result.status == "succeeded"
    assert secret not in ran.result.model_dump_json()
    assert not any(secret in record.model_dump_json() for record in ran.gateway.records)


@pytest.mark.requirement("N3-SEC-4", "N3-SEC-2")
def test_no_package_can_be_installed_from_a_cell():
    book = """# %%
import importlib.util, subprocess, sys
for command in (["pip", "install", "six"], [sys.executable, "-m", "pip", "install", "six"]):
    try:
        print(subprocess.run(command).returncode)
    except Exception as error:
        print(type(error).__name__)
print(importlib.util.find_spec("pip"))
SUBMIT(answer='x')
"""
    ran = run_job(a_spec(playbook=book))

    *tried, found = ran.of("cell_finished")[0].stdout.split()
    assert len(tried) == 2
    assert "0" not in tried
    assert found == "None"
