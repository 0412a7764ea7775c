"""A real `custody-worker` process with a home of its own, to which the server's home is not there."""

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Self

PROJECT = Path(__file__).parents[1]
#: Covers folders with emptiness, in a mount namespace that only this process has. Needs root.
_HIDING = """
import sys
sys.path.insert(0, {project!r})
from sandbox.backends.namespaces import kernel
kernel.unshare(kernel.CLONE_NEWNS)
kernel.mount("", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)
for folder in {hidden!r}:
    kernel.mount("tmpfs", folder, kind="tmpfs", data="mode=755")
sys.argv = ["custody-worker", *sys.argv[1:]]
from rlm_worker.remote.command import main
sys.exit(main())
"""


class RemoteWorker:
    """`custody-worker` against a server; what it logs is read as it comes."""

    def __init__(
        self, url: str, key: str, home: Path, *options: str, hidden: tuple[Path, ...] = (), **env: str
    ) -> None:
        home.mkdir(exist_ok=True)
        key_file = home / "key"
        key_file.write_text(key)
        program = _HIDING.format(
            project=str(PROJECT), hidden=[str(path) for path in hidden] if os.geteuid() == 0 else []
        )
        clean = {name: value for name, value in os.environ.items() if not name.startswith("CUSTODY_")}
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-c", program, "--server", url),
                *("--key-file", str(key_file), "--home", str(home / "worker")),
                *options,
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            cwd=home,
            env={**clean, "PYTHONPATH": str(PROJECT), **env},
        )
        self.lines: list[str] = []
        self._changed = threading.Condition()
        self._is_ended = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._changed:
                self.lines.append(line)
                self._changed.notify_all()
        with self._changed:
            self._is_ended = True
            self._changed.notify_all()

    @property
    def said(self) -> str:
        return "".join(self.lines)

    def await_line(self, pattern: str, *, seconds: float = 30) -> str:
        found = re.compile(pattern)
        with self._changed:
            self._changed.wait_for(
                lambda: self._is_ended or any(found.search(line) for line in self.lines), timeout=seconds
            )
            line = next((line for line in self.lines if found.search(line)), None)
        assert line is not None, f"the worker did not say {pattern!r}:\n{self.said}"
        return line

    def ended(self, *, seconds: float = 30) -> int:
        code = self.process.wait(timeout=seconds)
        self._reader.join(5)
        return code

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        if self.process.poll() is None:
            self.kill()
