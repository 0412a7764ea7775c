"""A process that holds the write lock of a database and does nothing: what a frozen writer looks like to everybody else."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_HOLD = """
import sys
from controlplane.adapters import sqlite
connection = sqlite.library().connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.readline()
connection.execute("ROLLBACK")
"""


@contextmanager
def frozen_writer(database: Path) -> Iterator[subprocess.Popen[str]]:
    """The lock is held, and its holder frozen, inside; both are over after."""
    process = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(database)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    process.send_signal(signal.SIGSTOP)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGCONT)
        process.communicate("\n", timeout=20)
