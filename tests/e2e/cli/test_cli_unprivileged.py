"""What a person without the needed rights is told: one paragraph, a non-zero exit, nothing left behind."""

import shutil
import subprocess
import sys

import pytest

from tests.e2e.cli.custody import Custody, Done, environment

#: A user namespace in which root holds no capability: no mounts, no namespaces, no reading past a file's mode.
WITHOUT_RIGHTS = ("unshare", "-Ur", "setpriv", "--bounding-set=-all", "--inh-caps=-all")


@pytest.fixture(autouse=True)
def _tools():
    if not all(map(shutil.which, ("unshare", "setpriv"))):
        pytest.skip("unshare and setpriv are needed to take rights away")
    if subprocess.run([*WITHOUT_RIGHTS, "true"], capture_output=True, check=False).returncode:
        pytest.skip("user namespaces are not permitted here")


def powerless(custody: Custody, *words: str) -> Done:
    (custody.folder / "book.py").write_text("# %%\nSUBMIT(answer='x')\n")
    done = subprocess.run(
        [*WITHOUT_RIGHTS, sys.executable, "-m", "controlplane.cli.main", *words],
        cwd=custody.folder,
        env=environment() | {"CUSTODY_HOME": str(custody.home)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def test_without_the_right_to_namespaces_nothing_is_started(custody: Custody):
    done = powerless(custody, "run", "q", "--playbook", "book.py", "--output", "answer: str")

    assert done.code == 2
    assert "cannot be contained" in done.err
    assert "CAP_SYS_ADMIN" in done.err
    assert not custody.home.exists()


def test_the_doctor_names_what_is_missing(custody: Custody):
    done = powerless(custody, "doctor")

    assert done.code == 4
    assert "unshare: Operation not permitted" in " ".join(done.out.split())


def test_evidence_that_may_not_be_read_is_refused_by_name(custody: Custody):
    secret = custody.folder / "secret.txt"
    secret.write_text("x")
    secret.chmod(0)

    done = powerless(
        custody, "run", "q", "-e", "secret.txt", "--playbook", "book.py", "--output", "answer: str"
    )

    assert done.code == 2
    assert "secret.txt" in done.err
    assert "permission" in done.err
    assert not custody.home.exists()
