"""The confinement itself, done by the child that is to be confined. Each step names the layer it makes."""

import contextlib
import os
import platform
import resource
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sandbox.backends.namespaces import kernel, landlock, root
from sandbox.backends.namespaces.plan import Bind, Plan

_UID_BASE = 0x70000000  # plus a pid: unique among the sandboxes alive on this kernel, far from people's uids
_SMALL_UID_BASE = 20_000  # where a container maps only the usual 65536 ids
_INSIDE_UID = 1000
OWN_PROCESSES = 3  # pid 1, the runner and its reader thread come on top of what a cell may start


class LayerFailed(Exception):
    """A step of the confinement failed; nothing of the guest has run."""

    def __init__(self, layer: str, message: str) -> None:
        super().__init__(message)
        self.layer = layer


@dataclass(frozen=True)
class Template:
    """What the zygote prepares once for all its children."""

    fixed: tuple[Bind, ...]
    covered: tuple[str, ...]
    filters: dict[bool, bytes]


@contextlib.contextmanager
def layer(name: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        raise LayerFailed(name, f"{name}: {error}") from error


def own_uid(pid: int) -> int:
    """Return a real uid for the sandbox of this pid, within what the current user namespace maps."""
    for candidate in (_UID_BASE + pid, _SMALL_UID_BASE + pid % 40_000):
        for line in Path("/proc/self/uid_map").read_text().splitlines():
            first, _, count = (int(word) for word in line.split())
            if first <= candidate < first + count:
                return candidate
    return 65534


def enter_outer_namespaces(*, is_root: bool) -> None:
    """Unshare what must exist before pid 1 is forked. An ordinary user gets a user namespace of its own."""
    uid, gid = os.geteuid(), os.getegid()
    with layer("pid-ns" if is_root else "user-ns"):
        kernel.unshare(kernel.CLONE_NEWPID | (0 if is_root else kernel.CLONE_NEWUSER))
    if not is_root:
        with layer("user-ns"):
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/uid_map").write_text(f"{_INSIDE_UID} {uid} 1\n")
            Path("/proc/self/gid_map").write_text(f"{_INSIDE_UID} {gid} 1\n")


def confine(plan: Plan, template: Template, *, id_maps: dict[str, int], uid: int | None) -> list[str]:
    """Confine this process, pid 1 of its namespace, all but the filter. Return the layers that hold."""
    layers = ["pid-ns"] if uid is not None else ["user-ns", "pid-ns"]
    for name, flag in (
        ("mount-ns", kernel.CLONE_NEWNS),
        ("net-ns", kernel.CLONE_NEWNET),
        ("ipc-ns", kernel.CLONE_NEWIPC),
        ("uts-ns", kernel.CLONE_NEWUTS),
    ):
        with layer(name):
            kernel.unshare(flag)
        layers.append(name)
    with layer("mount-ns"):
        trees = root.Trees(plan, fixed=template.fixed, id_maps=id_maps)
        if root.build(plan, trees, covered=template.covered, uid=_INSIDE_UID if uid is None else uid):
            layers.append("own-proc")
    limit_resources(plan)
    layers.append("rlimits")
    return layers + drop_privileges(uid)


def drop_privileges(uid: int | None) -> list[str]:
    """Give up everything for good: the bounding set while that is allowed, ids, capabilities, the way back."""
    with layer("caps-empty"):
        kernel.empty_bounding_set()
    with layer("uid"):
        if uid is not None:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
    with layer("caps-empty"):
        kernel.empty_capabilities()
    with layer("no-new-privs"):
        kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    with layer("landlock"):
        abi = landlock.restrict(readable=("/",), writable=(root.WORKSPACE, "/tmp", "/dev/null"))  # noqa: S108
    return ["uid", "caps-empty", "no-new-privs", *([f"landlock:{abi}"] if abi else [])]


def limit_resources(plan: Plan) -> None:
    wanted = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: plan.open_files,
        resource.RLIMIT_DATA: plan.memory_bytes,
        resource.RLIMIT_FSIZE: plan.workspace_bytes,
        resource.RLIMIT_NPROC: plan.processes + OWN_PROCESSES,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
    }
    if plan.cpu_seconds is not None:
        wanted[resource.RLIMIT_CPU] = plan.cpu_seconds
    with layer("rlimits"):
        for limit, value in wanted.items():
            hard = resource.getrlimit(limit)[1]
            chosen = value if hard == resource.RLIM_INFINITY else min(value, hard)
            # One second above the soft limit, whose signal names the cause; SIGKILL would not.
            ceiling = chosen + 1 if limit == resource.RLIMIT_CPU and chosen != hard else chosen
            resource.setrlimit(limit, (chosen, ceiling))


def await_parent(word: int) -> None:
    """Ask to be killed with the parent, then wait for its word that this process is in its control group.

    Must follow the last change of ids, which clears the wish. A parent that died before gives no word.
    """
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.read(word, 1) != b"1":
        os._exit(0)


def install_filter(template: Template, *, allow_fork: bool) -> None:
    with layer("seccomp"):
        if not template.filters:
            raise ValueError(f"no filter is written for {platform.machine()}")
        kernel.install_filter(template.filters[allow_fork])


def map_owner(source: str, *, uid: int) -> int:
    """Return a user namespace in which the owner of source is the sandbox's uid, for an id-mapped mount."""
    owner = Path(source).stat()
    ready_read, ready_write = os.pipe()
    helper = os.fork()
    if helper == 0:
        with contextlib.suppress(OSError):
            kernel.unshare(kernel.CLONE_NEWUSER)
            os.write(ready_write, b"1")
            signal.pause()
        os._exit(1)
    os.close(ready_write)
    try:
        if os.read(ready_read, 1) != b"1":
            raise OSError("user namespace for the id map")
        Path(f"/proc/{helper}/uid_map").write_text(f"{owner.st_uid} {uid} 1\n")
        Path(f"/proc/{helper}/gid_map").write_text(f"{owner.st_gid} {uid} 1\n")
        return os.open(f"/proc/{helper}/ns/user", os.O_RDONLY)
    finally:
        os.close(ready_read)
        os.kill(helper, signal.SIGKILL)
        os.waitpid(helper, 0)
