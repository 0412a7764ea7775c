"""The filter is a program: interpreted here for a table of system calls, as the kernel would."""

import errno
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.backends.namespaces import seccomp
from sandbox.backends.namespaces.seccomp import ALLOW, KILL, NO_FAMILY, REFUSE, TRY_AGAIN, UNKNOWN
from sandbox.backends.namespaces.syscalls import ALLOWED, EXAMINED, REFUSED

ARCH = 0xC000003E
PROGRAMS = {fork: seccomp.compile_filter("x86_64", allow_fork=fork) for fork in (True, False)}


def verdict(number: int, *args: int, arch: int = ARCH, allow_fork: bool = True) -> int:
    """Run the classic BPF program over struct seccomp_data."""
    padded = [*args, *[0] * (6 - len(args))]
    data = struct.pack("<iIQ6Q", number if number < 1 << 31 else number - (1 << 32), arch, 0, *padded)
    code = list(struct.iter_unpack("<HBBI", PROGRAMS[allow_fork]))
    accumulator = position = 0
    while True:
        operation, if_true, if_false, k = code[position]
        position += 1
        match operation:
            case 0x20:
                (accumulator,) = struct.unpack_from("<I", data, k)
            case 0x54:
                accumulator &= k
            case 0x15:
                position += if_true if accumulator == k else if_false
            case 0x35:
                position += if_true if accumulator >= k else if_false
            case 0x45:
                position += if_true if accumulator & k else if_false
            case 0x06:
                return k
            case _:
                pytest.fail(f"unknown instruction {operation:#x}")


def test_the_program_fits_the_kernels_limit():
    assert all(len(program) // 8 <= 4096 for program in PROGRAMS.values())


@pytest.mark.parametrize("name", sorted(ALLOWED["x86_64"]))
def test_what_python_needs_is_allowed(name):
    assert verdict(ALLOWED["x86_64"][name]) == ALLOW


@pytest.mark.parametrize("name", sorted(REFUSED["x86_64"]))
def test_what_is_dangerous_is_refused_by_name(name):
    assert verdict(REFUSED["x86_64"][name]) == REFUSE


@given(st.integers(min_value=0, max_value=0x3FFFFFFF))
def test_every_other_call_does_not_exist(number):
    known = {*ALLOWED["x86_64"].values(), *REFUSED["x86_64"].values(), *EXAMINED["x86_64"].values()}

    if number not in known:
        assert verdict(number) == UNKNOWN


@pytest.mark.parametrize(
    ("number", "args", "expected"),
    [
        (435, (), UNKNOWN),  # clone3: glibc then uses clone
        (41, (1, 1, 0), ALLOW),  # socket: AF_UNIX only
        (41, (2, 1, 0), NO_FAMILY),
        (41, (16, 3, 0), NO_FAMILY),
        (41, (40, 1, 0), NO_FAMILY),  # AF_VSOCK, which a network namespace does not shut
        (41, (1, 1 | 0x80800, 0), ALLOW),  # close-on-exec, non-blocking
        (41, (1, 5, 0), ALLOW),
        (41, (1, 2, 0), REFUSE),  # a datagram needs no connection to reach a socket in evidence
        (41, (1, 3, 0), REFUSE),
        (53, (1, 1, 0), ALLOW),
        (53, (1, 2 | 0x80000, 0), REFUSE),
        (56, (0x01200011,), ALLOW),  # fork through clone
        (56, (0x003D0F00,), ALLOW),  # a thread
        *(
            (56, (flag | 17,), REFUSE)
            for flag in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000)
        ),
        (16, (0, 0x5401), ALLOW),  # ioctl TCGETS
        (16, (0, 0x5412), REFUSE),  # TIOCSTI
        (16, (0, 0x541C), REFUSE),
        (16, (0, 0x5412 | 1 << 32), REFUSE),  # the kernel reads 32 bits of the request
        (157, (15,), ALLOW),  # prctl PR_SET_NAME
        (157, (1,), REFUSE),  # PR_SET_PDEATHSIG would outlive the kill
        (157, (4,), REFUSE),
        (302, (0, 7, 0), ALLOW),  # prlimit64 reads
        (302, (0, 7, 1), REFUSE),
        (302, (0, 7, 1 << 32), REFUSE),
        (59, (), REFUSE),
        (72, (3, 3), ALLOW),  # fcntl F_GETFL
        (72, (3, 6), ALLOW),  # F_SETLK: sqlite needs it
        (72, (3, 1024), REFUSE),  # F_SETLEASE
        (72, (3, 1026), REFUSE),  # F_NOTIFY
        (73, (3, 2), UNKNOWN),  # flock
        (55, (3, 1, 3), ALLOW),  # getsockopt SO_TYPE
        (55, (3, 1, 77), REFUSE),  # SO_PEERPIDFD: a handle on the host's process
        (54, (3, 1, 76), REFUSE),  # setsockopt SO_PASSPIDFD
        (54, (3, 1, 26), REFUSE),  # SO_ATTACH_FILTER
        (44, (3, 0, 1, 0x4000), ALLOW),  # sendto MSG_NOSIGNAL
        (44, (3, 0, 1, 0x4001), REFUSE),  # MSG_OOB
        (47, (3, 0, 1), REFUSE),
        (9, (0, 4096, 3, 0x21), ALLOW),
        (9, (0, 4096, 3, 0x122), REFUSE),  # MAP_GROWSDOWN is not counted as data
        (10, (0, 4096, 7), ALLOW),
        (10, (0, 4096, 3 | 0x01000000), REFUSE),  # PROT_GROWSDOWN
        (316, (3, 0, 3, 0, 1), ALLOW),
        (316, (3, 0, 3, 0, 4), REFUSE),  # RENAME_WHITEOUT
        (319, (), ALLOW),
    ],
)
def test_calls_examined_by_their_arguments(number, args, expected):
    assert verdict(number, *args) == expected


def test_without_fork_only_threads_can_be_made():
    assert verdict(56, 17, allow_fork=False) == TRY_AGAIN
    assert verdict(57, allow_fork=False) == TRY_AGAIN
    assert verdict(58, allow_fork=False) == TRY_AGAIN
    assert verdict(56, 0x003D0F00, allow_fork=False) == ALLOW
    assert errno.EAGAIN == TRY_AGAIN & 0xFFFF


def test_without_a_control_group_there_is_no_memory_that_no_process_owns():
    assert verdict(9, 0, 4096, 3, 0x21, allow_fork=False) == REFUSE
    assert verdict(9, 0, 4096, 3, 0x22, allow_fork=False) == ALLOW  # private
    assert verdict(9, 0, 4096, 1, 0x01, allow_fork=False) == ALLOW  # a file
    assert verdict(9, 0, 4096, 3, 0x122, allow_fork=False) == REFUSE  # grows down
    assert verdict(319, allow_fork=False) == REFUSE


@pytest.mark.parametrize("arch", [0x40000003, 0xC00000B7, 0])
def test_a_foreign_architecture_is_killed(arch):
    assert verdict(0, arch=arch) == KILL


@pytest.mark.parametrize("number", [0x40000000, 0x40000000 + 59, 0x7FFFFFFF, 0xFFFFFFFF])
def test_x32_and_negative_numbers_are_killed(number):
    assert verdict(number) == KILL
