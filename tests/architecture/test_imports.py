"""Imports only run downwards, in the whole repository."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("controlplane", "rlm_worker", "sandbox")

#: The longest prefix that fits a module rules what it may import of ours.
MAY_IMPORT = {
    "sandbox.guest": ("sandbox.guest", "sandbox.protocol"),
    "sandbox": ("sandbox",),
    "rlm_worker.contracts": ("rlm_worker.contracts",),
    "rlm_worker": ("rlm_worker", "sandbox"),
    "controlplane.errors": (),
    "controlplane.views": ("rlm_worker.contracts",),
    "controlplane.notice": (),
    "controlplane.schemas": ("controlplane.errors", "rlm_worker.contracts"),
    "controlplane.crashpoints": (),
    "controlplane.engine_settings": (),
    "controlplane.control_settings": (),
    "controlplane.config": (
        "controlplane.errors",
        "controlplane.control_settings",
        "controlplane.engine_settings",
    ),
    "controlplane.domain": (
        "controlplane.domain",
        "controlplane.errors",
        "controlplane.views",
        "rlm_worker.contracts",
    ),
    "controlplane.ports": (
        "controlplane.domain",
        "controlplane.ports_access",
        "controlplane.ports_control",
        "controlplane.ports_queue",
        "controlplane.ports_remote",
        "rlm_worker.contracts",
    ),
    "controlplane.ports_access": ("controlplane.domain",),
    "controlplane.ports_remote": ("controlplane.domain",),
    "controlplane.ports_queue": ("controlplane.domain", "rlm_worker.contracts"),
    "controlplane.ports_control": ("controlplane.domain", "rlm_worker.contracts"),
    "controlplane.handlers": (
        "controlplane.handlers",
        "controlplane.ports",
        "controlplane.ports_access",
        "controlplane.ports_control",
        "controlplane.ports_queue",
        "controlplane.ports_remote",
        "controlplane.domain",
        "controlplane.errors",
        "controlplane.views",
        "controlplane.crashpoints",
        "controlplane.schemas",
        "rlm_worker.contracts",
    ),
    "controlplane.watchdogs": (
        "controlplane.watchdogs",
        "controlplane.handlers",
        "controlplane.domain",
        "controlplane.ports",
        "controlplane.ports_queue",
        "controlplane.ports_control",
        "controlplane.domain",
        "controlplane.errors",
        "controlplane.notice",
        "controlplane.crashpoints",
    ),
    "controlplane.gateway": (
        "controlplane.handlers",
        "controlplane.ports",
        "controlplane.ports_queue",
        "controlplane.errors",
        "rlm_worker.contracts",
    ),
    # What a client shares with the server: bodies, and nothing of what is behind them.
    "controlplane.api.bodies": ("controlplane.views", "rlm_worker.contracts"),
    "controlplane.api.bodies_files": ("controlplane.api.bodies",),
    "controlplane.api.bodies_orders": (
        "controlplane.api.bodies",
        "controlplane.views",
        "rlm_worker.contracts",
    ),
    "controlplane.api.bodies_admin": ("controlplane.api.bodies", "controlplane.domain.identity"),
    # A client knows bodies and errors, and nothing of a server.
    "controlplane.client": (
        "controlplane.client",
        "controlplane.api.bodies",
        "controlplane.api.bodies_files",
        "controlplane.api.bodies_admin",
        "controlplane.api.bodies_orders",
        "controlplane.errors",
        "controlplane.views",
        "rlm_worker.contracts",
    ),
    "controlplane.adapters": (
        "controlplane.adapters",
        "controlplane.ports",
        "controlplane.ports_access",
        "controlplane.ports_queue",
        "controlplane.ports_control",
        "controlplane.ports_remote",
        "controlplane.domain",
        "controlplane.errors",
        "controlplane.notice",
        "controlplane.views",
        "rlm_worker.contracts",
    ),
    # What wires the worker in, and lazily: inside functions only.
    "controlplane.bootstrap": ("controlplane", "rlm_worker"),
    "controlplane.runtime": ("controlplane", "rlm_worker"),
    "controlplane.worker_parts": ("controlplane.errors", "rlm_worker", "sandbox"),
    "controlplane": ("controlplane", "rlm_worker.contracts"),
}

#: Third-party packages of the leaf packages; everything else in them is the standard library.
LEAVES = {"rlm_worker.contracts": {"pydantic"}}


def modules() -> list[tuple[str, Path]]:
    found = []
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found.append((".".join(parts).removesuffix(".__init__"), path))
    return [(name, path) for name, path in found if not name.startswith("rlm_worker.playbooks")]


def imports(path: Path, *, only_top: bool = False) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = tree.body if only_top else ast.walk(tree)
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def within(name: str, prefixes: tuple[str, ...]) -> bool:
    return any(name == prefix or name.startswith(f"{prefix}.") for prefix in prefixes)


def rule_for(module: str) -> str:
    return max((prefix for prefix in MAY_IMPORT if within(module, (prefix,))), key=len)


def test_imports_only_run_downwards():
    breaches = [
        f"{module} imports {name}"
        for module, path in modules()
        for name in sorted(imports(path))
        if name.split(".")[0] in PACKAGES and not within(name, MAY_IMPORT[rule_for(module)])
    ]
    assert breaches == []


@pytest.mark.parametrize("module", ["controlplane.bootstrap", "controlplane.worker_parts"])
def test_the_worker_is_wired_in_only_when_it_is_needed(module):
    path = ROOT / (module.replace(".", "/") + ".py")
    early = {
        name
        for name in imports(path, only_top=True)
        if within(name, ("rlm_worker", "sandbox")) and not within(name, ("rlm_worker.contracts",))
    }
    assert early == set()


def test_contracts_need_pydantic_only():
    import sys

    allowed = {*sys.stdlib_module_names, *LEAVES["rlm_worker.contracts"], "rlm_worker"}
    strangers = {
        name
        for module, path in modules()
        if within(module, ("rlm_worker.contracts",))
        for name in imports(path)
        if name.split(".")[0] not in allowed
    }
    assert strangers == set()


def test_the_rule_finds_a_breach():
    assert not within("rlm_worker.loop", MAY_IMPORT[rule_for("controlplane.handlers.submit")])
    assert not within("controlplane.handlers.submit", MAY_IMPORT[rule_for("controlplane.domain.job")])
    assert not within("controlplane.errors", MAY_IMPORT[rule_for("sandbox.session")])
