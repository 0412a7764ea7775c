"""The confinement itself, done by the child that is to be confined. Each step names the layer it makes."""

import contextlib
import os
import platform
import resource
import select
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sandbox.backends.namespaces import kernel, landlock, root, seccomp, syscalls, tiny_init
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
    # The fixed part of every root, mounted in the zygote's own mount namespace; an ordinary user's has none.
    base: int | None
    # Tells whether the zygote lives.
    zygote: int
    uids: tuple[tuple[int, int], ...]
    owner: tuple[int, int]
    hard_limits: dict[int, int]
    # What stays mapped when pid 1 gives up its interpreter; None: it cannot here.
    kernel_pages: tuple[int, int] | None

    @property
    def is_root(self) -> bool:
        return self.base is not None


def prepare_template() -> Template:
    """Make in the zygote what its children share. Root's zygote moves to a mount namespace of its own for it."""
    machine = platform.machine()
    filters = {}
    if machine in syscalls.AUDIT_ARCH:
        filters = {fork: seccomp.compile_filter(machine, allow_fork=fork) for fork in (True, False)}
    fixed, covered = root.interpreter_binds(), root.foreign_packages()
    base = None
    if os.geteuid() == 0:
        with layer("mount-ns"):
            kernel.unshare(kernel.CLONE_NEWNS)
            # Slave, not private: evidence on a file system mounted later must be found.
            kernel.mount("", "/", flags=kernel.MS_REC | kernel.MS_SLAVE)
            trees = root.Trees(fixed, id_maps={})
            base = root.build_fixed(trees, over=root.out_of_the_way(), covered=covered)
        kernel.empty_bounding_set()
    return Template(
        fixed=fixed,
        covered=covered,
        filters=filters,
        base=base,
        zygote=os.pidfd_open(os.getpid()),
        uids=_mapped_uids(),
        owner=(os.geteuid(), os.getegid()),
        hard_limits={limit: resource.getrlimit(limit)[1] for limit in _LIMITED},
        kernel_pages=tiny_init.kernel_pages(),
    )


def _mapped_uids() -> tuple[tuple[int, int], ...]:
    """List (first, count) of the uids that exist in the current user namespace."""
    lines = Path("/proc/self/uid_map").read_text(encoding="ascii").splitlines()
    return tuple((int(line.split()[0]), int(line.split()[2])) for line in lines)


