"""`custody --help` is quick, because it imports next to nothing."""

import json
import os
import resource
import subprocess
import sys

import pytest

HEAVY = (
    *("rich", "pydantic", "sqlalchemy", "dramatiq", "rlm_worker", "sandbox", "pydantic_ai", "asyncio"),
    *("httpx2", "fastapi", "uvicorn"),
)
#: What is needed to serve or to keep a home, and by nobody who asks a server.
OF_A_SERVER = ("sqlalchemy", "alembic", "fastapi", "uvicorn", "dramatiq", "psycopg", "redis", "pydantic_ai")


def _cpu_seconds(*argv: str) -> float:
    """Least CPU time of a few runs, so that a busy machine does not matter."""
    best = float("inf")
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *argv], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        best = min(best, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return best


def test_help_imports_nothing_heavy():
    code = (
        "import sys, json\n"
        "from controlplane.cli.main import main\n"
        "try: main(['--help'])\n"
        "except SystemExit as end: assert end.code == 0\n"
        "print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})), file=sys.stderr)"
    )

    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)

    loaded = json.loads(done.stderr.splitlines()[-1])
    assert [name for name in HEAVY if name in loaded] == []


def _loaded_by(*words: str) -> set[str]:
    code = (
        "import sys, json\n"
        "from controlplane.cli.main import main\n"
        f"try: main({list(words)!r})\n"
        "except SystemExit: pass\n"
        "print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return set(json.loads(done.stderr.splitlines()[-1]))


@pytest.mark.parametrize(
    "words", [("jobs",), ("show", "job_x"), ("trace", "job_x"), ("stop", "job_x"), ("keys", "list")]
)
def test_whoever_asks_a_server_opens_no_store(words):
    loaded = _loaded_by(*words, "--server", "http://127.0.0.1:9")

    assert "httpx2" in loaded
    assert [name for name in OF_A_SERVER if name in loaded] == []


def test_whoever_asks_a_home_needs_no_client(tmp_path):
    loaded = _loaded_by("jobs", "--home", str(tmp_path))

    assert [name for name in ("httpx2", "fastapi", "uvicorn") if name in loaded] == []


def test_help_costs_little_more_than_click_itself():
    help_seconds = _cpu_seconds("-m", "controlplane.cli.main", "--help")
    click_seconds = _cpu_seconds("-c", "import click")

    assert help_seconds <= 0.3
    assert help_seconds / click_seconds <= 3


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["runn"], "Did you mean 'custody run'?"),
        (["frobnicate"], "See 'custody --help'"),
        (["--colour"], "No such option"),
    ],
)
def test_a_mistyped_command_is_one_paragraph_and_exit_2(argv, says):
    done = subprocess.run(
        [sys.executable, "-m", "controlplane.cli.main", *argv],
        check=False,
        capture_output=True,
        text=True,
        env=os.environ,
    )

    assert done.returncode == 2
    assert done.stdout == ""
    assert says in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
