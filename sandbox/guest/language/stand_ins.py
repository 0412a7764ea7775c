"""What strict code gets in place of library functions that would take its word for a name, a stream or an attribute."""

import collections
import dataclasses
import functools
import importlib
import sys
import typing
from collections.abc import Callable, Mapping
from typing import Any

from sandbox.guest.language.library import plain_name, plain_text
from sandbox.guest.language.privates import CELLS, is_own


@functools.wraps(dataclasses.dataclass)
def guarded_dataclass(cls: Any = None, /, **options: Any) -> Any:
    """Make a dataclass of a class whose fields have ordinary names: dataclasses writes them into source text."""

    def make(kind: Any) -> Any:
        _check_own(kind)
        for field in vars(kind).get("__annotations__", {}):
            if not plain_text(field).isidentifier():
                raise TypeError(f"a field cannot be named {field!r}")
        return dataclasses.dataclass(kind, **options)

    return make if cls is None else make(cls)


def guarded_total_ordering(cls: Any) -> Any:
    _check_own(cls)
    return functools.total_ordering(cls)


def _check_own(kind: Any) -> None:
    if not isinstance(kind, type) or not is_own(kind):
        raise TypeError("strict language policy: only a class of your own can be changed")


def guarded_namedtuple(typename: str, field_names: Any, **options: Any) -> Any:
    if isinstance(field_names, str):
        field_names = str.__str__(field_names).replace(",", " ").split()
    check = plain_text if options.get("rename") else plain_name
    fields = [check(name) for name in field_names]
    return collections.namedtuple(plain_text(typename), fields, **{**options, "module": CELLS})  # noqa: PYI024


class _Maker:
    """A name that is called, or stands among the bases of a class: `NamedTuple("N", …)`, `class N(NamedTuple)`."""

    def __init__(self, make: Callable[..., Any], base: type) -> None:
        self._make = make
        self._base = base

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        made = self._make(*args, **kwargs)
        made.__module__ = CELLS
        return made

    def __mro_entries__(self, _bases: tuple[Any, ...]) -> tuple[type]:
        return (self._base,)


def _named_tuple(typename: str, fields: Any = None, /, **types_by_name: Any) -> Any:
    pairs = [tuple(pair) for pair in (types_by_name.items() if fields is None else fields)]
    return typing.NamedTuple(plain_text(typename), [(plain_name(name), kind) for name, kind in pairs])


def _typed_dict(typename: str, fields: Mapping[str, Any], /, *, total: bool = True) -> Any:
    plain = {plain_text(name): kind for name, kind in dict(fields).items()}
    return typing.TypedDict(plain_text(typename), plain, total=total)  # type: ignore[operator]


def typing_names() -> dict[str, Any]:
    return {
        "NamedTuple": _Maker(_named_tuple, typing._NamedTuple),  # type: ignore[attr-defined]  # noqa: SLF001 - the base
        "TypedDict": _Maker(_typed_dict, typing._TypedDict),  # noqa: SLF001 - the base
    }


class cached_property:  # noqa: N801 - the library's name
    """`functools.cached_property` that keeps its value under the name by which it was asked for, and no other."""

    def __init__(self, func: Callable[[Any], Any]) -> None:
        self.func = func
        self.__doc__ = getattr(func, "__doc__", None)
        self._name: str | None = None

    def __set_name__(self, _owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        value = self.func(instance)
        name = self._name
        if name is not None and any(vars(base).get(name) is self for base in type(instance).__mro__):
            instance.__dict__[name] = value
        return value


class _Redirection:
    """`contextlib.redirect_stdout` and its like, each for one stream that no attribute decides."""

    __slots__ = ("_before", "_target")

    def __init__(self, target: Any) -> None:
        self._target = target
        self._before: list[Any] = []


class redirect_stdout(_Redirection):  # noqa: N801 - the library's name
    def __enter__(self) -> Any:
        self._before.append(sys.stdout)
        sys.stdout = self._target
        return self._target

    def __exit__(self, *_error: object) -> None:
        sys.stdout = self._before.pop()


class redirect_stderr(_Redirection):  # noqa: N801 - the library's name
    def __enter__(self) -> Any:
        self._before.append(sys.stderr)
        sys.stderr = self._target
        return self._target

    def __exit__(self, *_error: object) -> None:
        sys.stderr = self._before.pop()


def guarded_basic_config(*, level: Any = "WARNING", **options: Any) -> None:
    """Log to the cell's error output; other targets and styles are not offered."""
    logging = importlib.import_module("logging")
    kept = {name: options[name] for name in ("format", "datefmt") if name in options}
    logging.basicConfig(level=level, stream=sys.stderr, force=True, **kept)