@contextlib.contextmanager
def layer(name: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        raise LayerFailed(name, f"{name}: {error}") from error


def own_uid(pid: int, uids: tuple[tuple[int, int], ...]) -> int:
    """Return a real uid for the sandbox of this pid, within what the current user namespace maps."""
    for candidate in (_UID_BASE + pid, _SMALL_UID_BASE + pid % 40_000):
        if any(first <= candidate < first + count for first, count in uids):
            return candidate
    return 65534


def host_pid() -> int:
    """Return the number by which the zygote's pid namespace knows this process, whose own it may not be."""
    return int(str(Path("/proc/self").readlink()))


def map_user(template: Template) -> None:
    """Give an ordinary user's new user namespace its one user, who may make the other namespaces in it."""
    uid, gid = template.owner
    with layer("user-ns"):
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{_INSIDE_UID} {uid} 1\n")
        Path("/proc/self/gid_map").write_text(f"{_INSIDE_UID} {gid} 1\n")


@dataclass(frozen=True)
class Confined:
    """What the confinement has made: the layers that hold, and descriptors for the host."""

    layers: list[str]
    workspace: int
    namespaces: list[int]


def confine(plan: Plan, template: Template, *, has_group: bool) -> Confined:
    """Confine this process, pid 1 of its namespace, all but the filter. Return the layers that hold."""
    uid = own_uid(host_pid(), template.uids) if template.is_root else None
    layers = ["pid-ns"] if template.is_root else ["user-ns", "pid-ns"]
    if not template.is_root:
        map_user(template)
    id_maps = {} if uid is None else map_owners(plan.evidence, uid=uid)
    additions = base = None
    if template.base is not None:
        with layer("mount-ns"):
            additions = root.Additions(plan, id_maps=id_maps)
            base = kernel.clone_tree("", at=template.base)
    layers += _unshare(with_net=not template.is_root)
    namespaces = [_own_namespace(name) for name in plan.handed_namespaces(is_root=template.is_root)]
    with layer("mount-ns"):
        if base is None:
            kernel.mount("", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)
            additions = root.Additions(plan, id_maps={})
            fixed = root.Trees(template.fixed, id_maps={})
            base = root.build_fixed(fixed, over=root.BASE, covered=template.covered)
        else:
            kernel.attach_tree(base, root.BASE)
        assert additions is not None
        additions.attach(base)
        if root.enter(base, plan, uid=_INSIDE_UID if uid is None else uid):
            layers.append("own-proc")
        workspace = os.open(root.WORKSPACE, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    limit_resources(plan, template.hard_limits, has_group=has_group)
    layers += ["rlimits", *drop_privileges(uid)]
    return Confined(layers, workspace, namespaces)


def _own_namespace(name: str) -> int:
    return os.open(f"/proc/self/ns/{name}", os.O_RDONLY | os.O_CLOEXEC)


def _unshare(*, with_net: bool) -> list[str]:
    """Take the remaining namespaces at once; where that fails, one by one, to name the one that is missing."""
    wanted = {
        "mount-ns": kernel.CLONE_NEWNS,
        **({"net-ns": kernel.CLONE_NEWNET} if with_net else {}),
        "ipc-ns": kernel.CLONE_NEWIPC,
        "uts-ns": kernel.CLONE_NEWUTS,
    }
    try:
        kernel.unshare(sum(wanted.values()))
    except OSError:
        for name, flag in wanted.items():
            with layer(name):
                kernel.unshare(flag)
    return ["mount-ns", "net-ns", "ipc-ns", "uts-ns"]


def drop_privileges(uid: int | None) -> list[str]:
    """Give up everything for good: the bounding set while that is allowed, ids, capabilities, the way back."""
    with layer("caps-empty"):
        if uid is None:
            kernel.empty_bounding_set()  # root's zygote has emptied it; a new user namespace filled it again
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


_LIMITED = (
    resource.RLIMIT_CORE,
    resource.RLIMIT_NOFILE,
    resource.RLIMIT_DATA,
    resource.RLIMIT_FSIZE,
    resource.RLIMIT_NPROC,
    resource.RLIMIT_MEMLOCK,
    resource.RLIMIT_MSGQUEUE,
    resource.RLIMIT_CPU,
    resource.RLIMIT_AS,
)
#: Room for evidence that is mapped. Where no control group counts page tables, this bounds them.
ADDRESS_ROOM_BYTES = 32 << 30


def limit_resources(plan: Plan, hard_limits: dict[int, int], *, has_group: bool) -> None:
    """Lower what one process may take; never above the hard limit that the zygote was given."""
    wanted = (
        0,
        plan.open_files,
        plan.memory_bytes,
        plan.workspace_bytes,
        plan.processes + OWN_PROCESSES,
        0,
        0,
        plan.cpu_seconds,
        None if has_group else plan.memory_bytes + ADDRESS_ROOM_BYTES,
    )
    with layer("rlimits"):
        for limit, value in zip(_LIMITED, wanted, strict=True):
            if value is None:
                continue
            hard = hard_limits[limit]
            chosen = value if hard == resource.RLIM_INFINITY else min(value, hard)
            # One second above the soft limit, whose signal names the cause; SIGKILL would not.
            ceiling = chosen + 1 if limit == resource.RLIMIT_CPU and chosen != hard else chosen
            resource.setrlimit(limit, (chosen, ceiling))


def die_with(zygote: int) -> None:
    """Ask to be killed with the parent, which is the zygote, and end at once if it is gone already.

    Must follow the last change of ids, which clears the wish.
    """
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    waiter = select.poll()
    waiter.register(zygote, select.POLLIN)
    if waiter.poll(0):
        os._exit(0)


def install_filter(template: Template, *, allow_fork: bool) -> None:
    with layer("seccomp"):
        if not template.filters:
            raise ValueError(f"no filter is written for {platform.machine()}")
        kernel.install_filter(template.filters[allow_fork])


def map_owners(evidence: tuple[Bind, ...], *, uid: int) -> dict[str, int]:
    """Return the id maps that let the sandbox's uid read what its owners keep to themselves."""
    maps: dict[str, int] = {}
    by_owner: dict[tuple[int, int], int] = {}
    for bind in evidence:
        if root.needs_id_map(bind.source):
            status = Path(bind.source).stat()
            owner = status.st_uid, status.st_gid
            with contextlib.suppress(OSError):
                if owner not in by_owner:
                    by_owner[owner] = _map_owner(*owner, uid=uid)
                maps[bind.source] = by_owner[owner]
    return maps


def _map_owner(owner: int, group: int, *, uid: int) -> int:
    """Return a user namespace in which an owner is the sandbox's uid, for an id-mapped mount."""
    ready_read, ready_write = os.pipe()
    helper = os.fork()
    if helper == 0:
        with contextlib.suppress(OSError):
            known_as = host_pid()
            kernel.unshare(kernel.CLONE_NEWUSER)
            os.write(ready_write, str(known_as).encode())
            signal.pause()
        os._exit(1)
    os.close(ready_write)
    try:
        told = os.read(ready_read, 32).decode()
        if not told:
            raise OSError("user namespace for the id map")
        Path(f"/proc/{told}/uid_map").write_text(f"{owner} {uid} 1\n")
        Path(f"/proc/{told}/gid_map").write_text(f"{group} {uid} 1\n")
        return os.open(f"/proc/{told}/ns/user", os.O_RDONLY)
    finally:
        os.close(ready_read)
        os.kill(helper, signal.SIGKILL)
        os.waitpid(helper, 0)
