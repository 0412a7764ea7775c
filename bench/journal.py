"""What the record costs while it is written, and what it saves when a job is taken up again."""

import asyncio
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import sandbox
from bench.home import Home, a_request
from bench.measure import Report, interleaved, median, milliseconds, times
from bench.model import scripted_model
from rlm_worker.actor import Runner
from rlm_worker.cells import session_policy
from rlm_worker.config import WorkerSettings
from rlm_worker.contracts import Budget, TraceRecord
from rlm_worker.hostcalls import CALLS
from rlm_worker.job import Parts
from tests.builders import a_spec
from tests.memory_gateway import MemoryGateway
from tests.scripted_model import ScriptedModel, cells

_LATENCY_SECONDS = 0.02
_BOOK = """# %% ask
answers = predict_batch("n: int -> severity: Literal['low', 'high'], retry: bool", [{"n": n} for n in range(params["rows"])])
# %% answer
SUBMIT(answer=str(sum(a.ok for a in answers)))
"""
#: About ten milliseconds of arithmetic; each needs what the one before it left.
_CELL = "total = (globals().get('total', 0) + sum(n * n for n in range(150_000))) % 1_000_003\nprint(total)"
_SUBMIT = "SUBMIT(answer=str(total))"


def run(report: Report, *, quick: bool = False) -> None:
    _writing(report, rows=128 if quick else 1_000, rounds=2 if quick else 9)
    _resuming(report, iterations=10 if quick else 200, rounds=2 if quick else 5)


# ── writing ──────────────────────────────────────────────────────────────────────────────────────────────────


def _writing(report: Report, *, rows: int, rounds: int) -> None:
    report.begin(f"predict_batch of {rows:,} rows at {_LATENCY_SECONDS * 1000:g} ms: the journal's share")
    with scripted_model(latency_seconds=_LATENCY_SECONDS) as model, Home() as home:
        given = {"params": {"rows": rows}, "budget": Budget(max_subcalls=rows)}
        request = a_request(playbook=_BOOK, model=model, **given)

        def durable() -> float:
            return _batch_seconds(home.run(request).trace, rows=rows)

        def in_memory() -> float:
            gateway = MemoryGateway(a_spec(playbook=_BOOK, model=model, **given))
            Runner(Parts(gateway=gateway, worker_id="bench", settings=WorkerSettings())).run("job-1", 0)
            return _batch_seconds(gateway.records, rows=rows)

        cases = {"durable": durable, "in memory": in_memory}
        interleaved(cases, rounds=1)  # starts the zygote and connects
        found = interleaved(cases, rounds=rounds)
    middle = {name: median(taken) for name, taken in found.items()}
    ratios = [a / b for a, b in zip(found["durable"], found["in memory"], strict=True)]
    report.table(
        ("the batch", "ms", "least ms"),
        [(name, milliseconds(middle[name]), milliseconds(min(found[name]))) for name in cases],
    )
    report.at_most("a batch with the journal / with records in memory", median(ratios), 1.10)


def _batch_seconds(trace: list[TraceRecord], *, rows: int) -> float:
    answered = sum(record.kind == "subcall_finished" for record in trace)
    assert answered == rows, f"{answered} of {rows} rows were answered"
    began, ended = (
        next(record.at_ms for record in trace if record.kind == kind)
        for kind in ("cell_proposed", "cell_finished")
    )
    return (ended - began) / 1000


# ── taking up again ──────────────────────────────────────────────────────────────────────────────────────────


def _resuming(report: Report, *, iterations: int, rounds: int) -> None:
    report.begin(f"a job of {iterations} recorded cells, taken up by another process")
    script = cells(*[_CELL] * iterations, _SUBMIT)
    with tempfile.TemporaryDirectory(prefix="custody-bench-") as folder, ScriptedModel(script) as model:
        recorded = Path(folder) / "recorded"
        _record(recorded, model.url, iterations=iterations)
        asked = model.calls
        assert asked == iterations + 1, f"the recorded job asked {asked} times"
        homes = (Path(folder) / f"home-{number}" for number in range(2 * rounds + 2))
        cases = {
            "resumed": lambda: _resume(shutil.copytree(recorded, next(homes)), iterations=iterations),
            "cells alone": lambda: asyncio.run(_alone(iterations)),
        }
        interleaved(cases, rounds=1)
        found = interleaved(cases, rounds=rounds)
        report.at_most("model calls of a resumed job", model.calls - asked, 0, unit="")
    middle = {name: median(taken) for name, taken in found.items()}
    ratios = [a / b for a, b in zip(found["resumed"], found["cells alone"], strict=True)]
    over = (middle["resumed"] - middle["cells alone"]) / iterations
    report.table(
        ("the cells", "ms", "ratio"),
        [
            ("in one session, nothing recorded", milliseconds(middle["cells alone"]), "1x"),
            ("resumed: claim to settled", milliseconds(middle["resumed"]), times(median(ratios))),
            ("  over, a cell", milliseconds(over), ""),
        ],
    )
    report.at_most("resume / the cells' own time", median(ratios), 1.2)


def _record(home: Path, url: str, *, iterations: int) -> None:
    """A job whose worker dies when its last turn is recorded and not yet run."""
    command = [sys.executable, "-m", "bench.dying_job", str(home), url, str(iterations)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode != -signal.SIGKILL:
        raise RuntimeError(f"the recording ended with {done.returncode}: {done.stderr[-500:]}")


def _resume(home: Path, *, iterations: int) -> float:
    with Home(existing=home) as opened:
        (view,) = opened.app.jobs()
        opened.wait(view.job_id)
        kinds = [record.kind for record in opened.app.trace(view.job_id, limit=100_000)]
        assert kinds.count("cell_finished") == iterations + 1, "every cell stands once in the record"
        assert kinds.count("diverged") == 0, "the cells printed what they had printed"
        return opened.attempt_seconds


async def _alone(iterations: int) -> float:
    """The same cells in one fresh session; its opening belongs to neither side's promise and counts for both."""
    began = time.perf_counter()
    session = await sandbox.open_session(session_policy(a_spec(), calls=CALLS))
    for _ in range(iterations):
        async for event in session.execute(_CELL, deadline_seconds=60):
            assert not isinstance(event, sandbox.Finished) or event.outcome == "ok", event
    await session.close()
    return time.perf_counter() - began
