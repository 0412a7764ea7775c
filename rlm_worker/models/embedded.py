"""The embedded model: a Model whose server runs on this machine, started with the first call and shared with other workers."""

import asyncio
import hashlib
import os
import threading
from collections.abc import Sequence
from pathlib import Path

from rlm_worker.models.catalogue import CATALOGUE, DEFAULT, CatalogueEntry, find_entry, next_smaller
from rlm_worker.models.errors import ModelUnavailable, Unreachable
from rlm_worker.models.hosting import Hosting, OnStart, Use, acquire
from rlm_worker.models.openai_wire import WireModel, parse_endpoint
from rlm_worker.models.port import (
    AS_IT_IS,
    Completion,
    Estimate,
    JsonObject,
    Message,
    PriceRow,
    Sampling,
    TokenUsage,
    input_token_bound,
)
from rlm_worker.models.prices import Free
from rlm_worker.models.settings import ModelSettings
from rlm_worker.models.shelf import Shelf

# It only shows that the machinery works, so nobody gets it without asking for it by name.
_ONLY_BY_NAME = "smollm2-135m"


def _silent(what: str) -> None:
    """Tells nobody."""


class EmbeddedModel:
    """`name` is one of the catalogue, the path of a GGUF file, or None for the best one installed."""

    def __init__(self, name: str | None, *, settings: ModelSettings, on_start: OnStart = _silent) -> None:
        self._hosting = _hosting(name, settings)
        self._settings = settings
        self._on_start = on_start
        self._use: Use | None = None
        self._wire: WireModel | None = None
        self._starting = asyncio.Lock()

    @property
    def name(self) -> str:
        return f"embedded:{self._hosting.name}"

    @property
    def server_pid(self) -> int | None:
        return self._use.pid if self._use else None

    def price_known(self) -> bool:
        return True

    def price_row(self) -> PriceRow:
        return Free().row()

    def estimate(
        self, messages: Sequence[Message], *, max_output_tokens: int, schema: JsonObject | None = None
    ) -> Estimate:
        asked = input_token_bound(messages, schema_bytes=len(str(schema)) if schema else 0)
        cost = Free().cost(TokenUsage(input_tokens=asked, output_tokens=max_output_tokens))
        return Estimate(input_tokens=asked, output_tokens=max_output_tokens, cost_usd=cost)

    async def start(self) -> None:
        """Has the server running: by itself with the first call, or now, for whoever shows progress."""
        await self._connected()

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        schema: JsonObject | None = None,
        max_output_tokens: int,
        timeout_seconds: float,
        sampling: Sampling = AS_IT_IS,
    ) -> Completion:
        """Asks once. The time a model takes to load does not count; the wait for a free slot does."""
        wire = await self._connected()
        try:
            return await wire.complete(
                messages,
                schema=schema,
                max_output_tokens=max_output_tokens,
                timeout_seconds=timeout_seconds,
                sampling=sampling,
            )
        except Unreachable:
            if self._wire is wire and self._use is not None and not self._use.is_alive():
                await self.close()  # its server died: the next call starts another
            raise

    async def close(self) -> None:
        wire, self._wire = self._wire, None
        use, self._use = self._use, None
        if wire is not None:
            await wire.close()
        if use is not None:
            use.release()

    async def _connected(self) -> WireModel:
        async with self._starting:
            if self._wire is not None:
                return self._wire
            self._use = await self._acquire()
            self._wire = WireModel(
                self.name,
                endpoint=parse_endpoint(f"{self._use.url}/v1#{self._hosting.name}"),
                price=Free(),
                api_key=self._use.key,
                temperature=0.0 if self._settings.temperature is None else self._settings.temperature,
                max_connections=self._settings.max_connections,
            )
            return self._wire

    async def _acquire(self) -> Use:
        """In a thread, since it waits on locks and processes. When cancelled, a hold that comes too late is let go."""
        handover = _Handover()
        await_use = asyncio.to_thread(lambda: handover.give(acquire(self._hosting, on_start=self._on_start)))
        try:
            return await await_use
        except asyncio.CancelledError:
            handover.abandon()
            raise


class _Handover:
    """A hold on its way from the thread that got it to the task that wants it, if it still does."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._use: Use | None = None
        self._is_abandoned = False

    def give(self, use: Use) -> Use:
        with self._lock:
            self._use = use
            if self._is_abandoned:
                use.release()
        return use

    def abandon(self) -> None:
        with self._lock:
            self._is_abandoned = True
            if self._use is not None:
                self._use.release()


async def embedded_model(
    name: str | None, *, settings: ModelSettings, on_start: OnStart = _silent
) -> EmbeddedModel:
    """An embedded model whose server is up."""
    model = EmbeddedModel(name, settings=settings, on_start=on_start)
    await model.start()
    return model


def _hosting(name: str | None, settings: ModelSettings) -> Hosting:
    shelf = Shelf(settings.cache_dir())
    label, file = _file_of(name, shelf)
    return Hosting(
        name=label,
        file=file,
        folder=shelf.folder,
        threads=settings.threads or max(1, (os.cpu_count() or 1) - 1),
        context_tokens=settings.context_tokens,
        slots=settings.slots,
        linger_seconds=settings.linger_seconds,
    )


def _best_installed(shelf: Shelf) -> CatalogueEntry:
    offered = (entry for entry in CATALOGUE if entry.name != _ONLY_BY_NAME)
    return next((entry for entry in offered if shelf.is_installed(entry)), find_entry(DEFAULT))


def _file_of(name: str | None, shelf: Shelf) -> tuple[str, Path]:
    if name is not None and (name.endswith(".gguf") or "/" in name):
        file = Path(name).expanduser().resolve()
        if not file.is_file():
            raise ModelUnavailable(name, f"there is no file {file}")
        return f"{file.stem}-{hashlib.sha256(bytes(file)).hexdigest()[:8]}", file
    entry = find_entry(name) if name is not None else _best_installed(shelf)
    if not shelf.is_installed(entry):
        other = next_smaller(entry)
        instead = f" (smaller: {other.name})" if other else ""
        raise ModelUnavailable(
            f"embedded:{entry.name}",
            f"not on this machine yet; run: custody models pull {entry.name}{instead}, or set an API key, "
            "or name a server of yours (http://host:port/v1#model-name)",
        )
    if not shelf.is_verified(entry):
        raise ModelUnavailable(
            f"embedded:{entry.name}",
            f"the file has changed since it was verified; run: custody models pull {entry.name}",
        )
    return entry.name, shelf.path(entry)
