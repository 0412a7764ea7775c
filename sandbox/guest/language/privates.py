"""Whose a private name is: the cell's own, or one that a class of the library keeps for itself. Looks, changes nothing."""

import types
from collections.abc import Iterator
from typing import Any

from sandbox.guest.language import names

CELLS = "__main__"
#: The private names that the foreign parents of a class use, found out once for each class.
_of_parents: dict[type, frozenset[str]] = {}
_of_class: dict[type, frozenset[str]] = {}
#: Written into classes by their metaclass, besides names like `_this_`, which cells cannot write.
_MADE_BY_METACLASSES = frozenset({"_abc_impl", "_is_protocol", "_is_runtime_protocol"})


def is_own(obj: Any) -> bool:
    """Say whether the class, or the class of the object, was written in a cell."""
    kind = obj if isinstance(obj, type) else type(obj)
    return bool(kind.__module__ == CELLS)


def is_private(name: str) -> bool:
    return names.attribute_kind(name) == "private"


def library_names(kind: type) -> frozenset[str]:
    """Return the private names that the foreign parents of a class read or set: they are not the cell's to use."""
    if kind not in _of_parents:
        foreign = [base for base in kind.__mro__ if not is_own(base)]
        _of_parents[kind] = frozenset().union(*map(_used_by, foreign))
    return _of_parents[kind]


def library_names_below(kind: type) -> frozenset[str]:
    """Return the same for a class and for all that inherit from it: they see what is set on it."""
    children: list[type] = type.__subclasses__(kind)
    return library_names(kind).union(*map(library_names_below, children))


def taken_over(bases: tuple[type, ...], body: types.CodeType) -> str | None:
    """Return a private name that a class to be made, or a parent from a cell, has in common with a foreign parent."""
    library = frozenset().union(*map(library_names, bases)) - _MADE_BY_METACLASSES
    given = {*body.co_names, *(text for text in body.co_consts if isinstance(text, str))}
    for base in {parent for made_of in bases for parent in made_of.__mro__ if is_own(parent)}:
        given.update(name for name in vars(base) if not name.endswith("_"))
        given.update(vars(base).get("__annotations__", ()))
    return min(given & library, default=None)


def defined_by_cells(obj: Any, name: str) -> bool:
    """Say whether a name that leads out of foreign objects is one of the cell's own making here."""
    if isinstance(obj, super):
        obj = bound_to(obj)
    kind = obj if isinstance(obj, type) else type(obj)
    if isinstance(obj, type) and not any(name in vars(base) for base in kind.__mro__):
        return False  # its metaclass has it
    return is_own(kind) and not any(name in vars(base) for base in kind.__mro__ if not is_own(base))


def bound_to(parent: Any) -> Any:
    """Return the object of a `super()`."""
    return parent.__self__


def _used_by(kind: type) -> frozenset[str]:
    if kind not in _of_class:
        found = set(vars(kind))
        for value in list(vars(kind).values()):
            for code in _codes(value):
                found.update(code.co_names)
                found.update(text for text in code.co_consts if isinstance(text, str))
        _of_class[kind] = frozenset(name for name in found if name.isidentifier() and is_private(name))
    return _of_class[kind]


def _codes(value: Any) -> Iterator[types.CodeType]:
    """Return the code of a method, however it is wrapped, and of what is defined inside it."""
    wrapped = [getattr(value, part, None) for part in ("__func__", "__wrapped__", "fget", "fset", "func")]
    for function in (value, *wrapped):
        code = getattr(function, "__code__", None)
        waiting = [code] if isinstance(code, types.CodeType) else []
        while waiting:
            code = waiting.pop()
            yield code
            waiting += [part for part in code.co_consts if isinstance(part, types.CodeType)]
