"""What the worker asks of any model: messages in, one answer with its usage and cost out.

Knows no provider, no wire format and no retry policy: a Model asks once, and the caller decides whether to ask again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal, Protocol

from pydantic import JsonValue

JsonObject = dict[str, JsonValue]


@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenUsage:
    """Tokens of one call, as the model's own answer reports them; cached input tokens are part of the input tokens."""

    input_tokens: int
    output_tokens: int
    cached_input_tokens: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """An upper guess made before the call, for the budget's hold; no cost when the price is unknown."""

    input_tokens: int
    output_tokens: int
    cost_usd: Decimal | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Completion:
    """One answer. `value` is its JSON when a schema was asked for and the text parses; nobody has validated it yet.

    `probability` is that of the chosen label, where the schema is one closed choice and the server tells.
    """

    text: str
    value: JsonValue | None
    probability: float | None
    usage: TokenUsage
    cost_usd: Decimal | None
    model: str
    finish_reason: str
    raw: JsonValue


@dataclass(frozen=True, kw_only=True)
class PriceRow:
    """What a model is charged by: dollars per million tokens, and where that stands. Tiers above are in `text`."""

    source: Literal["free", "set_by_hand", "genai-prices", "unknown"]
    #: Of the price list: the version of the package, and when it was last updated apart from it.
    version: str = ""
    provider: str = ""
    model: str = ""
    input_usd: Decimal | None = None
    output_usd: Decimal | None = None
    cached_input_usd: Decimal | None = None
    text: str = ""


class Model(Protocol):
    """A model bound to the event loop it is first used on. Safe for concurrent calls on that loop."""

    @property
    def name(self) -> str:
        """The canonical name, as a user would type it."""
        ...

    def price_known(self) -> bool: ...

    def price_row(self) -> PriceRow: ...

    def estimate(
        self, messages: Sequence[Message], *, max_output_tokens: int, schema: JsonObject | None = None
    ) -> Estimate: ...

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        schema: JsonObject | None = None,
        max_output_tokens: int,
        timeout_seconds: float,
    ) -> Completion:
        """Asks once. Raises a ModelError; cancelling it hangs up."""
        ...

    async def close(self) -> None: ...


def input_token_bound(messages: Sequence[Message], *, schema_bytes: int = 0) -> int:
    """More tokens than any tokenizer in use makes of these messages: half their bytes, and 16 a message."""
    return sum(len(message.content.encode()) // 2 + 16 for message in messages) + schema_bytes // 2
