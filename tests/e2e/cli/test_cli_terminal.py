"""On a terminal: the view is redrawn in place, and the keyboard's Ctrl-C reaches the whole foreground group."""

import os
import pty
import select
import subprocess
import sys
import time

from tests.e2e.cli.custody import Custody, environment
from tests.scripted_model import ScriptedModel, cells


def test_the_live_view_shows_the_work_and_ctrl_c_ends_it_properly(custody: Custody):
    with ScriptedModel(
        cells("print('looking')", "DRAFT(answer='half', citations=[])\nwhile True: pass")
    ) as model:
        ours, theirs = pty.openpty()
        words = ["run", "What failed?", "-e", "notes.txt", "-m", model.url]
        running = subprocess.Popen(
            [sys.executable, "-c", _ON_A_TERMINAL, *words],
            cwd=custody.folder,
            env=environment()
            | {"CUSTODY_HOME": str(custody.home), "TERM": "xterm-256color", "COLUMNS": "120"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        seen = _read_until(ours, b"DRAFT(", seconds=60)
        os.write(ours, b"\x03")
        seen += _read_until(ours, b"Interrupted. Kept:", seconds=60)
        code = running.wait(30)
        os.close(ours)

    assert code == 130
    for words in (b"What failed?", b"print('looking')", b"iterations", b"of 20", b"Ctrl-C stops the job"):
        assert words in seen
    assert b"survivors: none" in seen


#: Makes the terminal the controlling one, so that the byte of Ctrl-C becomes a signal.
_ON_A_TERMINAL = """
import fcntl, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
from controlplane.cli.main import main
main(sys.argv[1:])
"""


def _read_until(terminal: int, wanted: bytes, *, seconds: float) -> bytes:
    deadline, seen = time.monotonic() + seconds, b""
    while wanted not in seen:
        left = deadline - time.monotonic()
        assert left > 0, (
            f"{wanted!r} did not come; the terminal shows {seen[-2000:].decode(errors='replace')}"
        )
        if select.select([terminal], [], [], left)[0]:
            try:
                seen += os.read(terminal, 65_536)
            except OSError as error:
                raise AssertionError(f"it ended early: {seen[-3000:].decode(errors='replace')}") from error
    return seen
