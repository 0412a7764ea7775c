"""A git repository at a commit: its tree read with plumbing alone, so that no hook, filter or setting of it takes effect."""

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from controlplane.adapters.content_store import Blob, ContentStore
from controlplane.adapters.sources.bounds import Tally
from controlplane.adapters.sources.paths import free_path, safe_path
from controlplane.errors import InvalidRequest

_BLOCK = 1 << 20
_SECONDS = 60
_REGULAR = ("100644", "100755", "100664")
#: Settings of the machine and the user are off, no helper can be asked, nothing is fetched that is not here.
_ENVIRONMENT = {
    "PATH": os.environ.get("PATH", os.defpath),
    "HOME": "/nonexistent",
    "LANG": "C.UTF-8",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "/bin/false",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "",
}
_SETTINGS = ("safe.directory=*", "core.hooksPath=/dev/null", "core.fsmonitor=false", "protocol.allow=never")


@dataclass(frozen=True, kw_only=True)
class Listed:
    """One entry of a tree."""

    mode: str
    object_id: str
    path: str


class Repository:
    """A repository on this machine."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._command = ["git", "--no-pager", "-C", str(path)]
        for setting in _SETTINGS:
            self._command += ["-c", setting]

    def commit(self, revision: str) -> str:
        """The whole id of the commit that a revision names now."""
        wanted = f"{revision}^{{commit}}"
        said = self._ask("rev-parse", "--verify", "--quiet", "--end-of-options", wanted)
        commit = said.decode("ascii", "replace").strip()
        if not commit:
            raise InvalidRequest(f"git repository {str(self._path)!r} has no commit {revision!r}")
        return commit

    def keep(self, commit: str, store: ContentStore, tally: Tally) -> dict[str, Blob]:
        """Every regular file of the commit's tree, as the objects have it."""
        entries = list(self._entries(commit, tally))
        files: dict[str, Blob] = {}
        try:
            with subprocess.Popen(
                [*self._command, "cat-file", "--batch"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=_ENVIRONMENT,
            ) as process:
                assert process.stdin is not None
                assert process.stdout is not None
                for entry in entries:
                    process.stdin.write(f"{entry.object_id}\n".encode())
                    process.stdin.flush()
                    files[entry.path] = store.keep(tally.count(_object(process.stdout, entry)))
                process.stdin.close()
        except OSError as error:
            raise InvalidRequest(f"git could not be used for {str(self._path)!r}: {error}") from error
        return files

    def _entries(self, commit: str, tally: Tally) -> Iterator[Listed]:
        taken: set[str] = set()
        folders: set[str] = set()
        for line in self._ask("ls-tree", "-r", "-z", "--full-tree", commit).split(b"\0"):
            if not line:
                continue
            about, _, name = line.partition(b"\t")
            mode, _kind, object_id = about.decode("ascii").split()
            shown = name.decode("utf-8", "replace")
            path = safe_path(shown)
            tally.entry()
            if mode not in _REGULAR:
                tally.leave_out(shown, "it is a submodule" if mode == "160000" else "it is a link")
            elif path is None or not free_path(path, taken, folders):
                tally.leave_out(shown, "its path leads out of the tree or is none")
            else:
                yield Listed(mode=mode, object_id=object_id, path=path)

    def _ask(self, *arguments: str) -> bytes:
        try:
            answered = subprocess.run(
                [*self._command, *arguments],
                capture_output=True,
                check=False,
                env=_ENVIRONMENT,
                timeout=_SECONDS,
            )
        except FileNotFoundError:
            raise InvalidRequest("git is not installed here: git evidence needs it") from None
        except (OSError, subprocess.TimeoutExpired) as error:
            raise InvalidRequest(f"git could not be used for {str(self._path)!r}: {error}") from error
        if answered.returncode != 0 and arguments[0] != "rev-parse":
            said = " ".join(answered.stderr.decode("utf-8", "replace").split())
            raise InvalidRequest(f"git could not read {str(self._path)!r}: {said[:300]}")
        return answered.stdout if answered.returncode == 0 else b""


def _object(output: IO[bytes], entry: Listed) -> Iterator[bytes]:
    header = output.readline(200).split()
    if len(header) != 3 or header[1] != b"blob":
        raise InvalidRequest(f"git does not have the content of {entry.path!r}: fetch the whole repository")
    left = int(header[2])
    while left:
        block = output.read(min(left, _BLOCK))
        if not block:
            raise InvalidRequest(f"git stopped in the middle of {entry.path!r}")
        left -= len(block)
        yield block
    output.read(1)
