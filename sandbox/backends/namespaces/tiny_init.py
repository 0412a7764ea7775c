"""Pid 1 when its work is done: a loop of a few instructions that reaps, in an address space that holds nothing else.

An interpreter could wait as well, but would hold a megabyte and a half of pages that it once touched. What is left here
is one page of code and one of data: nothing to pay for, and nothing to attack.
"""

import ctypes
import mmap
import platform
import signal
import struct
from pathlib import Path

from sandbox.backends.namespaces import kernel

_PAGE = mmap.PAGESIZE
_END_OF_USER_SPACE = 0x7FFFFFFFF000
# The status that wait4 writes, the runner's pid, and three ranges to unmap: start and length each.
_DATA = struct.Struct("<ii6Q")

# Called with the address of the data. Uses no stack: one of the ranges takes it away.
_LISTING = """
48 89 fb                mov rbx, rdi
48 8b 7b 08             mov rdi, [rbx+8]        all below the code
48 8b 73 10             mov rsi, [rbx+16]
b8 0b 00 00 00          mov eax, 11             munmap
0f 05                   syscall
48 8b 7b 18             mov rdi, [rbx+24]       all from the end of the data to the kernel's own pages
48 8b 73 20             mov rsi, [rbx+32]
b8 0b 00 00 00          mov eax, 11             munmap
0f 05                   syscall
48 8b 7b 28             mov rdi, [rbx+40]       all behind those
48 8b 73 30             mov rsi, [rbx+48]
b8 0b 00 00 00          mov eax, 11             munmap
0f 05                   syscall
48 c7 c7 ff ff ff ff    again: mov rdi, -1
48 89 de                mov rsi, rbx            status
31 d2                   xor edx, edx
45 31 d2                xor r10d, r10d
b8 3d 00 00 00          mov eax, 61             wait4
0f 05                   syscall
3b 43 04                cmp eax, [rbx+4]        the runner
74 0c                   je ended
83 f8 f6                cmp eax, -10            ECHILD: nobody is left
75 e0                   jne again
bf 46 00 00 00          mov edi, 70
eb 14                   jmp leave
8b 03                   ended: mov eax, [rbx]
89 c7                   mov edi, eax
83 e7 7f                and edi, 127            the signal that killed it
74 08                   je exited
81 c7 80 00 00 00       add edi, 128
eb 03                   jmp leave
0f b6 fc                exited: movzx edi, ah
b8 e7 00 00 00          leave: mov eax, 231     exit_group
0f 05                   syscall
"""
_CODE = bytes.fromhex("".join(line[:24] for line in _LISTING.splitlines()))


def kernel_pages() -> tuple[int, int] | None:
    """Return start and end of what the kernel itself has mapped, which is not to be unmapped; None where this cannot be done.

    The same in all forks of a process.
    """
    if platform.machine() != "x86_64" or kernel.has_restartable_sequences():
        return None
    lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    ranges = [
        line.split()[0].split("-") for line in lines if line.endswith(("[vvar]", "[vvar_vclock]", "[vdso]"))
    ]
    starts, ends = [int(start, 16) for start, _ in ranges], [int(end, 16) for _, end in ranges]
    return min(starts, default=_END_OF_USER_SPACE), max(ends, default=_END_OF_USER_SPACE)


def become(runner: int, *, kept: tuple[int, int]) -> None:
    """Give up this interpreter, reap until the runner ends, and end with its status. Returns only by an OSError."""
    # Pid 1 is spared the signals that it does not handle.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    pages = mmap.mmap(-1, 2 * _PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    code = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    data, end = code + _PAGE, code + 2 * _PAGE
    pages.write(_CODE)
    pages.seek(_PAGE)
    start, after = kept
    ranges = (0, code, end, start - end, after, _END_OF_USER_SPACE - after)
    pages.write(_DATA.pack(0, runner, *ranges))
    kernel.make_executable(code, _PAGE)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(code)(data)
