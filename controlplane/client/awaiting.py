"""`AsyncClient`: the asynchronous transport. Everything it asks and reads is in the core."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self, TypeVar

import httpx2

from controlplane.api.bodies import ArtifactBody
from controlplane.client import job_calls
from controlplane.client.address import checked_address, headers_of
from controlplane.client.calls import Call, Pause, Plan, Said, read, refusal
from controlplane.client.errors import ClientError
from controlplane.client.retrying import Patience
from controlplane.client.sending import STREAM_SECONDS, arguments, unreachable
from controlplane.client.streams import Following, Incoming, Update, path_of
from controlplane.client.verbs import Awaiting, Verbs

T = TypeVar("T")


class AsyncClient(Verbs, Awaiting):
    """A Custody server, asked from an event loop; leave it with `aclose` or as an asynchronous context manager."""

    def __init__(
        self,
        server: str,
        *,
        key: str | None = None,
        timeout: float = 30.0,
        patience: Patience | None = None,
        allow_plain_http: bool = False,
        transport: httpx2.AsyncBaseTransport | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self.server = checked_address(server, has_key=key is not None, allow_plain=allow_plain_http)
        self._http = httpx2.AsyncClient(
            base_url=self.server, headers=headers_of(key), timeout=timeout, transport=transport
        )
        self._patience = patience or Patience()
        self._sleep = sleep

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self._http.aclose()

    async def do(self, asked: Call[T] | Plan[T]) -> T:
        """Carry out a request, or an act of several."""
        return await (self._ask(asked) if isinstance(asked, Call) else self._carry_out(asked))

    async def _ask(self, call: Call[T]) -> T:
        tried = 0
        while True:
            try:
                return read(call, await self._send(call))
            except ClientError as error:
                wait = self._patience.wait_after(error, call, tried=tried, chance=random.random())  # noqa: S311
                if wait is None:
                    raise
            tried += 1
            await self._sleep(wait)

    async def _send(self, call: Call[Any]) -> Said:
        try:
            answer = await self._http.request(**arguments(call))
        except httpx2.TransportError as error:
            raise unreachable(self.server, error) from error
        return Said(status=answer.status_code, headers=answer.headers, body=answer.content)

    async def _carry_out(self, plan: Plan[T]) -> T:
        # Plans read files, so their steps are taken in a thread; one at a time, as a generator wants it.
        try:
            step = await asyncio.to_thread(_advance, lambda: next(plan))
            while not isinstance(step, _Ended):
                step = await asyncio.to_thread(_advance, await self._next(plan, step))
            outcome: T = step.value
            return outcome
        finally:
            plan.close()

    async def _next(self, plan: Plan[Any], step: Call[Any] | Pause) -> Callable[[], Any]:
        """The step done, and how the plan is told."""
        try:
            given = await (self._sleep(step.seconds) if isinstance(step, Pause) else self._ask(step))
        except ClientError as error:
            refused = error
            return lambda: plan.throw(refused)
        return lambda: plan.send(given)

    async def follow(self, job_id: str, *, after: str = "", content: bool = False) -> AsyncIterator[Update]:
        """Everything that happens to a job until it has ended; a broken connection is taken up where it broke."""
        following = Following(job_id, after=after, content=content)
        while not following.is_over:
            error: ClientError | None = None
            try:
                async with self._open(following.call(), seconds=STREAM_SECONDS) as answer:
                    async for line in answer.aiter_lines():
                        if (update := following.feed(line)) is not None:
                            yield update
                        if following.is_over:
                            return
            except httpx2.TransportError as broken:
                error = unreachable(self.server, broken)
            except ClientError as refused:
                error = refused
            await self._sleep(following.broken(error, patience=self._patience, chance=random.random()))  # noqa: S311

    @asynccontextmanager
    async def _open(self, call: Call[Any], *, seconds: float | None = None) -> AsyncIterator[httpx2.Response]:
        sent = arguments(call) | ({} if seconds is None else {"timeout": seconds})
        async with self._http.stream(**sent) as answer:
            if answer.status_code != 200:
                body = await answer.aread()
                raise refusal(call.path, Said(status=answer.status_code, headers=answer.headers, body=body))
            yield answer

    async def download(self, job_id: str, artifact: ArtifactBody, target: Path) -> Path:
        """Put a file that a job made into its place, checked against its digest."""
        path = path_of(artifact)
        call, tried = job_calls.artifact(job_id, path), 0
        while True:
            try:
                with Incoming(target, sha256=artifact.sha256, what=path) as incoming:
                    async with self._open(call) as answer:
                        async for piece in answer.aiter_bytes():
                            await asyncio.to_thread(incoming.take, piece)
                    return incoming.finish()
            except httpx2.TransportError as broken:
                error: ClientError = unreachable(self.server, broken)
            except ClientError as refused:
                error = refused
            wait = self._patience.wait_after(error, call, tried=tried, chance=random.random())  # noqa: S311
            if wait is None:
                raise error
            tried += 1
            await self._sleep(wait)


class _Ended:
    """What a plan gave."""

    def __init__(self, value: Any) -> None:
        self.value = value


def _advance(tell: Callable[[], Any]) -> Any:
    # StopIteration cannot leave a thread through a future.
    try:
        return tell()
    except StopIteration as end:
        return _Ended(end.value)
