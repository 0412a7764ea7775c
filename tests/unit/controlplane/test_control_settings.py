"""Every setting of the watchdogs over stuck jobs can be set by variable and by file, and reaches the rules they follow."""

import dataclasses

import pytest

from controlplane.bootstrap import _rules, open_app
from controlplane.config import Settings, load_settings, setting_rows
from controlplane.control_settings import CONTROL
from controlplane.errors import InvalidRequest

TEXTS = {"stuck_policy": "no_progress=kill"}
#: Says how often they look, and is no rule.
NOT_A_RULE = {"stuck_seconds"}


@pytest.mark.parametrize("name", CONTROL)
def test_what_is_set_by_file_or_variable_is_shown_and_changes_one_rule(name, tmp_path):
    default = getattr(Settings(), name)
    value = TEXTS[name] if name in TEXTS else 7 if default is None else default + 1
    (tmp_path / "custody.toml").write_text(f"{name} = {value!r}\n")
    by_file = load_settings({}, env={}, folder=tmp_path)
    by_variable = load_settings({}, env={f"CUSTODY_{name.upper()}": str(value)}, folder=tmp_path / "none")

    assert getattr(by_file, name) == getattr(by_variable, name) == value
    shown = {row: source for row, _, source in setting_rows(by_variable)}
    assert shown[name] == f"CUSTODY_{name.upper()}"
    before, after = _rules(Settings()), _rules(by_file)
    rules = [
        field.name
        for field in dataclasses.fields(before.stuck)
        if getattr(before.stuck, field.name) != getattr(after.stuck, field.name)
    ]
    changed = len(rules) + (before.stuck_policy != after.stuck_policy)
    assert changed == (name not in NOT_A_RULE)


def test_a_policy_that_cannot_be_read_is_refused_before_anything_runs(tmp_path):
    app = open_app(Settings(home=tmp_path / "home", stuck_policy="no_progress=explode"))
    with pytest.raises(InvalidRequest, match="stuck_policy"):
        app.stuck_keeper()
    app.close()
