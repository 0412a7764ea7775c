"""Run as a process of its own: makes a long trace, does one thing after the other with it, says how much memory each added."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from controlplane.adapters.trace_files import TraceFile, TraceHeader, verified, write_trace
from controlplane.bootstrap import App, open_app
from controlplane.cli.watch import pages
from controlplane.config import Settings
from rlm_worker.contracts import JobResult, TraceRecord, Usage
from rlm_worker.contracts.result import TraceRef
from rlm_worker.contracts.trace import GENESIS, Spend, SubcallFinished, link
from tests.builders import a_spec

LONG = "a long text " * 500
#: Every so many answers are long, and all of them the same.
EVERY = 100


def records(events: int, *, every: int = EVERY, own: bool = False) -> Iterator[TraceRecord]:
    """A trace in which one of `every` answers is long: all the same text, or each its own."""
    head, spend = GENESIS, Spend()
    for seq in range(events):
        event = SubcallFinished.model_construct(
            iteration=1 + seq // 1000,
            ordinal=seq,
            key=f"{seq:064x}",
            model="m",
            ok=True,
            value={"label": _long(seq, own=own) if seq % every == 0 else f"label {seq} " * 20},
            spend=spend,
        )
        record = link(event, seq=seq, at_ms=1_700_000_000_000 + seq, prev=head)
        head = record.hash
        yield record


def _long(seq: int, *, own: bool) -> str:
    return f"{seq} {LONG}" * 8 if own else LONG


def header_of(events: int, **kind: Any) -> TraceHeader:
    head = ""
    for record in records(events, **kind):
        head = record.hash
    spec = a_spec(playbook="# %%\n1\n")
    result = JobResult(
        job_id=spec.job_id,
        attempt=1,
        status="failed",
        answered_by="nobody",
        failure_class="model_error",
        trace_ref=TraceRef(job_id=spec.job_id, events=events, head=head),
        usage=Usage(),
    )
    return TraceHeader(spec=spec, state="failed", result=result, events=events, head=head)


def peak() -> int:
    """The most memory that this process has had; not ru_maxrss, which begins with that of whoever started it."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def acts(app: App, folder: Path, header: TraceHeader, **kind: Any) -> dict[str, Callable[[], object]]:
    file, again = folder / "job.jsonl", folder / "again.jsonl"

    def verify() -> None:
        with TraceFile(file) as trace:
            assert sum(1 for _ in verified(trace)) == header.events

    def bring() -> None:
        with TraceFile(file) as trace:
            assert trace.header.result is not None
            app.import_job(trace.header.spec, trace.header.result, verified(trace), by="test")

    return {
        "write": lambda: write_trace(file, header, records(header.events, **kind)),
        "verify": verify,
        "import": bring,
        "read": lambda: sum(1 for _ in pages(app, "job-1", after=0)),
        "check": lambda: app.verify_trace("job-1"),
        "export": lambda: write_trace(again, header, pages(app, "job-1", after=0)),
    }


def main(folder: Path, events: int, **kind: Any) -> None:
    app = open_app(Settings(home=folder / "home"))
    small, header = header_of(10), header_of(events, **kind)
    write_trace(folder / "warm.jsonl", small, records(10))
    grown: dict[str, int] = {}
    for name, act in acts(app, folder, header, **kind).items():
        before = peak()
        act()
        grown[name] = peak() - before
    before = peak()
    kept = list(records(events // 4, **kind))
    grown["a quarter held at once"] = peak() - before
    app.close()
    print(json.dumps({"grown": grown, "kept": len(kept)}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), **json.loads(sys.argv[3] if len(sys.argv) > 3 else "{}"))
