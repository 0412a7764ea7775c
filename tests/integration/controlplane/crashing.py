"""Run as a process that may be told to die: opens a home, submits a job if there is none, works until all jobs ended."""

import sys
from pathlib import Path

from controlplane.bootstrap import App, open_app
from controlplane.config import load_settings
from controlplane.runtime import EmbeddedRuntime, Run
from tests.integration.controlplane.hands import Hands, a_request


def make_run(app: App, worker_id: str) -> Run:
    def run(job_id: str, generation: int) -> None:
        Hands(gateway=app.gateway(), job_id=job_id, generation=generation, worker_id=worker_id).work()

    return run


def main(home: Path) -> None:
    app = open_app(load_settings({"home": home, "resend_seconds": 0.2}))
    app.submit(a_request(job_id="the-job"))
    with EmbeddedRuntime(app, make_run=make_run):
        while not all(view.is_terminal for view in app.jobs()):
            seen = app.store.notice.count
            app.store.notice.wait(seen, timeout=0.02)
    app.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
