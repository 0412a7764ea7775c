"""Settings that the control plane hands on to the engine as they are: the engine's own names, the same defaults."""

from collections.abc import Mapping
from dataclasses import dataclass, fields


@dataclass(frozen=True, kw_only=True)
class EngineSettings:
    """Limits and habits of a worker. What each means stands in rlm_worker/config.py."""

    #: Model requests and children of one job tree that may be under way at once.
    subcalls_in_flight: int = 64
    children_at_once: int = 8
    #: Times an answer that does not fit is sent back, and a request is sent again after an error.
    repairs: int = 1
    retries: int = 3
    retry_seconds: float = 0.5
    #: Longer rate limits park the job; how often in a row they may.
    park_after_seconds: float = 20.0
    parks_in_a_row: int = 12
    model_timeout_seconds: float = 300.0
    turn_output_tokens: int = 4_096
    #: Temperature of turns; the profile's when it is not set.
    turn_temperature: float | None = None
    #: Least time for the closing turn of a model; time that a stopped job has for a last SUBMIT.
    closing_seconds: float = 10.0
    stop_grace_seconds: float = 5.0
    pause_grace_seconds: float = 30.0
    #: Characters of a cell's output that the next prompt shows.
    observation_chars: int = 10_000
    #: How the model that writes cells is spoken to; by its name when it is not set.
    profile: str | None = None
    #: Estimated tokens of a conversation past which it starts anew, and how often it may.
    rollover_tokens: int = 120_000
    max_rollovers: int = 8
    #: What counts as turning in a circle: times the same failing cell, the same output, a turn without a cell;
    #: subcalls with nearly the same inputs, subcalls in a row without an answer.
    repeated_failures: int = 3
    repeated_observations: int = 5
    empty_turns: int = 5
    similar_subcalls: int = 20
    failing_subcalls: int = 25
    #: A worker gives a lease up this long before it could be granted again: less than lease_seconds.
    lease_margin_seconds: float = 1.5


@dataclass(frozen=True, kw_only=True)
class ModelChoices:
    """What can be set about models, apart from their keys. Handed on as the variables that the worker reads."""

    #: Temperature of all calls; each model's own when it is not set.
    temperature: float | None = None
    #: Dollars per million input and output tokens of models that no price list knows, as in 0.15/0.60.
    model_price: str | None = None
    #: Names, separated by spaces, of models that take images and PDFs, beside those known to.
    seeing_models: str | None = None
    #: Connections to one server of models.
    model_connections: int = 128
    #: Of the embedded model.
    model_threads: int | None = None
    model_context_tokens: int = 8192
    model_slots: int = 2
    model_linger_seconds: float = 5.0


#: Settings that are the engine's own, under the same names there.
ENGINE: tuple[str, ...] = tuple(item.name for item in fields(EngineSettings))
MODELS: tuple[str, ...] = tuple(item.name for item in fields(ModelChoices))

#: What may be zero: none at all, or at once.
MAY_BE_ZERO = frozenset(
    {
        "repairs",
        "retries",
        "retry_seconds",
        "parks_in_a_row",
        "turn_temperature",
        "closing_seconds",
        "stop_grace_seconds",
        "pause_grace_seconds",
        "max_rollovers",
        "temperature",
        "model_linger_seconds",
    }
)


def model_variables(choices: ModelChoices) -> Mapping[str, str]:
    """The choices as variables, for whoever reads an environment."""
    chosen = {name: getattr(choices, name) for name in MODELS}
    return {f"CUSTODY_{name.upper()}": str(value) for name, value in chosen.items() if value is not None}
