"""A model writes the cells: the view becomes a prompt, the answer one cell."""

from collections.abc import Awaitable, Callable, Sequence

from rlm_worker.drivers.driver import DriverKind, Turn, View
from rlm_worker.models.port import Message
from rlm_worker.parsing import read_turn
from rlm_worker.profiles import DEFAULT, Profile
from rlm_worker.prompts import Conversation

#: Asks the root model under the job's budget; given the iteration and the conversation, returns its text.
AskRoot = Callable[[int, Sequence[Message]], Awaitable[str]]


class ModelDriver:
    """Asks for each turn with the whole history, which only ever grows at its end."""

    kind: DriverKind = "model"

    def __init__(self, ask: AskRoot, *, observation_chars: int, profile: Profile = DEFAULT) -> None:
        self._ask = ask
        self._conversation = Conversation(observation_chars=observation_chars, profile=profile)

    def messages(self, view: View) -> list[Message]:
        """The conversation that asks for this turn."""
        return self._conversation.messages(view)

    async def next(self, view: View) -> Turn:
        return read_turn(await self._ask(view.iteration, self.messages(view)))
