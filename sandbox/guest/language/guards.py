"""What strict code calls where it would read or set an attribute. Knows objects and their kinds, no files, no modules."""

import collections
import functools
import io
import operator
import string
import types
from collections.abc import Callable, Mapping
from typing import Any

from sandbox.guest.language import names

CELLS = "__main__"
_MISSING = object()
#: Whoever holds one of these holds the interpreter.
_NEVER_HANDED_OUT = (types.ModuleType, types.FrameType, types.CodeType, types.TracebackType)
#: Foreign objects whose attributes ordinary code sets: context.prec, element.text, thread.daemon, logger.propagate.
_SETTABLE = frozenset(
    {"types.SimpleNamespace", "decimal.Context", "threading.Thread", "threading.Timer", "_thread._local"}
    | {
        "xml.etree.ElementTree.Element",
        "logging.Logger",
        "logging.RootLogger",
        "sqlite3.Connection",
        "sqlite3.Cursor",
    }
)
#: Classes written in cells, as far as they were seen being written to: the way hot loops take.
_own_classes: set[type] = set()


class Refused(AttributeError):
    """The strict language policy does not hand this out."""

    __module__ = "builtins"  # tracebacks then show the bare name


def read(obj: Any, name: str) -> Any:
    """Read an attribute whose name is harmless; what comes out may still not be."""
    value = getattr(obj, name)
    if isinstance(value, _NEVER_HANDED_OUT):
        raise Refused(f"strict language policy: {name!r} leads to the interpreter's own objects")
    return value


def examine(obj: Any, name: str) -> Any:
    """Read an attribute whose name is harmless on some objects only."""
    if name in {"format", "format_map"}:
        return _formatting(obj, name)
    if name == "obj" and isinstance(obj, AttributeError | NameError):
        raise Refused("strict language policy: an error does not hand out the object it is about")
    if isinstance(obj, type) and (
        name == "mro" or (name in {"__new__", "__call__"} and issubclass(obj, type))
    ):
        raise Refused(f"strict language policy: {name!r} of a class leads into the interpreter")
    if name == "__init__":
        return _initialiser(obj)
    if name in {"__setattr__", "__delattr__", "__getattr__"} and not is_own(obj):
        if isinstance(obj, super) or obj is object:
            return _own_setter(obj, name)
        raise Refused(f"strict language policy: {name!r} is not available: use getattr and setattr")
    if names.attribute_kind(name) == "private" and not _has_private(obj, name):
        raise Refused(
            f"strict language policy: {name!r} is private to {type(obj).__name__}: use its public names"
        )
    return read(obj, name)


