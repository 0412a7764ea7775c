"""The seccomp filter as classic BPF: known calls allowed, dangerous ones EPERM, all others ENOSYS. Pure: makes bytes.

clone3 is among the others: glibc then falls back to clone, whose flags a filter can read.
"""

import errno
import struct
from typing import NamedTuple

from sandbox.backends.namespaces.syscalls import ALLOWED, AUDIT_ARCH, EXAMINED, REFUSED

LOAD, AND, JUMP_EQUAL, JUMP_AT_LEAST, JUMP_SET, RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
ALLOW, KILL = 0x7FFF0000, 0x80000000
_ERRNO = 0x00050000
REFUSE = _ERRNO | errno.EPERM
UNKNOWN = _ERRNO | errno.ENOSYS
TRY_AGAIN = _ERRNO | errno.EAGAIN
NO_FAMILY = _ERRNO | errno.EAFNOSUPPORT

_NUMBER, _ARCH, _ARG0, _ARG1, _ARG2, _ARG3, _ARG4 = 0, 4, 16, 24, 32, 40, 48
_X32_BIT = 0x40000000
_AF_UNIX = 1
#: Stream and seqpacket need a connection, which is refused. A datagram needs none: it reaches any socket whose path is seen.
SOCKET_TYPES, SOCKET_TYPE_MASK = (1, 5), 0xF
_CLONE_THREAD = 0x00010000
_CLONE_NAMESPACES = 0x7E020080  # NEWTIME, NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_MSG_OOB = 1  # hardly used, and a way to kernel bugs from inside other sandboxes
_F_SETLEASE, _F_NOTIFY = 1024, 1026  # a lease on evidence makes the host wait that wants to write to it
# Type, error, sizes, times, domain, protocol. Not the peer's credentials or pidfd, which are the host's; no socket filters.
_SOCKET_OPTIONS = (3, 4, 7, 8, 20, 21, 30, 38, 39)
_MAP_SHARED, _MAP_ANONYMOUS = 0x01, 0x20
_MAP_GROWSDOWN, _PROT_GROWS = 0x100, 0x03000000  # counted as stack, which no limit of ours bounds
_RENAME_WHITEOUT = 4  # makes a device
_PR_SET_NAME, _PR_GET_NAME, _PR_SET_VMA = 15, 16, 0x53564D41


class Instruction(NamedTuple):
    code: int
    if_true: int
    if_false: int
    operand: int


Program = list[Instruction]


def compile_filter(machine: str, *, allow_fork: bool) -> bytes:
    """Return the filter as sock_filter records for this machine."""
    return b"".join(
        struct.pack("=HBBI", *instruction) for instruction in build(machine, allow_fork=allow_fork)
    )


def build(machine: str, *, allow_fork: bool) -> Program:
    examined = EXAMINED[machine]
    fork_verdict = ALLOW if allow_fork else TRY_AGAIN
    rules = {
        "ioctl": _any_but(_ARG1, (_TIOCSTI, _TIOCLINUX)),
        "socket": _connected_sockets(),
        "socketpair": _connected_sockets(),
        "clone": _clone(fork_verdict),
        "prctl": _only(_ARG0, (_PR_SET_NAME, _PR_GET_NAME, _PR_SET_VMA), otherwise=REFUSE),
        "prlimit64": _read_only_limits(),
        "fcntl": _any_but(_ARG1, (_F_SETLEASE, _F_NOTIFY)),
        "setsockopt": _only(_ARG2, _SOCKET_OPTIONS, otherwise=REFUSE),
        "getsockopt": _only(_ARG2, _SOCKET_OPTIONS, otherwise=REFUSE),
        "sendto": _without(_ARG3, _MSG_OOB),
        "recvfrom": _without(_ARG3, _MSG_OOB),
        "sendmsg": _without(_ARG2, _MSG_OOB),
        "recvmsg": _without(_ARG2, _MSG_OOB),
        # Without a control group, only memory that a process owns is counted: there is no other then.
        "mmap": _without(_ARG3, _MAP_GROWSDOWN) if allow_fork else _own_memory(),
        "mprotect": _without(_ARG2, _PROT_GROWS),
        "renameat2": _without(_ARG4, _RENAME_WHITEOUT),
        "memfd_create": [_return(ALLOW if allow_fork else REFUSE)],
    }
    program = _prologue(machine)
    for name, body in rules.items():
        program += [Instruction(JUMP_EQUAL, 0, len(body), examined[name]), *body]
    return program + _tree(_ranges(_verdicts(machine, fork_verdict)))


