"""A job in a process of its own that dies when its last turn is recorded and not yet run: python -m bench.dying_job HOME MODEL CELLS"""

import os
import signal
import sys
from pathlib import Path
from typing import cast

from bench.home import Home, a_request
from rlm_worker.contracts import Budget, TraceRecord
from rlm_worker.contracts.gateway import Gateway, RecordAnswer, RecordRequest


class _DiesAt:
    """A gateway whose process is gone as soon as this iteration's turn is durable."""

    def __init__(self, gateway: Gateway, *, iteration: int) -> None:
        self._gateway = gateway
        self._iteration = iteration

    def __getattr__(self, name: str) -> object:
        return getattr(self._gateway, name)

    def record(self, request: RecordRequest) -> RecordAnswer:
        answer = self._gateway.record(request)
        if any(self._is_turn(record) for record in request.records):
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    def _is_turn(self, record: TraceRecord) -> bool:
        return record.kind == "cell_proposed" and getattr(record.typed(), "iteration", 0) == self._iteration


def main() -> None:
    folder, model, cells = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    last = cells + 1

    def dying(gateway: Gateway) -> Gateway:
        return cast("Gateway", _DiesAt(gateway, iteration=last))

    with Home(existing=folder, around=dying) as home:
        home.run(a_request(model=model, budget=Budget(max_iterations=last + 1)))
    raise SystemExit("the job ended and should have died")


if __name__ == "__main__":
    main()