def _initialiser(obj: Any) -> Any:
    """`super().__init__(…)` and `Base.__init__(self, …)` of own classes: a foreign object is not made anew."""
    if isinstance(obj, super) or (is_own(obj) and not isinstance(obj, type)):
        return read(obj, "__init__")
    if not isinstance(obj, type):
        raise Refused(f"strict language policy: {type(obj).__name__} objects cannot be initialised again")

    def checked(target: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_own(target):
            raise Refused(
                f"strict language policy: {type(target).__name__} objects cannot be initialised again"
            )
        return read(obj, "__init__")(target, *args, **kwargs)

    return checked


def is_own(obj: Any) -> bool:
    """Say whether the class, or the class of the object, was written in a cell."""
    kind = obj if isinstance(obj, type) else type(obj)
    return kind.__module__ == CELLS


def _has_private(obj: Any, name: str) -> bool:
    """Say whether a private attribute is of the code's own making and not inherited from a foreign class."""
    kind = obj if isinstance(obj, type) else type(obj)
    if isinstance(obj, super):
        return is_own(_bound_to(obj))
    if not is_own(kind) and kind is not types.SimpleNamespace:
        return False
    inherited = any(name in vars(base) for base in kind.__mro__ if base.__module__ != CELLS)
    return not inherited


def _bound_to(parent: Any) -> Any:
    return parent.__self__


def _own_setter(obj: Any, name: str) -> Callable[..., Any]:
    """`object.__setattr__(self, "x", 1)` and `super().__setattr__("x", 1)`: what frozen classes write in __post_init__."""
    method = getattr(obj, name)

    def checked(*arguments: Any) -> Any:
        target = _bound_to(obj) if isinstance(obj, super) else arguments[0]
        attribute = arguments[0] if isinstance(obj, super) else arguments[1]
        if not is_own(target) or isinstance(target, type) or not names.may_be_written(attribute):
            raise Refused(f"strict language policy: the attribute {attribute!r} cannot be set here")
        return method(*arguments)

    return checked


def writable(obj: Any) -> Any:
    """Return the object if code may set attributes of it: its own, and the few foreign kinds that are made for it."""
    kind = type(obj)
    if kind in _own_classes:
        return obj
    if kind.__module__ == CELLS:
        _own_classes.add(kind)
        return obj
    if isinstance(obj, type | types.FunctionType) and obj.__module__ == CELLS:
        return obj
    if f"{kind.__module__}.{kind.__qualname__}" in _SETTABLE:
        return obj
    raise Refused(
        f"strict language policy: attributes of {kind.__name__} cannot be set: keep it in a variable of your own"
    )


# -------------------------------------------------------------------- the built-ins that take names as text


def guarded_getattr(obj: Any, name: str, default: Any = _MISSING) -> Any:
    try:
        return _by_text(obj, name)
    except AttributeError:
        if default is _MISSING:
            raise
        return default


def guarded_hasattr(obj: Any, name: str) -> bool:
    try:
        _by_text(obj, name)
    except AttributeError:
        return False
    return True


def _by_text(obj: Any, name: str) -> Any:
    if type(name) is not str:
        raise TypeError("an attribute's name must be a plain str")
    kind = names.attribute_kind(name)
    if kind == "refused":
        raise Refused(f"strict language policy: the attribute {name!r} cannot be read")
    return read(obj, name) if kind in {"plain", "guarded"} else examine(obj, name)


def guarded_setattr(obj: Any, name: str, value: Any) -> None:
    setattr(writable(obj), _settable(name), value)


def guarded_delattr(obj: Any, name: str) -> None:
    delattr(writable(obj), _settable(name))


def _settable(name: str) -> str:
    if type(name) is not str or not names.may_be_written(name):
        raise Refused(f"strict language policy: the attribute {name!r} cannot be set")
    return name


def guarded_vars(obj: Any = _MISSING) -> dict[str, Any]:
    if obj is _MISSING or not (is_own(obj) or isinstance(obj, types.SimpleNamespace)):
        raise TypeError("strict language policy: vars() shows objects of your own classes only")
    return {name: value for name, value in vars(obj).items() if not name.startswith("__")}


def guarded_dir(obj: Any = _MISSING) -> list[str]:
    if obj is _MISSING:
        raise TypeError("strict language policy: dir() needs an object; show_vars() prints your variables")
    return [name for name in dir(obj) if not name.startswith("_")]


def guarded_super(kind: Any, obj: Any) -> Any:
    if not (isinstance(kind, type) and is_own(kind)):
        raise TypeError("strict language policy: super(…) works for classes of your own")
    return super(kind, obj)


def guarded_attrgetter(*attributes: str) -> Callable[[Any], Any]:
    def one(obj: Any, path: str) -> Any:
        return functools.reduce(_by_text, path.split("."), obj)

    if len(attributes) == 1:
        return lambda obj: one(obj, attributes[0])
    return lambda obj: tuple(one(obj, path) for path in attributes)


def guarded_methodcaller(name: str, /, *args: Any, **kwargs: Any) -> Callable[[Any], Any]:
    return lambda obj: _by_text(obj, name)(*args, **kwargs)


def guarded_update_wrapper(wrapper: Any, wrapped: Any) -> Any:
    """`functools.wraps` without its lists of attributes: they would copy a function's globals into the cell's."""
    return functools.update_wrapper(writable(wrapper), wrapped)


def guarded_wraps(wrapped: Any) -> Callable[[Any], Any]:
    return lambda wrapper: guarded_update_wrapper(wrapper, wrapped)


# -------------------------------------------------------------------- str.format


class _Formatter(string.Formatter):
    """`{0.name[key]}` with guarded attributes."""

    def get_field(self, field_name: str, args: Any, kwargs: Any) -> Any:
        first, rest = __import__("_string").formatter_field_name_split(field_name)
        value = self.get_value(first, args, kwargs)
        for is_attribute, key in rest:
            value = _by_text(value, key) if is_attribute else value[key]
        return value, first


def _formatting(obj: Any, name: str) -> Any:
    if isinstance(obj, collections.UserString) or (
        isinstance(obj, type) and issubclass(obj, collections.UserString)
    ):
        raise Refused("strict language policy: use str for formatting")
    if isinstance(obj, type) and issubclass(obj, str):
        return _format_map if name == "format_map" else _format
    if isinstance(obj, str):
        return functools.partial(_format_map if name == "format_map" else _format, obj)
    return read(obj, name)


def _format(template: str, /, *args: Any, **kwargs: Any) -> str:
    return _Formatter().vformat(str(template), args, kwargs)


def _format_map(template: str, mapping: Mapping[str, Any], /) -> str:
    return _Formatter().vformat(str(template), (), mapping)


# -------------------------------------------------------------------- classes


class _Opaque(type):
    """Makes stand-ins for classes that open what they are told to: they can be compared and asked, not called."""

    stands_for: type

    def __call__(cls, *_args: Any, **_kwargs: Any) -> Any:
        raise TypeError(f"strict language policy: {cls.__name__} objects are given to you, not made by you")

    def __instancecheck__(cls, obj: Any) -> bool:
        return isinstance(obj, cls.stands_for)

    def __subclasscheck__(cls, kind: type) -> bool:
        return issubclass(kind, cls.stands_for)

    def __repr__(cls) -> str:
        return f"<class {cls.__name__!r}>"


_IN_MEMORY = (io.StringIO, io.BytesIO)


_stand_ins: dict[type, type] = {}


def handed_out(kind: type) -> type:
    """Return the class, or its stand-in where a call of it would open a path, a descriptor or a function's insides."""
    opens = (issubclass(kind, io.IOBase) and not issubclass(kind, _IN_MEMORY)) or kind is types.FunctionType
    of_guest = kind.__module__.startswith("sandbox.") and not issubclass(kind, BaseException)
    if opens or of_guest or kind.__module__ == "sqlite3":
        if kind not in _stand_ins:
            _stand_ins[kind] = _Opaque(kind.__name__, (), {"stands_for": kind, "__doc__": kind.__doc__})
        return _stand_ins[kind]
    return kind


class _TypeOfTypes(type):
    """Makes `type` a name that can be asked, compared and subscripted, and never called with three arguments."""

    def __call__(cls, obj: Any = _MISSING, *more: Any) -> Any:
        if obj is _MISSING or more:
            raise TypeError(
                "strict language policy: type() takes one argument; write a class statement instead"
            )
        kind = type(obj)
        return cls if issubclass(kind, type) else handed_out(kind)

    def __instancecheck__(cls, obj: Any) -> bool:
        return isinstance(obj, type)

    def __subclasscheck__(cls, kind: type) -> bool:
        return issubclass(kind, type)

    def __getitem__(cls, inner: Any) -> Any:
        return type[inner]

    def __or__(cls, other: Any) -> Any:
        return type | other

    def __repr__(cls) -> str:
        return "<class 'type'>"


class TypeOf(metaclass=_TypeOfTypes):
    """The name `type` of strict code."""


TypeOf.__name__ = "type"


def build_class(body: Any, name: str, *bases: Any, **keywords: Any) -> Any:
    """Make a class unless a base gives it power over others: metaclasses, and groups that may lie to `except*`."""
    if "metaclass" in keywords:
        raise TypeError("strict language policy: metaclass= is not allowed: inherit from abc.ABC instead")
    for base in bases:
        if (
            base is TypeOf
            or isinstance(base, _Opaque)
            or (isinstance(base, type) and issubclass(base, type | BaseExceptionGroup))
        ):
            raise TypeError(f"strict language policy: a class cannot inherit from {base.__name__}")
    return __build_class__(body, name, *bases, **keywords)


def operator_names() -> dict[str, Any]:
    """Return the module's functions with those replaced that take attributes as text."""
    own = {"attrgetter": guarded_attrgetter, "methodcaller": guarded_methodcaller}
    return {name: own.get(name) or getattr(operator, name) for name in operator.__all__}
