"""Asks models: connects each once, owns all retries, never spends time that the job does not have."""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass

from rlm_worker.config import WorkerSettings
from rlm_worker.contracts import JsonObject
from rlm_worker.models import Completion, Message, Model, connect
from rlm_worker.models.errors import ChangeTheSetup, ModelError, RateLimited
from rlm_worker.models.port import AS_IT_IS, Sampling


@dataclass(frozen=True, kw_only=True)
class Asked:
    """An answer, and how many requests it took."""

    completion: Completion
    requests: int


class Models:
    """The models of one job tree."""

    def __init__(self, settings: WorkerSettings) -> None:
        self._settings = settings
        self._open: dict[str, Model] = {}
        #: By name: what a person must change before this model can be asked at all.
        self._broken: dict[str, ChangeTheSetup] = {}

    def get(self, name: str) -> Model:
        """The model of this name, connected once."""
        if name not in self._open:
            self._open[name] = connect(name, settings=self._settings.models)
        return self._open[name]

    async def ask(
        self,
        model: Model,
        messages: Sequence[Message],
        *,
        schema: JsonObject | None,
        max_output_tokens: int,
        seconds: float,
        sampling: Sampling = AS_IT_IS,
    ) -> Asked:
        """One answer. Waits out short rate limits and overloads as far as the time allows."""
        if (broken := self._broken.get(model.name)) is not None:
            raise broken
        now = asyncio.get_running_loop().time
        deadline = now() + seconds
        for requests in range(1, self._settings.retries + 2):
            try:
                completion = await model.complete(
                    messages,
                    schema=schema,
                    max_output_tokens=max_output_tokens,
                    timeout_seconds=max(0.01, min(deadline - now(), self._settings.model_timeout_seconds)),
                    sampling=sampling,
                )
            except ChangeTheSetup as error:
                self._broken[model.name] = error
                raise
            except ModelError as error:
                pause = self._pause(error, requests)
                if pause is None or now() + pause >= deadline:
                    raise
                await asyncio.sleep(pause)
            else:
                return Asked(completion=completion, requests=requests)
        raise AssertionError("the last try returns or raises")

    def _pause(self, error: ModelError, requests: int) -> float | None:
        """Seconds until the next try, or None when there is none."""
        if not error.may_retry or error.may_have_spent or requests > self._settings.retries:
            return None
        if isinstance(error, RateLimited) and error.retry_after_seconds is not None:
            wait = error.retry_after_seconds
            return wait if wait <= self._settings.park_after_seconds else None
        return self._settings.retry_seconds * float(2 ** (requests - 1)) * random.uniform(0.75, 1.25)  # noqa: S311

    async def close(self) -> None:
        for model in self._open.values():
            await model.close()
        self._open.clear()
