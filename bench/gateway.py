"""What the gateway over HTTP costs beside the one in process: a call, a group of records, a batch of subcalls."""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.measure import Report, interleaved, median, milliseconds, times
from bench.model import scripted_model
from controlplane.bootstrap import App, open_app
from controlplane.config import Settings
from controlplane.domain.commands import JobRequest
from rlm_worker.actor import Runner
from rlm_worker.config import WorkerSettings
from rlm_worker.contracts import Budget, TraceRecord
from rlm_worker.contracts.gateway import Claimed, ClaimRequest, Gateway, RecordRequest, RenewRequest
from rlm_worker.contracts.job import PlaybookDriver
from rlm_worker.contracts.signature import fields_schema
from rlm_worker.contracts.trace import GENESIS, AttemptStarted, NoProgress, link
from rlm_worker.job import Parts
from rlm_worker.remote.gateway import HttpGateway
from rlm_worker.remote.link import Server
from tests.gateway_server import GatewayServer, a_key

_LATENCY_SECONDS = 0.02
_BOOK = """# %% ask
answers = predict_batch("n: int -> severity: Literal['low', 'high'], retry: bool", [{"n": n} for n in range(params["rows"])])
# %% answer
SUBMIT(answer=str(sum(a.ok for a in answers)))
"""


def run(report: Report, *, quick: bool = False) -> None:
    with tempfile.TemporaryDirectory(prefix="custody-bench-") as folder:
        app = open_app(Settings(home=Path(folder) / "home"))
        # The server shares this process: it competes for the same interpreter, which a machine of its own would not.
        with GatewayServer(app) as server:
            http = HttpGateway(Server(url=server.url, key=a_key(app)))
            gateways: dict[str, Gateway] = {"in process": app.gateway(), "over HTTP": http}
            _calls(report, app, gateways, count=10 if quick else 150)
            _batch(report, app, gateways, rows=100 if quick else 1_000, rounds=1 if quick else 5)
            http.close()
        app.close()


def _submit(app: App, **fields: Any) -> tuple[str, int]:
    request = JobRequest(
        task="bench",
        output_schema=fields_schema("answer: str"),
        budget=Budget(max_subcalls=1_000),
        driver=PlaybookDriver(name="bench", source=_BOOK),
        **{"sub_model": "nobody", **fields},
    )
    job = app.submit(request)
    return job.job_id, job.generation


def _calls(report: Report, app: App, gateways: dict[str, Gateway], *, count: int) -> None:
    report.begin(f"one call, {count} of each")
    found = {
        (what, name): median(case(app, gateway, count))
        for name, gateway in gateways.items()
        for what, case in _CASES.items()
    }
    report.table(
        ("call", *gateways, "more by"),
        [
            (
                what,
                *(f"{milliseconds(found[what, name])} ms" for name in gateways),
                f"{milliseconds(found[what, 'over HTTP'] - found[what, 'in process'])} ms",
            )
            for what in _CASES
        ],
    )
    ratio = found["record 1", "over HTTP"] / found["record 1", "in process"]
    report.at_most("record of one event, over HTTP / in process", ratio, 6)


def _claimed(app: App, gateway: Gateway) -> Claimed:
    job_id, generation = _submit(app)
    found = gateway.claim(ClaimRequest(worker_id="bench", job_id=job_id, generation=generation))
    assert isinstance(found, Claimed)
    return found


def _each(count: int, act: Callable[[int], object]) -> list[float]:
    taken = []
    for number in range(count):
        began = time.perf_counter()
        act(number)
        taken.append(time.perf_counter() - began)
    return taken


def _claiming(app: App, gateway: Gateway, count: int) -> list[float]:
    jobs = [_submit(app) for _ in range(count)]
    return _each(
        count,
        lambda n: gateway.claim(ClaimRequest(worker_id="b", job_id=jobs[n][0], generation=jobs[n][1])),
    )


def _renewing(app: App, gateway: Gateway, count: int) -> list[float]:
    lease = _claimed(app, gateway).lease
    request = RenewRequest(job_id=lease.job_id, fence=lease.fence)
    return _each(count, lambda _: gateway.renew(request))


def _recording(group: int, characters: int) -> Callable[[App, Gateway, int], list[float]]:
    def case(app: App, gateway: Gateway, count: int) -> list[float]:
        lease = _claimed(app, gateway).lease
        records: list[TraceRecord] = [
            link(AttemptStarted(attempt=1, worker_id="b"), seq=0, at_ms=1, prev=GENESIS)
        ]
        words = "the quick brown fox jumps over the lazy dog "
        for seq in range(1, count * group):
            event = NoProgress(iteration=seq, detail=(f"{seq} {words}" * (characters // 40))[:characters])
            records.append(link(event, seq=seq, at_ms=seq, prev=records[-1].hash))
        groups = [tuple(records[start : start + group]) for start in range(0, len(records), group)]
        return _each(
            count,
            lambda n: gateway.record(
                RecordRequest.made(job_id=lease.job_id, fence=lease.fence, records=groups[n])
            ),
        )

    return case


_CASES: dict[str, Callable[[App, Gateway, int], list[float]]] = {
    "claim": _claiming,
    "renew": _renewing,
    "record 1": _recording(1, 60),
    "record 100": _recording(100, 60),
    "record 1 of 100,000 characters": _recording(1, 100_000),
}


def _batch(report: Report, app: App, gateways: dict[str, Gateway], *, rows: int, rounds: int) -> None:
    report.begin(
        f"a job with predict_batch of {rows:,} rows at {_LATENCY_SECONDS * 1000:g} ms, claim to settled"
    )
    with scripted_model(latency_seconds=_LATENCY_SECONDS) as model:

        def case(gateway: Gateway) -> Callable[[], float]:
            def work() -> float:
                job_id, generation = _submit(app, params={"rows": rows}, sub_model=model)
                parts = Parts(gateway=gateway, worker_id="bench", settings=WorkerSettings())
                began = time.perf_counter()
                Runner(parts).run(job_id, generation)
                taken = time.perf_counter() - began
                result = app.job(job_id).result
                assert result is not None
                assert result.status == "succeeded", result.message
                return taken

            return work

        cases = {name: case(gateway) for name, gateway in gateways.items()}
        interleaved(cases, rounds=1)  # starts the zygote and connects
        found = interleaved(cases, rounds=rounds)
    ratios = [b / a for a, b in zip(found["in process"], found["over HTTP"], strict=True)]
    report.table(
        ("the job", "ms", "ratio"),
        [
            (name, milliseconds(median(taken)), times(1 if name == "in process" else median(ratios)))
            for name, taken in found.items()
        ],
    )
    report.at_most("a batch over HTTP / in process", median(ratios), 1.5)
