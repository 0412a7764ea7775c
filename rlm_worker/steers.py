"""Instructions of an operator, taken up once, in their order."""

from collections.abc import Iterable

from rlm_worker.contracts.gateway import Steer
from rlm_worker.contracts.trace import SteerObserved
from rlm_worker.workbench import Workbench


async def observe_steers(bench: Workbench, steers: Iterable[Steer], *, node: str, iteration: int) -> None:
    """Record what the operator asks. A later attempt is sent all of it again: what is recorded was heard."""
    for steer in steers:
        if steer.steer_id > bench.journal.steer_seen:
            await bench.writer.write(
                SteerObserved(node=node, iteration=iteration, steer_id=steer.steer_id, text=steer.text)
            )
