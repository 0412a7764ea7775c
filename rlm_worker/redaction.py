"""Keeps secrets out of what the worker writes: its own, by their values, and everybody's that look like one.

What is recorded is what is used: an answer or a cell is redacted before it is acted on, so that a repeated cell meets the
very same text. Output of a cell is compared by a digest of what it printed, and is redacted where it is kept.
"""

import json
import os
import re
from functools import cache
from typing import Any, TypeVar, cast

from pydantic import JsonValue
from pydantic_core import PydanticSerializationError

from rlm_worker.contracts.base import Contract

_SECRET_NAMES = re.compile(
    r"(?i)((api|access|private|signing|encryption)[_-]?key|token|secret|passw|passphrase|credential)"
)
#: Shorter values are too common in ordinary text to be replaced in it.
_SHORTEST = 12
_MARK = "[redacted]"

#: Texts one of which is part of whatever the shapes below find: most events hold none of them.
_HINTS = (
    *("PRIVATE KEY", "sk-", "AKIA", "ASIA", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-"),
    *("sk_", "rk_", "npm_", "pypi-", "dop_v1_", "SG.", "ecret_access_key", "ECRET_ACCESS_KEY"),
    *("xox", "xapp-", "AIza", "gsk_", "hf_", "eyJ", "earer", "EARER", "asic", "ASIC", "@"),
    "cst_",
    *("KEY=", "TOKEN=", "SECRET=", "PASSWORD=", "PASSWD="),
)
#: What a secret looks like; the groups around it stay.
_SHAPES = (
    # private keys
    r"()-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\Z)()",
    # keys of model providers, clouds, forges and chats
    r"()\bsk-[A-Za-z0-9_-]{20,}()",
    r"()\b(?:AKIA|ASIA)[0-9A-Z]{16}\b()",
    r"()\b(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{22,}|glpat-[A-Za-z0-9_-]{20,})()",
    r"()\b(?:xox[abeprs]|xapp)-[A-Za-z0-9-]{10,}()",
    r"()\b[sr]k_(?:live|test)_[A-Za-z0-9]{16,}()",
    r"((?i:aws_)?(?i:secret_access_key)[\"']?\s*[=:]\s*[\"']?)[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+])()",
    # of registries of packages, hosts and mail
    r"()\b(?:npm_[A-Za-z0-9]{36}\b|pypi-[A-Za-z0-9_-]{50,}|dop_v1_[0-9a-f]{64}|SG\.[\w-]{16,}\.[\w-]{16,})()",
    r"()\b(?:AIza[0-9A-Za-z_-]{35}|gsk_[A-Za-z0-9]{20,}|hf_[A-Za-z0-9]{30,})()",
    # keys of a control plane of ours
    r"()\bcst_[A-Za-z0-9]+_[A-Za-z0-9_-]{20,}()",
    # signed tokens, and what stands in a header; a word without a digit is a word
    r"()\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{5,}()",
    r"(\b(?:[Bb]earer|BEARER|[Bb]asic|BASIC)\s+)(?=\S*\d)[A-Za-z0-9._~+/=-]{16,}()",
    # a password in an address
    r"([a-z][a-z0-9+.-]*://[^\s/:@]*:)[^\s/@]+(@)",
    # a line of an environment file
    r"(\b(?:[A-Z0-9]+_)*(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD)=[\"']?)(?=\S*\d)[A-Za-z0-9._~+/=-]{8,}()",
)

C = TypeVar("C", bound=Contract)


@cache
def _shapes() -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(shape, re.DOTALL) for shape in _SHAPES)


@cache
def _secrets() -> tuple[str, ...]:
    """Values of environment variables whose names say that they are secrets, the longest first."""
    found = {
        value for name, value in os.environ.items() if _SECRET_NAMES.search(name) and len(value) >= _SHORTEST
    }
    return tuple(sorted(found, key=len, reverse=True))


@cache
def _encoded() -> tuple[str, ...]:
    """The same as they stand in JSON text, where quotes and line ends are escaped; and what hints at others."""
    return (*(json.dumps(secret, ensure_ascii=False)[1:-1] for secret in _secrets()), *_HINTS)


def redact(value: C) -> C:
    """The value, with secrets replaced wherever it holds text."""
    try:
        text = value.model_dump_json()
    except PydanticSerializationError:
        text = json.dumps(value.model_dump(mode="json"), ensure_ascii=False)  # half a character, from a model
    if not _hints_at_one(text):
        return value
    body = value.model_dump(mode="json")
    cleaned = {name: part if name == "kind" else _clean(part) for name, part in body.items()}
    return value if cleaned == body else type(value).model_validate(cleaned)


def _hints_at_one(text: str) -> bool:
    for hint in _encoded():  # noqa: SIM110 - a loop is twice as fast as any() here, and most events end in it
        if hint in text:
            return True
    return False


def redact_json(value: JsonValue) -> JsonValue:
    """A JSON value, with secrets replaced."""
    return cast("JsonValue", _clean(value))


def redact_text(text: str) -> str:
    """A text, with secrets replaced."""
    for secret in _secrets():
        text = text.replace(secret, _MARK)
    if any(hint in text for hint in _HINTS):
        for shape in _shapes():
            text = shape.sub(rf"\1{_MARK}\2", text)
    return text


def _clean(part: Any) -> Any:
    if isinstance(part, str):
        return redact_text(part)
    if isinstance(part, list):
        return [_clean(item) for item in part]
    if isinstance(part, dict):
        return {_clean(name): _clean(item) for name, item in part.items()}
    return part
