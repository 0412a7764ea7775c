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
class Media:
    """An image or a PDF, sent after the text of its message."""

    media_type: str
    data: bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    role: Literal["system", "user", "assistant"]
    content: str
    media: tuple[Media, ...] = ()


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


@dataclass(frozen=True, kw_only=True, slots=True)
class Sampling:
    """How an answer is drawn. None: as was set for all calls, else as the model does by itself."""

    temperature: float | None = None
    top_p: float | None = None


AS_IT_IS = Sampling()


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
        sampling: Sampling = AS_IT_IS,
    ) -> Completion:
        """Asks once. Raises a ModelError; cancelling it hangs up."""
        ...

    async def close(self) -> None: ...


def input_token_bound(messages: Sequence[Message], *, schema_bytes: int = 0) -> int:
    """More tokens than any tokenizer in use makes of these messages: half their bytes, and 16 a message.

    An image is cut into tiles whatever its bytes; a PDF may have a page for every few kilobytes.
    """
    texts = sum(len(message.content.encode()) // 2 + 16 for message in messages)
    media = sum(_media_bound(each) for message in messages for each in message.media)
    return texts + media + schema_bytes // 2


def _media_bound(media: Media) -> int:
    return 5_000 if media.media_type.startswith("image/") else 5_000 + len(media.data) // 2
