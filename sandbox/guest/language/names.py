"""Which names strict code may use as variables and attributes. Pure: knows strings, no objects."""

import sys
from typing import Literal

from RestrictedPython.transformer import INSPECT_ATTRIBUTES

Kind = Literal["plain", "guarded", "examined", "private", "refused"]

#: Methods that an ordinary class defines or calls on super(); none of them hands out a frame, a module or a code object.
ORDINARY_METHODS = frozenset(
    f"__{name}__"
    for name in [
        "init",
        "new",
        "post_init",
        "init_subclass",
        "class_getitem",
        "set_name",
        "repr",
        "str",
        "bytes",
        "format",
        "hash",
        "bool",
        "len",
        "length_hint",
        "call",
        "del",
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "iter",
        "next",
        "reversed",
        "contains",
        "getitem",
        "setitem",
        "delitem",
        "missing",
        "getattr",
        "setattr",
        "delattr",
        "get",
        "set",
        "delete",
        "enter",
        "exit",
        "aenter",
        "aexit",
        "aiter",
        "anext",
        "await",
        "index",
        "int",
        "float",
        "complex",
        "round",
        "trunc",
        "floor",
        "ceil",
        "neg",
        "pos",
        "abs",
        "invert",
        "add",
        "sub",
        "mul",
        "truediv",
        "floordiv",
        "mod",
        "divmod",
        "pow",
        "matmul",
        "and",
        "or",
        "xor",
        "lshift",
        "rshift",
        "radd",
        "rsub",
        "rmul",
        "rtruediv",
        "rfloordiv",
        "rmod",
        "rdivmod",
        "rpow",
        "rmatmul",
        "rand",
        "ror",
        "rxor",
        "rlshift",
        "rrshift",
        "iadd",
        "isub",
        "imul",
        "itruediv",
        "ifloordiv",
        "imod",
        "ipow",
        "imatmul",
        "iand",
        "ior",
        "ixor",
        "ilshift",
        "irshift",
        "copy",
        "deepcopy",
        "fspath",
    ]
)
_READABLE = frozenset({"__name__", "__qualname__", "__doc__", "__cause__", "__context__", "__notes__"})
_ASSIGNABLE = frozenset({"__slots__", "__all__", "__author__", "__version__"})
_ENUM_NAMES = frozenset({"_missing_", "_generate_next_value_", "_ignore_", "_order_", "_value_", "_name_"})
_OF_NAMEDTUPLE = frozenset({"_asdict", "_replace", "_fields", "_make", "_field_defaults"})

#: Lead from a foreign object to classes, frames, the event loop, or around a guard; on a cell's own they are ordinary names.
OWN_ONLY = frozenset(
    {
        "mro",
        "get_loop",
        "get_stack",
        "print_stack",
        "get_coro",
        "set_authorizer",
        "__set__",
        "__delete__",
        "__set_name__",
    }
)
#: Read only after a look at the object: on some kinds they lead out.
_EXAMINED = OWN_ONLY | frozenset(
    {
        "format",
        "format_map",
        "obj",
        "__init__",
        "__new__",
        "__call__",
        "__setattr__",
        "__delattr__",
        "__getattr__",
    }
)
_REFUSED = frozenset({"load_extension", "enable_load_extension", "with_traceback", *INSPECT_ATTRIBUTES})
#: A public attribute is read as it stands unless it is called like a module, which is what libraries keep under such names.
_LIKE_MODULES = frozenset({*sys.stdlib_module_names, "module", "modules", "path", "loader", "frame", "spec"})


def attribute_kind(name: str) -> Kind:
    """Say how an attribute of this name may be read."""
    if name in _EXAMINED:
        return "examined"
    if name in _REFUSED:
        return "refused"
    if not name.startswith("_"):
        return "guarded" if name in _LIKE_MODULES else "plain"
    if name.startswith("__") and name.endswith("__"):
        return "guarded" if name in ORDINARY_METHODS or name in _READABLE else "refused"
    return "guarded" if name in _OF_NAMEDTUPLE or name in _ENUM_NAMES else "private"


def may_be_variable(name: str, *, stored: bool) -> bool:
    """Say whether a variable may have this name. Names like `_name_` are the guards' own."""
    if not name.startswith("_"):
        return name not in INSPECT_ATTRIBUTES
    if name.startswith("__") and name.endswith("__"):
        return name in _ASSIGNABLE if stored else name in ("__name__", "__doc__", "__debug__", *_ASSIGNABLE)
    return not (name.endswith("_") and len(name) > 2) or name in _ENUM_NAMES


def may_be_function(name: str) -> bool:
    return name in ORDINARY_METHODS or may_be_variable(name, stored=True)


def may_be_written(name: str) -> bool:
    """Say whether an attribute of this name may be set on an object of the code's own."""
    if name.startswith("__") and name.endswith("__"):
        return name in {"__doc__", "__name__"}
    return name not in INSPECT_ATTRIBUTES
