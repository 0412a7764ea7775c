"""Opens the driver of a REPL, and asks the root model for turns under the job's budget."""

import asyncio
from collections.abc import Sequence

from rlm_worker.config import WorkerSettings
from rlm_worker.contracts import JobSpec, digest
from rlm_worker.contracts.job import ModelDriver as ModelDriverSpec
from rlm_worker.contracts.job import PlaybookDriver as PlaybookDriverSpec
from rlm_worker.contracts.job import RecordingDriver as RecordingDriverSpec
from rlm_worker.contracts.limits import PromptShortened
from rlm_worker.contracts.trace import Hold, ModelAnswered, ModelAsked, Spend
from rlm_worker.crashpoints import crash_here
from rlm_worker.drivers.driver import Driver
from rlm_worker.drivers.model import ModelDriver
from rlm_worker.drivers.playbook import PlaybookDriver
from rlm_worker.drivers.recording import CellsDriver
from rlm_worker.errors import JobFailed, TurnDeclined, TurnTooLong
from rlm_worker.meter import Meter, whole
from rlm_worker.models import Completion, Message
from rlm_worker.models.errors import ModelError, RateLimited
from rlm_worker.models.port import AS_IT_IS, Sampling
from rlm_worker.profiles import profile_for, sampling_of
from rlm_worker.recovery import parking, remedy
from rlm_worker.rollover import can_roll_over
from rlm_worker.shortening import shorten, size
from rlm_worker.workbench import Workbench


def open_driver(bench: Workbench, spec: JobSpec, *, node: str, meter: Meter) -> Driver:
    """Whoever writes the cells of this REPL."""
    match spec.driver:
        case PlaybookDriverSpec(source=source):
            return PlaybookDriver(source)
        case ModelDriverSpec(model=name):
            profile = profile_for(name, chosen=bench.settings.profile)
            sampling = sampling_of(profile, temperature=_chosen_temperature(bench.settings))
            root = RootModel(bench, name, node=node, meter=meter, sampling=sampling)
            return ModelDriver(root.ask, observation_chars=bench.settings.observation_chars, profile=profile)
        case RecordingDriverSpec(cells=taken):
            return CellsDriver(taken)


def _chosen_temperature(settings: WorkerSettings) -> float | None:
    of_turns = settings.turn_temperature
    return settings.models.temperature if of_turns is None else of_turns


