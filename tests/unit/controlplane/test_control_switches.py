"""What a kill switch covers, what cannot be one, and what a policy of findings says."""

import pytest

from controlplane.domain.findings import DEFAULT_POLICY, read_policy
from controlplane.domain.switches import Subject, Switch, check
from controlplane.errors import InvalidRequest

JOB = Subject(
    job_id="job-1",
    task_id="task-1",
    tenant_id="acme",
    models=("openai:gpt-x", "embedded:qwen"),
    tools=("network", "lookup"),
    image="custody:1.4",
)


def switch(scope_kind: str, scope_id: str = "", **fields: str) -> Switch:
    given = {"action": "kill", "reason": "r", "by": "ada", **fields}
    return Switch(scope_kind=scope_kind, scope_id=scope_id, **given)


@pytest.mark.requirement("CARD-20")
@pytest.mark.parametrize(
    ("scope_kind", "mine", "other"),
    [
        ("tenant", "acme", "acm"),
        ("task", "task-1", "task-2"),
        ("job", "job-1", "job-"),
        ("tool", "lookup", "look"),
        ("model", "openai:gpt-x", "openai:gpt"),
        ("model", "embedded:*", "embed:*"),
        ("image", "custody:1.4", "custody:1.5"),
        ("image", "custody:*", "else:*"),
    ],
)
def test_a_switch_covers_what_it_names_and_nothing_else(scope_kind, mine, other):
    assert switch(scope_kind, mine).covers(JOB)
    assert not switch(scope_kind, other).covers(JOB)


def test_a_switch_on_everything_covers_everything_and_one_of_a_tenant_only_that_tenant():
    assert switch("all").covers(JOB)
    assert switch("model", "*", tenant_id="acme").covers(JOB)
    assert not switch("model", "*", tenant_id="other").covers(JOB)


def test_a_star_for_images_does_not_cover_a_worker_that_names_none():
    assert not switch("image", "*").covers(Subject(job_id="j", task_id="t", tenant_id="a"))


@pytest.mark.parametrize(
    ("scope_kind", "scope_id", "action", "reason"),
    [
        ("planet", "x", "kill", "r"),
        ("tenant", "acme", "explode", "r"),
        ("tenant", "", "kill", "r"),
        ("all", "x", "kill", "r"),
        ("tenant", "ac*", "kill", "r"),
        ("model", "a*b", "kill", "r"),
        ("model", "a**", "kill", "r"),
        ("model", "x" * 201, "kill", "r"),
        ("tenant", "acme", "kill", " "),
        ("tenant", "acme", "kill", "x" * 1_001),
    ],
)
def test_what_cannot_be_a_switch_is_refused(scope_kind, scope_id, action, reason):
    with pytest.raises(InvalidRequest):
        check(scope_kind, scope_id, action=action, reason=reason)


def test_a_policy_overrides_the_defaults_by_kind():
    policy = read_policy(" no_progress=kill, wait_overdue = stop ,")

    assert policy == {**DEFAULT_POLICY, "no_progress": "kill", "wait_overdue": "stop"}


@pytest.mark.parametrize("text", ["no_progress", "no_progress=explode", "nothing=stop"])
def test_a_policy_that_says_nothing_known_is_refused(text):
    with pytest.raises(InvalidRequest, match="stuck_policy"):
        read_policy(text)
