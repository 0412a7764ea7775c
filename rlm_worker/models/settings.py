"""What a person can set about models. Read from the environment once, by whoever starts the worker."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from pydantic import SecretStr


@dataclass(frozen=True, kw_only=True, slots=True)
class PricePerMillion:
    """Dollars for a million tokens, for models no price list knows."""

    input_usd: Decimal
    output_usd: Decimal


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSettings:
    """`api_key` is for models named by URL; named providers read their own variables.

    `openai_key` goes to a URL only when it is OpenAI's own or the one in OPENAI_BASE_URL.
    """

    api_key: SecretStr | None = None
    openai_key: SecretStr | None = None
    openai_base_url: str | None = None
    price: PricePerMillion | None = None
    temperature: float | None = None
    max_connections: int = 128
    models_dir: Path | None = None
    threads: int | None = None
    context_tokens: int = 8192
    slots: int = 2
    linger_seconds: float = 5.0
    #: Models that take images and PDFs, beside those known to.
    seeing_models: tuple[str, ...] = ()

    @classmethod
    def from_env(cls, env: Mapping[str, str] = os.environ) -> "ModelSettings":
        """What the variables say, each under the name of its setting; the rest as it is by default."""
        models_dir = env.get("CUSTODY_MODELS")
        figures = {
            field: read(text)
            for field, (variable, read) in _FIGURES.items()
            if (text := env.get(variable, "")) != ""
        }
        return cls(
            api_key=_secret(env.get("CUSTODY_API_KEY")),
            openai_key=_secret(env.get("OPENAI_API_KEY")),
            openai_base_url=env.get("OPENAI_BASE_URL"),
            price=_price(env.get("CUSTODY_MODEL_PRICE")),
            models_dir=Path(models_dir) if models_dir else None,
            seeing_models=tuple(env.get("CUSTODY_SEEING_MODELS", "").split()),
            **figures,
        )

    def cache_dir(self, env: Mapping[str, str] = os.environ) -> Path:
        """Where model files live: one place per machine user."""
        if self.models_dir is not None:
            return self.models_dir
        base = env.get("XDG_CACHE_HOME")
        return (Path(base) if base else Path.home() / ".cache") / "custody" / "models"


#: Numbers: the variable of each, and how it is read.
_FIGURES: dict[str, tuple[str, Callable[[str], Any]]] = {
    "temperature": ("CUSTODY_TEMPERATURE", float),
    "max_connections": ("CUSTODY_MODEL_CONNECTIONS", int),
    "threads": ("CUSTODY_MODEL_THREADS", int),
    "context_tokens": ("CUSTODY_MODEL_CONTEXT_TOKENS", int),
    "slots": ("CUSTODY_MODEL_SLOTS", int),
    "linger_seconds": ("CUSTODY_MODEL_LINGER_SECONDS", float),
}


def _secret(text: str | None) -> SecretStr | None:
    return SecretStr(text) if text else None


def _price(text: str | None) -> PricePerMillion | None:
    """`CUSTODY_MODEL_PRICE=0.15/0.60`: dollars per million input and output tokens."""
    if not text:
        return None
    asked, _, answered = text.partition("/")
    try:
        return PricePerMillion(input_usd=Decimal(asked), output_usd=Decimal(answered))
    except InvalidOperation:
        raise ValueError(
            f"CUSTODY_MODEL_PRICE must be dollars per million input and output tokens, as in 0.15/0.60, not {text!r}"
        ) from None
