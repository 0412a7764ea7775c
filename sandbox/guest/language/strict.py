"""The `strict` policy: RestrictedPython with a wider grammar, guarded attributes and façades for modules.

Defence inside the boundary, never the boundary.
"""

import ast
import builtins
import pathlib
from typing import Any

from sandbox.guest.language import classes, guards, names
from sandbox.guest.language.facades import Importer
from sandbox.guest.language.files import Files
from sandbox.guest.language.foresight import foresee
from sandbox.guest.language.library import guard_library
from sandbox.guest.language.policy import Places, parse
from sandbox.guest.language.refusals import NO_INPUT, hint_for
from sandbox.guest.language.transformer import StrictTransformer

_KEPT = [
    "None",
    "False",
    "True",
    "Ellipsis",
    "NotImplemented",
    "abs",
    "aiter",
    "all",
    "anext",
    "any",
    "ascii",
    "bin",
    "bool",
    "bytearray",
    "bytes",
    "callable",
    "chr",
    "classmethod",
    "complex",
    "dict",
    "divmod",
    "enumerate",
    "filter",
    "float",
    "format",
    "frozenset",
    "hash",
    "hex",
    "id",
    "int",
    "isinstance",
    "issubclass",
    "iter",
    "len",
    "list",
    "map",
    "max",
    "memoryview",
    "min",
    "next",
    "object",
    "oct",
    "ord",
    "pow",
    "print",
    "property",
    "range",
    "repr",
    "reversed",
    "round",
    "set",
    "slice",
    "sorted",
    "staticmethod",
    "str",
    "sum",
    "super",
    "tuple",
    "zip",
]
_REFUSED = {
    "eval": "use ast.literal_eval or json.loads for data, a function for code",
    "exec": "write the code as a function",
    "compile": "write the code as a function",
    "input": NO_INPUT,
    "breakpoint": "print what you want to see",
    "locals": "use the variables by their names",
    "help": "print(name.__doc__)",
}


class Strict:
    """RestrictedPython's rules, widened to what analysis code is written with."""

    def __init__(self, places: Places) -> None:
        self._files = Files(places)
        self._importer = Importer(self._files)
        guard_library()

    def enter(self, namespace: dict[str, Any]) -> None:
        for name, value in namespace.items():
            if isinstance(value, pathlib.PosixPath):
                namespace[name] = self._files.path_class(value)
            elif isinstance(value, type):
                namespace[name] = classes.handed_out(value)
        namespace["__builtins__"] = self._builtins(namespace)

    def read(self, code: str, filename: str, namespace: dict[str, Any]) -> ast.Module:
        tree = parse(code, filename)
        foresee(tree, filename=filename, namespace=namespace)
        strict = StrictTransformer(filename).visit(tree)
        assert isinstance(strict, ast.Module)
        return strict

    def hint(self, error: BaseException) -> str:
        return "" if "strict language policy" in str(error) else hint_for(error)

    def _builtins(self, namespace: dict[str, Any]) -> dict[str, Any]:
        errors = {
            name: value
            for name, value in vars(builtins).items()
            if isinstance(value, type) and issubclass(value, BaseException)
        }
        return {
            **{name: getattr(builtins, name) for name in _KEPT},
            **errors,
            **{name: _refusing(name, instead) for name, instead in _REFUSED.items()},
            "_getattr_": guards.read,
            "_examine_": guards.examine,
            "_write_": guards.writable,
            "_augmented_": guards.augmented,
            "_pattern_": classes.pattern,
            "_super_": guards.guarded_super,
            "__build_class__": classes.build_class,
            "__import__": self._importer,
            "type": classes.TypeOf,
            "open": self._files.open,
            "getattr": guards.guarded_getattr,
            "hasattr": guards.guarded_hasattr,
            "setattr": guards.guarded_setattr,
            "delattr": guards.guarded_delattr,
            "vars": guards.guarded_vars,
            "dir": guards.guarded_dir,
            "globals": lambda: {
                name: item for name, item in namespace.items() if names.may_be_variable(name, stored=True)
            },
        }


def _refusing(name: str, instead: str) -> Any:
    def refused(*_args: Any, **_kwargs: Any) -> Any:
        raise PermissionError(1, f"strict language policy: {name}() is not available: {instead}")

    return refused
