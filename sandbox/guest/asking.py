"""ask(): a question to a person, answered with a typed value however long it takes. The cell does not notice the wait."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from sandbox.guest.results import Deferred, in_async_code
from sandbox.guest.subcalls import AsyncCall, Call
from sandbox.guest.typed import build, revive, schema_of


class Person:
    """Whoever answers the questions of this job."""

    def __init__(self, call: Call, call_async: AsyncCall, names: Mapping[str, Any]) -> None:
        self._call = call
        self._call_async = call_async
        self._names = names

    def ask(self, question: str, /, schema: Any = str, *, timeout: float | timedelta | None = None) -> Any:
        """Ask a person; the job waits, for days if need be, and holds nothing meanwhile.

        `ask("Which year is meant?", int)`, `ask("Go on?", Literal["yes", "no"])`, `ask("Who?", "name: str, since: date")`,
        a dataclass, a pydantic model or a JSON Schema. With a timeout (seconds) NobodyAnswered is raised when it is over.
        """
        wanted = schema if isinstance(schema, str | dict) else schema_of(schema, names=self._names)
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        payload = {"question": str(question), "schema": wanted, "timeout": seconds}
        if not in_async_code():
            return self._typed(schema, self._call("ask", payload))

        async def later() -> Any:
            return self._typed(schema, await self._call_async("ask", payload))

        return Deferred(now=lambda: self._typed(schema, self._call("ask", payload)), later=later)

    def _typed(self, schema: Any, answer: Mapping[str, Any]) -> Any:
        if isinstance(schema, str | dict):
            return revive(answer["value"], answer["schema"])
        return build(schema, answer["value"], names=self._names)
