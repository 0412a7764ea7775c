"""Inside the zygote: forks sandboxes, and says the last word about each."""

import contextlib
import os
import resource
import signal
from collections.abc import Callable, Collection
from dataclasses import dataclass

from sandbox.backends.namespaces import cgroups, confine, kernel, late, launch, root
from sandbox.backends.namespaces.plan import Header, Plan
from sandbox.backends.namespaces.serving import Serving
from sandbox.guest import runner

_REMOVE_TRIES = 100
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


class Nursery(Serving):
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

    def prepare_next(self) -> None:
        with contextlib.suppress(confine.LayerFailed):  # tried again, and told, when it is needed
            self._make_net_fresh()

    def _make_net_fresh(self) -> None:
        """Move to a network namespace of its own, which the next child takes over: making one takes time."""
        if self._template.is_root and not self._is_net_fresh:
            with confine.layer("net-ns"):
                kernel.unshare(kernel.CLONE_NEWNET)
            self._is_net_fresh = True

    def take_request(self, message: bytes, descriptors: list[int]) -> None:
        request, *handed = descriptors
        kind, _, rest = message.partition(b" ")
        if kind == b"spawn":
            self._spawn(Header.from_json(rest), request, launch.Wires(*handed))
        else:
            self._bring_in(request, handed, int(rest))

    def _spawn(self, header: Header, request: int, wires: launch.Wires) -> None:
        group = cgroups.Group(self._hierarchies, header.name) if self._hierarchies else None
        try:
            self._make_net_fresh()
            if group is not None:
                with confine.layer("cgroup"):
                    group.create(
                        memory_bytes=header.memory_bytes + _MEMORY_HEADROOM,
                        processes=header.processes + confine.OWN_PROCESSES,
                    )
            init, handle = launch.start(
                launch.Birth(request, self._template, group, wires, self._cradle.prepare)
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

    def _bring_in(self, request: int, handed: list[int], init: int) -> None:
        report, *namespaces = handed
        try:
            child, handle = kernel.fork()
        except OSError as error:
            launch.tell_failure(report, error)
            return
        if child == 0:
            kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
            launch.forget_handlers()
            late.bring_in(request, self._template, report, namespaces, init=init)
        os.close(handle)

    def children(self) -> Collection[int]:
        return self._children

    def bury(self, child: int, status: int) -> None:
        ended = self._children.pop(child, None)
        if ended is not None:
            ended.exit_code = os.waitstatus_to_exitcode(status)
            ended.oom_kills = ended.group.oom_kills() if ended.group is not None else 0
            self._gone.append(ended)

    def tidy(self) -> bool:
        self._gone = [child for child in self._gone if not self._is_cleared(child)]
        return bool(self._gone)

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
            has_own_processes=True,
            language=plan.language,
            language_paths=tuple(os.path.dirname(bind.target) for bind in plan.language_paths),  # noqa: PTH120
        )
        console = self._console if plan.language == "open" else None
        return runner.prepare(surroundings, channel, console=console).serve
