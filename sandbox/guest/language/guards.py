"""What strict code calls where it would read or set an attribute. Knows objects and their kinds, no files, no modules."""

import collections
import functools
import operator
import string
import types
from collections.abc import Callable, Mapping
from typing import Any

from sandbox.guest.language import names, privates
from sandbox.guest.language.privates import CELLS, bound_to, is_own

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
#: Classes written in cells, as far as they were seen being written to, and the names they must leave alone: the way hot loops take.
_own_classes: dict[type, frozenset[str]] = {}


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
    if name in names.OWN_ONLY and not privates.defined_by_cells(obj, name):
        raise Refused(f"strict language policy: {name!r} of {type(obj).__name__} leads into the interpreter")
    if name in {"__new__", "__call__"} and isinstance(obj, type) and issubclass(obj, type):
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


def _has_private(obj: Any, name: str) -> bool:
    """Say whether a private attribute is of the code's own making and not one that a foreign class keeps for itself."""
    if isinstance(obj, super):
        obj = bound_to(obj)
    kind = obj if isinstance(obj, type) else type(obj)
    if not is_own(kind):
        return kind is types.SimpleNamespace
    return name not in privates.library_names(kind)


def _own_setter(obj: Any, name: str) -> Callable[..., Any]:
    """`object.__setattr__(self, "x", 1)` and `super().__setattr__("x", 1)`: what frozen classes write in __post_init__."""
    method = getattr(obj, name)

    def checked(*arguments: Any) -> Any:
        target = bound_to(obj) if isinstance(obj, super) else arguments[0]
        attribute = arguments[0] if isinstance(obj, super) else arguments[1]
        if not is_own(target) or isinstance(target, type):
            raise Refused(f"strict language policy: the attribute {attribute!r} cannot be set here")
        writable(target, _settable(attribute))
        return method(*arguments)

    return checked


def writable(obj: Any, private: str = "") -> Any:
    """Return the object if code may set attributes of it: its own, and the few foreign kinds that are made for it."""
    library = _own_classes.get(type(obj))
    if library is not None and private not in library:
        return obj
    kind = type(obj)
    if private and private in _library_names(obj):
        raise Refused(f"strict language policy: {private!r} is used by the library: choose another name")
    if kind.__module__ == CELLS:
        _own_classes[kind] = privates.library_names(kind)
        return obj
    if isinstance(obj, type | types.FunctionType) and obj.__module__ == CELLS:
        return obj
    if f"{kind.__module__}.{kind.__qualname__}" in _SETTABLE:
        return obj
    raise Refused(
        f"strict language policy: attributes of {kind.__name__} cannot be set: keep it in a variable of your own"
    )


def _library_names(obj: Any) -> frozenset[str]:
    return privates.library_names_below(obj) if isinstance(obj, type) else privates.library_names(type(obj))


def augmented(obj: Any, name: str) -> Any:
    """Return the object for `obj.name += …`, which reads the attribute before it sets it."""
    by_text(obj, name)
    if names.attribute_kind(name) == "examined" and not privates.defined_by_cells(obj, name):
        raise Refused(f"strict language policy: {name!r} is of {type(obj).__name__}: choose another name")
    return writable(obj, name)


# -------------------------------------------------------------------- the built-ins that take names as text


def guarded_getattr(obj: Any, name: str, default: Any = _MISSING) -> Any:
    try:
        return by_text(obj, name)
    except AttributeError:
        if default is _MISSING:
            raise
        return default


def guarded_hasattr(obj: Any, name: str) -> bool:
    try:
        by_text(obj, name)
    except AttributeError:
        return False
    return True


def by_text(obj: Any, name: str) -> Any:
    """Read an attribute by a name that is only known now."""
    if type(name) is not str:
        raise TypeError("an attribute's name must be a plain str")
    kind = names.attribute_kind(name)
    if kind == "refused":
        raise Refused(f"strict language policy: the attribute {name!r} cannot be read")
    return read(obj, name) if kind in {"plain", "guarded"} else examine(obj, name)


