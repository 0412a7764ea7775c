"""System calls that Python does not offer, through ctypes. Knows numbers and errnos, no policy."""

import ctypes
import mmap
import os
import platform
import signal
import struct

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE, MS_SLAVE = 32, 4096, 16384, 1 << 18, 1 << 19
MNT_DETACH = 2

ATTR_RDONLY, ATTR_NOSUID, ATTR_NODEV, ATTR_NOEXEC, ATTR_IDMAP = 0x1, 0x2, 0x4, 0x8, 0x100000

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_SECCOMP = 22
PR_CAPBSET_DROP = 24
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
SECCOMP_MODE_FILTER = 2

AT_FDCWD = -100
AT_EMPTY_PATH = 0x1000
AT_RECURSIVE = 0x8000
OPEN_TREE_CLONE = 1
OPEN_TREE_CLOEXEC = os.O_CLOEXEC
MOVE_MOUNT_F_EMPTY_PATH = 4

# Above 400 the numbers are the same on every architecture.
SYS_OPEN_TREE, SYS_MOVE_MOUNT, SYS_CLOSE_RANGE, SYS_MOUNT_SETATTR = 428, 429, 436, 442
SYS_FSOPEN, SYS_FSCONFIG, SYS_FSMOUNT = 430, 431, 432
FSOPEN_CLOEXEC, FSMOUNT_CLOEXEC = 1, 1
FSCONFIG_SET_STRING, FSCONFIG_CMD_CREATE = 1, 6
SYS_LANDLOCK_CREATE, SYS_LANDLOCK_ADD, SYS_LANDLOCK_RESTRICT = 444, 445, 446
SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
SYS_CLONE = {"x86_64": 56, "aarch64": 220}.get(platform.machine(), -1)  # elsewhere: no such call
CLONE_PIDFD = 0x00001000

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_libc_with_gil = ctypes.PyDLL(None, use_errno=True)
_libc_with_gil.syscall.restype = ctypes.c_long
_ulong = ctypes.c_ulong


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def mount(source: str, target: str, *, kind: str | None = None, flags: int = 0, data: str = "") -> None:
    encoded_kind = None if kind is None else kind.encode()
    result = _libc.mount(
        os.fsencode(source), os.fsencode(target), encoded_kind, _ulong(flags), os.fsencode(data)
    )
    _checked(result, f"mount {target}")


def make_executable(address: int, length: int) -> None:
    protection = mmap.PROT_READ | mmap.PROT_EXEC
    _checked(_libc.mprotect(ctypes.c_void_p(address), _ulong(length), protection), "mprotect")


def has_restartable_sequences() -> bool:
    """Say whether the C library has told the kernel of memory that it writes to whenever this thread is moved."""
    try:
        return bool(ctypes.c_uint.in_dll(_libc, "__rseq_size").value)
    except ValueError:
        return False


def unshare(flags: int) -> None:
    _checked(_libc.unshare(flags), "unshare")


def fork(namespaces: int = 0) -> tuple[int, int]:
    """Fork a process that has one thread, into new namespaces; return (pid, pidfd), in the child (0, -1).

    os.fork would not take namespaces, and what the interpreter repairs after it (locks of other threads, random
    states) costs more than the fork: a copy of a process with one thread needs no repair.
    """
    handle = ctypes.c_int(-1)
    flags = ctypes.c_ulong(namespaces | CLONE_PIDFD | signal.SIGCHLD)
    result = _libc_with_gil.syscall(SYS_CLONE, flags, None, ctypes.byref(handle), None, None)
    return _checked(result, "clone"), handle.value if result else -1


def prctl(option: int, first: int = 0, second: int = 0) -> int:
    result = _libc.prctl(option, _ulong(first), _ulong(second), _ulong(0), _ulong(0))
    return _checked(result, f"prctl {option}")


def pivot_root_here(machine: str) -> None:
    """Make the working directory the root and detach the old one, which the new root then hides."""
    _checked(_libc.syscall(SYS_PIVOT_ROOT[machine], b".", b"."), "pivot_root")
    _checked(_libc.umount2(b".", MNT_DETACH), "umount of the old root")


