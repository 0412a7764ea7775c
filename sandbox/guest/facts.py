"""What the host told about each document: its kind, its encoding, where its text form lies. Reads indexes, decides nothing."""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields

#: The folder of the evidence that holds what is known about it; no piece of evidence can have this name.
READINGS = ".reading"
_INDEX = "index.json"


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of one document beyond its name."""

    kind: str = ""
    encoding: str | None = None
    delimiter: str = ""
    rows: int | None = None
    #: The line on which each page begins.
    pages: tuple[int, ...] = ()
    sheets: tuple[str, ...] = ()
    #: Path of the text form; empty: the document is read as it is.
    text: str = ""
    note: str = ""


UNTOLD = Facts()
_FIELDS = frozenset(field.name for field in fields(Facts))


class Reading:
    """The index of one piece of evidence."""

    def __init__(self, folder: str) -> None:
        with open(f"{folder}/{_INDEX}", "rb") as opened:  # noqa: PTH123 - a string
            index = json.loads(opened.read().decode("utf-8", "surrogatepass"))
        self._folder = folder
        self._kinds: dict[str, str] = index.get("kinds", {})
        self._files: dict[str, dict[str, object]] = index.get("files", {})
        self.notes: list[str] = [str(note) for note in index.get("notes", [])]
        #: Documents of one kind and nothing else known share one value.
        self._plain: dict[str, Facts] = {}

    def facts_of(self, path: str, *, name: str) -> Facts:
        """What is known of the file at a path below the evidence."""
        kind = self._kinds.get(_suffix(path or name), "")
        told = self._files.get(path)
        if told is None:
            return self._plain.setdefault(kind, Facts(kind=kind))
        known: dict[str, object] = {
            key: tuple(value) if isinstance(value, list) else value
            for key, value in told.items()
            if key in _FIELDS
        }
        if known.get("text"):
            known["text"] = f"{self._folder}/{known['text']}"
        return Facts(**{**known, "kind": known.get("kind") or kind})  # type: ignore[arg-type]


def readings(root: str | Mapping[str, str]) -> dict[str, Reading]:
    """Every index there is, by the name of its evidence; none is no mistake."""
    found: dict[str, Reading] = {}
    for name, folder in _folders(root):
        try:
            found[name] = Reading(folder)
        except (OSError, ValueError):
            continue
    return found


def _folders(root: str | Mapping[str, str]) -> Iterator[tuple[str, str]]:
    if not isinstance(root, str):
        for target, source in root.items():
            if target.startswith(f"{READINGS}/"):
                yield target.partition("/")[2], source
        return
    try:
        names = sorted(os.listdir(f"{root}/{READINGS}"))  # noqa: PTH208 - strings
    except OSError:
        return
    for name in names:
        yield name, f"{root}/{READINGS}/{name}"


def _suffix(path: str) -> str:
    name = path.rpartition("/")[2]
    return name.rpartition(".")[2].lower() if "." in name else ""