def _verdicts(machine: str, fork_verdict: int) -> dict[int, int]:
    table = dict.fromkeys(REFUSED[machine].values(), REFUSE)
    for name, number in ALLOWED[machine].items():
        table[number] = fork_verdict if name in {"fork", "vfork"} else ALLOW
    return table


def _prologue(machine: str) -> Program:
    return [
        Instruction(LOAD, 0, 0, _ARCH),
        Instruction(JUMP_EQUAL, 1, 0, AUDIT_ARCH[machine]),
        _return(KILL),
        Instruction(LOAD, 0, 0, _NUMBER),
        Instruction(JUMP_AT_LEAST, 0, 1, _X32_BIT),
        _return(KILL),
    ]


def _return(verdict: int) -> Instruction:
    return Instruction(RETURN, 0, 0, verdict)


def _only(argument: int, values: tuple[int, ...], *, otherwise: int) -> Program:
    tests = [Instruction(JUMP_EQUAL, len(values) - index, 0, value) for index, value in enumerate(values)]
    return [Instruction(LOAD, 0, 0, argument), *tests, _return(otherwise), _return(ALLOW)]


def _any_but(argument: int, values: tuple[int, ...]) -> Program:
    tests = [Instruction(JUMP_EQUAL, len(values) - index, 0, value) for index, value in enumerate(values)]
    return [Instruction(LOAD, 0, 0, argument), *tests, _return(ALLOW), _return(REFUSE)]


def _without(argument: int, flags: int) -> Program:
    return [
        Instruction(LOAD, 0, 0, argument),
        Instruction(JUMP_SET, 0, 1, flags),
        _return(REFUSE),
        _return(ALLOW),
    ]


def _connected_sockets() -> Program:
    return [
        Instruction(LOAD, 0, 0, _ARG0),
        Instruction(JUMP_EQUAL, 1, 0, _AF_UNIX),
        _return(NO_FAMILY),
        Instruction(LOAD, 0, 0, _ARG1),
        Instruction(AND, 0, 0, SOCKET_TYPE_MASK),
        Instruction(JUMP_EQUAL, 2, 0, SOCKET_TYPES[0]),
        Instruction(JUMP_EQUAL, 1, 0, SOCKET_TYPES[1]),
        _return(REFUSE),
        _return(ALLOW),
    ]


def _own_memory() -> Program:
    return [
        Instruction(LOAD, 0, 0, _ARG3),
        Instruction(JUMP_SET, 2, 0, _MAP_GROWSDOWN),
        Instruction(JUMP_SET, 0, 2, _MAP_ANONYMOUS),
        Instruction(JUMP_SET, 0, 1, _MAP_SHARED),
        _return(REFUSE),
        _return(ALLOW),
    ]


def _clone(fork_verdict: int) -> Program:
    return [
        Instruction(LOAD, 0, 0, _ARG0),
        Instruction(JUMP_SET, 0, 1, _CLONE_NAMESPACES),
        _return(REFUSE),
        Instruction(JUMP_SET, 0, 1, _CLONE_THREAD),
        _return(ALLOW),
        _return(fork_verdict),
    ]


def _read_only_limits() -> Program:
    """Allow prlimit64 only without a new limit: both halves of the pointer are zero."""
    return [
        Instruction(LOAD, 0, 0, _ARG2),
        Instruction(JUMP_EQUAL, 0, 3, 0),
        Instruction(LOAD, 0, 0, _ARG2 + 4),
        Instruction(JUMP_EQUAL, 0, 1, 0),
        _return(ALLOW),
        _return(REFUSE),
    ]


def _ranges(verdicts: dict[int, int]) -> list[tuple[int, int]]:
    """List (first number, verdict) of runs with one verdict, so that the program is short: the kernel translates it each time."""
    found = [(0, UNKNOWN)]
    for number in sorted({*verdicts, *(number + 1 for number in verdicts)}):
        verdict = verdicts.get(number, UNKNOWN)
        if verdict != found[-1][1]:
            found.append((number, verdict))
    return found


def _tree(ranges: list[tuple[int, int]]) -> Program:
    """Search by halves. A jump reaches 255 instructions, which is more than half of all runs need."""
    if len(ranges) == 1:
        return [_return(ranges[0][1])]
    middle = len(ranges) // 2
    left, right = _tree(ranges[:middle]), _tree(ranges[middle:])
    pivot = ranges[middle][0]
    assert len(left) <= 255
    return [Instruction(JUMP_AT_LEAST, len(left), 0, pivot), *left, *right]
