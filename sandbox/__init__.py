"""Contains untrusted code. Knows nothing of jobs, models or leases."""

from sandbox.errors import (
    EvidenceUnreadable,
    PolicyError,
    SandboxError,
    SandboxUnavailable,
    SessionBusy,
    SessionEnded,
    UnsendableAnswer,
)
from sandbox.events import CellError, Event, Finished, HostCall, KillReport, Output
from sandbox.guest.frames import JsonObject, JsonValue
from sandbox.policy import Limits, Mount, Policy
from sandbox.probe import Layer, LayerReport, probe
from sandbox.session import Session, open_session, warm

__all__ = [
    "CellError",
    "Event",
    "EvidenceUnreadable",
    "Finished",
    "HostCall",
    "JsonObject",
    "JsonValue",
    "KillReport",
    "Layer",
    "LayerReport",
    "Limits",
    "Mount",
    "Output",
    "Policy",
    "PolicyError",
    "SandboxError",
    "SandboxUnavailable",
    "Session",
    "SessionBusy",
    "SessionEnded",
    "UnsendableAnswer",
    "open_session",
    "probe",
    "warm",
]
