"""The shipped suite over every backend that this machine offers; one that it does not offer is skipped with the reason."""

import asyncio
import os
import subprocess
import sys

import pytest

from sandbox import Policy, SandboxError
from sandbox.conformance import CASES, Stand, stand_for, try_case
from tests.ordinary_user import PROJECT, run_as_user

IS_ROOT = os.geteuid() == 0
POLICIES = {
    "namespaces": Policy(),
    "namespaces-strict": Policy(language="strict"),
    "runc": Policy(backend="docker", runtime="runc"),
    "runsc": Policy(backend="docker", runtime="runsc"),
    "landlock": Policy(backend="landlock", language="strict"),
}
MARKS = dict.fromkeys(("runc", "runsc"), pytest.mark.docker)
_stands: dict[str, Stand | str] = {}


def stand_of(name: str) -> Stand:
    """The stand of a backend, found out once; without one, skip and say why."""
    if name not in _stands:
        try:
            _stands[name] = asyncio.run(stand_for(POLICIES[name]))
        except SandboxError as error:
            _stands[name] = str(error)
    found = _stands[name]
    return found if isinstance(found, Stand) else pytest.skip(f"no {name} here: {found}")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("backend", [pytest.param(name, marks=MARKS.get(name, ())) for name in POLICIES])
@pytest.mark.requirement("S3-BOUND-19", "N3-SEC-1", "N3-SEC-2", "N3-SEC-3", "N3-PLAN-1", "LESSON-29")
def test_a_backend_holds_what_it_claims(backend, case):
    result = asyncio.run(try_case(case, stand_of(backend)))

    if result.verdict == "not claimed":
        pytest.skip(f"{backend} does not claim it: {result.reason}")
    assert result.is_good, f"{case.proves}\n{result.reason}"


@pytest.mark.skipif(not IS_ROOT, reason="an ordinary user has neither uids to give nor control groups")
def test_namespaces_as_root_claim_every_case():
    stand = stand_of("namespaces")

    assert [case.name for case in CASES if not case.needs <= stand.claims] == []


def test_every_case_says_what_it_proves_and_has_a_name_of_its_own():
    assert len({case.name for case in CASES}) == len(CASES) >= 60
    assert [case.name for case in CASES if not case.proves.endswith(".")] == []


@pytest.mark.skipif(not IS_ROOT, reason="already an ordinary user: every other test shows it")
@pytest.mark.parametrize("backend", ["namespaces", "landlock"])
def test_an_ordinary_user_gets_what_is_claimed(backend):
    done = run_as_user("-m", "sandbox.conformance", "--backend", backend, seconds=110)

    if done.returncode == 2 and "cannot be tried" in done.stdout:
        pytest.skip(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " holds" in done.stdout.splitlines()[-1]


def test_the_command_says_what_failed_by_its_exit_status():
    ran = [sys.executable, "-m", "sandbox.conformance", "--only"]
    good = subprocess.run(
        [*ran, "closing-*"], capture_output=True, text=True, timeout=60, check=False, cwd=PROJECT
    )
    none = subprocess.run(
        [*ran, "no-such-*"], capture_output=True, text=True, timeout=60, check=False, cwd=PROJECT
    )

    assert good.returncode == 0, good.stdout
    assert "closing-is-quick" in good.stdout
    assert none.returncode == 1
