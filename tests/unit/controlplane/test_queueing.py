"""Who is next: priority, then tenants by their share, never past a limit. The policy alone, over invented jobs."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.domain.queueing import (
    MOST_PRIORITY,
    Kind,
    Lane,
    ModelLimit,
    Policy,
    Share,
    choose,
    hindrance,
    parse_model_limits,
)
from controlplane.domain.switches import Switch


def lane(tenant_id="a", *, priority=0, model="", sub_model="m") -> Lane:
    return Lane(priority, Kind(tenant_id, model, sub_model))


def a_switch(**fields) -> Switch:
    return Switch(**{"action": "stop", "reason": "drill", "by": "me", **fields})


def tenants(chosen) -> list[str]:
    return [each.kind.tenant_id for each in chosen]


def test_one_job_of_a_tenant_does_not_wait_for_the_ten_thousand_of_another():
    chosen = choose({lane("crowd"): 10_000, lane("single"): 1}, Counter(), Policy(), room=2)

    assert sorted(tenants(chosen)) == ["crowd", "single"]


def test_what_a_tenant_has_at_work_counts_against_it():
    busy = Counter({lane("a").kind: 3})

    assert tenants(choose({lane("a"): 9, lane("b"): 9}, busy, Policy(), room=4)) == ["b", "b", "b", "a"]


def test_a_tenant_of_twice_the_weight_gets_twice_as_much():
    policy = Policy(shares={"heavy": Share(weight=2)})

    chosen = choose({lane("heavy"): 99, lane("light"): 99}, Counter(), policy, room=30)

    assert Counter(tenants(chosen)) == {"heavy": 20, "light": 10}


def test_a_higher_priority_goes_first_whoever_has_it():
    ready = {lane("a", priority=1): 2, lane("b", priority=5): 1, lane("c", priority=-5): 9}

    assert tenants(choose(ready, Counter(), Policy(), room=4)) == ["b", "a", "a", "c"]


def test_no_tenant_gets_past_its_limit_and_the_others_get_the_places():
    policy = Policy(shares={"a": Share(max_jobs=2)})
    busy = Counter({lane("a").kind: 1})

    chosen = choose({lane("a"): 9, lane("b"): 3}, busy, policy, room=9)

    assert Counter(tenants(chosen)) == {"a": 1, "b": 3}


def test_a_model_at_its_limit_holds_up_its_own_jobs_and_no_others():
    policy = Policy(model_limits=parse_model_limits("openai:*=1"))
    slow, free = lane(model="openai:x"), lane(sub_model="other")

    chosen = choose({slow: 5, free: 2}, Counter({Kind("z", "", "openai:y"): 1}), policy, room=9)

    assert chosen == [free, free]
    assert hindrance(slow.kind, {Kind("z", "", "openai:y"): 1}, policy) == "model openai:* has 1 jobs at work"


@pytest.mark.parametrize(
    ("switch", "free"),
    [
        (a_switch(scope_kind="all", scope_id=""), []),
        (a_switch(scope_kind="all", scope_id="", tenant_id="a"), ["b"]),
        (a_switch(scope_kind="tenant", scope_id="a"), ["b"]),
        (a_switch(scope_kind="model", scope_id="m"), []),
        (a_switch(scope_kind="model", scope_id="m", tenant_id="b"), ["a"]),
        (a_switch(scope_kind="tool", scope_id="m"), ["a", "b"]),
    ],
)
def test_nothing_under_a_kill_switch_is_chosen(switch, free):
    policy = Policy(switches=(switch,))

    assert tenants(choose({lane("a"): 1, lane("b"): 1}, Counter(), policy, room=9)) == free


def test_a_suspended_tenant_gets_nothing():
    policy = Policy(shares={"a": Share(is_suspended=True)})

    assert choose({lane("a"): 1}, Counter(), policy, room=1) == []
    assert hindrance(lane("a").kind, {}, policy) == "tenant a is suspended"


@pytest.mark.parametrize("text", ["openai", "=3", "a=0", "a=-1", "a*b=2", "a=x"])
def test_a_limit_that_cannot_be_read_is_refused(text):
    with pytest.raises(ValueError, match="no limit of a model"):
        parse_model_limits(text)


def test_limits_of_models_are_read_in_their_order():
    assert parse_model_limits(" openai:*=8, http://x/v1#m=2,") == (
        ModelLimit(pattern="openai:*", most=8),
        ModelLimit(pattern="http://x/v1#m", most=2),
    )


names = st.text(alphabet='ab\x1f\n"ü\U0001f600', min_size=1, max_size=3)
kinds = st.builds(Kind, st.sampled_from("abcde"), st.sampled_from(["", "x:1", "x:2"]), st.sampled_from("mn"))
lanes = st.builds(Lane, st.integers(-2, 2), kinds)


@given(names, names, names, st.integers(-MOST_PRIORITY, MOST_PRIORITY))
def test_a_lane_is_what_its_text_says(tenant_id, model, sub_model, priority):
    made = Lane(priority, Kind(tenant_id, model, sub_model))

    assert Lane.from_text(made.text) == made


@given(lanes, lanes)
def test_lanes_sort_by_priority(one, other):
    if one.priority > other.priority:
        assert one.text < other.text


@given(
    ready=st.dictionaries(lanes, st.integers(1, 50), max_size=12),
    busy=st.dictionaries(kinds, st.integers(1, 5), max_size=6).map(Counter),
    weights=st.dictionaries(st.sampled_from("abcde"), st.integers(1, 4)),
    limits=st.dictionaries(st.sampled_from("abcde"), st.integers(0, 6)),
    room=st.integers(0, 40),
)
def test_a_choice_is_full_fair_and_within_every_limit(ready, busy, weights, limits, room):
    shares = {
        tenant_id: Share(weight=weights.get(tenant_id, 1), max_jobs=limits.get(tenant_id))
        for tenant_id in "abcde"
    }
    policy = Policy(shares=shares, model_limits=parse_model_limits("x:*=4,n=6"))

    chosen = choose(ready, busy, policy, room=room)

    after = busy + Counter(each.kind for each in chosen)
    taken = Counter(chosen)
    assert len(chosen) <= room
    assert all(taken[each] <= ready[each] for each in taken)
    for tenant_id, share in shares.items():
        new = sum(1 for each in chosen if each.kind.tenant_id == tenant_id)
        total = sum(count for kind, count in after.items() if kind.tenant_id == tenant_id)
        assert new == 0 or share.max_jobs is None or total <= share.max_jobs
    # Nobody is left out who could have started.
    left = [each for each in ready if taken[each] < ready[each] and not hindrance(each.kind, after, policy)]
    assert len(chosen) == room or not left
    # What is left behind never has a higher priority than the last that was chosen.
    if chosen and len(chosen) == room:
        assert all(each.priority <= chosen[-1].priority for each in left)


@given(
    ready=st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 200), min_size=1),
    weights=st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 5)),
    room=st.integers(1, 60),
)
def test_no_tenant_is_a_whole_job_behind_its_share_while_it_has_work(ready, weights, room):
    policy = Policy(shares={tenant_id: Share(weight=weight) for tenant_id, weight in weights.items()})
    jobs = {lane(tenant_id): count for tenant_id, count in ready.items()}

    got = Counter(tenants(choose(jobs, Counter(), policy, room=room)))

    for poor in ready:
        if got[poor] == ready[poor]:
            continue
        for rich in ready:
            rich_share = (got[rich] - 1) / policy.share(rich).weight
            assert got[rich] == 0 or got[poor] / policy.share(poor).weight >= rich_share
