"""Reading what a model wrote: the JSON of a typed answer, and how sure the model was of a label."""

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue
from pydantic_core import from_json

from rlm_worker.models.port import JsonObject

_HALF = re.compile(r"\\u[dD][89a-fA-F]")


def parse_json(text: str) -> JsonValue | None:
    """The JSON value of an answer, also when it stands in a code fence; None when it is not JSON."""
    stripped = text.strip()
    if stripped.startswith("```") and stripped.endswith("```"):
        stripped = stripped[3:-3].removeprefix("json").strip()
    try:
        return _read(stripped, allow_inf_nan=False)
    except ValueError:
        return None


def read_body(body: bytes) -> JsonValue:
    """The JSON of a server's answer; ValueError when it is none."""
    return _read(body, allow_inf_nan=True)


def _read(text: str | bytes, *, allow_inf_nan: bool) -> JsonValue:
    """Half a character (an emoji that was cut between two tokens) is no reason to lose an answer that was paid for."""
    try:
        value: JsonValue = from_json(text, allow_inf_nan=allow_inf_nan)
    except ValueError:
        if not _HALF.search(text if isinstance(text, str) else text.decode(errors="replace")):
            raise
        value = from_json(json.dumps(_whole(json.loads(text))), allow_inf_nan=allow_inf_nan)
    return value


def _whole(part: Any) -> Any:
    match part:
        case str():
            return part.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        case list():
            return [_whole(item) for item in part]
        case dict():
            return {_whole(name): _whole(item) for name, item in part.items()}
        case _:
            return part


@dataclass(frozen=True, slots=True)
class Choice:
    """A schema whose whole answer is one of a few labels; `field` is None when the answer is the bare label."""

    field: str | None
    labels: tuple[str, ...]  # as they are written in JSON


def closed_choice(schema: JsonObject | None) -> Choice | None:
    """The choice this schema poses, if it poses exactly one and nothing else."""
    if schema is None:
        return None
    if labels := _labels(schema):
        return Choice(None, labels)
    properties = schema.get("properties")
    if not isinstance(properties, dict) or len(properties) != 1 or schema.get("required") != list(properties):
        return None
    ((field, inner),) = properties.items()
    labels = _labels(inner) if isinstance(inner, dict) else ()
    return Choice(field, labels) if labels else None


def _labels(schema: JsonObject) -> tuple[str, ...]:
    if schema.get("type") == "boolean":
        return ("true", "false")
    options = schema.get("enum")
    if not isinstance(options, list):
        return ()
    return tuple(json.dumps(option, ensure_ascii=False) for option in options)


@dataclass(frozen=True, slots=True)
class Token:
    """One token of the answer with the alternatives the model weighed at its place (text and probability).

    Not ranked: so unlikely that only a constraint brought it up, and its rivals are not among the alternatives either.
    """

    text: str
    options: tuple[tuple[str, float], ...]
    is_ranked: bool = True


def label_probability(choice: Choice, tokens: Sequence[Token]) -> float | None:
    """The probability of the label that was chosen, among the labels that were possible; None when it cannot be told.

    At each token of the label: the mass of the tokens that lead on to it, over the mass of those that lead on to any label.
    Different tokens that spell the same label are thereby added up, and what fits no label is left out.
    """
    text = "".join(token.text for token in tokens)
    start = _label_start(choice, text)
    if start is None:
        return None
    written = text[start:].lstrip()
    chosen = next(
        (label for label in sorted(choice.labels, key=len, reverse=True) if written.startswith(label)), None
    )
    if chosen is None:
        return None
    stop = text.index(chosen, start) + len(chosen)
    probability = 1.0
    at = 0
    for token in tokens:
        if at + len(token.text) > start and at < stop:
            share = _share(choice, chosen, token, text[:at], start)
            if share is None:
                return None
            probability *= share
        at += len(token.text)
    return min(1.0, probability)


def _label_start(choice: Choice, text: str) -> int | None:
    if choice.field is None:
        return 0
    key = json.dumps(choice.field, ensure_ascii=False)
    found = text.find(key)
    colon = text.find(":", found + len(key)) if found >= 0 else -1
    return colon + 1 if colon >= 0 else None


def _share(choice: Choice, chosen: str, token: Token, before: str, start: int) -> float | None:
    possible = [label for label in choice.labels if _leads_to(before[start:].lstrip(), label)]
    if possible == [chosen]:
        return 1.0
    if not token.is_ranked:
        after = (before + token.text)[start:].lstrip()
        return 1.0 if all(_leads_to(after, label) for label in possible) else None
    to_chosen = to_any = 0.0
    for option, probability in token.options:
        candidate = before + option
        if not candidate.startswith(before[:start]) or len(candidate) <= start:
            continue
        written = candidate[start:].lstrip()
        if _leads_to(written, chosen):
            to_chosen += probability
        if any(_leads_to(written, label) for label in possible):
            to_any += probability
    return to_chosen / to_any if to_any > 0 else None


def _leads_to(written: str, label: str) -> bool:
    return label.startswith(written) or written.startswith(label)


def tokens_of_logprobs(logprobs: JsonValue) -> list[Token]:
    """The tokens of an OpenAI-style `logprobs` object; empty when there are none or they are not in that form."""
    entries = logprobs.get("content") if isinstance(logprobs, dict) else None
    if not isinstance(entries, list):
        return []
    try:
        return [_token(entry) for entry in entries if isinstance(entry, dict)]
    except (KeyError, TypeError, AttributeError):
        return []


def _token(entry: JsonObject) -> Token:
    text = str(entry["token"])
    listed = entry.get("top_logprobs") or []
    options = {str(o["token"]): _probability(o["logprob"]) for o in listed if isinstance(o, dict)}  # type: ignore[union-attr]
    is_ranked = text in options
    options.setdefault(text, _probability(entry["logprob"]))
    return Token(text, tuple(options.items()), is_ranked)


def _probability(logprob: JsonValue) -> float:
    if not isinstance(logprob, int | float):
        raise TypeError("a log probability is a number")
    return math.exp(min(0.0, logprob))
