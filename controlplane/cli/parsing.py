"""What a person types for budget, parameters and labels, as plain values. Imports neither pydantic nor the App."""

import difflib
import json
import re
from collections.abc import Callable, Iterable
from decimal import Decimal, InvalidOperation
from typing import Any

from controlplane.cli.exits import Refusal

Amount = int | float | Decimal | None

_SCALE = {"": 1, "k": 1_000, "m": 1_000_000, "g": 1_000_000_000}
_BYTES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_MILLISECONDS = {"ms": 1, "": 1_000, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000}
_NUMBER = re.compile(r"([0-9][0-9_]*(?:\.[0-9]+)?|\.[0-9]+)\s*([a-z]*)")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_NO_LIMIT = frozenset({"none", "unlimited"})


def _scaled(text: str, units: dict[str, int]) -> int:
    match = _NUMBER.fullmatch(text.strip().lower())
    if match is None or match.group(2) not in units:
        raise ValueError(text)
    exact = Decimal(match.group(1).replace("_", "")) * units[match.group(2)]
    if exact != int(exact):
        raise ValueError(text)
    return int(exact)


def _count(text: str) -> int:
    return _scaled(text, _SCALE)


def _milliseconds(text: str) -> int:
    return _scaled(text, _MILLISECONDS)


def _bytes(text: str) -> int:
    lowered = text.strip().lower()
    return _scaled(lowered.removesuffix("ib").removesuffix("b"), _BYTES)


def _usd(text: str) -> Decimal:
    amount = Decimal(text.strip().removeprefix("$").replace("_", ""))
    if not amount.is_finite() or amount < 0:
        raise ValueError(text)
    return amount


def _share(text: str) -> float:
    share = float(text.strip().removesuffix("%")) / (100 if text.strip().endswith("%") else 1)
    if not 0 <= share <= 0.5:
        raise ValueError(text)
    return share


_Dimension = tuple[str, Callable[[str], Amount], str, bool]

#: Name as typed: field of Budget, reader, example, may be without limit.
_DIMENSIONS: dict[str, _Dimension] = {
    "iterations": ("max_iterations", _count, "20", False),
    "subcalls": ("max_subcalls", _count, "200", False),
    "depth": ("max_depth", _count, "1", False),
    "time": ("max_wall_time_ms", _milliseconds, "10m", False),
    "tokens": ("max_tokens", _count, "200k", True),
    "input_tokens": ("max_input_tokens", _count, "150k", True),
    "output_tokens": ("max_output_tokens", _count, "50k", True),
    "usd": ("max_cost_usd", _usd, "0.50", True),
    "host_calls": ("max_host_calls", _count, "1000", False),
    "output": ("max_output_bytes", _bytes, "64M", False),
    "cpu": ("max_sandbox_cpu_ms", _milliseconds, "5m", True),
    "memory": ("max_sandbox_memory_bytes", _bytes, "1G", False),
    "reserve": ("closing_reserve", _share, "5%", False),
}
_ALIASES = {
    "wall_time": "time",
    "cost": "usd",
    "output_bytes": "output",
    "sandbox_cpu": "cpu",
    "sandbox_memory": "memory",
    "closing_reserve": "reserve",
}
#: Dimensions that may be zero: no subcalls, no recursion, no host calls, no money, no reserve.
_MAY_BE_ZERO = frozenset({"subcalls", "depth", "host_calls", "usd", "reserve"})


def parse_budget(texts: Iterable[str]) -> dict[str, Amount]:
    """`iterations=20,tokens=200k,time=10m` as fields of Budget; later settings win."""
    fields: dict[str, Amount] = {}
    for part in (part for text in texts for part in text.split(",") if part.strip()):
        typed, equals, amount = part.partition("=")
        if not equals:
            raise Refusal(
                f"--budget {part.strip()!r} has no value: write it as dimension=amount, for example iterations=20."
            )
        name = typed.strip().lower().replace("-", "_")
        name = _ALIASES.get(name, name)
        if name not in _DIMENSIONS:
            raise Refusal(_unknown_dimension(typed.strip()))
        fields[_DIMENSIONS[name][0]] = _amount(name, amount.strip())
    return fields


def _amount(name: str, text: str) -> Amount:
    _, read, example, may_be_unlimited = _DIMENSIONS[name]
    if may_be_unlimited and text.lower() in _NO_LIMIT:
        return None
    try:
        amount = read(text)
    except (ValueError, InvalidOperation, OverflowError):
        raise Refusal(
            f"--budget {name}={text}: {text!r} is not an amount of {name}. Write it like {name}={example}"
            + (f", or {name}=none for no limit." if may_be_unlimited else ".")
        ) from None
    if amount == 0 and name not in _MAY_BE_ZERO:
        raise Refusal(f"--budget {name}=0: a job cannot run with no {name}. Write it like {name}={example}.")
    return amount


def _unknown_dimension(name: str) -> str:
    close = difflib.get_close_matches(name.lower(), [*_DIMENSIONS, *_ALIASES], n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return f"--budget knows no dimension {name!r}.{hint} It knows {', '.join(_DIMENSIONS)}."


def parse_params(texts: Iterable[str]) -> dict[str, Any]:
    """`k=v` pairs; a value that reads as JSON is that, anything else is text."""
    return {name: _json_or_text(value) for name, value in _pairs(texts, flag="--param")}


def parse_labels(texts: Iterable[str]) -> dict[str, str]:
    """`k=v` pairs of text."""
    return dict(_pairs(texts, flag="--label"))


def _pairs(texts: Iterable[str], *, flag: str) -> Iterable[tuple[str, str]]:
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not _NAME.fullmatch(name.strip()):
            raise Refusal(f"{flag} {text!r} is not a setting: write it as name=value.")
        yield name.strip(), value


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return text


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON value")
