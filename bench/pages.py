"""A page of jobs, of a search and of a trace, where there are ten thousand and where there are a million."""

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from bench.measure import Report, interleaved, median, milliseconds, times
from controlplane.adapters import schema
from controlplane.bootstrap import App, open_app
from controlplane.config import Settings
from controlplane.domain import terms
from controlplane.handlers.searching import Search
from rlm_worker.contracts.trace import GENESIS
from tests.integration.controlplane.hands import a_request
from tests.servers import postgres_database

_SMALL, _LARGE = 10_000, 1_000_000
_TENANT, _STATES = "local", ("queued", "running", "succeeded", "failed")
#: In how many jobs each word is: one in so many.
_WORDS = {"often": 2, "seldom": 1_000}
_LIMIT = 50


def run(report: Report, *, quick: bool = False) -> None:
    sizes = (100, 300) if quick else (_SMALL, _LARGE)
    for kind in ("sqlite", "postgres"):
        report.begin(f"pages on {kind}: {sizes[0]:,} and {sizes[1]:,} jobs, traces of as many events")
        with ExitStack() as stack:
            small, large = (stack.enter_context(_filled(kind, size)) for size in sizes)
            _measure(report, kind, small, large, rounds=5 if quick else 41)


@contextmanager
def _filled(kind: str, size: int) -> Iterator[dict[str, Callable[[], object]]]:
    """What is asked of a home of this size."""
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="custody-bench-"))
        stack.callback(shutil.rmtree, folder)
        # Both sizes on one server, which ends with this process.
        url = postgres_database() if kind == "postgres" else None
        app = open_app(Settings(home=folder / "home", database_url=url))
        stack.callback(app.close)
        began = time.perf_counter()
        trace = _fill(app, size)
        print(f"   {size:,} rows made in {time.perf_counter() - began:.0f} s", flush=True)
        yield _questions(app, trace, size)


def _questions(app: App, trace: str, size: int) -> dict[str, Callable[[], object]]:
    def search(**wanted: Any) -> Callable[[], object]:
        return lambda: app.search(Search(**wanted), limit=_LIMIT)

    def behind(**wanted: Any) -> Callable[[], object]:
        cursor = app.search(Search(**wanted), limit=500).next
        return lambda: app.search(Search(**wanted), limit=_LIMIT, cursor=cursor)

    return {
        "list, newest": search(),
        "list, a later page": behind(),
        "list, one state": search(states=frozenset({"failed"})),
        "search, a word of half": search(words="often"),
        "search, a later page": behind(words="often"),
        "search, a word of few": search(words="often seldom"),
        "search, label and state": search(labels={"region": "eu"}, states=frozenset({"failed"})),
        "trace, begin": lambda: app.trace(trace, after=0, limit=200),
        "trace, middle": lambda: app.trace(trace, after=size // 2, limit=200),
        "trace, end": lambda: app.trace(trace, after=size - 200, limit=200),
    }


def _measure(
    report: Report,
    kind: str,
    small: dict[str, Callable[[], object]],
    large: dict[str, Callable[[], object]],
    *,
    rounds: int,
) -> None:
    rows, worst = [], 0.0
    for about, ask in small.items():
        cases = {"small": ask, "large": large[about]}
        for case in cases.values():
            case()
        taken = interleaved({name: _timer(case) for name, case in cases.items()}, rounds=rounds)
        found = {name: median(seconds) for name, seconds in taken.items()}
        ratio = found["large"] / found["small"]
        worst = max(worst, ratio)
        rows.append((about, milliseconds(found["small"]), milliseconds(found["large"]), times(ratio)))
    report.table(("page", "ms, few", "ms, many", "ratio"), rows)
    report.at_most(f"{kind}: time of a page, many rows against few, the worst", worst, 1.5)


def _timer(case: Callable[[], object]) -> Callable[[], float]:
    def timed() -> float:
        began = time.perf_counter()
        case()
        return time.perf_counter() - began

    return timed


# ── rows by the database itself: a million submissions would take an hour ────────────────────────────────────


def _fill(app: App, size: int) -> str:
    """Copies of one job that was really submitted, and a trace of as many events; the id of the job that has it."""
    view = app.submit(a_request(task="Which one?"))
    with app.store.database.writer.begin() as connection:
        numbers = f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {size})"
        copied = {
            "job_id": _name("job-"),
            "created_ms": f"job.created_ms - {size} + n.i",
            "state": _choice(_STATES),
        }
        _copy(connection, numbers, schema.job, copied, of=view.job_id)
        _copy(connection, numbers, schema.job_spec, {"job_id": _name("job-")}, of=view.job_id)
        _terms(connection, numbers, size, created=int(view.created_at.timestamp() * 1000))
        _trace(connection, numbers, view.job_id)
        connection.exec_driver_sql("ANALYZE")
    return view.job_id


def _name(prefix: str) -> str:
    # Of one length, so that they sort as numbers do; the same words on both databases.
    return f"'{prefix}' || substr(CAST(100000000 + n.i AS TEXT), 2)"


def _choice(values: Sequence[str]) -> str:
    cases = " ".join(f"WHEN {number} THEN '{value}'" for number, value in enumerate(values))
    return f"CASE {_rest(len(values))} {cases} END"


def _rest(divisor: int) -> str:
    """The remainder, in words that both databases and every driver take."""
    return f"n.i - n.i / {divisor} * {divisor}"


def _copy(
    connection: sa.Connection, numbers: str, table: sa.Table, changed: dict[str, str], *, of: str
) -> None:
    columns = list(table.c.keys())
    values = ", ".join(changed.get(name, f"{table.name}.{name}") for name in columns)
    connection.exec_driver_sql(
        f"INSERT INTO {table.name} ({', '.join(columns)}) {numbers} "
        f"SELECT {values} FROM {table.name}, n WHERE {table.name}.job_id = '{of}'"
    )


def _terms(connection: sa.Connection, numbers: str, size: int, *, created: int) -> None:
    region = terms.label("region", "eu")
    shares = {**{f"w:{word}": every for word, every in _WORDS.items()}, region: 3}
    for term, every in shares.items():
        connection.exec_driver_sql(
            f"INSERT INTO job_term (tenant_id, term, created_ms, job_id) {numbers} "
            f"SELECT '{_TENANT}', '{term}', {created - size} + n.i, {_name('job-')} FROM n WHERE {_rest(every)} = 0"
        )


def _trace(connection: sa.Connection, numbers: str, job_id: str) -> None:
    body = json.dumps({"kind": "no_progress", "iteration": 1, "detail": "x" * 300})
    connection.exec_driver_sql(
        f"INSERT INTO trace_event (job_id, seq, kind, at_ms, body, prev, hash, texts) {numbers} "
        f"SELECT '{job_id}', n.i - 1, 'no_progress', 1, '{body}', '{GENESIS}', '{GENESIS}', NULL FROM n"
    )
