"""What the end of a cell means for its REPL where nobody repairs it: a limit of the sandbox, an error of a playbook."""

from rlm_worker.cells import LIMIT_ERRORS
from rlm_worker.closing import exhausted_by
from rlm_worker.contracts.trace import CellFinished
from rlm_worker.drivers.driver import Driver
from rlm_worker.drivers.playbook import PlaybookDriver
from rlm_worker.endings import Ending, Exhausted, Failed
from rlm_worker.errors import BudgetExceeded


def playbook_error(
    driver: Driver, cell: CellFinished, *, refusal: BudgetExceeded | None, memory_limit: int
) -> Ending:
    """Nobody can repair a playbook while it runs: its uncaught error is its end."""
    where = f"cell {cell.iteration}" + (f", line {cell.error_line}" if cell.error_line else "")
    if isinstance(driver, PlaybookDriver) and cell.error_line:
        line = driver.line_of(cell.iteration, cell.error_line)
        where = f"line {line} of the file ({where} of it)"
    message = f"the playbook ended in {where}: {cell.error_type}: {cell.error_message}"
    match cell.error_type:
        case "BudgetExceeded" if refusal is not None:
            return exhausted_by(refusal)
        case "MemoryError":
            return Exhausted("sandbox_memory", str(memory_limit), "more", message)
        case "SubcallError":
            return Failed("model_error", message)
        case _:
            return Failed("output_invalid", message)


def check_crash(cell: CellFinished, *, memory_limit: int, cpu_ms: int | None) -> None:
    """A sandbox that the kernel killed at a limit ended by that limit."""
    if cell.error_type == LIMIT_ERRORS["memory"]:
        raise BudgetExceeded("sandbox_memory", limit=memory_limit, spent="more", of_job=False)
    if cell.error_type == LIMIT_ERRORS["cpu"]:
        raise BudgetExceeded("sandbox_cpu", limit=cpu_ms, spent="more", of_job=False)
