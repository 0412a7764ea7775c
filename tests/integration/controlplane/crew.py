"""Run as a process: a worker or the watchdogs of a home, on the database and the queue that its environment names, until told to stop.

python -m tests.integration.controlplane.crew worker|watchdogs
"""

import sys

from controlplane.bootstrap import App, open_app
from controlplane.config import load_settings
from controlplane.runtime import Run, WatchdogRuntime, WorkerRuntime
from rlm_worker.serving import serve_until_told
from tests.integration.controlplane.hands import Hands


def make_run(app: App, worker_id: str) -> Run:
    def run(job_id: str, generation: int) -> None:
        Hands(gateway=app.gateway(), job_id=job_id, generation=generation, worker_id=worker_id).work()

    return run


def main(role: str) -> None:
    app = open_app(load_settings())
    part = WorkerRuntime(app, make_run=make_run) if role == "worker" else WatchdogRuntime(app)
    print(part.worker_id if isinstance(part, WorkerRuntime) else role, flush=True)
    serve_until_told(part)
    app.close()


if __name__ == "__main__":
    main(sys.argv[1])
