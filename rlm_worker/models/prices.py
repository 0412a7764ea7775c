"""What a call costs: nothing on this machine, a price set by hand, or the genai-prices list. Unknown stays unknown."""

from collections.abc import Sequence
from contextlib import suppress
from decimal import Decimal
from importlib.metadata import version
from typing import TYPE_CHECKING, Protocol

from pydantic_core import to_json

from rlm_worker.models.port import Estimate, JsonObject, Message, PriceRow, TokenUsage, input_token_bound
from rlm_worker.models.settings import PricePerMillion

if TYPE_CHECKING:
    from genai_prices.types import PriceCalculation


class Price(Protocol):
    def is_known(self) -> bool: ...

    def row(self) -> PriceRow: ...

    def cost(self, usage: TokenUsage) -> Decimal | None: ...


class Free:
    """A model on this machine."""

    def is_known(self) -> bool:
        return True

    def cost(self, usage: TokenUsage) -> Decimal | None:  # noqa: ARG002  # part of the protocol
        return Decimal(0)

    def row(self) -> PriceRow:
        nothing = Decimal(0)
        return PriceRow(source="free", input_usd=nothing, output_usd=nothing, cached_input_usd=nothing)


class SetByHand:
    def __init__(self, price: PricePerMillion) -> None:
        self._price = price

    def is_known(self) -> bool:
        return True

    def cost(self, usage: TokenUsage) -> Decimal | None:
        asked = usage.input_tokens * self._price.input_usd
        answered = usage.output_tokens * self._price.output_usd
        return (asked + answered) / 1_000_000

    def row(self) -> PriceRow:
        return PriceRow(
            source="set_by_hand",
            input_usd=self._price.input_usd,
            output_usd=self._price.output_usd,
            cached_input_usd=self._price.input_usd,
        )


class Listed:
    """The price of a model in the list that genai-prices carries, by its URL, else by its provider; looked up offline."""

    def __init__(
        self, model: str, *, provider_id: str | None = None, provider_url: str | None = None
    ) -> None:
        self._model = model
        self._provider_id = provider_id
        self._provider_url = provider_url

    def is_known(self) -> bool:
        return self.cost(TokenUsage(input_tokens=1, output_tokens=1)) is not None

    def cost(self, usage: TokenUsage) -> Decimal | None:
        found = self._calculated(usage)
        return None if found is None else found.total_price

    def row(self) -> PriceRow:
        found = self._calculated(TokenUsage(input_tokens=1, output_tokens=1))
        if found is None:
            return PriceRow(source="unknown", model=self._model, provider=self._provider_id or "")
        updated = found.auto_update_timestamp
        price = found.model_price
        return PriceRow(
            source="genai-prices",
            version=version("genai-prices") + (f", updated {updated:%Y-%m-%dT%H:%M:%SZ}" if updated else ""),
            provider=found.provider.id,
            model=found.model.id,
            input_usd=_base(price.input_mtok),
            output_usd=_base(price.output_mtok),
            cached_input_usd=_base(price.cache_read_mtok),
            text=str(price),
        )

    def _calculated(self, usage: TokenUsage) -> "PriceCalculation | None":
        from genai_prices import Usage, calc_price  # noqa: PLC0415  # heavy, and free models never need it

        tokens = Usage(
            input_tokens=usage.input_tokens,
            cache_read_tokens=usage.cached_input_tokens or None,
            output_tokens=usage.output_tokens,
        )
        if self._provider_url is not None:
            with suppress(LookupError, ValueError):
                return calc_price(tokens, self._model, provider_api_url=self._provider_url)
        if self._provider_id is not None:
            with suppress(LookupError, ValueError):
                return calc_price(tokens, self._model, provider_id=self._provider_id)
        return None


def _base(price: object) -> Decimal | None:
    """The price of the first token: a price with tiers has it as its base."""
    found = getattr(price, "base", price)
    return found if isinstance(found, Decimal) else None


def estimate(
    price: Price, messages: Sequence[Message], *, max_output_tokens: int, schema: JsonObject | None
) -> Estimate:
    """An upper guess of what a call will use and cost, whichever client makes it."""
    asked = input_token_bound(messages, schema_bytes=len(to_json(schema)) if schema else 0)
    cost = price.cost(TokenUsage(input_tokens=asked, output_tokens=max_output_tokens))
    return Estimate(input_tokens=asked, output_tokens=max_output_tokens, cost_usd=cost)
