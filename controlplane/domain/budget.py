"""Budgets: hold before a call leaves, settle what it cost, release the rest. Pure arithmetic, in whole units."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Decimal
from functools import lru_cache
from typing import Any, NamedTuple

from controlplane.errors import OverBudget
from rlm_worker.contracts import Budget

#: Parts of a dollar that money is counted in: small enough for the price of a single token.
NANO = Decimal(1_000_000_000)


class Amounts(NamedTuple):
    """A quantity of everything a budget counts."""

    subcalls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_nano_usd: int = 0

    def plus(self, other: "Amounts") -> "Amounts":
        return Amounts(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))

    def minus(self, other: "Amounts") -> "Amounts":
        return Amounts(*(mine - theirs for mine, theirs in zip(self, other, strict=True)))


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Upper bounds; None means unlimited. `tokens` bounds input and output together."""

    subcalls: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    tokens: int | None = None
    cost_nano_usd: int | None = None

    def allow(self, used: Sequence[int]) -> bool:
        """Whether every figure, in the order of Amounts, is within its limit."""
        subcalls, input_tokens, output_tokens, cost = used
        return not (
            (self.subcalls is not None and subcalls > self.subcalls)
            or (self.input_tokens is not None and input_tokens > self.input_tokens)
            or (self.output_tokens is not None and output_tokens > self.output_tokens)
            or (self.tokens is not None and input_tokens + output_tokens > self.tokens)
            or (self.cost_nano_usd is not None and cost > self.cost_nano_usd)
        )

    def exceeded_by(self, used: Amounts) -> str:
        """Name the first dimension that `used` passes, with both figures; empty when none is."""
        if self.allow(used):
            return ""
        figures: tuple[tuple[str, int | Decimal | None, int | Decimal], ...] = (
            ("subcalls", self.subcalls, used.subcalls),
            ("input_tokens", self.input_tokens, used.input_tokens),
            ("output_tokens", self.output_tokens, used.output_tokens),
            ("tokens", self.tokens, used.input_tokens + used.output_tokens),
            ("cost_usd", usd(self.cost_nano_usd), used.cost_nano_usd / NANO),
        )
        return next(
            f"{name}: {total} of {limit}"
            for name, limit, total in figures
            if limit is not None and total > limit
        )


@lru_cache(maxsize=1_024)
def nano_usd(cost_usd: str | Decimal | None) -> int:
    """Money in whole billionths, rounded up so that nothing is ever counted too low."""
    return 0 if cost_usd is None else int((Decimal(cost_usd) * NANO).to_integral_value(ROUND_CEILING))


def usd(nano: int | None) -> Decimal | None:
    return None if nano is None else nano / NANO


def limits_of(budget: Budget) -> Limits:
    return Limits(
        subcalls=budget.max_subcalls,
        input_tokens=budget.max_input_tokens,
        output_tokens=budget.max_output_tokens,
        tokens=budget.max_tokens,
        cost_nano_usd=None if budget.max_cost_usd is None else int(budget.max_cost_usd * NANO),
    )


def left_of(limits: Limits, *, spent: Amounts) -> Limits:
    """Limits less what was spent under them."""

    def less(limit: int | None, used: int) -> int | None:
        return None if limit is None else max(0, limit - used)

    return Limits(
        subcalls=less(limits.subcalls, spent.subcalls),
        input_tokens=less(limits.input_tokens, spent.input_tokens),
        output_tokens=less(limits.output_tokens, spent.output_tokens),
        tokens=less(limits.tokens, spent.input_tokens + spent.output_tokens),
        cost_nano_usd=less(limits.cost_nano_usd, spent.cost_nano_usd),
    )


def whole_job(limits: Limits, *, above: Limits) -> Amounts:
    """What a job can use at most, to be held at the account above it before the job starts."""
    most_in = _least(limits.input_tokens, limits.tokens) or 0
    most_out = _least(limits.output_tokens, limits.tokens) or 0
    if limits.tokens is not None and above.output_tokens is None:
        # Nobody above looks at output alone, so that one token is not held as input and as output.
        most_out = min(most_out, limits.tokens - most_in)
    return Amounts(limits.subcalls or 0, most_in, most_out, limits.cost_nano_usd or 0)


def misfit(limits: Limits, *, above: Limits) -> str:
    """Why a job with these limits can never start under those above it, however little is used there; empty: it can."""
    open_ended = (
        (above.input_tokens is not None and _least(limits.input_tokens, limits.tokens) is None)
        or (above.output_tokens is not None and _least(limits.output_tokens, limits.tokens) is None)
        or (above.tokens is not None and limits.tokens is None)
        or (above.cost_nano_usd is not None and limits.cost_nano_usd is None)
    )
    if open_ended:
        return "the tenant's budget is limited, so the job must name limits in the same units"
    passed = above.exceeded_by(whole_job(limits, above=above))
    return f"the job alone would pass the tenant's limit of {passed}" if passed else ""


def _least(*limits: int | None) -> int | None:
    return min((limit for limit in limits if limit is not None), default=None)


NOTHING = Amounts()