def new_tree(kind: str, options: str, *, attributes: int = 0) -> int:
    """Return a new file system as a detached mount."""
    context = _checked(_libc.syscall(SYS_FSOPEN, kind.encode(), FSOPEN_CLOEXEC), f"fsopen {kind}")
    try:
        for option in options.split(","):
            key, _, value = option.partition("=")
            result = _libc.syscall(
                SYS_FSCONFIG, context, FSCONFIG_SET_STRING, key.encode(), value.encode(), 0
            )
            _checked(result, f"{kind} {option}")
        _checked(_libc.syscall(SYS_FSCONFIG, context, FSCONFIG_CMD_CREATE, None, None, 0), f"create {kind}")
        return _checked(
            _libc.syscall(SYS_FSMOUNT, context, FSMOUNT_CLOEXEC, ctypes.c_uint(attributes)), f"fsmount {kind}"
        )
    finally:
        os.close(context)


def clone_tree(path: str, *, at: int = AT_FDCWD) -> int:
    """Return a detached copy of the mount tree at path: it can be attached later, whatever is mounted over path."""
    flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE | (0 if path else AT_EMPTY_PATH)
    result = _libc.syscall(SYS_OPEN_TREE, at, os.fsencode(path), ctypes.c_uint(flags))
    return _checked(result, f"open_tree {path}")


def set_tree_attributes(
    tree: int, *, attributes: int, user_namespace: int = 0, recursive: bool = True
) -> None:
    """Set attributes on a mount, its submounts included, and cut it off from what its source passes on.

    Without the latter, a mount made below a copy of a shared mount would appear on the host as well.
    """
    request = struct.pack("=QQQQ", attributes, 0, MS_PRIVATE, user_namespace)
    flags = AT_EMPTY_PATH | (AT_RECURSIVE if recursive else 0)
    result = _libc.syscall(
        SYS_MOUNT_SETATTR, tree, b"", ctypes.c_uint(flags), request, ctypes.c_size_t(len(request))
    )
    _checked(result, "mount_setattr")


def attach_tree(tree: int, target: str, *, at: int = AT_FDCWD) -> None:
    """Attach a detached tree; the descriptor goes on naming it."""
    result = _libc.syscall(
        SYS_MOVE_MOUNT, tree, b"", at, os.fsencode(target), ctypes.c_uint(MOVE_MOUNT_F_EMPTY_PATH)
    )
    _checked(result, f"move_mount {target}")


def setns(namespace: int, kind: int) -> None:
    _checked(_libc.setns(namespace, kind), "setns")


def close_all_but(keep: tuple[int, ...]) -> None:
    low = 0
    for fd in (*sorted(keep), 1 << 31):
        if fd > low:
            _checked(
                _libc.syscall(SYS_CLOSE_RANGE, ctypes.c_uint(low), ctypes.c_uint(fd - 1), 0), "close_range"
            )
        low = fd + 1


def empty_bounding_set() -> None:
    for capability in range(64):
        if _libc.prctl(PR_CAPBSET_DROP, _ulong(capability), _ulong(0), _ulong(0), _ulong(0)) < 0:
            break  # past the last capability of this kernel


def empty_capabilities() -> None:
    """Drop every capability from the effective, permitted, inheritable and ambient sets."""
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    version_3 = struct.pack("=Ii", 0x20080522, 0)
    _checked(_libc.capset(version_3, bytes(24)), "capset")


class _FilterProgram(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


def install_filter(program: bytes) -> None:
    """Install a seccomp filter for this thread and all it creates."""
    instructions = ctypes.create_string_buffer(program, len(program))
    description = _FilterProgram(len(program) // 8, ctypes.addressof(instructions))
    result = _libc.prctl(
        PR_SET_SECCOMP, _ulong(SECCOMP_MODE_FILTER), ctypes.byref(description), _ulong(0), _ulong(0)
    )
    _checked(result, "seccomp")


def landlock_abi() -> int:
    """Return the Landlock version of the kernel, 0 where there is none."""
    return max(0, int(_libc.syscall(SYS_LANDLOCK_CREATE, None, ctypes.c_size_t(0), 1)))


def landlock_create(attributes: bytes) -> int:
    result = _libc.syscall(SYS_LANDLOCK_CREATE, attributes, ctypes.c_size_t(len(attributes)), 0)
    return _checked(result, "landlock_create_ruleset")


def landlock_allow(ruleset: int, *, path_fd: int, rights: int) -> None:
    rule = struct.pack("=Qi", rights, path_fd)
    _checked(_libc.syscall(SYS_LANDLOCK_ADD, ruleset, 1, rule, 0), "landlock_add_rule")


def landlock_restrict(ruleset: int) -> None:
    _checked(_libc.syscall(SYS_LANDLOCK_RESTRICT, ruleset, 0), "landlock_restrict_self")