def guarded_setattr(obj: Any, name: str, value: Any) -> None:
    setattr(writable(obj, _settable(name)), name, value)


def guarded_delattr(obj: Any, name: str) -> None:
    delattr(writable(obj, _settable(name)), name)


def _settable(name: str) -> str:
    if type(name) is not str or not names.may_be_written(name):
        raise Refused(f"strict language policy: the attribute {name!r} cannot be set")
    return name


def guarded_vars(obj: Any = _MISSING) -> dict[str, Any]:
    if obj is _MISSING or not (is_own(obj) or isinstance(obj, types.SimpleNamespace)):
        raise TypeError("strict language policy: vars() shows objects of your own classes only")
    library = privates.library_names(obj if isinstance(obj, type) else type(obj))
    return {
        name: value
        for name, value in vars(obj).items()
        if not name.startswith("__")
        and name not in library
        and not (isinstance(obj, type) and name.startswith("_"))
        and not isinstance(value, _NEVER_HANDED_OUT)
    }


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
        return functools.reduce(by_text, path.split("."), obj)

    if len(attributes) == 1:
        return lambda obj: one(obj, attributes[0])
    return lambda obj: tuple(one(obj, path) for path in attributes)


def guarded_methodcaller(name: str, /, *args: Any, **kwargs: Any) -> Callable[[Any], Any]:
    return lambda obj: by_text(obj, name)(*args, **kwargs)


def guarded_update_wrapper(wrapper: Any, wrapped: Any) -> Any:
    """`functools.wraps` for what cells call: names and texts, nothing by which the library would find its way."""
    writable(wrapper)
    for name in ("__name__", "__qualname__", "__doc__"):
        text = getattr(wrapped, name, None)
        if type(text) is str:
            setattr(wrapper, name, text)
    if isinstance(wrapped, types.FunctionType) and isinstance(wrapper, types.FunctionType):
        wrapper.__annotations__ = wrapped.__annotations__
        for name, value in vars(wrapped).items():
            if names.may_be_written(name):
                guarded_setattr(wrapper, name, value)
    return wrapper


def guarded_wraps(wrapped: Any) -> Callable[[Any], Any]:
    return lambda wrapper: guarded_update_wrapper(wrapper, wrapped)


# -------------------------------------------------------------------- str.format


class _Formatter(string.Formatter):
    """`{0.name[key]}` with guarded attributes."""

    def get_field(self, field_name: str, args: Any, kwargs: Any) -> Any:
        first, rest = __import__("_string").formatter_field_name_split(field_name)
        value = self.get_value(first, args, kwargs)
        for is_attribute, key in rest:
            value = by_text(value, key) if is_attribute else value[key]
        return value, first


def _formatting(obj: Any, name: str) -> Any:
    """Judged by what comes out: `super().format` and aliases of `str` hand out the method as well."""
    if isinstance(obj, collections.UserString) or (
        isinstance(obj, type) and issubclass(obj, collections.UserString)
    ):
        raise Refused("strict language policy: use str for formatting")
    value = read(obj, name)
    guarded = _format_map if name == "format_map" else _format
    if isinstance(value, types.MethodDescriptorType) and issubclass(value.__objclass__, str):
        return guarded
    if isinstance(value, types.BuiltinMethodType) and isinstance(value.__self__, str):
        return functools.partial(guarded, value.__self__)
    if isinstance(getattr(value, "__self__", None), collections.UserString):
        raise Refused("strict language policy: use str for formatting")
    return value


def _format(template: str, /, *args: Any, **kwargs: Any) -> str:
    return _Formatter().vformat(str.__str__(template), args, kwargs)


def _format_map(template: str, mapping: Mapping[str, Any], /) -> str:
    return _Formatter().vformat(str.__str__(template), (), mapping)


def operator_names() -> dict[str, Any]:
    """Return the module's functions with those replaced that take attributes as text."""
    own = {"attrgetter": guarded_attrgetter, "methodcaller": guarded_methodcaller}
    return {name: own.get(name) or getattr(operator, name) for name in operator.__all__}
