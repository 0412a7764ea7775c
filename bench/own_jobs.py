"""Our jobs against the same model, in a fresh process: takes and prints what `peer_jobs.py` does, and where a start goes."""

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bench.home import Ran
    from controlplane.domain.commands import JobRequest

_SPARE_ITERATIONS = 5
_SUBCALLS = 10_000


def main() -> None:
    url, jobs = sys.argv[1], json.loads(sys.argv[2])
    began = time.monotonic()
    from bench.home import Home

    imported = time.monotonic() - began
    began = time.monotonic()
    with Home() as home:
        _say({"import": imported, "open": time.monotonic() - began})
        for job in jobs:
            began = time.monotonic()
            evidence = (Path(job["context"]),) if job.get("context") else ()
            ran = home.run(_request(url, job), evidence=evidence, seconds=600)
            _say({"began": began, "ended": began + ran.seconds, **_parts(ran)})


def _request(url: str, job: dict[str, Any]) -> "JobRequest":
    from bench.home import a_request
    from rlm_worker.contracts import Budget

    budget = Budget(
        max_iterations=job["iterations"] + _SPARE_ITERATIONS,
        max_subcalls=_SUBCALLS,
        max_depth=job.get("depth", 1),
    )
    return a_request(
        model=f"{url}#{job['root']}", sub_model=f"{url}#{job.get('sub') or job['root']}", budget=budget
    )


def _parts(ran: "Ran") -> dict[str, float]:
    return {
        "claimed": ran.moment("attempt_started") / 1000,
        "sandbox": ran.moment("sandbox_opened") / 1000,
        "asked": ran.moment("model_asked") / 1000,
        "cell": ran.moment("cell_finished") / 1000,
    }


def _say(line: dict[str, float]) -> None:
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
