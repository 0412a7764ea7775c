"""What crosses the boundary: frozen, closed, complete, and labelled truthfully."""

import importlib
import json
import math
import pkgutil
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

import rlm_worker.contracts
from rlm_worker.contracts import Budget, JobResult, JobSpec, Usage, canonical, digest
from rlm_worker.contracts.base import Contract
from rlm_worker.contracts.job import Dimension, EvidenceRef, NetworkPolicy
from rlm_worker.contracts.result import FailureClass, TraceRef
from tests.builders import a_spec

for module in pkgutil.iter_modules(rlm_worker.contracts.__path__, "rlm_worker.contracts."):
    importlib.import_module(module.name)


def contracts(base: type[Contract] = Contract) -> list[type[Contract]]:
    below = [contract for direct in base.__subclasses__() for contract in (direct, *contracts(direct))]
    return sorted(
        {contract for contract in below if contract.__module__.startswith("rlm_worker.contracts")},
        key=lambda contract: contract.__name__,
    )


ALL = contracts()


@pytest.mark.parametrize("contract", ALL, ids=lambda contract: contract.__name__)
def test_a_contract_is_frozen_and_refuses_unknown_fields(contract):
    value = contract.model_construct()

    assert contract.model_config["extra"] == "forbid"
    with pytest.raises(ValidationError, match="frozen"):
        setattr(value, next(iter(contract.model_fields), "x"), 1)
    with pytest.raises(ValidationError, match="Extra inputs"):
        contract.model_validate({"no_such_field": 1})


def test_there_are_contracts_to_speak_of():
    assert len(ALL) > 50


@pytest.mark.requirement(*(f"N3-SPEC-{number}" for number in range(1, 15)))
def test_a_spec_has_every_field_of_the_requirement():
    wanted = {
        "N3-SPEC-1": "job_id",
        "N3-SPEC-2": "parent_job_id",
        "N3-SPEC-3": "task",
        "N3-SPEC-4": "input_artifacts",
        "N3-SPEC-5": "allowed_tools",
        "N3-SPEC-6": "output_schema",
        "N3-SPEC-12": "sandbox_policy",
        "N3-SPEC-13": "network_policy",
        "N3-SPEC-14": "artifact_policy",
    }
    limits = {
        "N3-SPEC-7": "max_iterations",
        "N3-SPEC-8": "max_subcalls",
        "N3-SPEC-9": "max_depth",
        "N3-SPEC-10": "max_wall_time_ms",
        "N3-SPEC-11": "max_tokens",
    }

    assert set(wanted.values()) <= set(JobSpec.model_fields)
    assert set(limits.values()) <= set(Budget.model_fields)


@pytest.mark.requirement(*(f"N3-RESULT-{number}" for number in range(1, 9)))
def test_a_result_has_every_field_of_the_requirement():
    wanted = {
        "N3-RESULT-1": "status",
        "N3-RESULT-2": "structured_output",
        "N3-RESULT-3": "trace_ref",
        "N3-RESULT-4": "artifact_refs",
        "N3-RESULT-5": "usage",
        "N3-RESULT-6": "failure_class",
        "N3-RESULT-7": "stderr_summary",
        "N3-RESULT-8": "stdout_summary",
    }

    assert set(wanted.values()) <= set(JobResult.model_fields)


@pytest.mark.requirement(*(f"N3-FAIL-{number}" for number in range(1, 9)))
def test_the_failure_classes_are_the_fixed_ones():
    assert set(get_args(FailureClass)) == {
        "invalid_request",
        "budget_exhausted",
        "backend_unavailable",
        "sandbox_fatal",
        "tool_policy_denied",
        "output_invalid",
        "model_error",
        "partial_success",
        "stopped",
        "quarantined",
    }


def test_every_budget_dimension_has_its_limit():
    limits = {
        name.removeprefix("max_").removesuffix("_ms").removesuffix("_usd") for name in Budget.model_fields
    }

    for dimension in get_args(Dimension):
        assert dimension in limits or f"{dimension}_bytes" in limits, dimension


