"""The façades of the strict policy, looked through for anything that leads to a module."""

import asyncio
import contextlib
import io
import types
import warnings
from pathlib import Path

import pytest

from sandbox.guest.language import classes, privates
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


def made_without_arguments(kind: type) -> object | None:
    try:
        return kind()
    except Exception:  # noqa: BLE001 - most classes need arguments
        return None


@pytest.mark.parametrize("module", sorted(OFFERED))
def test_every_private_name_that_an_offered_class_sets_on_its_objects_is_known_as_its_own(importer, module):
    facade = importer.facade(module)
    unknown = []
    for name in dir(facade):
        kind = getattr(facade, name)
        if isinstance(kind, type):
            found = getattr(made_without_arguments(kind), "__dict__", {})
            private = {attribute for attribute in found if attribute_kind(attribute) == "private"}
            unknown += [f"{name}.{attribute}" for attribute in private - privates.library_names(kind)]

    assert unknown == []


def test_a_class_of_the_library_keeps_its_private_names_and_a_data_type_has_none():
    assert {"_stream", "_old_targets", "_new_target"} <= privates.library_names(contextlib.redirect_stdout)
    assert "_module" in privates.library_names(warnings.catch_warnings)
    assert "_loop" in privates.library_names(asyncio.TaskGroup)
    assert not any(map(privates.library_names, (object, int, str, list, dict, ValueError)))


def test_a_name_taken_over_is_found_in_the_body_its_annotations_and_the_parents():
    def body_of(source: str) -> types.CodeType:
        return compile(source, "<cell>", "exec")

    foreign = (warnings.catch_warnings,)
    parent = type("Parent", (), {"__module__": "__main__", "_record": 1})

    assert privates.taken_over(foreign, body_of("_module = 1")) == "_module"
    assert privates.taken_over(foreign, body_of("_module: int")) == "_module"
    assert privates.taken_over((parent, *foreign), body_of("pass")) == "_record"
    assert privates.taken_over(foreign, body_of("_mine = 1")) is None
    assert privates.taken_over((parent,), body_of("_module = 1")) is None


def test_what_stands_for_a_class_shows_no_way_back_to_it():
    with Path(__file__).open("rb") as file:
        shown = classes.handed_out(type(file.raw))
        assert isinstance(file.raw, shown)

    assert shown is not io.FileIO
    assert not any(value is io.FileIO for _name, value in steps_from(shown))


def test_a_pattern_looks_at_plain_names_and_at_those_that_the_class_had_when_it_was_looked_at():
    class Point:
        __match_args__ = ("x", "gi_frame")
        x = 5

    shown = classes.pattern(Point, 1)
    Point.__match_args__ = ("gi_frame",)

    assert shown.__match_args__ == ("x",)
    assert isinstance(Point(), shown)
    assert classes.pattern(int, 1) is int
    with pytest.raises(TypeError, match="gi_frame"):
        classes.pattern(Point, 1)
