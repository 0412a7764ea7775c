"""The façades of the strict policy, looked through for anything that leads to a module."""

import types

import pytest

from sandbox.guest.language.facades import Facade, Importer
from sandbox.guest.language.files import Files
from sandbox.guest.language.names import attribute_kind
from sandbox.guest.language.offered import OFFERED
from sandbox.guest.language.policy import Places


@pytest.fixture(scope="module")
def importer(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("workspace"))
    return Importer(Files(Places(evidence=folder, workspace=folder, temporary=folder)))


def steps_from(value: object) -> list[tuple[str, object]]:
    found = []
    for name in dir(value):
        if attribute_kind(name) in {"plain", "guarded", "examined"} and not name.startswith("__"):
            try:
                found.append((name, getattr(value, name)))
            except (AttributeError, TypeError, ValueError, NotImplementedError):
                continue
    return found


@pytest.mark.parametrize("module", sorted(OFFERED))
def test_no_module_is_within_two_public_steps_of_what_is_offered(importer, module):
    facade = importer.facade(module)
    leaks = []
    for name in dir(facade):
        value = getattr(facade, name)
        if isinstance(value, Facade):
            continue
        chain = [(name, value), *((f"{name}.{inner}", one) for inner, one in steps_from(value))]
        leaks += [path for path, one in chain if isinstance(one, types.ModuleType)]

    assert leaks == []


@pytest.mark.parametrize("module", sorted(OFFERED))
def test_every_name_that_the_table_offers_exists(importer, module):
    rule = OFFERED[module]
    wanted = set(rule.split()) if rule and not rule.startswith("-") else set()
    newer_than_311 = {"batched", "UTC"}

    assert wanted - set(dir(importer.facade(module))) <= newer_than_311


def test_a_facade_is_no_module_and_has_no_name_to_be_looked_up_by(importer):
    facade = importer.facade("json")

    assert not isinstance(facade, types.ModuleType)
    assert not hasattr(facade, "__name__")
    assert not hasattr(facade, "__dict__")


@pytest.mark.parametrize(
    ("name", "kind"),
    [("append", "plain"), ("score", "plain"), ("sys", "guarded"), ("os", "guarded"), ("_x", "private"), ("__init__", "examined"), ("__repr__", "guarded"), ("__class__", "refused"),
     ("gi_frame", "refused"), ("format", "examined"), ("_asdict", "guarded"), ("__subclasses__", "refused")],
)  # fmt: skip
def test_attribute_names_are_judged_by_what_they_can_lead_to(name, kind):
    assert attribute_kind(name) == kind
