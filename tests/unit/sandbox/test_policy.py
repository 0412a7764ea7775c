"""Policies deny by default and refuse contradictions before anything starts."""

import pytest

from sandbox import Limits, Mount, Network, Policy, PolicyError
from sandbox.planning import plan_for


@pytest.mark.parametrize("target", ["", "/", "/etc", "a//b", "../x", "a/../b", ".", "a/.", "a/", "a\0b"])
def test_a_target_outside_the_evidence_folder_is_refused(target):
    with pytest.raises(PolicyError):
        Mount(source=__file__, target=target)


def test_a_relative_source_is_refused():
    with pytest.raises(PolicyError, match="absolute"):
        Mount(source="here", target="x")


@pytest.mark.parametrize(("first", "second"), [("a", "a"), ("a", "a/b"), ("a/b", "a"), ("a/b/c", "a/b")])
def test_overlapping_targets_are_refused(first, second):
    mounts = tuple(Mount(source=__file__, target=target) for target in (first, second))

    with pytest.raises(PolicyError, match="overlap"):
        Policy(evidence=mounts)


def test_neighbours_are_no_overlap():
    targets = ("a", "ab", "a.b", "b/a", "b/c")

    policy = Policy(evidence=tuple(Mount(source=__file__, target=target) for target in targets))

    assert {bind.target for bind in plan_for(policy).evidence} == {
        f"/evidence/{target}" for target in targets
    }


@pytest.mark.parametrize("limit", ["memory_bytes", "processes", "output_bytes", "frame_depth", "cpu_seconds"])
def test_a_limit_must_be_more_than_zero(limit):
    with pytest.raises(PolicyError, match=limit):
        Limits(**{limit: 0})


@pytest.mark.parametrize("source", ["/dev/null", "/no/such/file"])
def test_evidence_must_be_a_file_or_directory(source):
    with pytest.raises(PolicyError, match=source):
        Policy(evidence=(Mount(source=source, target="x"),))


def test_nothing_is_allowed_by_default():
    policy = Policy()

    assert policy.calls == frozenset()
    assert policy.evidence == ()
    assert policy.network.allow == ()
    assert "seccomp" in policy.required


@pytest.mark.parametrize("choice", [{"backend": "chroot"}, {"language": "loose"}, {"runtime": "crun"}])
def test_an_unknown_backend_language_or_runtime_is_refused_with_those_there_are(choice):
    with pytest.raises(PolicyError, match="only"):
        Policy(**choice)


def test_the_degraded_backend_takes_only_strict_code():
    with pytest.raises(PolicyError, match="strict"):
        Policy(backend="landlock")


@pytest.mark.parametrize(
    "address",
    ["", "example.org", "example.org:0", "example.org:70000", "a b:1", "http://a:1", "-a:1", "::1:80"],
)
def test_a_network_address_must_name_host_and_port(address):
    with pytest.raises(PolicyError, match="cannot be used"):
        Network(allow=(address,))


def test_a_plan_survives_its_wire_form():
    plan = plan_for(Policy(evidence=(Mount(source=__file__, target="x"),), limits=Limits(cpu_seconds=3)))

    assert type(plan).from_json(plan.to_json()) == plan
