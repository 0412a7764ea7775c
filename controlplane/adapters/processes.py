"""Worker names that tell whether their process can still be there."""

import os
import socket
from pathlib import Path

_PROC = Path("/proc")


def worker_id() -> str:
    """Name of this process: host, pid namespace, boot, pid, start time. No later process can have the same."""
    pid = os.getpid()
    return f"{_place()}/{_boot()}/{pid}/{_start_time(pid)}"


def is_gone(name: str) -> bool:
    """True only when it is certain that the process of this name has ended; of another place nothing is certain."""
    try:
        place, boot, pid, start_time = name.rsplit("/", 3)
        number = int(pid)
    except ValueError:
        return False
    if place != _place():
        return False
    return boot != _boot() or _start_time(number) != start_time


def pid_of(name: str) -> int:
    """The pid in a worker's name, as its own place counts; 0 when the name does not tell."""
    parts = name.rsplit("/", 2)
    return int(parts[1]) if len(parts) == 3 and parts[1].isdecimal() else 0


def _place() -> str:
    # A pid means something only within its namespace, also on one host.
    return f"{socket.gethostname()}:{(_PROC / 'self/ns/pid').readlink()}"


def _boot() -> str:
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()


def _start_time(pid: int) -> str:
    """Clock ticks between boot and the start of the process; empty when it has ended, also when not yet reaped."""
    try:
        line = (_PROC / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    # The name in parentheses may hold anything, so fields are counted from its end.
    figures = line.rpartition(")")[2].split()
    return "" if figures[0] in "ZX" else figures[19]
