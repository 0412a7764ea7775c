"""From a request to a running guest: the outer process, pid 1, and the runner. Each tells the host over `report`."""

import contextlib
import fcntl
import json
import os
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass

from sandbox.backends.namespaces import cgroups, confine, kernel, root
from sandbox.backends.namespaces.plan import Plan

PrepareGuest = Callable[[Plan, int], Callable[[], None]]
_CHANNEL_FD, _REPORT_FD = 3, 4
_MEMORY_HEADROOM = (
    48 << 20
)  # so that a cell meets MemoryError at its own limit before the group's killer comes


@dataclass(frozen=True)
class Wires:
    """Descriptors received with a request: the guest's ends."""

    channel: int
    stdout: int
    stderr: int
    report: int

    def moved_up(self) -> "Wires":
        """Move to high numbers and keep the low ones occupied, so that the runner's places stay free of others."""
        high = [
            fcntl.fcntl(fd, fcntl.F_DUPFD, 64) for fd in (self.channel, self.stdout, self.stderr, self.report)
        ]
        kernel.close_all_but((0, 1, 2, *high))
        for place in (_CHANNEL_FD, _REPORT_FD):
            os.dup2(0, place)
        return Wires(*high)

    def settle(self) -> None:
        """Put every wire in the runner's place and close all else."""
        os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
        for fd, place in (
            (self.stdout, 1),
            (self.stderr, 2),
            (self.channel, _CHANNEL_FD),
            (self.report, _REPORT_FD),
        ):
            os.dup2(fd, place)
        kernel.close_all_but((0, 1, 2, _CHANNEL_FD, _REPORT_FD))


def tell(report: int, message: dict[str, object], *descriptors: int) -> None:
    """Send one message to the host; a host that is gone is nobody to tell."""
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(report)) as link:
        socket.send_fds(link, [json.dumps(message).encode()], list(descriptors))


def run_outer(
    plan: Plan, template: confine.Template, group: cgroups.Group | None, wires: Wires, prepare: PrepareGuest
) -> int:
    """Start pid 1, wait for its end, clean up. Stays outside: it must be able to remove the control group."""
    wires = wires.moved_up()
    is_root = os.geteuid() == 0
    try:
        init, held = _start_init(plan, template, group, wires, prepare, is_root=is_root)
    except confine.LayerFailed as failure:
        tell(wires.report, {"failed": failure.layer, "message": str(failure)})
        if group is not None:
            group.remove()
        return 1
    kernel.close_all_but((0, 1, 2, held, wires.report))
    signal.signal(signal.SIGTERM, lambda *_: os.kill(init, signal.SIGKILL))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    _, status = os.waitpid(init, 0)
    ending: dict[str, object] = {"exit": os.waitstatus_to_exitcode(status)}
    if group is not None:
        ending["oom_kills"] = group.oom_kills()
        group.remove()
        ending["survivors"] = group.members()
    tell(wires.report, ending)
    return 0


def _start_init(
    plan: Plan,
    template: confine.Template,
    group: cgroups.Group | None,
    wires: Wires,
    prepare: PrepareGuest,
    *,
    is_root: bool,
) -> tuple[int, int]:
    uid = confine.own_uid(os.getpid()) if is_root else None
    id_maps = {} if uid is None else _map_owners(plan, uid)
    doors = []
    if group is not None:
        with confine.layer("cgroup"):
            group.create(
                memory_bytes=plan.memory_bytes + _MEMORY_HEADROOM,
                processes=plan.processes + confine.OWN_PROCESSES,
            )
            doors = group.open_doors()
    alive, held = os.pipe()
    # A stop that arrives before the handler stands waits; pid 1 forked by then must not escape it.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    confine.enter_outer_namespaces(is_root=is_root)
    init = os.fork()
    if init == 0:
        os.close(held)
        _be_init(plan, template, wires, prepare, _Inside(alive, id_maps, uid, group))
    tell(wires.report, {"init": init, "outer": os.getpid()}, os.pidfd_open(init))
    try:
        _join(init, doors, held)
    except confine.LayerFailed:
        os.kill(init, signal.SIGKILL)
        os.waitpid(init, 0)
        raise
    return init, held


def _map_owners(plan: Plan, uid: int) -> dict[str, int]:
    """Return the id maps that let the sandbox's uid read what its owners keep to themselves."""
    maps: dict[str, int] = {}
    for bind in plan.evidence:
        if root.needs_id_map(bind.source):
            with contextlib.suppress(OSError):
                maps[bind.source] = confine.map_owner(bind.source, uid=uid)
    return maps


def _join(init: int, doors: list[int], word: int) -> None:
    """Put pid 1 into its control group and tell it. The kernel takes its time; pid 1 builds its root meanwhile."""
    with confine.layer("cgroup"):
        for door in doors:
            os.write(door, str(init).encode())
        os.write(word, b"1")


@dataclass(frozen=True)
class _Inside:
    """What pid 1 brings along from outside."""

    alive: int
    id_maps: dict[str, int]
    uid: int | None
    group: cgroups.Group | None


def _be_init(
    plan: Plan, template: confine.Template, wires: Wires, prepare: PrepareGuest, inside: _Inside
) -> None:
    """Be pid 1: confine, fork the runner, reap until it ends, and end with it, which ends all that is left."""
    status = 70
    try:
        layers = confine.confine(plan, template, id_maps=inside.id_maps, uid=inside.uid)
        if inside.group is not None:
            layers.append(inside.group.layer)
        confine.await_parent(inside.alive)
        child = os.fork()
        if child == 0:
            _be_runner(plan, template, wires, layers, prepare)  # never returns
        tell(wires.report, {"runner": child}, os.pidfd_open(child))
        kernel.close_all_but(())
        confine.install_filter(template, allow_fork=False)
        status = _reap(child)
    except confine.LayerFailed as failure:
        tell(wires.report, {"failed": failure.layer, "message": str(failure)})
    except OSError as error:
        tell(wires.report, {"failed": "init", "message": f"pid 1 of the sandbox: {error}"})
    finally:
        os._exit(status)


def _be_runner(
    plan: Plan, template: confine.Template, wires: Wires, layers: list[str], prepare: PrepareGuest
) -> None:
    """Be the process in which cells run: last checks, the filter, then the REPL."""
    status = 70
    try:
        wires.settle()
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        os.umask(0o077)
        for bind in plan.evidence:
            needed = os.R_OK | (os.X_OK if os.path.isdir(bind.target) else 0)  # noqa: PTH112
            if not os.access(bind.target, needed):
                tell(_REPORT_FD, {"unreadable": bind.source})
                return
        serve = prepare(plan, _CHANNEL_FD)
        # Without a control group, memory could be multiplied by forking: then there is no fork.
        allow_fork = any(name.startswith("cgroup") for name in layers)
        confine.install_filter(template, allow_fork=allow_fork)
        tell(_REPORT_FD, {"layers": [*layers, "seccomp", *([] if allow_fork else ["no-fork"])]})
        os.close(_REPORT_FD)
        serve()
    except confine.LayerFailed as failure:
        tell(_REPORT_FD, {"failed": failure.layer, "message": str(failure)})
    except Exception as error:  # noqa: BLE001 - the guest's own names failed to load: say it instead of dying mute
        tell(_REPORT_FD, {"failed": "guest", "message": f"the guest did not start: {error!r}"})
    finally:
        os._exit(status)


def _reap(runner: int) -> int:
    """Reap every orphan; return when the runner ends, with a status the outer process can pass on."""
    while True:
        pid, status = os.wait()
        if pid == runner:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code