def a_result(**fields) -> JobResult:
    ref = TraceRef(job_id="j", events=0, head="0" * 64)
    return JobResult.model_validate({"job_id": "j", "attempt": 1, "trace_ref": ref, **fields})


ANSWER = {"structured_output": {"a": 1}, "answered_by": "submit"}
DRAFT = {"structured_output": {"a": 1}, "answered_by": "draft"}


@pytest.mark.parametrize(
    "fields",
    [
        {"status": "succeeded", **ANSWER},
        {"status": "partial", "failure_class": "partial_success", **DRAFT},
        {"status": "failed", "failure_class": "model_error"},
        {"status": "failed", "failure_class": "quarantined"},
        {"status": "stopped", "failure_class": "stopped"},
        {"status": "stopped", "failure_class": "stopped", **DRAFT},
    ],
)
def test_a_result_that_says_what_it_is_is_taken(fields):
    assert a_result(**fields).status == fields["status"]


@pytest.mark.parametrize(
    "fields",
    [
        {"status": "succeeded"},
        {"status": "succeeded", "failure_class": "model_error", **ANSWER},
        {"status": "succeeded", "structured_output": {"a": 1}},
        {"status": "partial", **DRAFT},
        {"status": "partial", "failure_class": "model_error", **DRAFT},
        {"status": "partial", "failure_class": "partial_success"},
        {"status": "failed"},
        {"status": "failed", "failure_class": "partial_success"},
        {"status": "failed", "failure_class": "model_error", "answered_by": "submit"},
        {"status": "stopped"},
        {"status": "done", **ANSWER},
    ],
)
def test_a_result_that_contradicts_itself_is_refused(fields):
    with pytest.raises(ValidationError):
        a_result(**fields)


def test_tokens_are_input_and_output_together():
    assert Usage(input_tokens=3, output_tokens=4).tokens == 7


def test_evidence_names_must_differ():
    ref = EvidenceRef(
        name="a", kind="file", location="/a", manifest_digest="0" * 64, files=1, size_bytes=1
    ).model_dump()

    with pytest.raises(ValidationError, match="names must differ"):
        a_spec(input_artifacts=(ref, ref))


@pytest.mark.parametrize(
    "schema", [{}, {"type": "array"}, {"type": "object"}, {"type": "object", "properties": {}}]
)
def test_an_answer_is_an_object_with_fields(schema):
    with pytest.raises(ValidationError, match="object with properties"):
        a_spec(output_schema=schema)


def test_the_network_is_off_unless_a_policy_opens_it():
    assert a_spec().network_policy.allow == ()
    assert a_spec(network_policy=NetworkPolicy(allow=("example.org:443",))).network_policy.allow


@pytest.mark.parametrize("name", ["", "../up", "a/b", ".hidden", "a\n", "x" * 201])
def test_an_evidence_name_is_a_plain_name(name):
    with pytest.raises(ValidationError):
        EvidenceRef(name=name, kind="file", location="/a", manifest_digest="0" * 64, files=1, size_bytes=1)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=15,
)


@given(JSON)
def test_the_canonical_form_is_json_of_the_same_value(value):
    assert json.loads(canonical(value).decode("utf-8", "surrogatepass")) == value


@given(st.dictionaries(st.text(), JSON, max_size=6), st.randoms())
def test_the_order_of_keys_changes_no_digest(value, random):
    names = list(value)
    random.shuffle(names)

    assert digest({name: value[name] for name in names}) == digest(value)


@given(JSON, JSON)
def test_two_values_have_one_digest_only_when_their_canonical_forms_are_one(one, other):
    assert (digest(one) == digest(other)) == (canonical(one) == canonical(other))


def test_values_that_python_calls_equal_and_json_does_not_differ():
    assert len({digest(value) for value in (1, 1.0, True, "1", None, [1])}) == 6


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_what_is_no_json_has_no_digest(number):
    with pytest.raises(ValueError, match="JSON"):
        digest({"n": [number]})


def test_half_a_surrogate_pair_has_a_digest_as_names_of_files_may_hold_one():
    assert digest("caf\udce9") != digest("caf?")
