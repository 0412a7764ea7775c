"""Contains untrusted code. Knows nothing of jobs, models or leases."""

from sandbox.artifacts import Artifact, Collected, Skipped
from sandbox.backends.namespaces.zygote_client import lifelines
from sandbox.blocking import Box
from sandbox.blocking import open_box as open  # noqa: A004 - read as sandbox.open, as one opens a file
from sandbox.errors import (
    EvidenceUnreadable,
    PolicyError,
    SandboxError,
    SandboxUnavailable,
    SessionBusy,
    SessionEnded,
    UnsendableAnswer,
)
from sandbox.events import CellError, ClockRead, Draft, Event, Finished, HostCall, KillReport, Output, Submit
from sandbox.guest.citing import Address, meanings_of
from sandbox.guest.frames import JsonObject, JsonValue
from sandbox.network import NetworkRefused, Proxy
from sandbox.policy import ArtifactLimits, Limits, Mount, Network, Policy
from sandbox.probe import Layer, LayerReport, probe
from sandbox.session import Session, open_session, warm

__all__ = [
    "Address",
    "Artifact",
    "ArtifactLimits",
    "Box",
    "CellError",
    "ClockRead",
    "Collected",
    "Draft",
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
    "Network",
    "NetworkRefused",
    "Output",
    "Policy",
    "PolicyError",
    "Proxy",
    "SandboxError",
    "SandboxUnavailable",
    "Session",
    "SessionBusy",
    "SessionEnded",
    "Skipped",
    "Submit",
    "UnsendableAnswer",
    "lifelines",
    "meanings_of",
    "open",
    "open_session",
    "probe",
    "warm",
]
