"""How a job ended, from the way it ended: the same cause always gives the same class."""

from typing import get_args

import pytest

from rlm_worker.contracts.result import FailureClass, TraceRef, Usage
from rlm_worker.endings import Exhausted, Failed, Submitted
from rlm_worker.journal import Journal
from rlm_worker.results import Stopped, attempt_ended, job_result, verdict
from tests.builders import a_spec

FIELDS = {"answer": "submitted"}
DRAFT = {"answer": "so far"}
LIMIT = Exhausted("tokens", "100", "120")
CLOSED = Exhausted("tokens", "100", "120", "", FIELDS)
OWN_CLASSES = [kind for kind in get_args(FailureClass) if kind not in ("partial_success", "stopped")]


@pytest.mark.requirement("N3-FAIL-9", "N3-FAIL-2", "N3-FAIL-8")
@pytest.mark.parametrize(
    ("ending", "draft", "status", "failure_class", "answered_by", "output"),
    [
        (Submitted(FIELDS), None, "succeeded", None, "submit", FIELDS),
        (Submitted(FIELDS), DRAFT, "succeeded", None, "submit", FIELDS),
        (LIMIT, None, "failed", "budget_exhausted", "nobody", None),
        (LIMIT, DRAFT, "partial", "partial_success", "draft", DRAFT),
        (CLOSED, None, "partial", "partial_success", "submit", FIELDS),
        (CLOSED, DRAFT, "partial", "partial_success", "submit", FIELDS),
        (Stopped("stop", "enough"), None, "stopped", "stopped", "nobody", None),
        (Stopped("kill", ""), DRAFT, "stopped", "stopped", "draft", DRAFT),
        *((Failed(kind, "why"), None, "failed", kind, "nobody", None) for kind in OWN_CLASSES),
        *((Failed(kind, "why"), DRAFT, "partial", "partial_success", "draft", DRAFT) for kind in OWN_CLASSES),
    ],
)
def test_an_ending_and_a_draft_decide_the_verdict(ending, draft, status, failure_class, answered_by, output):
    said = verdict(ending, draft=draft)

    assert (said["status"], said["failure_class"]) == (status, failure_class)
    assert (said["answered_by"], said["structured_output"]) == (answered_by, output)


@pytest.mark.parametrize(
    ("ending", "message"),
    [
        (LIMIT, "budget tokens is exhausted: limit 100, used or held 120"),
        (Failed("model_error", "no route"), "no route"),
        (Stopped("stop", "enough"), "stop was ordered: enough"),
        (Stopped("kill", ""), "kill was ordered"),
    ],
)
@pytest.mark.parametrize("draft", [None, DRAFT])
def test_the_reason_is_told_whether_there_is_a_draft_or_not(ending, message, draft):
    assert verdict(ending, draft=draft)["message"] == message


@pytest.mark.requirement("S3X-RLM-2")
@pytest.mark.parametrize(
    "ending", [Submitted(FIELDS), LIMIT, CLOSED, Stopped("stop", ""), Failed("model_error", "x")]
)
@pytest.mark.parametrize("draft", [None, DRAFT])
def test_every_verdict_makes_a_result_that_its_contract_takes(ending, draft):
    said = verdict(ending, draft=draft)
    journal = Journal()
    journal.stdout_tail = "x" * 100_000

    result = job_result(
        said,
        spec=a_spec(),
        attempt=2,
        ending=ending,
        journal=journal,
        usage=Usage(),
        trace_ref=TraceRef(job_id="job-1", events=0, head="0" * 64),
    )

    assert result.limit == ("tokens" if isinstance(ending, Exhausted) else None)
    assert len(result.stdout_summary) < 2_200
    assert attempt_ended(said, attempt=2).status == result.status
    assert set(result.models) == {"predict", "root"}
