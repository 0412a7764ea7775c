"""What a job leaves in its workspace: what was asked for is kept by content, told in the trace and named in the result."""

import hashlib

import pytest

from rlm_worker.contracts.job import ArtifactPolicy, Budget, SandboxPolicy
from tests.builders import a_spec
from tests.engine import Ran, attempt, run_job
from tests.memory_gateway import MemoryGateway

MAKE = """# %%
(workspace / 'out').mkdir()
(workspace / 'out' / 'a.csv').write_text('1,2')
(workspace / 'notes.txt').write_text('not asked for')
import os
os.symlink('/etc/passwd', workspace / 'out' / 'b.csv')
"""


def a_job(code: str, *collect: str, **fields):
    policy = ArtifactPolicy(collect=collect or ("out/*.csv",), **fields.pop("policy", {}))
    return a_spec(playbook=code, artifact_policy=policy, **fields)


@pytest.mark.requirement("N3-SPEC-14", "N3-RESULT-4", "N3-RESULT-9", "N3-SEC-5")
def test_what_was_asked_for_is_kept_by_content_and_the_rest_is_not(tmp_path):
    ran = run_job(a_job(f"{MAKE}SUBMIT(answer='x')\n"), artifacts=tmp_path / "kept")

    (ref,) = ran.result.artifact_refs
    digest = hashlib.sha256(b"1,2").hexdigest()
    assert (ref.path, ref.digest, ref.size_bytes) == ("out/a.csv", digest, 3)
    assert [path.name for path in (tmp_path / "kept").iterdir()] == [digest]
    assert (tmp_path / "kept" / digest).read_bytes() == b"1,2"
    (event,) = ran.of("artifacts_collected")
    assert event.artifacts == (ref,)
    assert event.skipped == ("out/b.csv: it is a link",)
    assert ran.result.status == "succeeded"
    assert "1 files were not collected" in ran.result.message


@pytest.mark.parametrize(
    ("code", "policy"),
    [
        ("# %%\n1 / 0\n", SandboxPolicy()),
        ("# %%\nwhile True: pass\n# %%\n1 / 0\n", SandboxPolicy(cell_seconds=0.5)),
    ],
    ids=["an error", "a deadline"],
)
def test_a_job_that_fails_still_gives_its_files(tmp_path, code, policy):
    ran = run_job(a_job(f"{MAKE}{code}", sandbox_policy=policy), artifacts=tmp_path)

    assert ran.result.status == "failed"
    assert [ref.path for ref in ran.result.artifact_refs] == ["out/a.csv"]


def test_a_job_that_runs_out_of_time_still_gives_its_files(tmp_path):
    ran = run_job(
        a_job(f"{MAKE}# %%\nwhile True: pass\n", budget=Budget(max_wall_time_ms=1_500)), artifacts=tmp_path
    )

    assert ran.result.limit == "wall_time"
    assert [ref.path for ref in ran.result.artifact_refs] == ["out/a.csv"]


def test_a_sandbox_that_died_in_its_last_cell_says_what_became_of_its_files(tmp_path):
    ran = run_job(a_job(f"{MAKE}# %%\nimport os\nos._exit(1)\n"), artifacts=tmp_path)

    assert ran.result.status == "failed"
    collected = ran.of("artifacts_collected")
    assert collected or "artifacts were not collected" in ran.result.message


@pytest.mark.requirement("N3-SEC-5")
def test_limits_of_the_policy_hold(tmp_path):
    code = (
        "# %%\nfor n in range(9):\n    (workspace / f'{n}.bin').write_bytes(b'x' * 100)\nSUBMIT(answer='x')\n"
    )

    few = run_job(a_job(code, "*.bin", policy={"max_files": 2}), artifacts=tmp_path)
    small = run_job(a_job(code, "*.bin", policy={"max_bytes": 350}), artifacts=tmp_path)

    assert len(few.result.artifact_refs) == 2
    assert len(small.result.artifact_refs) == 3
    assert few.of("artifacts_collected")[0].skipped_total == 7


@pytest.mark.requirement("N3-SEC-5")
def test_without_a_pattern_nothing_is_collected(tmp_path):
    ran = run_job(a_spec(playbook=f"{MAKE}SUBMIT(answer='x')\n"), artifacts=tmp_path)

    assert ran.result.artifact_refs == ()
    assert ran.of("artifacts_collected") == []
    assert list(tmp_path.iterdir()) == []


def test_an_attempt_that_died_after_its_submit_says_that_the_files_are_gone(tmp_path):
    gateway = MemoryGateway(a_job(f"{MAKE}SUBMIT(answer='x')\n"))
    attempt(gateway, artifacts=tmp_path)
    cut = next(i for i, record in enumerate(gateway.records) if record.kind == "submit_accepted")
    again = MemoryGateway(gateway.spec)
    again.records = gateway.records[: cut + 1]

    attempt(again, artifacts=tmp_path)

    ran = Ran(again)
    assert ran.output == {"answer": "x"}
    assert "artifacts were not collected" in ran.result.message


@pytest.mark.parametrize("pattern", ["/etc/*", "../*", ""])
def test_a_pattern_that_leads_out_of_the_workspace_fails_the_job(tmp_path, pattern):
    ran = run_job(a_job("# %%\nSUBMIT(answer='x')\n", pattern), artifacts=tmp_path)

    assert (ran.result.status, ran.result.failure_class) == ("failed", "invalid_request")
