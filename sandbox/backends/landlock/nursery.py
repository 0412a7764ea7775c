"""Inside the degraded backend's zygote: forks sandboxes, each one process that cannot fork."""

import contextlib
import importlib
import os
import sys
from collections.abc import Collection

from sandbox.backends.landlock import confine
from sandbox.backends.landlock.plan import LandlockPlan
from sandbox.backends.namespaces import kernel, launch
from sandbox.backends.namespaces.plan import Header
from sandbox.backends.namespaces.serving import Serving
from sandbox.guest import runner
from sandbox.guest.language.offered import OFFERED

#: Text codecs are loaded when they are first used, which a dropped uid may not be able to.
_CODECS = ("ascii", "latin_1", "utf_8_sig", "utf_16", "utf_32", "cp1252", "idna", "hex_codec")


class Nursery(Serving):
    """One process per sandbox, a child of this one, that cannot fork."""

    def __init__(self) -> None:
        for name in (*OFFERED, *(f"encodings.{codec}" for codec in _CODECS)):
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
        self._libraries = confine.library_paths()
        self._pid = os.getpid()
        self._reports: dict[int, int] = {}

    def take_request(self, message: bytes, descriptors: list[int]) -> None:
        request, *wires = descriptors
        self._learn_strictness(Header.from_json(message.partition(b" ")[2]))
        self._spawn(request, launch.Wires(*wires))

    def children(self) -> Collection[int]:
        return self._reports

    def bury(self, child: int, status: int) -> None:
        report = self._reports.pop(child, None)
        if report is not None:
            code = os.waitstatus_to_exitcode(status)
            launch.tell(report, {"exit": code if code >= 0 else 128 - code})
            os.close(report)

    def _learn_strictness(self, header: Header) -> None:
        """Load the strict language once for all: its package may lie where a dropped uid cannot read it."""
        places = [os.path.dirname(place) for place in header.language_places]  # noqa: PTH120
        sys.path += places
        try:
            with contextlib.suppress(ImportError):  # told by the child, which needs it and fails
                importlib.import_module("sandbox.guest.language.strict")
        finally:
            del sys.path[len(sys.path) - len(places) :]

    def _spawn(self, request: int, wires: launch.Wires) -> None:
        child, handle = kernel.fork()
        if child == 0:
            self._be_runner(request, wires)
        launch.tell(wires.report, {"init": child}, handle)
        self._reports[child] = os.dup(wires.report)
        os.close(handle)

    def _be_runner(self, request: int, wires: launch.Wires) -> None:
        """Be the one process of a sandbox: prepare while paths can be opened, confine, then the REPL."""
        status = 70
        try:
            launch.forget_handlers()
            plan = LandlockPlan.read(request)
            wires.settle()
            os.umask(0o077)
            _hand_over(plan.workspace)
            uid = confine.own_uid(os.getpid())
            if uid is not None:
                os.chown(plan.workspace, uid, uid)
            rules = confine.make_rules(plan, self._libraries)
            os.chdir(plan.workspace)
            serve = runner.prepare(_surroundings(plan), launch.CHANNEL_FD).serve
            confine.limit_resources(plan, uid=uid)
            layers = confine.give_up(rules, uid=uid, zygote=self._pid)
            if (source := _unreadable(plan)) is not None:
                launch.tell(launch.REPORT_FD, {"unreadable": source})
                return
            confine.install_filter()
            layers += ["seccomp", "no-fork", "strict-language"]
            launch.tell(launch.REPORT_FD, {"layers": layers})
            os.close(launch.REPORT_FD)
            serve()
        except Exception as error:  # noqa: BLE001 - told to the host instead of dying mute
            launch.tell_failure(launch.REPORT_FD, error)
        finally:
            os._exit(status)


def _hand_over(workspace: str) -> None:
    """Send the host handles of this process and of its workspace."""
    handles = os.pidfd_open(os.getpid()), os.open(workspace, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    launch.tell(launch.REPORT_FD, {"runner": os.getpid()}, *handles)
    for handle in handles:
        os.close(handle)


def _surroundings(plan: LandlockPlan) -> runner.Surroundings:
    return runner.Surroundings(
        frame_bytes=plan.frame_bytes,
        frame_depth=plan.frame_depth,
        calls_in_flight=plan.calls_in_flight,
        evidence_root={bind.target: bind.source for bind in plan.evidence},
        workspace=plan.workspace,
        temporary=plan.workspace,
        guest_root=os.path.dirname(os.path.dirname(os.path.abspath(runner.__file__))),  # noqa: PTH100, PTH120
        library_paths=(),
        language="strict",
        language_paths=tuple(os.path.dirname(bind.source) for bind in plan.language_paths),  # noqa: PTH120
    )


def _unreadable(plan: LandlockPlan) -> str | None:
    """Return the first piece of evidence that this uid may not read."""
    for bind in plan.evidence:
        needed = os.R_OK | (os.X_OK if os.path.isdir(bind.source) else 0)  # noqa: PTH112
        if not os.access(bind.source, needed):
            return bind.source
    return None
