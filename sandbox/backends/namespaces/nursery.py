"""Inside the zygote: take requests, fork children, reap them, and end them all when the worker is gone."""

import contextlib
import os
import platform
import select
import signal
import socket
import time
from collections.abc import Callable

from sandbox.backends.namespaces import cgroups, confine, kernel, launch, root, seccomp, syscalls
from sandbox.backends.namespaces.plan import Plan
from sandbox.guest import runner

_STOP_SECONDS = 2.0


class Nursery:
    """Prepares once what every child needs, so that a child does little more than system calls."""

    def __init__(self) -> None:
        machine = platform.machine()
        filters = {}
        if machine in syscalls.AUDIT_ARCH:
            filters = {fork: seccomp.compile_filter(machine, allow_fork=fork) for fork in (True, False)}
        self._template = confine.Template(root.interpreter_binds(), root.foreign_packages(), filters)
        self._hierarchies = cgroups.find_hierarchies()
        cgroups.sweep(self._hierarchies)
        self._pid = os.getpid()
        self._children: set[int] = set()

    def serve(self, control: socket.socket, wakeup: int) -> None:
        """Answer requests until the control socket closes or the worker's death is signalled."""
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGTERM)
        poller = select.poll()
        poller.register(control, select.POLLIN)
        poller.register(wakeup, select.POLLIN)
        is_wanted = True
        while is_wanted:
            ready = {fd for fd, _ in poller.poll()}
            if wakeup in ready:
                is_wanted = signal.SIGTERM not in os.read(wakeup, 4096)
                self._reap()
            if is_wanted and control.fileno() in ready:
                is_wanted = self._take_request(control)
        self._end_children()

    def _take_request(self, control: socket.socket) -> bool:
        message, descriptors, _, _ = socket.recv_fds(control, 64, 8)
        if not message:
            return False
        child = os.fork()
        if child == 0:
            self._be_child(descriptors)
        self._children.add(child)
        for fd in descriptors:
            os.close(fd)
        return True

    def _be_child(self, descriptors: list[int]) -> None:
        status = 1
        try:
            kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != self._pid:
                return
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGTERM, signal.SIGCHLD):
                signal.signal(number, signal.SIG_DFL)
            request, *wires = descriptors
            plan = Plan.from_json(os.pread(request, os.fstat(request).st_size, 0))
            group = cgroups.Group(self._hierarchies, plan.name) if self._hierarchies else None
            status = launch.run_outer(plan, self._template, group, launch.Wires(*wires), prepare_guest)
        finally:
            os._exit(status)

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, _ = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                self._children.discard(pid)

    def _end_children(self) -> None:
        """Ask every outer process to kill its sandbox and clean up; kill those that take too long."""
        deadline = time.monotonic() + _STOP_SECONDS
        self._signal_children(signal.SIGTERM)
        while self._children and time.monotonic() < deadline:
            self._reap()
            time.sleep(0.002)
        self._signal_children(signal.SIGKILL)

    def _signal_children(self, number: int) -> None:
        for child in self._children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, number)


def prepare_guest(plan: Plan, channel: int) -> Callable[[], None]:
    prepared = runner.prepare(
        runner.Surroundings(
            seed=plan.seed,
            frame_bytes=plan.frame_bytes,
            frame_depth=plan.frame_depth,
            calls_in_flight=plan.calls_in_flight,
            evidence_root=root.EVIDENCE,
            workspace=root.WORKSPACE,
            guest_root=root.GUEST,
            library_paths=tuple(bind.target for bind in plan.guest_paths),
        ),
        channel,
    )
    return prepared.serve
