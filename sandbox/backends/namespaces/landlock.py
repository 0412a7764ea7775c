"""Landlock: what the file system and abstract sockets allow, again, beneath the mounts. By ABI of the kernel."""

import os
import struct
from pathlib import Path

from sandbox.backends.namespaces import kernel

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_MAKE_CHAR, _MAKE_BLOCK = 1 << 6, 1 << 11
_TRUNCATE, _IOCTL_DEV = 1 << 14, 1 << 15
_ON_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV


def file_rights(abi: int) -> int:
    """Return every file-system right that this ABI can take away."""
    count = {1: 13, 2: 14, 3: 15, 4: 15}.get(abi, 16)
    return (1 << count) - 1


def ruleset_attributes(abi: int) -> bytes:
    """Return the ruleset: every file right, TCP bind and connect, abstract sockets and signals out of the domain."""
    network = 0b11 if abi >= 4 else 0
    scope = 0b11 if abi >= 6 else 0
    size = 8 if abi < 4 else 16 if abi < 6 else 24
    return struct.pack("=QQQ", file_rights(abi), network, scope)[:size]


def restrict(*, readable: tuple[str, ...], writable: tuple[str, ...]) -> int:
    """Confine this process; return the ABI used, 0 where the kernel has no Landlock."""
    abi = kernel.landlock_abi()
    if abi < 1:
        return 0
    everything = file_rights(abi)
    ruleset = kernel.landlock_create(ruleset_attributes(abi))
    never = _EXECUTE | _MAKE_CHAR | _MAKE_BLOCK | _IOCTL_DEV
    for path in readable:
        _allow(ruleset, path, _READ_FILE | _READ_DIR)
    for path in writable:
        _allow(ruleset, path, everything & ~never)
    kernel.landlock_restrict(ruleset)
    os.close(ruleset)
    return abi


def _allow(ruleset: int, path: str, rights: int) -> None:
    fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        kernel.landlock_allow(
            ruleset, path_fd=fd, rights=rights if Path(path).is_dir() else rights & _ON_FILES
        )
    finally:
        os.close(fd)
