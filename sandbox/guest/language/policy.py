"""The two language policies behind one interface, as the console uses them. `strict` is imported only when asked for."""

import ast
import builtins
import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from sandbox.guest.language.foresight import explain_syntax, foresee
from sandbox.guest.language.refusals import hint_for

_FLAGS = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT


@dataclass(frozen=True, kw_only=True)
class Places:
    """Where the files of a session are, as its code sees them."""

    evidence: str | Mapping[str, str]
    workspace: str
    temporary: str = "/tmp"  # noqa: S108 - the sandbox's own


class Language(Protocol):
    """How cells are read."""

    def enter(self, namespace: dict[str, Any]) -> None:
        """Make the namespace one in which cells of this language run. Called once its names are in it."""
        ...

    def read(self, code: str, filename: str, namespace: dict[str, Any]) -> ast.Module:
        """Return the cell ready to compile, or raise what is wrong with it before any of it runs."""
        ...

    def hint(self, error: BaseException) -> str:
        """Return what to do about an error that comes from the sandbox and not from the code, or nothing."""
        ...


def parse(code: str, filename: str) -> ast.Module:
    """Parse a cell; a line of a shell or a notebook is called what it is."""
    try:
        tree = compile(code, filename, "exec", flags=_FLAGS, dont_inherit=True)
    except SyntaxError as error:
        raise explain_syntax(error, code, filename) from None
    assert isinstance(tree, ast.Module)
    return tree


class Open:
    """All of Python; what certainly cannot work here is said before the cell runs."""

    def enter(self, namespace: dict[str, Any]) -> None:
        namespace["__builtins__"] = builtins

    def read(self, code: str, filename: str, namespace: dict[str, Any]) -> ast.Module:
        tree = parse(code, filename)
        foresee(tree, filename=filename, namespace=namespace)
        return tree

    def hint(self, error: BaseException) -> str:
        return hint_for(error)


def choose(name: str, places: Places) -> Language:
    """Return the language of this name. `strict` needs RestrictedPython on the path and fails without it."""
    if name == "open":
        return Open()
    if name == "strict":
        strict: Language = importlib.import_module("sandbox.guest.language.strict").Strict(places)
        return strict
    raise ValueError(f"there is no language policy {name!r}")