class RootModel:
    """The model that writes the cells of one REPL."""

    def __init__(
        self, bench: Workbench, name: str, *, node: str, meter: Meter, sampling: Sampling = AS_IT_IS
    ) -> None:
        self._bench = bench
        self._name = name
        self._node = node
        self._meter = meter
        self._sampling = sampling
        #: Characters that fitted into the model's context after a longer prompt did not.
        self._most: int | None = None

    async def ask(self, iteration: int, messages: Sequence[Message]) -> str:
        """The text of a turn: from the record when it was paid for already."""
        recorded = self._bench.journal.nodes[self._node].at(iteration).asked
        if recorded is not None:
            return recorded.text
        if self._most is not None:
            messages = shorten(messages, most=self._most)
        tries = 0
        while True:
            try:
                # Turns of children and predict() calls share one limit for the whole tree.
                async with self._bench.limiter:
                    self._bench.waiting.check()
                    self._meter.check_time()
                    return await self._once(iteration, messages)
            except ModelError as error:
                messages = await self._after(error, iteration, messages, tries=tries)
                tries += 1

    async def _once(self, iteration: int, messages: Sequence[Message]) -> str:
        """One request under a hold of its own; the outcome is recorded whatever it is."""
        crash_here("turn.before_hold")
        ordinal, hold = await self._hold(iteration, messages)
        try:
            with self._bench.waiting.call():
                completion = await self._complete(messages)
        except ModelError as error:
            charged = whole(hold) if error.may_have_spent else Spend()
            self._meter.settle(ordinal, charged)
            await self._bench.writer.write(self._event(iteration, ordinal, spend=charged, error=str(error)))
            raise
        except asyncio.CancelledError:
            # The request may have been answered and billed: the hold is charged.
            self._meter.settle(ordinal, whole(hold))
            self._bench.writer.add(
                self._event(iteration, ordinal, spend=whole(hold), error="cancelled; the hold is charged")
            )
            raise
        spend = Spend(
            input_tokens=completion.usage.input_tokens,
            output_tokens=completion.usage.output_tokens,
            cached_input_tokens=completion.usage.cached_input_tokens,
            cost_usd=completion.cost_usd,
        )
        crash_here("turn.before_record")
        # Durable with the cell that is read from it, before that runs.
        self._meter.settle(ordinal, spend)
        self._bench.writer.add_later(self._event(iteration, ordinal, spend=spend, text=completion.text))
        return completion.text

    async def _after(
        self, error: ModelError, iteration: int, messages: Sequence[Message], *, tries: int
    ) -> Sequence[Message]:
        """What to ask with next; raises when there is no next time."""
        self._meter.check_time()
        journal, settings = self._bench.journal, self._bench.settings
        can = can_roll_over(journal.nodes[self._node], iteration=iteration, most=settings.max_rollovers)
        match remedy(error, tries=tries, settings=settings, parks=journal.parks, can_roll_over=can):
            case "park" if isinstance(error, RateLimited):
                raise self._bench.waiting.must(parking(error)) from error
            case "roll_over":
                raise TurnTooLong(str(error)) from error
            case "shorten" if self._most is None:
                return await self._shortened(iteration, messages)
            case "tell":
                raise TurnDeclined(str(error)) from error
            case "ask_again":
                return messages
            case _:
                raise JobFailed("model_error", str(error)) from error

    async def _shortened(self, iteration: int, messages: Sequence[Message]) -> Sequence[Message]:
        """The same turn with about half of what was said; from now on no prompt is longer."""
        self._most = size(messages) // 2
        shorter = shorten(messages, most=self._most)
        await self._bench.writer.write(
            PromptShortened(
                node=self._node, iteration=iteration, characters=size(messages), kept_characters=size(shorter)
            )
        )
        return shorter

    async def _hold(self, iteration: int, messages: Sequence[Message]) -> tuple[int, Hold]:
        try:
            model = self._bench.model(self._name)
        except ModelError as error:
            raise JobFailed("model_error", str(error)) from error
        guess = model.estimate(messages, max_output_tokens=self._bench.settings.turn_output_tokens)
        hold = Hold(
            input_tokens=guess.input_tokens, output_tokens=guess.output_tokens, cost_usd=guess.cost_usd
        )
        ordinal = self._bench.journal.take_ordinal()
        self._meter.hold(ordinal, hold, model=self._name)
        await self._bench.writer.write(
            ModelAsked(
                node=self._node,
                iteration=iteration,
                ordinal=ordinal,
                model=self._name,
                prompt_digest=digest([[message.role, message.content] for message in messages]),
                hold=hold,
                temperature=self._sampling.temperature,
                top_p=self._sampling.top_p,
            )
        )
        crash_here("turn.after_hold")
        return ordinal, hold

    async def _complete(self, messages: Sequence[Message]) -> Completion:
        asked = await self._bench.models.ask(
            self._bench.models.get(self._name),
            messages,
            schema=None,
            max_output_tokens=self._bench.settings.turn_output_tokens,
            seconds=max(0.01, self._meter.seconds_left()),
            sampling=self._sampling,
        )
        return asked.completion

    def _event(
        self, iteration: int, ordinal: int, *, spend: Spend, text: str = "", error: str = ""
    ) -> ModelAnswered:
        return ModelAnswered(
            node=self._node,
            iteration=iteration,
            ordinal=ordinal,
            model=self._name,
            text=text,
            spend=spend,
            ok=not error,
            error=error,
        )
