"""Every setting of the engine can be set by an operator, by variable and by file, or says why not."""

import dataclasses

import pytest

from controlplane.config import Settings, load_settings, setting_rows
from controlplane.engine_settings import ENGINE, MAY_BE_ZERO, MODELS
from controlplane.errors import InvalidRequest
from controlplane.runtime import worker_settings
from rlm_worker.config import WorkerSettings
from rlm_worker.models.settings import ModelSettings

#: What an operator cannot set this way, and why. A new field of the engine is either settable or stands here.
NOT_SETTABLE = {
    (WorkerSettings, "models"): "is made of the fields of ModelSettings, each of which is looked at here",
    (ModelSettings, "api_key"): "a key is read by the worker alone, from its own environment",
    (ModelSettings, "openai_key"): "a key is read by the worker alone, from its own environment",
    (ModelSettings, "openai_base_url"): "says where a key may go, so it comes with the key",
    (
        ModelSettings,
        "models_dir",
    ): "CUSTODY_MODELS: one place per machine user, also for commands without a home",
}
TEXTS = {"profile": "claude", "model_price": "1.5/2.5", "seeing_models": "mine theirs"}


def other_value(name):
    """A value that is not the default."""
    value = getattr(Settings(), name)
    return TEXTS[name] if name in TEXTS else 7 if value is None else value + 1


def changed(one, other):
    names = (field.name for field in dataclasses.fields(one))
    return {(type(one), name) for name in names if getattr(one, name) != getattr(other, name)}


def reaches(read):
    """The fields of the engine that differ from their defaults under these settings."""
    told, default = worker_settings(read), worker_settings(Settings())
    return changed(told, default) - {(WorkerSettings, "models")} | changed(told.models, default.models)


@pytest.fixture(autouse=True)
def no_variables(monkeypatch):
    for name in (*ENGINE, *MODELS):
        monkeypatch.delenv(f"CUSTODY_{name.upper()}", raising=False)


@pytest.mark.parametrize("name", [*ENGINE, *MODELS])
def test_what_is_set_by_file_or_variable_reaches_the_engine_and_is_shown(name, tmp_path):
    value = other_value(name)
    (tmp_path / "custody.toml").write_text(f"{name} = {value!r}\n")
    by_file = load_settings({}, env={}, folder=tmp_path)
    by_variable = load_settings({}, env={f"CUSTODY_{name.upper()}": str(value)}, folder=tmp_path / "none")

    assert getattr(by_file, name) == getattr(by_variable, name) == value
    assert len(reaches(by_file)) == 1
    assert reaches(by_file) == reaches(by_variable)
    shown = {row: (said, source) for row, said, source in setting_rows(by_variable)}
    assert shown[name] == (str(getattr(by_variable, name)), f"CUSTODY_{name.upper()}")


def test_every_field_of_the_engine_can_be_set_or_says_why_not(tmp_path):
    fields = {
        (kind, field.name) for kind in (WorkerSettings, ModelSettings) for field in dataclasses.fields(kind)
    }
    settable = {
        place
        for name in (*ENGINE, *MODELS)
        for place in reaches(dataclasses.replace(Settings(), **{name: other_value(name)}))
    }

    assert settable | set(NOT_SETTABLE) == fields
    assert not settable & set(NOT_SETTABLE)
    assert all(NOT_SETTABLE.values())


def test_defaults_are_the_engines_own():
    assert worker_settings(Settings()).models == dataclasses.replace(
        ModelSettings.from_env(), **{field: getattr(ModelSettings(), field) for field in ("price", "threads")}
    )
    assert all(getattr(Settings(), name) == getattr(WorkerSettings(), name) for name in ENGINE)


@pytest.mark.parametrize("name", sorted(MAY_BE_ZERO))
def test_none_at_all_is_a_value_where_it_has_a_meaning(name, tmp_path):
    read = load_settings({}, env={f"CUSTODY_{name.upper()}": "0"}, folder=tmp_path)

    assert getattr(read, name) == 0


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("subcalls_in_flight", "0", "a whole number above zero"),
        ("turn_temperature", "-1", "a number not below zero"),
        ("temperature", "nan", "a number not below zero"),
        ("retries", "many", "a whole number not below zero"),
    ],
)
def test_a_value_without_meaning_is_refused_by_name(name, value, words, tmp_path):
    with pytest.raises(InvalidRequest, match=f"CUSTODY_{name.upper()}: {name} must be {words}"):
        load_settings({}, env={f"CUSTODY_{name.upper()}": value}, folder=tmp_path)


def test_a_price_that_is_none_is_refused_in_words():
    with pytest.raises(InvalidRequest, match=r"as in 0\.15/0\.60, not 'cheap'"):
        worker_settings(Settings(model_price="cheap"))
