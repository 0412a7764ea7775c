"""The seccomp filter where no namespace stands behind it: what Landlock leaves open must be shut here. Pure: makes bytes.

Landlock knows nothing of modes, times, attributes, locks or owners of files, of sockets with a path, of signals before
ABI 6, of shared memory. An ordinary user's sandbox has that user's uid: each of these would reach the user's own files.
"""

import struct

from sandbox.backends.namespaces import seccomp
from sandbox.backends.namespaces.seccomp import JUMP_EQUAL, LOAD, REFUSE, RETURN, Instruction, Program

_AND = 0x54
_NUMBER, _ARG0, _ARG1, _ARG3 = 0, 16, 24, 40
_SHARED_ANONYMOUS = 0x21

_SYSCALLS = {
    "x86_64": {
        "mmap": 9, "ioctl": 16, "socket": 41, "kill": 62, "fcntl": 72, "tgkill": 234, "prlimit64": 302,
        # Refused whatever their arguments.
        "flock": 73, "truncate": 76, "chmod": 90, "fchmod": 91, "utime": 132, "getxattr": 191, "lgetxattr": 192,
        "fgetxattr": 193, "listxattr": 194, "llistxattr": 195, "flistxattr": 196, "utimes": 235, "fchmodat": 268,
        "utimensat": 280, "memfd_create": 319,
    }
}  # fmt: skip
_EXAMINED = frozenset({"mmap", "ioctl", "kill", "fcntl", "tgkill", "prlimit64"})
#: TCGETS, TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX.
_IOCTLS = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
#: Duplicates, flags, record locks, pipe sizes; no owner, no signal, no lease, no notification.
_FCNTLS = (0, 1, 2, 3, 4, 5, 6, 7, 36, 37, 38, 1030, 1031, 1032)


def machines() -> frozenset[str]:
    return frozenset(_SYSCALLS)


def compile_filter(machine: str, *, pid: int) -> bytes:
    """Return the filter for the process of this pid: it may signal itself and nobody else."""
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in build(machine, pid=pid))


def build(machine: str, *, pid: int) -> Program:
    """Return our refusals, and behind them the filter that every backend has, without fork."""
    numbers = _SYSCALLS[machine]
    bodies = {
        "mmap": _unless(_ARG3, _SHARED_ANONYMOUS, (_SHARED_ANONYMOUS,)),
        "ioctl": _only(_ARG1, _IOCTLS),
        "kill": _only(_ARG0, (pid,)),
        "tgkill": _only(_ARG0, (pid,)),
        "fcntl": _only(_ARG1, _FCNTLS),
        "prlimit64": _only(_ARG0, (0, pid)),
    }
    refused = [Instruction(RETURN, 0, 0, REFUSE)]
    # The architecture is the base filter's to judge; a foreign one only meets refusals before it gets there.
    program = [Instruction(LOAD, 0, 0, _NUMBER)]
    for name, number in numbers.items():
        body = bodies[name] if name in _EXAMINED else refused
        program += [Instruction(JUMP_EQUAL, 0, len(body), number), *body]
    return program + seccomp.build(machine, allow_fork=False)


def _only(argument: int, values: tuple[int, ...], *, mask: int = 0) -> Program:
    """Go on with these values, refuse all others."""
    tests = [Instruction(JUMP_EQUAL, len(values) - index, 0, value) for index, value in enumerate(values)]
    return [
        *_loaded(argument, mask),
        *tests,
        Instruction(RETURN, 0, 0, REFUSE),
        Instruction(LOAD, 0, 0, _NUMBER),
    ]


def _unless(argument: int, mask: int, values: tuple[int, ...]) -> Program:
    """Refuse these values, go on with all others."""
    tests = [
        instruction
        for value in values
        for instruction in (Instruction(JUMP_EQUAL, 0, 1, value), Instruction(RETURN, 0, 0, REFUSE))
    ]
    return [*_loaded(argument, mask), *tests, Instruction(LOAD, 0, 0, _NUMBER)]


def _loaded(argument: int, mask: int) -> Program:
    masking = [Instruction(_AND, 0, 0, mask)] if mask else []
    return [Instruction(LOAD, 0, 0, argument), *masking]
