"""The benchmarks at tiny sizes: they run, they print a verdict, and they leave nothing behind."""

import subprocess
import sys

import pytest

from bench import __main__ as bench
from bench import batch, cells, engine, gateway, journal, pages, sandbox, search, start
from bench.measure import Report, interleaved
from bench.processes import ourselves, run_jobs
from bench.works import Work
from tests.scripted_model import Hang, ScriptedModel, always
from tests.servers import postgres_database


@pytest.mark.parametrize(
    "module",
    [sandbox, cells, batch, start, search, journal, pages, gateway],
    ids=lambda module: module.__name__,
)
def test_a_benchmark_runs_and_says_whether_each_promise_is_kept(module, capsys, tmp_path, monkeypatch):
    if module is pages:
        # The server is the whole test run's, and not left behind by a benchmark.
        postgres_database()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    report = Report(module.__name__)

    module.run(report, quick=True)

    said = capsys.readouterr().out
    assert report.kept or report.missed
    assert all(promise in said for promise in report.kept + report.missed)
    assert list(tmp_path.iterdir()) == []


def test_our_side_of_a_contest_does_all_that_is_asked_and_leaves_nothing_behind(
    capsys, tmp_path, monkeypatch
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    engine.run(Report("engine"), quick=True)

    said = capsys.readouterr().out
    assert all(line in said for line in ("a trivial cell (4)", "a child RLM (2)", "21 MB input"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("bounds", "why"),
    [
        ({"seconds": 1}, "did not finish in 1 s"),
        ({"seconds": 30, "gigabytes": 0.001}, "needed more than 0.001 GB"),
    ],
)
def test_a_job_that_does_not_end_within_its_bounds_is_ended_and_the_bound_is_named(bounds, why):
    work = Work(who="floor", kind="cells", count=2)

    with ScriptedModel(always(Hang())) as model:
        outcome = run_jobs("floor", ourselves(), [work], url=model.base_url, **bounds)

    assert outcome.why == why


def test_a_missed_promise_fails_only_under_strict(monkeypatch, capsys):
    class Slow:
        @staticmethod
        def run(report, *, quick):
            report.at_most("ours / theirs", 2.0, 1.3)

    monkeypatch.setattr("importlib.import_module", lambda name: Slow)

    assert bench.main(["batch"]) == 0
    assert bench.main(["batch", "--strict"]) == 1
    assert "MISS ours / theirs: 2.00x (at most 1.3x)" in capsys.readouterr().out


def test_an_unknown_benchmark_is_refused_with_the_names_there_are():
    asked = subprocess.run(
        [sys.executable, "-m", "bench", "speed"], capture_output=True, text=True, check=False
    )

    assert asked.returncode == 2
    assert "there is no benchmark speed" in asked.stderr


def test_rounds_are_interleaved():
    order = []

    taken = interleaved(
        {"a": lambda: order.append("a") or 1.0, "b": lambda: order.append("b") or 2.0}, rounds=2
    )

    assert order == ["a", "b", "a", "b"]
    assert taken == {"a": [1.0, 1.0], "b": [2.0, 2.0]}
