"""Classes for strict code: what `type()` and class statements and patterns give it. Knows objects and their kinds."""

import io
import types
import typing
from typing import Any

from sandbox.guest.language import guards, names, privates

_MISSING = object()


class _Opaque(type):
    """Makes stand-ins for classes that open what they are told to: they can be compared and asked, not called."""

    def __call__(cls, *_args: Any, **_kwargs: Any) -> Any:
        raise TypeError(f"strict language policy: {cls.__name__} objects are given to you, not made by you")

    def __instancecheck__(cls, obj: Any) -> bool:
        return isinstance(obj, _stood_for[cls])

    def __subclasscheck__(cls, kind: type) -> bool:
        return issubclass(kind, _stood_for[cls])

    def __repr__(cls) -> str:
        return f"<class {cls.__name__!r}>"


_IN_MEMORY = (io.StringIO, io.BytesIO)
#: Take a format or a path as text and read attributes, or the file, without a guard.
_READS_BY_TEXT = frozenset(
    {"logging.Formatter", "logging.PercentStyle", "xml.etree.ElementTree.ElementTree", "string.Formatter"}
    | {"dataclasses.Field"}  # its name becomes source text
)
_INSIDES = (types.FunctionType, types.CodeType, types.FrameType, types.TracebackType, types.ModuleType, super)
_stand_ins: dict[type, type] = {}
#: The way back, which no attribute may show.
_stood_for: dict[type, type] = {}


def handed_out(kind: type) -> type:
    """Return the class, or its stand-in where a call of it would open a path, a descriptor or a function's insides."""
    if issubclass(kind, type):
        return TypeOf
    opens = (issubclass(kind, io.IOBase) and not issubclass(kind, _IN_MEMORY)) or kind in _INSIDES
    of_guest = kind.__module__.startswith("sandbox.") and not issubclass(kind, BaseException)
    by_text = any(f"{base.__module__}.{base.__qualname__}" in _READS_BY_TEXT for base in kind.__mro__)
    if opens or of_guest or kind.__module__ == "sqlite3" or by_text:
        if kind not in _stand_ins:
            _stand_ins[kind] = _Opaque(kind.__name__, (), {"__doc__": kind.__doc__})
            _stood_for[_stand_ins[kind]] = kind
        return _stand_ins[kind]
    return kind


def _shown(value: Any) -> Any:
    return handed_out(value) if isinstance(value, type) else value


def guarded_get_origin(alias: Any) -> Any:
    return _shown(typing.get_origin(alias))


def guarded_get_args(alias: Any) -> tuple[Any, ...]:
    return tuple(map(_shown, typing.get_args(alias)))


class _TypeOfTypes(type):
    """Makes `type` a name that can be asked, compared and subscripted, and never called with three arguments."""

    def __call__(cls, obj: Any = _MISSING, *more: Any) -> Any:
        if obj is _MISSING or more:
            raise TypeError(
                "strict language policy: type() takes one argument; write a class statement instead"
            )
        return handed_out(type(obj))

    def __instancecheck__(cls, obj: Any) -> bool:
        return isinstance(obj, type)

    def __subclasscheck__(cls, kind: type) -> bool:
        return issubclass(kind, type)

    def __getitem__(cls, inner: Any) -> Any:
        return types.GenericAlias(cls, inner)

    def __or__(cls, other: Any) -> Any:
        return typing.Union[cls, other]  # noqa: UP007 - `|` of a class with this method would come here again

    def __ror__(cls, other: Any) -> Any:
        return typing.Union[other, cls]  # noqa: UP007 - the same

    def __repr__(cls) -> str:
        return "<class 'type'>"


class TypeOf(metaclass=_TypeOfTypes):
    """The name `type` of strict code."""


TypeOf.__name__ = "type"


def build_class(body: Any, name: str, *bases: Any, **keywords: Any) -> Any:
    """Make a class unless a base gives it power over others, or it takes over names that a foreign base relies on."""
    if "metaclass" in keywords:
        raise TypeError("strict language policy: metaclass= is not allowed: inherit from abc.ABC instead")
    for base in bases:
        if not isinstance(base, type) and not _names_its_bases(base):
            raise TypeError(f"strict language policy: a class cannot inherit from {type(base).__name__}")
    real = types.resolve_bases(bases)
    for base in real:
        if base is TypeOf or isinstance(base, _Opaque) or not _may_be_base(base):
            raise TypeError(f"strict language policy: a class cannot inherit from {base.__name__}")
    # Before it is made: a parent or a descriptor may keep the class although it is refused afterwards.
    _check_names(tuple(base for base in real if isinstance(base, type)), body.__code__)
    made = __build_class__(body, name, *bases, **keywords)
    _check_slots(made)
    return made


def _names_its_bases(base: Any) -> bool:
    """Say whether it is an alias such as Generic[T] or list[int], or stands for NamedTuple: they answer the same each time."""
    kind = type(base)
    return kind is types.GenericAlias or kind.__module__ in {"typing", "sandbox.guest.language.stand_ins"}


def _may_be_base(base: Any) -> bool:
    return not isinstance(base, type) or not issubclass(base, type | BaseExceptionGroup)


def _check_names(bases: tuple[type, ...], body: types.CodeType) -> None:
    taken = privates.taken_over(bases, body)
    if taken is not None:
        raise TypeError(f"strict language policy: {taken!r} is used by the library: choose another name")
    if any(issubclass(base, types.SimpleNamespace) for base in bases) and any(
        map(privates.library_names, bases)
    ):
        raise TypeError("strict language policy: a class cannot inherit from SimpleNamespace and others")


def _check_slots(made: Any) -> None:
    for name, value in list(vars(made).items()) if isinstance(made, type) else ():
        if isinstance(value, types.MemberDescriptorType) and not names.may_be_variable(name, stored=True):
            raise TypeError(f"strict language policy: {name!r} cannot be a slot")


# -------------------------------------------------------------------- patterns


_MATCHES_ITSELF = 1 << 22  # Py_TPFLAGS of the built-in data types


class _Pattern(type):
    """Makes what stands for a class in a pattern: its instances, and the names that it had when they were looked at."""

    stands_for: type
    looks_at: tuple[str, ...]

    def __instancecheck__(cls, obj: Any) -> bool:
        if not isinstance(obj, cls.stands_for):
            return False
        for name in cls.looks_at:
            if names.attribute_kind(name) != "plain":
                _look(obj, name)
        return True


def _look(obj: Any, name: str) -> None:
    try:
        guards.by_text(obj, name)
    except guards.Refused as refusal:
        raise TypeError(str(refusal)) from None
    except AttributeError:
        return


def pattern(kind: Any, positions: int, *keywords: str) -> Any:
    """Return what a class pattern may compare with: the interpreter reads attributes by its names, without a guard."""
    if not isinstance(kind, type):
        return kind
    listed = getattr(kind, "__match_args__", None)
    if listed is None and not keywords and positions == 1 and kind.__flags__ & _MATCHES_ITSELF:
        return kind  # int(x), str(x): the value itself, no attribute
    listed = listed if type(listed) is tuple else ()
    looks_at = (*listed[:positions], *keywords)
    for name in looks_at:
        if type(name) is not str or names.attribute_kind(name) not in {"plain", "guarded"}:
            raise TypeError(f"strict language policy: a pattern cannot look at the attribute {name!r}")
    body = {"stands_for": kind, "looks_at": looks_at, "__match_args__": listed[:positions]}
    return _Pattern(kind.__name__, (), body)
