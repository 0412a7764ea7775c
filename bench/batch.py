"""predict_batch against the time that the model alone would take: journal, holds and budget in SQLite, cells in a real sandbox."""

from dataclasses import dataclass

from bench.bare import ask_all
from bench.home import Home, Ran, a_request
from bench.measure import Report, median, times
from bench.model import scripted_model
from controlplane.domain.commands import JobRequest
from rlm_worker.config import WorkerSettings
from rlm_worker.contracts import Budget

_LATENCY_SECONDS = 0.02
_IN_FLIGHT = 64
_BOOK = """# %% ask
rows = [{"line": f"{i:06d} connection refused by upstream in 17 ms, request {i:08x}"} for i in range(params["rows"])]
answers = predict_batch("line -> severity: Literal['low', 'high'], retry: bool", rows)
# %% answer
SUBMIT(answer=str(sum(a.ok for a in answers)))
"""


def run(report: Report, *, quick: bool = False) -> None:
    rows = 128 if quick else 1_000
    report.begin(
        f"predict_batch of {rows:,} rows, {_LATENCY_SECONDS * 1000:g} ms latency, {_IN_FLIGHT} in flight"
    )
    settings = WorkerSettings(subcalls_in_flight=_IN_FLIGHT)
    with scripted_model(latency_seconds=_LATENCY_SECONDS) as model, Home(settings=settings) as home:
        request = a_request(
            playbook=_BOOK, params={"rows": rows}, model=model, budget=Budget(max_subcalls=rows)
        )
        measured, bare = [], []
        for _ in range(2 if quick else 9):
            bare.append(ask_all(model, requests=rows, in_flight=_IN_FLIGHT))
            measured.append(_measure(home, request))
    ideal = rows / _IN_FLIGHT * _LATENCY_SECONDS
    # The first round starts the zygote and connects.
    _tell(report, measured[1:], ideal=ideal, bare=median(bare[1:]))


@dataclass(frozen=True)
class _Batch:
    """Seconds of one batch, and what the worker's process burned for it."""

    cell: float
    first_started: float
    calls: float
    cpu: float


def _measure(home: Home, request: JobRequest) -> _Batch:
    ran = home.run(request)
    proposed = ran.moment("cell_proposed")
    started, finished = _moments(ran, "subcall_started"), _moments(ran, "subcall_finished")
    assert len(finished) == request.params["rows"], "every row was asked and answered"
    return _Batch(
        cell=(ran.moment("cell_finished") - proposed) / 1000,
        first_started=(started[0] - proposed) / 1000,
        calls=(finished[-1] - started[0]) / 1000,
        cpu=ran.cpu_seconds,
    )


def _moments(ran: Ran, kind: str) -> list[float]:
    return [record.at_ms - ran.submitted_ms for record in ran.trace if record.kind == kind]


def _tell(report: Report, measured: list[_Batch], *, ideal: float, bare: float) -> None:
    cell = median([batch.cell for batch in measured])
    calls = median([batch.calls for batch in measured])
    before = median([batch.first_started for batch in measured])
    cpu = median([batch.cpu for batch in measured])
    report.table(
        ("what", "ms", "ratio"),
        [
            ("ideal: rows / in flight x latency", f"{ideal * 1000:.0f}", "1x"),
            ("bare client, answers thrown away", f"{bare * 1000:.0f}", times(bare / ideal)),
            ("cell with the batch, whole", f"{cell * 1000:.0f}", times(cell / ideal)),
            ("  until the first hold", f"{before * 1000:.0f}", times(before / ideal)),
            ("  first hold to last answer", f"{calls * 1000:.0f}", times(calls / ideal)),
            ("  rest: durable, answers into the cell", f"{(cell - before - calls) * 1000:.0f}", ""),
            ("CPU of the worker's process, whole job", f"{cpu * 1000:.0f}", times(cpu / ideal)),
        ],
    )
    report.at_most("batch / ideal", cell / ideal, 1.3)
    report.at_most("batch / bare client", cell / bare, 1.3)
