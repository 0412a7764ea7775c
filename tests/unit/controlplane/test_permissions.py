"""Permissions: a denial that fits wins, an allowance adds to the roles, what is not known allows nothing, all of it ends in time."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.domain.identity import ROLES, Caller, Scope
from controlplane.domain.permissions import UNKNOWN, About, Constraints, Permission, decide

NOW = 1_000
CAPABILITIES = sorted({capability for able in ROLES.values() for capability in able})
names = st.sampled_from(["ada", "bob", "role:viewer", "role:operator"])
labels = st.frozensets(st.tuples(st.sampled_from("ab"), st.sampled_from("xy")), max_size=2)
models = st.frozensets(st.sampled_from(["m1", "m2", "m3"]), min_size=1)
money = st.decimals(min_value=0, max_value=9, places=0)
constraints = st.builds(
    Constraints,
    labels=st.none() | labels.map(lambda found: tuple(sorted(found))),
    models=st.none() | models.map(lambda found: tuple(sorted(found))),
    max_usd=st.none() | money,
    task_ids=st.none() | st.just(("t1",)),
)
times = st.none() | st.integers(0, 2_000)
permissions = st.builds(
    Permission,
    permission_id=st.uuids().map(str),
    tenant_id=st.just("a"),
    subject=names,
    capability=st.sampled_from(["job.stop", "job.submit"]),
    effect=st.sampled_from(["allow", "deny"]),
    constraints=constraints,
    expires_ms=times,
    revoked_ms=times,
)
abouts = st.builds(
    About,
    labels=labels,
    models=models,
    task_id=st.sampled_from(["t1", "t2"]),
    is_priced=st.just(True),
    max_usd=st.none() | money,
)
callers = st.builds(
    Caller,
    name=st.sampled_from(["ada", "bob"]),
    scope=st.just(Scope("a")),
    roles=st.frozensets(st.sampled_from(["viewer", "operator"])),
    credential_id=st.just("k"),
)


def decided(caller, found, about=UNKNOWN):
    return decide(caller, "job.stop", found, about=about, now_ms=NOW).is_allowed


@given(callers, st.lists(permissions, max_size=5), abouts)
def test_a_denial_more_never_allows_more(caller, found, about):
    for extra in found:
        if extra.effect == "deny":
            rest = [each for each in found if each is not extra]
            assert not decided(caller, found, about) or decided(caller, rest, about)


@given(callers, st.lists(permissions, max_size=5), abouts)
def test_an_allowance_more_never_denies_more(caller, found, about):
    for extra in found:
        if extra.effect == "allow":
            rest = [each for each in found if each is not extra]
            assert not decided(caller, rest, about) or decided(caller, found, about)


@given(callers, st.lists(permissions, max_size=5), abouts)
def test_what_is_not_known_never_allows_more(caller, found, about):
    assert not decided(caller, found, UNKNOWN) or decided(caller, found, about)


@given(callers, st.lists(permissions, max_size=5), abouts)
def test_what_has_ended_or_is_about_somebody_else_decides_nothing(caller, found, about):
    subjects = {caller.name, *(f"role:{role}" for role in caller.roles)}
    kept = [
        each
        for each in found
        if each.subject in subjects
        and each.capability == "job.stop"
        and each.revoked_ms is None
        and (each.expires_ms is None or each.expires_ms > NOW)
    ]

    assert decided(caller, found, about) == decided(caller, kept, about)


@given(callers, st.lists(permissions, max_size=4), abouts)
def test_the_order_does_not_matter(caller, found, about):
    assert decided(caller, found, about) == decided(caller, list(reversed(found)), about)


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_without_permissions_the_roles_decide(capability):
    for role, able in ROLES.items():
        caller = Caller(name="x", scope=Scope("a"), roles=frozenset({role}), credential_id="k")
        assert decide(caller, capability, [], now_ms=NOW).is_allowed is (capability in able)


ADA = Caller(name="ada", scope=Scope("a"), roles=frozenset({"viewer"}), credential_id="k")


def permission(effect, **limited):
    return Permission(
        permission_id="p",
        tenant_id="a",
        subject="ada",
        capability="job.stop",
        effect=effect,
        constraints=Constraints(**limited),
    )


@pytest.mark.parametrize(
    ("limited", "about", "is_allowed"),
    [
        ({}, About(), True),
        ({"labels": (("env", "test"),)}, About(labels=frozenset({("env", "test"), ("x", "y")})), True),
        ({"labels": (("env", "test"),)}, About(labels=frozenset({("env", "prod")})), False),
        ({"labels": (("env", "test"),)}, About(), False),
        ({"models": ("m1", "m2")}, About(models=frozenset({"m1"})), True),
        ({"models": ("m1",)}, About(models=frozenset({"m1", "m2"})), False),
        ({"max_usd": Decimal(5)}, About(is_priced=True, max_usd=Decimal(5)), True),
        ({"max_usd": Decimal(5)}, About(is_priced=True, max_usd=Decimal(6)), False),
        ({"max_usd": Decimal(5)}, About(is_priced=True, max_usd=None), False),
        ({"task_ids": ("t1",)}, About(task_id="t1"), True),
        ({"task_ids": ("t1",)}, About(task_id="t2"), False),
    ],
)
def test_an_allowance_is_for_what_it_says(limited, about, is_allowed):
    assert decided(ADA, [permission("allow", **limited)], about) is is_allowed


@pytest.mark.parametrize(
    ("limited", "about", "is_denied"),
    [
        ({}, About(), True),
        ({"labels": (("env", "prod"),)}, About(labels=frozenset({("env", "prod")})), True),
        ({"labels": (("env", "prod"),)}, About(labels=frozenset()), False),
        ({"labels": (("env", "prod"),)}, About(), True),
        ({"models": ("m1",)}, About(models=frozenset({"m1", "m2"})), True),
        ({"models": ("m1",)}, About(models=frozenset({"m2"})), False),
        ({"max_usd": Decimal(5)}, About(is_priced=True, max_usd=Decimal(5)), False),
        ({"max_usd": Decimal(5)}, About(is_priced=True, max_usd=None), True),
    ],
)
def test_a_denial_takes_away_what_it_says(limited, about, is_denied):
    assert decided(ADA, [permission("allow"), permission("deny", **limited)], about) is not is_denied
