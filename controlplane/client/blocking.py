"""`Client`: the synchronous transport. Everything it asks and reads is in the core."""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
from controlplane.client.verbs import Blocking, Verbs

T = TypeVar("T")


class Client(Verbs, Blocking):
    """A Custody server. One client may be used by several threads; leave it with `close` or as a context manager."""

    def __init__(
        self,
        server: str,
        *,
        key: str | None = None,
        timeout: float = 30.0,
        patience: Patience | None = None,
        allow_plain_http: bool = False,
        transport: httpx2.BaseTransport | None = None,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self.server = checked_address(server, has_key=key is not None, allow_plain=allow_plain_http)
        self._http = httpx2.Client(
            base_url=self.server, headers=headers_of(key), timeout=timeout, transport=transport
        )
        self._patience = patience or Patience()
        self._sleep = sleep

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def do(self, asked: Call[T] | Plan[T]) -> T:
        """Carry out a request, or an act of several."""
        return self._ask(asked) if isinstance(asked, Call) else self._carry_out(asked)

    def _ask(self, call: Call[T]) -> T:
        tried = 0
        while True:
            try:
                return read(call, self._send(call))
            except ClientError as error:
                wait = self._patience.wait_after(error, call, tried=tried, chance=random.random())  # noqa: S311
                if wait is None:
                    raise
            tried += 1
            self._sleep(wait)

    def _send(self, call: Call[Any]) -> Said:
        try:
            answer = self._http.request(**arguments(call))
        except httpx2.TransportError as error:
            raise unreachable(self.server, error) from error
        return Said(status=answer.status_code, headers=answer.headers, body=answer.content)

    def _carry_out(self, plan: Plan[T]) -> T:
        try:
            step = next(plan)
            while True:
                try:
                    given = self._step(step)
                except ClientError as error:
                    step = plan.throw(error)
                else:
                    step = plan.send(given)
        except StopIteration as end:
            outcome: T = end.value
            return outcome
        finally:
            plan.close()

    def _step(self, step: Call[Any] | Pause) -> Any:
        return self._sleep(step.seconds) if isinstance(step, Pause) else self._ask(step)

    def follow(self, job_id: str, *, after: str = "", content: bool = False) -> Iterator[Update]:
        """Everything that happens to a job until it has ended; a broken connection is taken up where it broke."""
        following = Following(job_id, after=after, content=content)
        while not following.is_over:
            error: ClientError | None = None
            try:
                with self._open(following.call(), seconds=STREAM_SECONDS) as answer:
                    for line in answer.iter_lines():
                        if (update := following.feed(line)) is not None:
                            yield update
                        if following.is_over:
                            return
            except httpx2.TransportError as broken:
                error = unreachable(self.server, broken)
            except ClientError as refused:
                error = refused
            self._sleep(following.broken(error, patience=self._patience, chance=random.random()))  # noqa: S311

    @contextmanager
    def _open(self, call: Call[Any], *, seconds: float | None = None) -> Iterator[httpx2.Response]:
        sent = arguments(call) | ({} if seconds is None else {"timeout": seconds})
        with self._http.stream(**sent) as answer:
            if answer.status_code != 200:
                body = answer.read()
                raise refusal(call.path, Said(status=answer.status_code, headers=answer.headers, body=body))
            yield answer

    def download(self, job_id: str, artifact: ArtifactBody, target: Path) -> Path:
        """Put a file that a job made into its place, checked against its digest."""
        path = path_of(artifact)
        call, tried = job_calls.artifact(job_id, path), 0
        while True:
            try:
                with Incoming(target, sha256=artifact.sha256, what=path) as incoming:
                    with self._open(call) as answer:
                        for piece in answer.iter_bytes():
                            incoming.take(piece)
                    return incoming.finish()
            except httpx2.TransportError as broken:
                error: ClientError = unreachable(self.server, broken)
            except ClientError as refused:
                error = refused
            wait = self._patience.wait_after(error, call, tried=tried, chance=random.random())  # noqa: S311
            if wait is None:
                raise error
            tried += 1
            self._sleep(wait)
