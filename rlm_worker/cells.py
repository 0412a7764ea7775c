"""One cell through the sandbox: host calls answered side by side while it runs, one CellFinished at its end."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from pydantic import JsonValue

import sandbox
from rlm_worker.contracts import JobSpec, JsonObject, digest
from rlm_worker.contracts.trace import CellFinished
from rlm_worker.errors import CallRefused, LostAuthority, MustPark
from rlm_worker.execution import Execution

log = logging.getLogger(__name__)

#: Stands as the error's type when the kernel ended a cell at a limit of its sandbox.
LIMIT_ERRORS = {"cpu": "CpuLimit", "memory": "MemoryLimit"}

_REQUEST_BYTES = 256 << 10
_RESPONSE_BYTES = 1 << 20

AnswerCall = Callable[[Execution, str, JsonObject], Awaitable[JsonValue]]
#: Takes the times that a cell read.
KeepClock = Callable[[Execution, tuple[int, ...]], None]


def session_policy(spec: JobSpec, *, calls: frozenset[str]) -> sandbox.Policy:
    """What contains the cells of this job. The seed makes randomness repeatable for replay."""
    wanted, cpu_ms = spec.sandbox_policy, spec.budget.max_sandbox_cpu_ms
    limits = sandbox.Limits(
        memory_bytes=min(wanted.memory_bytes, spec.budget.max_sandbox_memory_bytes),
        processes=wanted.processes,
        workspace_bytes=wanted.workspace_bytes,
        cpu_seconds=None if cpu_ms is None else max(1, -(-cpu_ms // 1000)),
    )
    # What the sandbox does not know it refuses itself: nothing that was asked for is left out silently.
    asked: dict[str, Any] = {
        "backend": wanted.backend,
        "runtime": wanted.runtime,
        "language": wanted.language,
    }
    if wanted.required_layers is not None:
        asked["required_layers"] = frozenset(wanted.required_layers)
    return sandbox.Policy(
        evidence=tuple(_mounts(spec)),
        calls=calls,
        limits=limits,
        # Shared cells must draw again what they drew.
        seed=int(digest([spec.fork.seed_job_id if spec.fork else spec.job_id])[:8], 16),
        guest_paths=wanted.guest_paths,
        network=network_of(spec),
        artifacts=_artifact_limits(spec),
        **asked,
    )


def _mounts(spec: JobSpec) -> Iterator[sandbox.Mount]:
    """The evidence, and beside it what is known about it."""
    for ref in spec.input_artifacts:
        yield sandbox.Mount(source=ref.location, target=ref.name)
        if ref.reading is not None:
            yield sandbox.Mount(source=ref.reading.location, target=f".reading/{ref.name}")


def network_of(spec: JobSpec) -> sandbox.Network:
    """What cells may reach. Every request and answer stands whole in the trace, so each is kept small."""
    return sandbox.Network(
        allow=spec.network_policy.allow, request_bytes=_REQUEST_BYTES, response_bytes=_RESPONSE_BYTES
    )


def _artifact_limits(spec: JobSpec) -> sandbox.ArtifactLimits:
    wanted = spec.artifact_policy
    if not wanted.collect:
        return sandbox.ArtifactLimits()
    return sandbox.ArtifactLimits(
        files=wanted.max_files,
        total_bytes=wanted.max_bytes,
        file_bytes=wanted.max_bytes,
        only=wanted.collect,
    )


async def run_cell(
    session: sandbox.Session,
    code: str,
    *,
    at: Execution,
    answer: AnswerCall,
    seconds: float,
    keep_clock: KeepClock = lambda _at, _read: None,
) -> CellFinished:
    """Run to the end. Calls still waiting then are cancelled: their cell is over."""
    calls: set[asyncio.Task[None]] = set()
    name = f"cell {at.iteration}"
    try:
        async for event in session.execute(code, deadline_seconds=seconds, name=name, clock=at.clock):
            match event:
                case sandbox.ClockRead():
                    keep_clock(at, event.read)
                case sandbox.HostCall():
                    task = asyncio.create_task(_serve(session, event, at=at, answer=answer))
                    calls.add(task)
                    task.add_done_callback(calls.discard)
                case sandbox.Finished():
                    return _finished(event, at)
                case _:
                    pass
    finally:
        await _end(calls)
    raise AssertionError("a cell ends with Finished")


async def _serve(
    session: sandbox.Session, call: sandbox.HostCall, *, at: Execution, answer: AnswerCall
) -> None:
    try:
        try:
            value = await answer(at, call.name, call.payload)
        except CallRefused as refusal:
            await session.refuse(call.call_id, error=refusal.guest_error, message=str(refusal))
        else:
            await session.answer(call.call_id, value)
    except sandbox.UnsendableAnswer as error:
        await session.refuse(call.call_id, error="HostCallError", message=str(error))
    except sandbox.SessionEnded:
        pass  # the cell's own ending says why
    except LostAuthority:
        await session.kill()  # nothing may go on without a record
    except MustPark:
        await session.kill()  # the cell runs again, from the record, when the wait is over
    except Exception:  # a defect in a host call must not leave its cell waiting for ever
        log.exception("host_call_failed", extra={"call": call.name, "iteration": at.iteration})
        await session.refuse(call.call_id, error="HostCallError", message=f"{call.name} failed on the host")


async def _end(calls: set["asyncio.Task[None]"]) -> None:
    waiting = list(calls)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


def _finished(event: sandbox.Finished, at: Execution) -> CellFinished:
    error = event.error
    said = {
        "outcome": event.outcome,
        "stdout": event.stdout,
        "stderr": event.stderr,
        "error_type": error.type if error else LIMIT_ERRORS.get(event.limit or "", ""),
        "error_message": (error.message if error else event.detail)[:8_000],
        "error_line": error.line if error else None,
    }
    return CellFinished.model_validate(
        {
            **said,
            "node": at.node,
            "iteration": at.iteration,
            "stdout_bytes": event.stdout_bytes,
            "stderr_bytes": event.stderr_bytes,
            "traceback": error.traceback if error else "",
            "state_lost": event.state_lost,
            "cpu_ms": event.cpu_ms,
            "memory_bytes": event.memory_bytes,
            "digest": digest(said),
            "variables": None if event.state_lost else event.variables,
        }
    )
