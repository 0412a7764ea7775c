"""The `open` policy: says before a cell runs that it certainly cannot work here. Silent whenever code might work.

Certain is only what every run of the cell reaches first: the statements before the first one that does anything.
"""

import ast
import importlib.util
import os
import re
import sys
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

from sandbox.guest.language import refusals
from sandbox.guest.language.refusals import NotInThisSandbox

_SHELL_LINE = re.compile(
    r"\s*(?:[\w, ]+=\s*)?!\s*\S|\s*(?:sudo\s+)?(?:pip3?|conda|apt|apt-get|npm|brew)\s+install\b"
)
_MAGIC_LINE = re.compile(r"\s*%%?[A-Za-z]")
_HELP_LINE = re.compile(r"\s*\?{1,2}[\w.]+\s*$|\s*[\w.]+\?{1,2}\s*$")
_FENCE_LINE = re.compile(r"\s*(?:```|~~~)")
#: Functions that start a program or open a connection: neither can be had in any sandbox.
_NEVER = {
    "subprocess": ({"run", "call", "check_call", "check_output", "Popen", "getoutput", "getstatusoutput"}, refusals.PROCESSES),
    "os": ({"system", "popen", "execv", "execve", "execvp", "spawnl", "spawnv", "posix_spawn"}, refusals.PROCESSES),
    "socket": ({"create_connection", "create_server", "getaddrinfo", "gethostbyname"}, refusals.NETWORK),
}  # fmt: skip
_HARMLESS_CALLS = frozenset({"print", "len", "str", "repr", "set", "dict", "list", "range"})
_Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_LATER = (
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.Lambda,
    ast.IfExp,
    ast.BoolOp,
    ast.ListComp,
    ast.SetComp,
    ast.DictComp,
    ast.GeneratorExp,
)


def explain_syntax(error: SyntaxError, code: str, filename: str) -> SyntaxError:
    """Return a better error when the line that Python cannot read is one of a notebook's or a shell's."""
    lines = code.splitlines()
    if not error.lineno or error.lineno > len(lines):
        return error
    text = lines[error.lineno - 1]
    if _SHELL_LINE.match(text):
        message = refusals.NO_SHELL
    elif _MAGIC_LINE.match(text):
        message = (
            "cells are plain Python: there are no % magics; time with time.perf_counter(), show with print()"
        )
    elif _FENCE_LINE.match(text):
        message = "send only the code, without the ``` lines around it"
    elif _HELP_LINE.match(text):
        message = "there is no ? help: use help(name) or print(name.__doc__)"
    else:
        return error
    return NotInThisSandbox(message, filename=filename, line=error.lineno)


def foresee(tree: ast.Module, *, filename: str, namespace: Mapping[str, Any]) -> None:
    """Raise NotInThisSandbox when one of the cell's first statements cannot work, whatever else it does."""
    known = _Known(namespace)
    for statement in tree.body:
        problem = _problem(statement, known)
        if problem:
            raise NotInThisSandbox(problem, filename=filename, line=statement.lineno)
        if not _does_nothing(statement, known):
            return
        known.learn(statement)


class _Known:
    """What names mean at a statement: modules of earlier cells and of the imports above, minus what was rebound."""

    def __init__(self, namespace: Mapping[str, Any]) -> None:
        self._namespace = namespace
        self._modules: dict[str, str | None] = {}

    def learn(self, statement: ast.stmt) -> None:
        if isinstance(statement, ast.Import):
            for alias in statement.names:
                self._modules[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
            return
        if isinstance(statement, ast.ImportFrom):
            self._modules.update({alias.asname or alias.name: None for alias in statement.names})
            return
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                self._modules[node.id] = None
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                self._modules[node.name] = None

    def module(self, name: str) -> str | None:
        """Return the name of the module that this name means, None when it means something else."""
        if name in self._modules:
            return self._modules[name]
        value = self._namespace.get(name)
        return value.__name__ if isinstance(value, ModuleType) else None

    def is_builtin(self, name: str) -> bool:
        return name not in self._modules and name not in self._namespace


def _problem(statement: ast.stmt, known: _Known) -> str:
    if isinstance(statement, ast.Import):
        missing = (alias.name for alias in statement.names if _is_missing(alias.name))
        return next((refusals.missing_module(name) for name in missing), "")
    if isinstance(statement, ast.ImportFrom):
        name = statement.module or ""
        return refusals.missing_module(name) if not statement.level and _is_missing(name) else ""
    if isinstance(statement, ast.Expr | ast.Assign | ast.AnnAssign | ast.AugAssign | ast.With):
        return next(filter(None, (_problem_of_call(call, known) for call in _certain_calls(statement))), "")
    return ""


def _is_missing(module: str) -> bool:
    """Say whether no import of this module can succeed now. Looks at the top package only: the rest would run code."""
    top = module.partition(".")[0]
    if not top or top in sys.modules or top in sys.stdlib_module_names:
        return False
    try:
        return importlib.util.find_spec(top) is None
    except (ImportError, ValueError, AttributeError):
        return False


def _problem_of_call(call: ast.Call, known: _Known) -> str:
    match call.func:
        case ast.Attribute(value=ast.Name(id=name), attr=attribute):
            functions, message = _NEVER.get(known.module(name) or "", ((), ""))
            return message if attribute in functions else ""
        case ast.Name(id="input") if known.is_builtin("input"):
            return refusals.NO_INPUT
        case ast.Name(id="open") if known.is_builtin("open"):
            return _problem_of_path(call)
        case _:
            return ""


def _problem_of_path(call: ast.Call) -> str:
    """Complain of an absolute path whose first folder is not here: it can be neither read nor made."""
    match call.args[:1]:
        case [ast.Constant(value=str(path))] if path.startswith("/"):
            top = path.lstrip("/").partition("/")[0]
            if (
                top not in {"", "..", "evidence"}
                and "/" in path.lstrip("/")
                and not os.path.lexists(f"/{top}")
            ):
                return f"{path} is not in this sandbox: {refusals.FILES}"
    return ""


def _certain_calls(statement: ast.stmt) -> Iterator[ast.Call]:
    """Calls that are made whenever the statement runs, in no certain order."""
    if isinstance(statement, ast.With):
        parts: list[ast.AST] = [statement.items[0].context_expr]
    else:
        parts = [statement]
    while parts:
        node = parts.pop()
        if isinstance(node, _LATER):
            continue
        if isinstance(node, ast.Call):
            yield node
        parts.extend(ast.iter_child_nodes(node))


def _does_nothing(statement: ast.stmt, known: _Known) -> bool:
    """Say whether a statement can neither end the cell well nor change what a later import or call finds."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        return not statement.decorator_list and not statement.args.defaults
    parts: list[ast.AST] = [statement]
    while parts:
        node = parts.pop()
        if isinstance(
            node, ast.Call | ast.Await | ast.Yield | ast.YieldFrom | ast.For | ast.With | ast.While
        ):
            if not (isinstance(node, ast.Call) and _is_harmless(node, known)):
                return False
        elif isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
            return False  # may be sys.modules[…] or sys.path
        if not isinstance(node, _Scope):
            parts.extend(ast.iter_child_nodes(node))
    return True


def _is_harmless(call: ast.Call, known: _Known) -> bool:
    return (
        isinstance(call.func, ast.Name) and call.func.id in _HARMLESS_CALLS and known.is_builtin(call.func.id)
    )
