"""A session for scripts and tests: no event loop to write, tools as plain functions. Adds nothing to what a session can do."""

import asyncio
import contextlib
import inspect
import threading
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from sandbox.artifacts import Collected
from sandbox.errors import SessionEnded, UnsendableAnswer
from sandbox.events import Finished, HostCall, KillReport
from sandbox.network import CALL, NetworkRefused, Proxy
from sandbox.policy import Policy
from sandbox.session import Session, open_session

_T = TypeVar("_T")
Tool = Callable[..., Any]


class Box:
    """One session, driven from ordinary code. Use it in a `with` statement; one thread at a time runs cells."""

    def __init__(self, policy: Policy | None = None, *, tools: Mapping[str, Tool] | None = None) -> None:
        chosen = policy or Policy()
        self._tools = dict(tools or {})
        self._policy = replace(chosen, calls=chosen.calls | frozenset(self._tools))
        self._proxy = Proxy(self._policy.network)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="sandbox-box")
        self._thread.start()
        try:
            self.session: Session = self._wait(open_session(self._policy))
        except BaseException:
            self._stop_loop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def layers(self) -> tuple[str, ...]:
        return self.session.layers

    def run(self, code: str, *, deadline_seconds: float = 30.0) -> Finished:
        """Run one cell to its end, answering its calls. What the code does wrong is in the answer, never raised."""
        return self._wait(self._run(code, deadline_seconds))

    def artifacts(self, into: str | Path) -> Collected:
        """Copy what code left in its workspace into a directory."""
        return self._wait(self.session.artifacts(into))

    def interrupt(self) -> None:
        """Interrupt the running cell, from another thread."""
        self._wait(self.session.interrupt())

    def kill(self) -> KillReport:
        """Kill everything in the sandbox; returns when nothing is left. Safe from another thread."""
        return self._wait(self.session.kill())

    def close(self) -> None:
        if self._thread.is_alive():
            self._wait(self.session.close())
            self._stop_loop()

    def _wait(self, work: Coroutine[Any, Any, _T]) -> _T:
        if not self._thread.is_alive():
            work.close()
            raise SessionEnded("this box is closed: open a new one")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # Ctrl-C in the script ends the cell as well
            raise

    def _stop_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _run(self, code: str, deadline_seconds: float) -> Finished:
        serving: set[asyncio.Task[None]] = set()
        try:
            async for event in self.session.execute(code, deadline_seconds=deadline_seconds):
                if isinstance(event, Finished):
                    return event
                if isinstance(event, HostCall):
                    task = asyncio.create_task(self._serve(event))
                    serving.add(task)
                    task.add_done_callback(serving.discard)
        finally:
            for task in serving:
                task.cancel()
        raise AssertionError("a cell ends with Finished")

    async def _serve(self, call: HostCall) -> None:
        """Answer with the tool's value; what a tool raises, the cell sees as a HostCallError."""
        with contextlib.suppress(SessionEnded):
            try:
                await self.session.answer(call.call_id, await self._use(call))
            except NetworkRefused as refusal:
                await self._refuse(call, str(refusal), error=refusal.guest_error)
            except UnsendableAnswer as error:
                await self._refuse(call, f"{call.name} gave what cannot be sent: {error}")
            except Exception as error:  # noqa: BLE001 - whatever a tool raises belongs to the cell that called it
                await self._refuse(call, f"{call.name} failed: {type(error).__name__}: {error}")

    async def _use(self, call: HostCall) -> Any:
        if call.name == CALL:
            return await self._proxy.answer(call.payload, room=self.session.room)
        tool = self._tools.get(call.name)
        if tool is None:
            raise LookupError("no tool of this name was given")
        if inspect.iscoroutinefunction(tool):
            return await tool(**call.payload)
        return await asyncio.to_thread(tool, **call.payload)

    async def _refuse(self, call: HostCall, message: str, *, error: str = "HostCallError") -> None:
        await self.session.refuse(call.call_id, error=error, message=message[:4_000])


def open_box(policy: Policy | None = None, *, tools: Mapping[str, Tool] | None = None) -> Box:
    """Open a session for ordinary code: `with sandbox.open(policy, tools={"add": add}) as box: box.run("…")`."""
    return Box(policy, tools=tools)
