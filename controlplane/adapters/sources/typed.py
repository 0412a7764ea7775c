"""From what a person typed after -e to a source. Looks whether a path is there, and reads nothing."""

import glob
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from controlplane.errors import InvalidRequest

Kind = Literal["local", "stdin", "git", "url", "job"]

_NAMED = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._ -]{0,199})=(?P<rest>.+)\Z", re.DOTALL)
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(::[A-Za-z][A-Za-z0-9+.-]*)*://")
_MOST_MATCHES = 100


@dataclass(frozen=True, kw_only=True)
class Source:
    """One piece of evidence before it is brought in."""

    kind: Kind = "local"
    #: A path, a URL, or the id of a job.
    address: str = ""
    #: Of git: the revision; of a job: the path of one artifact.
    part: str = ""
    #: The name it is to have; empty: one that fits its address.
    name: str = ""
    #: Taken as it lies: neither unpacked nor converted.
    is_plain: bool = False

    @property
    def path(self) -> Path:
        return Path(self.address).expanduser()


def sources_of(text: str) -> tuple[Source, ...]:
    """What was typed; a pattern of paths is every file that fits it."""
    named = None if _exists(text) else _NAMED.match(text)
    if named is None:
        return _unnamed(text, name="")
    found = _unnamed(named["rest"], name=named["name"])
    if len(found) > 1:
        raise InvalidRequest(f"{text!r} gives one name to {len(found)} files: leave the name out")
    return found


def _unnamed(text: str, *, name: str) -> tuple[Source, ...]:
    if text == "-":
        return (Source(kind="stdin", name=name or "stdin"),)
    if _exists(text):
        return (Source(address=text, name=name),)
    marked = _marked(text, name=name)
    if marked is not None:
        return (marked,)
    if glob.has_magic(text):
        return tuple(Source(address=path, name=name) for path in _matches(text))
    return (Source(address=text, name=name),)


def _marked(text: str, *, name: str) -> Source | None:
    """A source that says by its form what it is."""
    kind, _, rest = text.partition(":")
    repository = text.rpartition("@")[0]
    if kind == "git" and rest:
        return _revision(rest, name=name)
    if kind == "plain" and rest:
        return Source(address=rest, name=name, is_plain=True)
    if kind == "job" and rest:
        job_id, _, part = rest.partition("/")
        return Source(kind="job", address=job_id, part=part, name=name)
    if _URL.match(text):
        return Source(kind="url", address=text, name=name)
    if repository and _is_repository(Path(repository).expanduser()):
        return _revision(text, name=name)
    return None


def _revision(text: str, *, name: str) -> Source:
    repository, at, revision = text.rpartition("@")
    if not at or not repository or not revision:
        raise InvalidRequest(f"git evidence {text!r} names no commit: write it like git:PATH@COMMIT")
    return Source(kind="git", address=repository, part=revision, name=name)


def _is_repository(path: Path) -> bool:
    return (path / ".git").exists() or ((path / "HEAD").is_file() and (path / "objects").is_dir())


def _matches(pattern: str) -> list[str]:
    found = sorted(glob.glob(str(Path(pattern).expanduser()), recursive=True))  # noqa: PTH207 - a whole pattern
    files = [path for path in found if Path(path).is_file()]
    if not files:
        raise InvalidRequest(f"no file fits the pattern {pattern!r}: look at it with ls")
    if len(files) > _MOST_MATCHES:
        raise InvalidRequest(
            f"{len(files):,} files fit the pattern {pattern!r}, more than {_MOST_MATCHES}: name their folder instead"
        )
    return files


def _exists(text: str) -> bool:
    try:
        return Path(text).expanduser().exists()
    except (OSError, ValueError, RuntimeError):
        return False