@dataclass(frozen=True, kw_only=True)
class Account:
    """Limits, and what is spent and held under them. Open holds are kept by the ordinal of their call."""

    limits: Limits = Limits()
    spent: Amounts = NOTHING
    held: Amounts = NOTHING
    open: dict[int, Amounts] = field(default_factory=dict)
    #: False as soon as a spend had no known price.
    is_priced: bool = True
    iterations: int = 0
    host_calls: int = 0

    @property
    def used(self) -> Amounts:
        return self.spent.plus(self.held)


def hold(account: Account, amount: Amounts) -> Account:
    """Set `amount` aside, or refuse before anything is spent."""
    held = account.held.plus(amount)
    if passed := account.limits.exceeded_by(account.spent.plus(held)):
        raise OverBudget(f"would pass its limit of {passed}")
    return Account(limits=account.limits, spent=account.spent, held=held)


def settle(account: Account, *, held: Amounts, spent: Amounts) -> Account:
    """Turn a hold into what was really used and release the rest."""
    return Account(limits=account.limits, spent=account.spent.plus(spent), held=account.held.minus(held))


_HOLDS = frozenset({"subcall_started", "model_asked"})
_SPENDS = frozenset({"subcall_finished", "model_answered"})
_COUNTED = (
    frozenset({"cell_proposed", "cell_rejected", "host_call_finished", "subcall_lost"}) | _HOLDS | _SPENDS
)


def metered(account: Account, events: Iterable[dict[str, Any]]) -> Account:
    """Fold trace events into a job's account. A hold that passes a limit raises OverBudget for the whole set."""
    counted = [event for event in events if event["kind"] in _COUNTED]
    if not counted:
        return account
    meter = _Meter(account)
    for event in counted:
        meter.take(event)
    return meter.account()


def closed(account: Account) -> Account:
    """Charge every hold whose outcome is unknown; afterwards nothing is held."""
    return Account(
        limits=account.limits,
        spent=account.used,
        is_priced=account.is_priced,
        iterations=account.iterations,
        host_calls=account.host_calls,
    )


class _Meter:
    """The running totals while one set of events is folded: every recorded call passes here, so they are plain numbers."""

    def __init__(self, account: Account) -> None:
        self._before = account
        self._spent = list(account.spent)
        self._held = list(account.held)
        self._open = dict(account.open)
        self._is_priced = account.is_priced
        self._iterations = account.iterations
        self._host_calls = account.host_calls

    def take(self, event: dict[str, Any]) -> None:
        kind = event["kind"]
        if kind in _HOLDS:
            self._hold(event["ordinal"], event["hold"])
        elif kind in _SPENDS:
            self._settle(event["ordinal"], event["spend"])
        elif kind == "subcall_lost":
            self._charge(event["ordinal"], event["charged"])
        elif kind == "host_call_finished":
            self._host_calls += 1
        else:
            self._iterations += 1

    def _hold(self, ordinal: int, wanted: dict[str, Any]) -> None:
        limits = self._before.limits
        if wanted["cost_usd"] is None and limits.cost_nano_usd is not None:
            raise OverBudget("the price of this call is unknown and the job has a limit in money")
        # The same call asked for again: the outcome of the first is unknown, so it is charged.
        if ordinal in self._open:
            self._price(wanted)
            self._close(ordinal, spent=self._open[ordinal])
        amount = _amounts(wanted, subcalls=wanted["subcalls"])
        self._open[ordinal] = amount
        _add(self._held, amount)
        used = [spent + held for spent, held in zip(self._spent, self._held, strict=True)]
        if not limits.allow(used):
            passed = limits.exceeded_by(Amounts(*used))
            raise OverBudget(f"the hold of call {ordinal} would pass the job's limit of {passed}")

    def _settle(self, ordinal: int, spend: dict[str, Any]) -> None:
        self._price(spend)
        left = self._open.get(ordinal, NOTHING)
        self._close(ordinal, spent=_amounts(spend, subcalls=left.subcalls))

    def _charge(self, ordinal: int, charged: dict[str, Any]) -> None:
        self._price(charged)
        self._close(ordinal, spent=_amounts(charged, subcalls=charged["subcalls"]))

    def _price(self, figures: dict[str, Any]) -> None:
        if figures["cost_usd"] is None:
            self._is_priced = False

    def _close(self, ordinal: int, *, spent: Amounts) -> None:
        released = self._open.pop(ordinal, None)
        if released is not None:
            _take(self._held, released)
        _add(self._spent, spent)

    def account(self) -> Account:
        return Account(
            limits=self._before.limits,
            spent=Amounts(*self._spent),
            held=Amounts(*self._held),
            open=self._open,
            is_priced=self._is_priced,
            iterations=self._iterations,
            host_calls=self._host_calls,
        )


def _amounts(figures: dict[str, Any], *, subcalls: int) -> Amounts:
    return Amounts(subcalls, figures["input_tokens"], figures["output_tokens"], nano_usd(figures["cost_usd"]))


def _add(total: list[int], amount: Amounts) -> None:
    subcalls, input_tokens, output_tokens, cost = amount
    total[0] += subcalls
    total[1] += input_tokens
    total[2] += output_tokens
    total[3] += cost


def _take(total: list[int], amount: Amounts) -> None:
    subcalls, input_tokens, output_tokens, cost = amount
    total[0] -= subcalls
    total[1] -= input_tokens
    total[2] -= output_tokens
    total[3] -= cost
