"""Runs jobs of ours or of a peer in a process of their own, bounded in time and memory, and ends all of it."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.peers import Peer
from bench.works import Work

_LOOK_SECONDS = 0.25
_PAGE = os.sysconf("SC_PAGE_SIZE")
_GB = 1_000_000_000
Said = dict[str, float]


class _Bound(Exception):
    """The process met a bound; the message says which."""


@dataclass(frozen=True)
class Outcome:
    """What a process said: a line for its imports, one for each job that ended; and why it stopped before the last."""

    said: list[Said]
    why: str = ""


def run_jobs(
    who: str, found: Peer, works: Sequence[Work], *, url: str, seconds: float, gigabytes: float | None = None
) -> Outcome:
    """Run jobs one after the other, within so many seconds and gigabytes for all of them."""
    jobs = json.dumps([work.as_job() for work in works])
    own = ["-m", "bench.own_jobs", url, jobs]
    others = [str(Path(__file__).with_name("peer_jobs.py")), who, url, jobs]
    why = ""
    with tempfile.TemporaryFile("w+") as printed, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            [str(found.python), *(own if who == "ours" else others)],
            env={**os.environ, **found.env, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"},
            stdout=printed,
            stderr=errors,
            start_new_session=True,
        )
        try:
            _wait(process, seconds=seconds, gigabytes=gigabytes)
        except _Bound as bound:
            why = str(bound)
        finally:
            _end(process)
        printed.seek(0)
        said = [json.loads(line) for line in printed]
        errors.seek(0)
        if not why and len(said) != len(works) + 1:
            why = f"failed: {' '.join(errors.read().split())[-300:]}"
    return Outcome(said, why)


def _wait(process: "subprocess.Popen[bytes]", *, seconds: float, gigabytes: float | None) -> None:
    until = time.monotonic() + seconds
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_LOOK_SECONDS)
            return
        if time.monotonic() > until:
            raise _Bound(f"did not finish in {seconds:g} s")
        # Not looked at where it is not bounded: the model answers from this very process.
        if gigabytes is not None and _resident_bytes(process.pid) > gigabytes * _GB:
            raise _Bound(f"needed more than {gigabytes:g} GB")


def _end(process: "subprocess.Popen[bytes]") -> None:
    """The whole group: a peer's Deno would outlive it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _resident_bytes(group: int) -> int:
    total = 0
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError, ValueError):
            fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
            if int(fields[2]) == group:
                total += int(fields[21]) * _PAGE
    return total


def ourselves() -> Peer:
    return Peer(python=Path(sys.executable))
