"""One request: who asks, whether they may ask now, and the act they ask for, carried out once in a thread."""

import hashlib
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, TypeVar

from fastapi import Depends, Request
from fastapi.responses import Response
from pydantic import BaseModel

from controlplane.api.authenticate import Authenticator
from controlplane.api.pool import Pool
from controlplane.api.problems import Unauthenticated
from controlplane.api.rates import Rates
from controlplane.bootstrap import App
from controlplane.domain.identity import Caller
from controlplane.errors import ControlPlaneError, Denied, InvalidRequest
from controlplane.handlers import audits, guards, repeats
from controlplane.ports import Desk
from controlplane.ports_access import RepeatedRow

_JSON = "application/json"
_LONGEST_KEY = 200
_TRACEPARENT = re.compile(r"00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
Found = TypeVar("Found")


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """What every request shares."""

    app: App
    auth: Authenticator
    pool: Pool
    rates: Rates


@dataclass(frozen=True, kw_only=True)
class Acting:
    """Whoever asks, with the hands to do it."""

    app: App
    desk: Desk
    caller: Caller


@dataclass(frozen=True, kw_only=True)
class Reply:
    body: BaseModel
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    #: What is kept of it for the same request again, when that is less.
    kept: BaseModel | None = None

    def response(self) -> Response:
        return Response(
            self.body.model_dump_json(),
            status_code=self.status,
            media_type=_JSON,
            headers={"Cache-Control": "no-store", **self.headers},
        )


Act = Callable[[Acting], Reply]


class Call:
    """A request on its way."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.kernel: Kernel = request.app.state.kernel

    async def read(self, act: Act) -> Response:
        """Answer with what is there."""
        return await self.run(lambda acting: act(acting).response())

    async def run(self, act: Callable[[Acting], Found]) -> Found:
        """Do something in a thread, as whoever asks. What is refused goes on record."""
        return await self.kernel.pool.run(partial(self._as_caller, act))

    async def write(self, act: Act, *, job_id: str | None = None) -> Response:
        """Carry something out: once for an Idempotency-Key, and only on what was seen for an If-Match."""
        key = self.request.headers.get("Idempotency-Key")
        tags = self.request.headers.get("If-Match")
        body = await self.request.body()
        return await self.run(partial(self._carry_out, act, key=key, tags=tags, job_id=job_id, body=body))

    def _as_caller(self, act: Callable[[Acting], Found]) -> Found:
        kernel = self.kernel
        caller = self.known_caller()
        acting = Acting(app=kernel.app.acting_as(caller), desk=kernel.app.desk, caller=caller)
        try:
            return act(acting)
        except Denied as denied:
            target = f"{self.request.method} {self.request.url.path}"
            audits.refused(kernel.app.desk, denied, caller=caller, target=target)
            raise

    def known_caller(self) -> Caller:
        """Whoever asks, if they may ask now. Those who are nobody share one rate for each address they come from."""
        peer = self.request.client.host if self.request.client else ""
        try:
            caller = self.kernel.auth.caller(self.request.headers.get("Authorization"))
        except Unauthenticated:
            self.kernel.rates.take(f"nobody at {peer}")
            raise
        self.kernel.rates.take(f"{caller.scope.tenant_id}/{caller.name}")
        return caller

    def _carry_out(
        self,
        act: Act,
        acting: Acting,
        *,
        key: str | None,
        tags: str | None,
        job_id: str | None,
        body: bytes,
    ) -> Response:
        before = None
        if tags is not None and job_id is not None and tags.strip() != "*":
            before = guards.as_seen(job_id, _tags(tags), caller=acting.caller)
        if key is None:
            desk = guards.guarded(acting.desk, before=before)
            return act(Acting(app=acting.app, desk=desk, caller=acting.caller)).response()
        row = self._take(acting, key, body)
        if row.status is not None:
            return _again(row)
        desk = guards.guarded(acting.desk, before=before, after=partial(_mark, row))
        try:
            reply = act(Acting(app=acting.app, desk=desk, caller=acting.caller))
        except BaseException:
            with suppress(ControlPlaneError):
                repeats.give_back(acting.desk, row)
            raise
        kept = reply.kept or reply.body
        repeats.keep(acting.desk, row, status=reply.status, body=kept.model_dump_json())
        return reply.response()

    def _take(self, acting: Acting, key: str, body: bytes) -> RepeatedRow:
        if not 1 <= len(key) <= _LONGEST_KEY or not key.isascii() or not key.isprintable():
            raise InvalidRequest(f"an Idempotency-Key is 1 to {_LONGEST_KEY} printable ASCII characters")
        url = self.request.url
        told = "\n".join((self.request.method, url.path, url.query, hashlib.sha256(body).hexdigest()))
        request_digest = hashlib.sha256(told.encode("utf-8", "surrogatepass")).hexdigest()
        return repeats.take(acting.desk, caller=acting.caller, key=key, request_digest=request_digest)

    def traceparent(self) -> str:
        """The trace that the caller is part of (W3C); empty when it says none."""
        given = self.request.headers.get("traceparent", "")
        return given if _TRACEPARENT.fullmatch(given) else ""

    def own_id(self, prefix: str, acting: Acting) -> str | None:
        """An id that the same request with the same key has again; None without a key."""
        key = self.request.headers.get("Idempotency-Key")
        if key is None:
            return None
        told = "\n".join((acting.caller.scope.tenant_id or "", acting.caller.name, key))
        return f"{prefix}_{hashlib.sha256(told.encode()).hexdigest()[:26]}"


def _mark(row: RepeatedRow, tx: object) -> None:
    repeats.mark(tx, row)  # type: ignore[arg-type]


def _again(row: RepeatedRow) -> Response:
    assert row.status is not None
    headers = {"Idempotency-Replayed": "true", "Cache-Control": "no-store"}
    return Response(row.body, status_code=row.status, media_type=_JSON, headers=headers)


def _tags(given: str) -> frozenset[str]:
    """Strong tags of an If-Match; weak ones never match."""
    parts = [part.strip() for part in given.split(",")]
    return frozenset(part[1:-1] for part in parts if len(part) > 2 and part[0] == part[-1] == '"')


def _call(request: Request) -> Call:
    return Call(request)


Called = Annotated[Call, Depends(_call)]
