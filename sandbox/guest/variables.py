"""What a cell left in its variables: a short digest a name, so that a repeated cell can be held against it.

Values are looked at, never asked: no code of a cell runs for it. How much is looked at is bounded, what follows from
an address or an open resource is left out, and of what is not known here the type alone is taken.
"""

import collections
import datetime as dt
import decimal
import hashlib
import types
from collections.abc import Callable, Mapping
from typing import Any

from sandbox.guest.results import Result

_NAMES = 300
_NODES = 4_000
_NODES_EACH = 400
_ITEMS = 24
_DEPTH = 6
_EDGE = 2_048
_LETTERS = 12
#: More names than are looked at one by one.
OTHERS = "…"

#: The same object is the same value.
_UNCHANGING = frozenset({str, bytes, int, float, complex, bool, type(None), types.ModuleType, type})


class Variables:
    """The names of a session that its cells have made, as they were after the last cell."""

    def __init__(self, names: Mapping[str, Any]) -> None:
        self._names = names
        self._own = frozenset(names)
        self._digests: dict[str, str] = {}
        self._values: dict[str, Any] = {}

    def own(self) -> None:
        """What there is now belongs to every session."""
        self._own = frozenset(self._names)

    def changed(self) -> dict[str, str]:
        """Digest of each variable that is not as it was; an empty one says that it is gone."""
        found = self._look()
        changed = {name: mark for name, mark in found.items() if self._digests.get(name) != mark}
        changed |= dict.fromkeys((name for name in self._digests if name not in found), "")
        self._digests = found
        return changed

    def _look(self) -> dict[str, str]:
        names = [name for name in list(self._names) if not name.startswith("_") and name not in self._own]
        found: dict[str, str] = {}
        values: dict[str, Any] = {}
        left = _NODES
        for name in names[:_NAMES]:
            value = self._names.get(name)
            if type(value) in _UNCHANGING:
                values[name] = value
            if name in self._values and self._values[name] is value:
                found[name] = self._digests[name]
                continue
            look = _Look(min(left, _NODES_EACH))
            found[name] = look.digest(value)
            left = max(1, left - look.nodes)
        if len(names) > _NAMES:
            found[OTHERS] = f"{len(names) - _NAMES} more"
        self._values = values
        return found


class _Look:
    """One bounded walk through a value."""

    def __init__(self, nodes: int) -> None:
        self._limit = nodes
        self.nodes = 0
        self._seen: set[int] = set()
        self._hash = hashlib.sha256()

    def digest(self, value: Any) -> str:
        try:
            self._walk(value, 0)
        except Exception:  # noqa: BLE001 - another thread may change what is looked at
            return "unreadable"
        return self._hash.hexdigest()[:_LETTERS]

    def _put(self, *parts: object) -> None:
        self._hash.update("\x1f".join(map(str, parts)).encode("utf-8", "backslashreplace") + b"\x1e")

    def _walk(self, value: Any, depth: int) -> None:
        self.nodes += 1
        if self.nodes > self._limit or depth > _DEPTH or id(value) in self._seen:
            self._put("…")
            return
        kind = type(value)
        look = _KNOWN.get(kind)
        if look is not None:
            look(self, value, depth)
            return
        self._put(kind.__module__, kind.__qualname__)
        if issubclass(kind, Result):
            self._inside(value, [value.value, value.error], depth)
        elif issubclass(kind, BaseException | tuple):
            parts = value.args if issubclass(kind, BaseException) else value
            self._inside(value, list(tuple.__iter__(parts))[:_ITEMS], depth)
        elif kind.__module__ == "__main__":
            self._object(value, depth)
        else:
            self._buffer(value)

    def plain(self, value: object, _depth: int) -> None:
        self._put(type(value).__name__, repr(value)[:_EDGE])

    def text(self, value: str | bytes | bytearray, _depth: int) -> None:
        self._put(type(value).__name__, len(value))
        for edge in (value[:_EDGE], value[-_EDGE:]):
            self._hash.update(edge.encode("utf-8", "surrogatepass") if isinstance(edge, str) else bytes(edge))

    def items(self, value: list[Any] | tuple[Any, ...], depth: int) -> None:
        self._put(type(value).__name__, len(value))
        self._inside(value, [*value[:_ITEMS], *value[max(_ITEMS, len(value) - _ITEMS) :]], depth)

    def queue(self, value: collections.deque[Any], depth: int) -> None:
        self.items(list(value), depth)

    def mapping(self, value: dict[Any, Any], depth: int) -> None:
        self._put(type(value).__name__, len(value))
        keys = list(value)
        for key in [*keys[:_ITEMS], *keys[_ITEMS:][-_ITEMS:]]:
            self._inside(value, [key, value[key]], depth)

    def unordered(self, value: set[Any] | frozenset[Any], _depth: int) -> None:
        """In the order of its texts: where elements are hashed by address, there is no other."""
        self._put(type(value).__name__, len(value))
        if len(value) <= self._limit and all(type(item) in (str, int, float, bool) for item in value):
            self.nodes += len(value)
            self._put(*sorted(map(repr, value)))

    def code(self, value: types.FunctionType, _depth: int) -> None:
        self._put(
            "function", value.__qualname__, value.__code__.co_code.hex()[:_EDGE], value.__code__.co_names
        )

    def _object(self, value: Any, depth: int) -> None:
        try:
            fields = object.__getattribute__(value, "__dict__")
        except AttributeError:
            return
        if type(fields) is dict:
            self._mapping_of(value, fields, depth)

    def _mapping_of(self, value: Any, fields: dict[str, Any], depth: int) -> None:
        for name, part in list(fields.items())[:_ITEMS]:
            self._put(name)
            self._inside(value, [part], depth)

    def _buffer(self, value: Any) -> None:
        """Arrays, whoever made them, show their bytes without being asked."""
        try:
            view = memoryview(value)
        except TypeError:
            return
        self._put(view.format, view.shape)
        if view.contiguous and view.nbytes and view.format.isalpha() and view.format not in "OP":
            flat = view.cast("B")
            self._hash.update(bytes(flat[:_EDGE]) + bytes(flat[-_EDGE:]))

    def _inside(self, holder: Any, parts: list[Any], depth: int) -> None:
        self._seen.add(id(holder))
        for part in parts:
            self._walk(part, depth + 1)
        self._seen.discard(id(holder))


_KNOWN: dict[type, Callable[[_Look, Any, int], None]] = {
    **dict.fromkeys((int, float, complex, bool, type(None), decimal.Decimal), _Look.plain),
    **dict.fromkeys((dt.date, dt.datetime, dt.time, dt.timedelta), _Look.plain),
    **dict.fromkeys((str, bytes, bytearray), _Look.text),
    **dict.fromkeys((list, tuple), _Look.items),
    **dict.fromkeys((set, frozenset), _Look.unordered),
    **dict.fromkeys(
        (dict, collections.Counter, collections.OrderedDict, collections.defaultdict), _Look.mapping
    ),
    collections.deque: _Look.queue,
    types.FunctionType: _Look.code,
}
