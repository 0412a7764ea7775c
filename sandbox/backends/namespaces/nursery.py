"""Inside the zygote: take requests, fork sandboxes, wait for them, and end them all when the worker is gone."""

import contextlib
import os
import resource
import select
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

from sandbox.backends.namespaces import cgroups, confine, kernel, late, launch, root
from sandbox.backends.namespaces.plan import Plan
from sandbox.guest import runner

_STOP_SECONDS = 2.0
_REMOVE_MILLISECONDS, _REMOVE_TRIES = 2, 100
_MEMORY_HEADROOM = (
    48 << 20
)  # so that a cell meets MemoryError at its own limit before the group's killer comes


@dataclass
class _Child:
    """A sandbox as its parent holds it: where its last word goes, and the group to be removed after it."""

    report: int
    group: cgroups.Group | None
    exit_code: int = 0
    oom_kills: int = 0
    tries: int = 0


class Nursery:
    """Prepares once what every child needs, so that a child does little more than system calls."""

    def __init__(self) -> None:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        self._hierarchies = cgroups.find_hierarchies()
        cgroups.sweep(self._hierarchies)
        self._template = confine.prepare_template()
        self._cradle = _Cradle()
        self._children: dict[int, _Child] = {}
        self._gone: list[_Child] = []
        self._is_net_fresh = False

    def serve(self, control: socket.socket, wakeup: int) -> None:
        """Answer requests until the control socket closes or the worker's death is signalled."""
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGTERM)
        poller = select.poll()
        poller.register(control, select.POLLIN)
        poller.register(wakeup, select.POLLIN)
        is_wanted = True
        while is_wanted:
            self._make_net_fresh()
            ready = {fd for fd, _ in poller.poll(_REMOVE_MILLISECONDS if self._gone else None)}
            if wakeup in ready:
                is_wanted = signal.SIGTERM not in os.read(wakeup, 4096)
            self._reap()
            if is_wanted and control.fileno() in ready:
                is_wanted = self._take_request(control)
        self._end_children()

    def _make_net_fresh(self) -> None:
        """Move to a network namespace of its own, which the next child takes over: making one takes time."""
        if self._template.is_root and not self._is_net_fresh:
            with confine.layer("net-ns"):
                kernel.unshare(kernel.CLONE_NEWNET)
            self._is_net_fresh = True

    def _take_request(self, control: socket.socket) -> bool:
        message, descriptors, _, _ = socket.recv_fds(control, 64, 8)
        if not message:
            return False
        request, *handed = descriptors
        plan = Plan.from_json(os.pread(request, os.fstat(request).st_size, 0))
        kind, _, init = message.partition(b" ")
        if kind == b"spawn":
            self._spawn(plan, launch.Wires(*handed))
        else:
            self._bring_in(plan, handed, int(init))
        for fd in descriptors:
            os.close(fd)
        return True

    def _spawn(self, plan: Plan, wires: launch.Wires) -> None:
        group = cgroups.Group(self._hierarchies, plan.name) if self._hierarchies else None
        try:
            self._make_net_fresh()
            if group is not None:
                with confine.layer("cgroup"):
                    group.create(
                        memory_bytes=plan.memory_bytes + _MEMORY_HEADROOM,
                        processes=plan.processes + confine.OWN_PROCESSES,
                    )
            init, handle = launch.start(
                launch.Birth(plan, self._template, group, wires, self._cradle.prepare)
            )
            self._is_net_fresh = False
        except confine.LayerFailed as failure:
            launch.tell_failure(wires.report, failure)
            if group is not None:
                group.remove_patiently()
            return
        launch.tell(wires.report, {"init": init}, handle)
        os.close(handle)
        self._children[init] = _Child(os.dup(wires.report), group)

    def _bring_in(self, plan: Plan, handed: list[int], init: int) -> None:
        report, *namespaces = handed
        try:
            child, handle = kernel.fork()
        except OSError as error:
            launch.tell_failure(report, error)
            return
        if child == 0:
            kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
            launch.forget_handlers()
            late.bring_in(plan, self._template, report, namespaces, init=init)
        os.close(handle)

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                child = self._children.pop(pid, None)
                if child is not None:
                    child.exit_code = os.waitstatus_to_exitcode(status)
                    child.oom_kills = child.group.oom_kills() if child.group is not None else 0
                    self._gone.append(child)
        self._gone = [child for child in self._gone if not self._is_cleared(child)]

    def _is_cleared(self, child: _Child) -> bool:
        """Remove the group and say the last word. A group that is still busy is tried again in a moment."""
        child.tries += 1
        if child.group is not None and not child.group.remove() and child.tries < _REMOVE_TRIES:
            return False
        survivors = child.group.members() if child.group is not None else []
        ending = {"exit": child.exit_code, "oom_kills": child.oom_kills, "survivors": survivors}
        launch.tell(child.report, ending)
        os.close(child.report)
        return True

    def _end_children(self) -> None:
        """Kill every sandbox and clean up after it; what takes too long dies with the zygote."""
        deadline = time.monotonic() + _STOP_SECONDS
        for child in self._children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        while (self._children or self._gone) and time.monotonic() < deadline:
            self._reap()
            time.sleep(0.002)


class _Cradle:
    """What a runner needs in its memory, made before there is one."""

    def __init__(self) -> None:
        runner.set_environment(workspace=root.WORKSPACE, temporary="/tmp")  # noqa: S108 - inside
        self._console = runner.furnished_console(
            "open", evidence_root=root.EVIDENCE, workspace=root.WORKSPACE
        )

    def prepare(self, plan: Plan, channel: int) -> Callable[[], None]:
        surroundings = runner.Surroundings(
            frame_bytes=plan.frame_bytes,
            frame_depth=plan.frame_depth,
            calls_in_flight=plan.calls_in_flight,
            evidence_root=root.EVIDENCE,
            workspace=root.WORKSPACE,
            guest_root=root.GUEST,
            library_paths=tuple(bind.target for bind in plan.guest_paths),
            language=plan.language,
            language_paths=tuple(os.path.dirname(bind.target) for bind in plan.language_paths),  # noqa: PTH120
        )
        console = self._console if plan.language == "open" else None
        return runner.prepare(surroundings, channel, console=console).serve
