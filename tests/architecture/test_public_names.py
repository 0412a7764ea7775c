"""What a package offers is what it says it offers, and no module is a drawer for odds and ends."""

import ast
import importlib
import types
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("controlplane", "rlm_worker", "sandbox")
OFFERING = ("rlm_worker.contracts", "rlm_worker.models", "sandbox")
DRAWERS = frozenset({"utils", "util", "common", "helpers", "helper", "misc", "types", "shared", "tools"})


@pytest.mark.parametrize("name", OFFERING)
def test_all_that_is_offered_can_be_imported_and_is_listed_once_in_order(name):
    package = importlib.import_module(name)

    assert list(package.__all__) == sorted(set(package.__all__), key=_ruff_order)
    assert [offered for offered in package.__all__ if not hasattr(package, offered)] == []


def _ruff_order(name: str) -> tuple[int, str]:
    """Constants, then classes, then the rest: the order that the linter keeps."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2, name)


@pytest.mark.parametrize("name", ["rlm_worker.contracts", "sandbox"])
def test_all_that_can_be_imported_is_offered(name):
    package = importlib.import_module(name)

    public = {
        found
        for found, value in vars(package).items()
        if not found.startswith("_") and not isinstance(value, types.ModuleType)
    }

    assert public == set(package.__all__)


def test_the_worker_uses_only_the_public_names_of_the_sandbox():
    used: set[str] = set()
    for path in (ROOT / "rlm_worker").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.ImportFrom(module=str(module)) if module.split(".")[0] == "sandbox":
                    used.add(f"{path.name}: {module}")
                case ast.Import(names=names):
                    used.update(
                        f"{path.name}: {item.name}" for item in names if item.name.startswith("sandbox.")
                    )
                case ast.Attribute(value=ast.Name(id="sandbox"), attr=attribute):
                    offered = importlib.import_module("sandbox").__all__
                    used.update({f"{path.name}: sandbox.{attribute}"} if attribute not in offered else ())
                case _:
                    pass

    assert used == set()


def test_no_module_is_named_for_odds_and_ends():
    drawers = [
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.stem in DRAWERS
        and (path.is_dir() or path.suffix == ".py")
        and "__pycache__" not in path.parts
    ]

    assert drawers == []


def test_every_module_says_what_it_holds():
    """Playbooks say it in their front matter."""
    silent = [
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if path.parent.name != "playbooks"
        and (source := path.read_text(encoding="utf-8")).strip()
        and ast.get_docstring(ast.parse(source)) is None
    ]

    assert silent == []
