"""Findings of watchdogs: what is wrong with a job, and what a policy does about it. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast, get_args

from controlplane.errors import InvalidRequest

Action = Literal["warn", "pause", "stop", "kill", "quarantine"]

#: What is done about each kind where nothing else is said. A job whose worker makes no progress holds a place that others need.
DEFAULT_POLICY: Mapping[str, Action] = {
    "no_progress": "stop",
    "wait_overdue": "warn",
    "retries_over": "quarantine",
    "never_answered": "warn",
    "crashed_repeatedly": "warn",
    "state_disagrees": "warn",
    "never_dispatched": "warn",
    "spends_fast": "warn",
    "errors_in_a_row": "warn",
    "same_code_again": "warn",
}


@dataclass(frozen=True, kw_only=True)
class Found:
    """A job that a check found stuck."""

    job_id: str
    tenant_id: str
    kind: str
    detail: str
    evidence: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One per job and kind until it is over."""

    finding_id: str
    job_id: str
    tenant_id: str
    kind: str
    detail: str
    evidence: dict[str, Any]
    action: Action
    at_ms: int
    resolved_ms: int | None = None


def read_policy(text: str) -> dict[str, Action]:
    """`kind=action,kind=action` over the defaults."""
    policy = dict(DEFAULT_POLICY)
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        kind, _, action = part.partition("=")
        if kind.strip() not in policy or action.strip() not in get_args(Action):
            raise InvalidRequest(
                f"stuck_policy: {part!r} is not KIND=ACTION; kinds: {', '.join(policy)}; "
                f"actions: {', '.join(get_args(Action))}"
            )
        policy[kind.strip()] = cast("Action", action.strip())
    return policy
