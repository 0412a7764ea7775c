"""The degraded backend as the session sees it: one process without namespaces, in a directory of its own."""

import contextlib
import dataclasses
import os
import socket
import weakref
from dataclasses import dataclass
from pathlib import Path

from sandbox.artifacts import Collected, remove_tree
from sandbox.backends.landlock import workspaces
from sandbox.backends.landlock.plan import LandlockPlan
from sandbox.backends.landlock.showing import Shown
from sandbox.backends.namespaces.plan import Bind
from sandbox.backends.namespaces.zygote_client import Guest as Spawned
from sandbox.backends.namespaces.zygotes import Zygotes
from sandbox.backends.port import Ending, Guest
from sandbox.ending import read_ending
from sandbox.planning import plan_for
from sandbox.policy import ArtifactLimits, Policy
from sandbox.strictness import package_directory

zygotes = Zygotes(Path(__file__).with_name("zygote.py"))
_watch = workspaces.Watch()


@dataclass
class LandlockGuest:
    """A guest of the zygote, and the directory that is its workspace until it is released."""

    process: Spawned
    workspace: Path
    #: Second names of evidence, if it needed some.
    shown: Path | None = None
    reason: str = ""

    @property
    def layers(self) -> tuple[str, ...]:
        return self.process.layers

    @property
    def init_pid(self) -> int:
        return self.process.init_pid

    @property
    def channel(self) -> socket.socket:
        return self.process.channel

    @property
    def stdout(self) -> int:
        return self.process.stdout

    @property
    def stderr(self) -> int:
        return self.process.stderr

    @property
    def gone(self) -> int:
        """The pidfd of the runner, which cannot fork: nothing else is there."""
        return self.process.init

    def interrupt(self) -> None:
        self.process.interrupt()

    def kill(self) -> None:
        self.process.kill()

    def exceed(self, reason: str) -> None:
        """Kill it for what it put on the disk."""
        self.reason = self.reason or reason
        self.process.kill()

    async def ending(self) -> Ending:
        _watch.forget(self.workspace)
        ending = await read_ending(self.process.report)
        return dataclasses.replace(ending, reason=self.reason)

    def collect(self, into: Path, limits: ArtifactLimits) -> Collected:
        return self.process.collect(into, limits)

    def __post_init__(self) -> None:
        # Also of a session that was killed and never closed. Takes no lock: it may run in the middle of anything.
        self._remove = weakref.finalize(self, _remove, self.workspace, self.shown)

    def release(self) -> None:
        self.process.release()
        _watch.forget(self.workspace)
        self._remove()


def _remove(*folders: Path | None) -> None:
    """Whoever cannot remove them now is helped by the sweep of a later worker."""
    for folder in folders:
        if folder is not None:
            with contextlib.suppress(OSError):
                remove_tree(folder)


def open_guest(policy: Policy) -> Guest:
    workspace, shown = workspaces.make(), Shown()
    try:
        guest = LandlockGuest(zygotes.spawn(_plan(policy, workspace, shown)), workspace, shown.folder)
    except BaseException:
        _remove(workspace, shown.folder)
        raise
    limits = policy.limits
    _watch.add(workspaces.Watched(workspace, limits.workspace_bytes, limits.workspace_inodes, guest.exceed))
    return guest


def _plan(policy: Policy, workspace: Path, shown: Shown) -> LandlockPlan:
    usual = plan_for(policy)
    values = {field.name: getattr(usual, field.name) for field in dataclasses.fields(usual)}
    values["evidence"] = tuple(
        shown.bind(Bind(source=os.path.realpath(mount.source), target=mount.target, is_evidence=True))
        for mount in policy.evidence
    )
    source = package_directory()
    values["language_paths"] = (Bind(source=source, target=source),)
    return LandlockPlan(**values, workspace=str(workspace))


def warm() -> None:
    zygotes.warm()
