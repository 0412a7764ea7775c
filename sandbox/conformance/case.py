"""What a case of the suite is, and the stand on which it is tried: sessions of the backend under test. Knows no case."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from sandbox.errors import UnsendableAnswer
from sandbox.events import Event, Finished, HostCall
from sandbox.policy import Policy
from sandbox.session import Session

Opener = Callable[[Policy], Awaitable[Session]]
Answer = Callable[[HostCall], Any]

#: Begins the line in which code tells the host what it saw; the suite's own code is honest.
_SEEN = "seen by the case: "

#: What the code of a case may use without asking: raw system calls, and a way to say what it saw.
PRELUDE = f"""
import ctypes, errno, json, os, sys, time
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
def call(number, *args):
    "The result of a raw system call, or the name of its errno."
    ctypes.set_errno(0)
    wide = [ctypes.c_long(a) if isinstance(a, int) else a for a in args]
    result = libc.syscall(ctypes.c_long(number), *wide)
    return result if result >= 0 else errno.errorcode.get(ctypes.get_errno(), 'unknown')
def child(result):
    "What a call that may fork gave; a child ends here."
    return os._exit(0) if result == 0 else result
def tried(act):
    "What an act gave, or the errno or class of its failure."
    try:
        return act()
    except OSError as error:
        return errno.errorcode.get(error.errno, type(error).__name__)
    except Exception as error:
        return type(error).__name__
def report(value):
    print({_SEEN!r} + json.dumps(value), flush=True)
"""


class Refused(Exception):
    """The language policy did not let the case's code run: it is held one layer earlier than the case asks."""


@dataclass
class Trial:
    """One session of the backend under test, and what it did."""

    session: Session
    policy: Policy
    calls: list[HostCall] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    async def run(self, code: str, *, deadline: float = 20.0, answer: Answer | None = None) -> Finished:
        """Run a cell to its end. Calls get their payload back, or what `answer` says; None leaves them open."""
        finished: Finished | None = None
        async for event in self.session.execute(code, deadline_seconds=deadline):
            self.events.append(event)
            if isinstance(event, HostCall):
                self.calls.append(event)
                await self._answer(event, event.payload if answer is None else answer(event))
            elif isinstance(event, Finished):
                finished = event
        assert finished is not None, "the cell had no last event"
        return finished

    async def _answer(self, call: HostCall, value: Any) -> None:
        if value is not None:
            try:
                await self.session.answer(call.call_id, value)
            except UnsendableAnswer as error:
                await self.session.refuse(call.call_id, error="HostCallError", message=str(error))

    async def raw(self, code: str, *, deadline: float = 20.0, answer: Answer | None = None) -> Finished:
        """Run code that needs the whole of Python. Raises Refused where the language policy stops it."""
        finished = await self.run(PRELUDE + code, deadline=deadline, answer=answer)
        if self.policy.language == "strict" and finished.outcome == "error" and not finished.state_lost:
            assert finished.error is not None
            if _SEEN not in finished.stdout:
                raise Refused(f"{finished.error.type}: {finished.error.message}".splitlines()[0])
        return finished

    async def seen(self, code: str, *, deadline: float = 20.0, answer: Answer | None = None) -> Any:
        """Run raw code and return what it reported last."""
        finished = await self.raw(code, deadline=deadline, answer=answer)
        reports = [line for line in finished.stdout.splitlines() if line.startswith(_SEEN)]
        assert finished.outcome == "ok", f"the case's code did not run: {told(finished)}"
        assert reports, f"the case's code reported nothing: {told(finished)}"
        return json.loads(reports[-1].removeprefix(_SEEN))

    async def expect_alive(self) -> None:
        """The session still runs cells."""
        finished = await self.run("print(6 * 7)")
        assert (finished.outcome, finished.stdout.strip()) == ("ok", "42"), (
            f"the session is no longer of use: {told(finished)}"
        )


def told(finished: Finished) -> str:
    """How a cell ended, for the reason of a failed case."""
    error = "" if finished.error is None else f" {finished.error.type}: {finished.error.message[:300]}"
    return f"{finished.outcome}{error} {finished.detail} {finished.stderr[-300:]}".strip()


@dataclass(frozen=True)
class Stand:
    """The backend under test: opens sessions of one base policy, changed as a case needs it."""

    policy: Policy
    opener: Opener
    #: Names of what holds here: layers of the backend, and what follows from them.
    claims: frozenset[str] = frozenset()

    @asynccontextmanager
    async def open(self, **changes: Any) -> AsyncIterator[Trial]:
        policy = replace(self.policy, **changes)
        session = await self.opener(policy)
        try:
            yield Trial(session, policy)
        finally:
            await session.close()


Check = Callable[[Stand], Awaitable[None]]


@dataclass(frozen=True)
class Case:
    """One thing that a backend must hold. `check` raises AssertionError, with a reason a reader can use."""

    name: str
    proves: str
    needs: frozenset[str]
    check: Check


def case(proves: str, *, needs: str = "") -> Callable[[Check], Case]:
    """Make a function a case, named for it; `needs` lists claims without which it says nothing."""

    def make(check: Check) -> Case:
        name = getattr(check, "__name__", "").replace("_", "-")
        return Case(name, proves, frozenset(needs.split()), check)

    return make


def cases_of(names: dict[str, Any]) -> tuple[Case, ...]:
    """The cases of a module, in the order in which they stand there."""
    return tuple(value for value in names.values() if isinstance(value, Case))
