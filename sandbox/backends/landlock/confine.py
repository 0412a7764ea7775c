"""The degraded confinement, done by the child that is to be confined. Opens what it may keep before it gives up its uid."""

import os
import platform
import resource
import signal
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from sandbox.backends.landlock import filter as filters
from sandbox.backends.landlock.plan import LandlockPlan
from sandbox.backends.namespaces import confine, kernel, landlock, root

_THREADS_OF_ITS_OWN = 2
_READ = 1 << 2 | 1 << 3
_READ_FILE = 1 << 2
_WRITE_FILE, _TRUNCATE = 1 << 1, 1 << 14
_NEVER_WRITTEN = 1 << 0 | 1 << 6 | 1 << 11 | 1 << 15  # execute, make devices, device ioctl


def library_paths() -> tuple[str, ...]:
    """Return what imports may need from disk: the standard library without the host's packages in it."""
    foreign = set(root.foreign_packages())
    stdlib = sysconfig.get_path("stdlib")
    paths: list[str] = []
    for bind in root.interpreter_binds():
        if stdlib != bind.source and not stdlib.startswith(f"{bind.source}/"):
            paths.append(bind.source)
            continue
        for folder in {bind.source, stdlib}:
            below = (str(path) for path in Path(folder).iterdir())
            paths += [path for path in below if path not in foreign and path != stdlib]
    return tuple(sorted(paths))


@dataclass(frozen=True)
class Rules:
    """The Landlock rules of one session, made while every path can still be opened."""

    ruleset: int
    abi: int


def make_rules(plan: LandlockPlan, libraries: tuple[str, ...]) -> Rules:
    """Grant reading of libraries, evidence and declared paths, writing in the workspace, and nothing under /proc."""
    with confine.layer("landlock"):
        abi = kernel.landlock_abi()
        if abi < 1:
            raise OSError("the kernel offers no Landlock")
        ruleset = kernel.landlock_create(landlock.ruleset_attributes(abi))
        shown = [bind.source for bind in (*plan.evidence, *plan.guest_paths, *plan.language_paths)]
        for path in (*libraries, *shown, "/dev/urandom", "/dev/zero"):
            _allow(ruleset, path, _READ)
        everything = landlock.file_rights(abi)
        _allow(ruleset, plan.workspace, everything & ~_NEVER_WRITTEN)
        _allow(ruleset, "/dev/null", everything & (_READ_FILE | _WRITE_FILE | _TRUNCATE))
    return Rules(ruleset, abi)


def _allow(ruleset: int, path: str, rights: int) -> None:
    handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        wanted = rights if Path(path).is_dir() else rights & (_READ_FILE | _WRITE_FILE | _TRUNCATE)
        kernel.landlock_allow(ruleset, path_fd=handle, rights=wanted)
    finally:
        os.close(handle)


def limit_resources(plan: LandlockPlan, *, uid: int | None) -> None:
    others = 0 if uid is not None else _threads_of(os.getuid())
    wanted = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: plan.open_files,
        resource.RLIMIT_DATA: plan.memory_bytes,
        resource.RLIMIT_AS: plan.memory_bytes + confine.ADDRESS_ROOM_BYTES,
        resource.RLIMIT_FSIZE: plan.workspace_bytes,
        # Counted per uid: an ordinary user's own threads are counted along.
        resource.RLIMIT_NPROC: others + plan.processes + _THREADS_OF_ITS_OWN,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
    }
    if plan.cpu_seconds is not None:
        wanted[resource.RLIMIT_CPU] = plan.cpu_seconds
    with confine.layer("rlimits"):
        for limit, value in wanted.items():
            hard = resource.getrlimit(limit)[1]
            chosen = value if hard == resource.RLIM_INFINITY else min(value, hard)
            ceiling = chosen + 1 if limit == resource.RLIMIT_CPU and chosen != hard else chosen
            resource.setrlimit(limit, (chosen, ceiling))


def _threads_of(uid: int) -> int:
    """Count the threads of a user now."""
    found = 0
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                lines = (folder / "status").read_text(encoding="utf-8", errors="replace").splitlines()
            except OSError:
                continue
            status = dict(line.split(":", 1) for line in lines if ":" in line)
            if status.get("Uid", "").split()[:1] == [str(uid)]:
                found += int(status.get("Threads", "1"))
    return found


def own_uid(pid: int) -> int | None:
    """Return the uid that this sandbox takes: root's never stays uid 0, an ordinary user's keeps its own."""
    if os.geteuid() != 0:
        return None
    lines = Path("/proc/self/uid_map").read_text(encoding="ascii").splitlines()
    return confine.own_uid(pid, tuple((int(line.split()[0]), int(line.split()[2])) for line in lines))


def give_up(rules: Rules, *, uid: int | None, zygote: int) -> list[str]:
    """Give up ids, capabilities, the way back and every path but the granted ones. Return the layers that hold."""
    with confine.layer("caps-empty"):
        kernel.empty_bounding_set()
    with confine.layer("uid"):
        if uid is not None:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
        if 0 in os.getresuid():
            raise OSError("the degraded sandbox does not run as root")
    with confine.layer("caps-empty"):
        kernel.empty_capabilities()
    with confine.layer("no-new-privs"):
        kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != zygote:
        os._exit(0)
    with confine.layer("landlock"):
        kernel.landlock_restrict(rules.ruleset)
        os.close(rules.ruleset)
    own = ["uid"] if uid is not None else []
    return ["degraded", *own, "caps-empty", "no-new-privs", "rlimits", f"landlock:{rules.abi}"]


def install_filter() -> None:
    with confine.layer("seccomp"):
        machine = platform.machine()
        if machine not in filters.machines():
            raise ValueError(f"no filter is written for {machine}")
        kernel.install_filter(filters.compile_filter(machine, pid=os.getpid()))
