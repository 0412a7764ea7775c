"""Runs cells in one lasting namespace, like a notebook: last value printed, top-level await, errors as data."""

import ast
import asyncio
import importlib.util
import inspect
import linecache
import resource
import sys
import time
import types
from collections import deque
from collections.abc import Coroutine, Mapping
from typing import Any, Literal

from sandbox.guest import chance, clock
from sandbox.guest.calls import CellEnd
from sandbox.guest.failures import describe
from sandbox.guest.frames import JsonObject
from sandbox.guest.language import Language
from sandbox.guest.streams import CellStream, RunningCell, carry_cell_into_threads
from sandbox.guest.variables import Variables

_REMEMBERED_SOURCES = 256
_SHOWN_CHARACTERS = 20_000
_FLAGS = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT

Outcome = Literal["ok", "error", "ended", "interrupted"]


class Console:
    """The lasting state of a session: its module, its event loop, the sources of its latest cells."""

    def __init__(self, language: Language) -> None:
        self._language = language
        self._module = types.ModuleType("__main__")
        self._running = RunningCell()
        self._sources: deque[str] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._cpu_before = 0.0
        self.clock = clock.CellClock()
        self._chance = chance.Chance()
        self._variables = Variables(self._module.__dict__)

    def furnish(self, *, evidence_root: str | Mapping[str, str], workspace: str) -> None:
        """Fill the namespace with the names cells may use; touches nothing outside this object."""
        if importlib.util.find_spec("sandbox.guest.names") is not None:
            names = importlib.import_module("sandbox.guest.names")
            names.install(self._module.__dict__, evidence_root=evidence_root, workspace=workspace)

    def take_over(self) -> None:
        """Make this process the one in which the cells run, or the one from which those are forked."""
        sys.modules["__main__"] = self._module
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - lives as long as the process
        self._streams = CellStream(1, running=self._running), CellStream(2, running=self._running)
        carry_cell_into_threads()
        clock.install(self.clock)
        chance.install(self._chance)
        self._language.enter(self._module.__dict__)

    def begin(self, *, seed: int, tools: list[str]) -> None:
        """Learn what the session is for; comes once, before its first cell."""
        self._chance.begin(seed)
        if importlib.util.find_spec("sandbox.guest.names") is not None:
            names = importlib.import_module("sandbox.guest.names")
            names.install_tools(self._module.__dict__, tools)
        self._variables.own()

    def run(self, code: str, *, name: str, cell: int, clock: list[int]) -> JsonObject:
        """Run one cell and say how it ended; one that is repeated reads the times of `clock` first."""
        self._running.number = cell
        sys.stdout, sys.stderr = self._streams
        self._cpu_before = _cpu_seconds()
        self.clock.begin(clock)
        try:
            self._evaluate(code, self._remember(code, f"<{name} {cell}>"))
        except CellEnd:
            return self._ending("ended")
        except KeyboardInterrupt as error:
            return self._ending("interrupted", error)
        except BaseException as error:  # noqa: BLE001 - whatever a cell raises, SystemExit too, is its outcome
            return self._ending("error", error)
        return self._ending("ok")

    def interrupted(self) -> JsonObject:
        """Say that an interrupt hit outside the cell's own code."""
        return self._ending("interrupted", KeyboardInterrupt())

    def _ending(self, outcome: Outcome, error: BaseException | None = None) -> JsonObject:
        failure = None if error is None else self._describe(error)
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except KeyboardInterrupt:
                raise
            except BaseException:  # noqa: BLE001, S112 - the cell may have put anything in its stream's place
                continue
        self._running.number = None
        return {
            "outcome": outcome,
            "error": failure,
            "cpu_ms": int((_cpu_seconds() - self._cpu_before) * 1000),
            "memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            "variables": dict(self._variables.changed()),
        }

    def _describe(self, error: BaseException) -> JsonObject:
        return describe(error, files=frozenset(self._sources), hint=self._language.hint)

    def _remember(self, code: str, filename: str) -> str:
        """Keep the source for tracebacks and inspect.getsource."""
        linecache.cache[filename] = (len(code), None, code.splitlines(keepends=True), filename)
        self._sources.append(filename)
        if len(self._sources) > _REMEMBERED_SOURCES:
            linecache.cache.pop(self._sources.popleft(), None)
        return filename

    def _evaluate(self, code: str, filename: str) -> None:
        tree = self._language.read(code, filename, self._module.__dict__)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        self._execute(compile(tree, filename, "exec", flags=_FLAGS, dont_inherit=True))
        if isinstance(last, ast.Expr):
            expression = ast.Expression(last.value)
            value = self._execute(compile(expression, filename, "eval", flags=_FLAGS, dont_inherit=True))
            if value is not None:
                print(_shown(value))  # noqa: T201 - a notebook shows the last value

    def _execute(self, code: types.CodeType) -> Any:
        result = eval(code, self._module.__dict__)  # noqa: S307 - running code is what this process is for
        if code.co_flags & inspect.CO_COROUTINE:
            return self._await(result)
        return result

    def _await(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            asyncio.set_event_loop(self._loop)
        task = self._loop.create_task(coroutine)
        try:
            return self._loop.run_until_complete(task)
        except KeyboardInterrupt:
            task.cancel()
            self._loop.run_until_complete(asyncio.wait([task]))
            if not task.cancelled():
                task.exception()  # taken, so that it is not complained of in a later cell
            raise


def _cpu_seconds() -> float:
    """Of this process and of those it has waited for."""
    others = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + others.ru_utime + others.ru_stime


def _shown(value: object) -> str:
    """Return the repr, cut to a length a reader can use."""
    if isinstance(value, str | bytes) and len(value) > _SHOWN_CHARACTERS:
        return f"{value[:_SHOWN_CHARACTERS]!r} … ({len(value)} in all)"
    text = repr(value)
    if len(text) > _SHOWN_CHARACTERS:
        return f"{text[:_SHOWN_CHARACTERS]} … ({len(text)} characters in all)"
    return text
