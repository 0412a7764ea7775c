"""Sizes that a reader can hold in mind. The list of exceptions only ever gets shorter."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("controlplane", "rlm_worker", "sandbox")
#: Programs for cells, written to be read from top to bottom by whoever copies one.
LEFT_OUT = ROOT / "rlm_worker" / "playbooks"

FUNCTION_LINES = 50
MODULE_LINES = 400
PARAMETERS = 7

#: "path" for a module, "path:function" for a function. Shrink it; never add.
EXCEPTIONS: frozenset[str] = frozenset()

MODULES = sorted(
    path
    for package in PACKAGES
    for path in (ROOT / package).rglob("*.py")
    if not path.is_relative_to(LEFT_OUT) and "migrations" not in path.parts
)
Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(path: Path) -> list[Function]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [node for node in ast.walk(tree) if isinstance(node, Function)]


def lines_of(function: Function) -> int:
    """From the first line of the signature to the end, without the docstring."""
    assert function.end_lineno is not None
    total = function.end_lineno - function.lineno + 1
    first = function.body[0]
    if ast.get_docstring(function) is not None:
        assert first.end_lineno is not None
        total -= first.end_lineno - first.lineno + 1
    return total


def parameters_of(function: Function) -> int:
    given = function.args
    names = [argument.arg for argument in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return len([name for name in names if name not in ("self", "cls")])


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_there_is_something_to_measure():
    assert len(MODULES) > 80


def test_modules_are_short():
    long = {name_of(path): len(path.read_text(encoding="utf-8").splitlines()) for path in MODULES}

    assert {
        name: lines for name, lines in long.items() if lines > MODULE_LINES and name not in EXCEPTIONS
    } == {}


@pytest.mark.parametrize(
    ("measure", "most"),
    [(lines_of, FUNCTION_LINES), (parameters_of, PARAMETERS)],
    ids=["lines", "parameters"],
)
def test_functions_are_small(measure, most):
    found = {
        f"{name_of(path)}:{function.name}": measure(function)
        for path in MODULES
        for function in functions(path)
    }

    assert {name: size for name, size in found.items() if size > most and name not in EXCEPTIONS} == {}


def test_every_exception_is_still_needed():
    def is_over(name: str) -> bool:
        path = ROOT / name.partition(":")[0]
        if not path.is_file():
            return False
        if ":" not in name:
            return len(path.read_text(encoding="utf-8").splitlines()) > MODULE_LINES
        return any(
            lines_of(function) > FUNCTION_LINES or parameters_of(function) > PARAMETERS
            for function in functions(path)
            if function.name == name.partition(":")[2]
        )

    assert [name for name in EXCEPTIONS if not is_over(name)] == []
