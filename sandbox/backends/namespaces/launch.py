"""From a request to a running guest: pid 1 and the runner. Each tells the host over `report`."""

import contextlib
import gc
import json
import os
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass

from sandbox.backends.namespaces import cgroups, confine, kernel, tiny_init
from sandbox.backends.namespaces.plan import Plan

PrepareGuest = Callable[[Plan, int], Callable[[], None]]
CHANNEL_FD, REPORT_FD = 3, 4


@dataclass(frozen=True)
class Wires:
    """Descriptors received with a request: the guest's ends, all above the runner's own places."""

    channel: int
    stdout: int
    stderr: int
    report: int

    def settle(self) -> None:
        """Put every wire in the runner's place and close all else."""
        os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
        for fd, place in (
            (self.stdout, 1),
            (self.stderr, 2),
            (self.channel, CHANNEL_FD),
            (self.report, REPORT_FD),
        ):
            os.dup2(fd, place)
        kernel.close_all_but((0, 1, 2, CHANNEL_FD, REPORT_FD))


@dataclass(frozen=True)
class Birth:
    """Everything a new sandbox is made from."""

    # The memory file with the plan, read by the sandbox's own pid 1.
    request: int
    template: confine.Template
    group: cgroups.Group | None
    wires: Wires
    prepare: PrepareGuest


def tell(report: int, message: dict[str, object], *descriptors: int) -> None:
    """Send one message to the host; a host that is gone is nobody to tell."""
    link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, fileno=report)
    try:
        with contextlib.suppress(OSError):
            socket.send_fds(link, [json.dumps(message).encode()], descriptors)
    finally:
        link.detach()


def tell_failure(report: int, error: Exception) -> None:
    if isinstance(error, confine.LayerFailed):
        tell(report, {"failed": error.layer, "message": str(error)})
    else:
        tell(report, {"failed": "guest", "message": f"the guest did not start: {error!r}"})


def start(birth: Birth) -> tuple[int, int]:
    """Fork pid 1 of a new sandbox, for an ordinary user in a user namespace as well; return its pid and pidfd."""
    is_root = birth.template.is_root
    with confine.layer("pid-ns" if is_root else "user-ns"):
        init, handle = kernel.fork(kernel.CLONE_NEWPID | (0 if is_root else kernel.CLONE_NEWUSER))
    if init == 0:
        _be_init(birth)
    return init, handle


def _be_init(birth: Birth) -> None:
    """Be pid 1: confine, fork the runner, reap until it ends, and end with it, which ends all that is left."""
    status, report = 70, birth.wires.report
    try:
        gc.disable()
        plan = Plan.read(birth.request)
        _forget_the_zygote(birth)
        if birth.group is not None:
            with confine.layer("cgroup"):
                birth.group.join()
        confined = confine.confine(plan, birth.template, has_group=birth.group is not None)
        if birth.group is not None:
            confined.layers.append(birth.group.layer)
        confine.die_with(birth.template.zygote)
        child, handle = kernel.fork()
        if child == 0:
            _be_runner(birth, plan, confined.layers)  # never returns
        tell(report, {"runner": child}, handle, confined.workspace, *confined.namespaces)
        kernel.close_all_but(())
        confine.install_filter(birth.template, allow_fork=False)
        status = _reap(child, birth.template.kernel_pages)
    except (confine.LayerFailed, OSError) as failure:
        tell_failure(report, failure)
    finally:
        os._exit(status)


def forget_handlers() -> None:
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)


def _forget_the_zygote(birth: Birth) -> None:
    """Drop what is the zygote's: its signal handlers and every descriptor that this sandbox has no use for."""
    forget_handlers()
    wires, template = birth.wires, birth.template
    kept = {0, 1, 2, wires.channel, wires.stdout, wires.stderr, wires.report, template.zygote, template.base}
    kernel.close_all_but(tuple(fd for fd in kept if fd is not None))


def _be_runner(birth: Birth, plan: Plan, layers: list[str]) -> None:
    """Be the process in which cells run: last checks, the filter, then the REPL."""
    status = 70
    try:
        birth.wires.settle()
        os.umask(0o077)
        closed = unreadable(plan)
        if closed is not None:
            tell(REPORT_FD, {"unreadable": closed})
            return
        serve = birth.prepare(plan, CHANNEL_FD)
        # Without a control group, memory could be multiplied by forking: then there is no fork.
        allow_fork = birth.group is not None
        confine.install_filter(birth.template, allow_fork=allow_fork)
        layers += ["seccomp", *([] if allow_fork else ["no-fork"])]
        layers += ["strict-language"] if plan.language == "strict" else []
        tell(REPORT_FD, {"layers": layers})
        os.close(REPORT_FD)
        gc.enable()
        serve()
    except Exception as error:  # noqa: BLE001 - the guest's own names failed to load: say it instead of dying mute
        tell_failure(REPORT_FD, error)
    finally:
        os._exit(status)


def unreadable(plan: Plan) -> str | None:
    """Return the source of the first evidence that this process may not read, tried with its own ids."""
    for bind in plan.evidence:
        needed = os.R_OK | (os.X_OK if os.path.isdir(bind.target) else 0)  # noqa: PTH112
        if not os.access(bind.target, needed):
            return bind.source
    return None


def _reap(runner: int, kept: tuple[int, int] | None) -> int:
    """Reap every orphan; end when the runner ends, with a status the zygote can pass on."""
    if kept is not None:
        with contextlib.suppress(
            OSError
        ):  # some systems let no memory become code: then the interpreter waits itself
            tiny_init.become(runner, kept=kept)
    while True:
        pid, status = os.wait()
        if pid == runner:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code
