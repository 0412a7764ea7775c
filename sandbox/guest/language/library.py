# ruff: noqa: SLF001 - the places to check are private
"""Puts checks where the standard library itself evaluates text, copies by an object's own word or reads a file to show it.

For strict sessions only: what is changed here is changed for the whole process.
"""

import ast
import copy
import enum
import linecache
import sys
import types
import typing
import weakref
from collections.abc import Mapping
from typing import Any

from sandbox.guest.language import names
from sandbox.guest.language.privates import CELLS, is_own
from sandbox.guest.language.transformer import StrictTransformer

_FORWARD = (ast.Expression, ast.Name, ast.Attribute, ast.Subscript, ast.Tuple, ast.List, ast.Constant, ast.BinOp,
            ast.BitOr, ast.Load)  # fmt: skip
#: How an object tells `copy` to make and fill another; cells may say `__copy__` and `__deepcopy__` instead.
_COPYING = (
    "__reduce_ex__",
    "__reduce__",
    "__getstate__",
    "__setstate__",
    "__getnewargs__",
    "__getnewargs_ex__",
)


def guard_library() -> None:
    """Change the library's functions, once per process."""
    if typing.ForwardRef._evaluate is not _evaluated:
        typing.ForwardRef.__init__ = _checked_reference  # type: ignore[method-assign]
        typing.ForwardRef._evaluate = _evaluated  # type: ignore[method-assign]
        enum.EnumType._create_ = _checked_enum  # type: ignore[attr-defined]
        enum.EnumType._convert_ = _no_conversion  # type: ignore[attr-defined]
        copy._reconstruct = _checked_copy  # type: ignore[attr-defined]
        # The sources of cells are in its cache; the files of other frames are not shown.
        linecache.updatecache = _no_source


def _no_source(filename: str, module_globals: Any = None) -> list[str]:  # noqa: ARG001 - as the library calls it
    return []


def plain_text(name: Any) -> str:
    """Return a text that is what it says it is: the methods of a subclass may answer differently each time."""
    if type(name) is not str:
        raise TypeError("strict language policy: a name must be a plain str")
    return name


def plain_name(name: Any) -> str:
    """Return a name that may become an attribute: an identifier that is neither private nor leads out."""
    if not plain_text(name).isidentifier() or name.startswith("_") or names.attribute_kind(name) == "refused":
        raise TypeError(f"strict language policy: {name!r} cannot be a name here: choose a plain one")
    return str(name)


# -------------------------------------------------------------------- annotations in quotes

_make_reference = typing.ForwardRef.__init__
_evaluate = typing.ForwardRef._evaluate


def _checked_reference(self: Any, arg: Any, *args: Any, **kwargs: Any) -> None:
    """Let annotations in quotes name types and do nothing else, their attributes read through the guards."""
    if type(arg) is not str or arg.lstrip().startswith("*"):
        raise TypeError("strict language policy: an annotation in quotes must be a type's name")
    _make_reference(self, arg, *args, **kwargs)
    tree = ast.parse(arg.strip(), "<annotation>", mode="eval")
    for node in ast.walk(tree):
        dotted = not isinstance(node, ast.Attribute) or isinstance(node.value, ast.Name | ast.Attribute)
        alias = not isinstance(node, ast.Subscript) or _is_alias(node)
        if not isinstance(node, _FORWARD) or not dotted or not alias:
            raise TypeError(f"strict language policy: the annotation {arg!r} must be a type's name")
    strict = ast.fix_missing_locations(StrictTransformer("<annotation>").visit(tree))
    self.__forward_code__ = compile(strict, "<annotation>", "eval")


def _is_alias(node: ast.Subscript) -> bool:
    """Say whether an item is taken as of `list[int]` and `typing.Optional[int]`: with types in the brackets, no key."""
    inside = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    of_a_name = isinstance(node.value, ast.Name | ast.Attribute)
    literal = of_a_name and ast.unparse(node.value).endswith(("Literal", "Annotated"))
    return literal or (
        of_a_name
        and not any(isinstance(part, ast.Constant) and isinstance(part.value, int) for part in inside)
    )


def _evaluated(self: Any, globalns: Any, localns: Any, *args: Any, **kwargs: Any) -> Any:
    """Evaluate among the names of the cells, whatever module an object says it is from."""
    self.__forward_module__ = None
    cells = vars(sys.modules[CELLS])
    own: dict[str, Any] = {}
    for given in (globalns, localns):
        if isinstance(given, Mapping) and given is not cells and given.get("__module__") == CELLS:
            own.update((name, value) for name, value in given.items() if not name.startswith("_"))
    return _evaluate(self, cells, own, *args, **kwargs)


# -------------------------------------------------------------------- enum, copy

_create_enum = enum.EnumType._create_  # type: ignore[attr-defined]
_reconstruct = copy._reconstruct  # type: ignore[attr-defined]


def _checked_enum(cls: Any, class_name: Any, members: Any, **options: Any) -> Any:
    """`Enum("E", …)` with names that become members: others would become methods of the new class."""
    if isinstance(members, str):
        members = str.__str__(members).replace(",", " ").split()
    pairs: list[Any] = list(members.items() if isinstance(members, Mapping) else members or ())
    pairs = [entry if isinstance(entry, str) else tuple(entry) for entry in pairs]
    for entry in pairs:
        plain_name(entry if isinstance(entry, str) else entry[0])
    mixed_in = options.get("type")
    if mixed_in is not None and (not isinstance(mixed_in, type) or issubclass(mixed_in, type)):
        raise TypeError("strict language policy: type= of an Enum must be a data type")
    options["module"], options["qualname"] = CELLS, None
    return _create_enum(cls, plain_text(class_name), pairs, **options)


def _no_conversion(*_args: Any, **_kwargs: Any) -> Any:
    raise TypeError("strict language policy: an Enum is not made of a module's names")


def _checked_copy(original: Any, *args: Any, **kwargs: Any) -> Any:
    """Copy as the library's classes say: what a cell puts in their methods' place could set any attribute of any object."""
    if type(original) in weakref.ProxyTypes:
        raise TypeError("strict language policy: copy the object itself, not a proxy of it")
    own = [base for base in type(original).__mro__ if is_own(base)]
    for name in _COPYING:
        given = [vars(base)[name] for base in own if name in vars(base)]
        if name in _own_attributes(original) or any(
            not isinstance(method, types.FunctionType) or method.__module__ == CELLS for method in given
        ):
            raise TypeError(f"strict language policy: {name!r} is not used: define __copy__ or __deepcopy__")
    return _reconstruct(original, *args, **kwargs)


def _own_attributes(obj: Any) -> Mapping[str, Any]:
    try:
        found: Mapping[str, Any] = object.__getattribute__(obj, "__dict__")
    except AttributeError:
        return {}
    return found
