"""SandboxError
├─ PolicyError             the caller must change the policy
│  └─ EvidenceUnreadable   … or open the named file to the sandbox's uid
├─ SandboxUnavailable      the machine lacks a layer: an operator must provide it, or a policy do without
├─ SessionEnded            the session is over: open a new one
├─ SessionBusy             a cell is running: wait for its end
└─ UnsendableAnswer        the answer cannot cross the channel: refuse the call instead
"""  # noqa: D205, D400, D415


class SandboxError(Exception):
    """Something about a sandbox went wrong on the host's side. What code inside does wrong is an event instead."""


class PolicyError(SandboxError, ValueError):
    """The policy contradicts itself or names something that is not there."""


class EvidenceUnreadable(PolicyError):
    """The sandbox's uid may not read a piece of evidence."""


class SandboxUnavailable(SandboxError):
    """A layer that the policy requires cannot be had here. `layer` names it."""

    def __init__(self, message: str, *, layer: str) -> None:
        super().__init__(message)
        self.layer = layer


class SessionEnded(SandboxError):
    """The session has ended and takes no more cells."""


class SessionBusy(SandboxError):
    """One cell at a time."""


class UnsendableAnswer(SandboxError, ValueError):
    """The value is too large, too deep or not JSON."""
