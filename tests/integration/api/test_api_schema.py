"""Schemathesis over the whole API: whatever is sent, the answer is one that the document names, and never a defect."""

import os
import tempfile
from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from controlplane.api.app import create_app
from controlplane.api.authenticate import Authenticator
from controlplane.bootstrap import open_app
from controlplane.config import Settings
from controlplane.domain.identity import Caller, Scope, owner
from controlplane.handlers import keys, submit
from tests.integration.controlplane.hands import a_request

EXAMPLES = int(os.environ.get("CUSTODY_API_EXAMPLES", "8"))
CHECKS = [
    schemathesis.checks.not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


@pytest.fixture(scope="module")
def schema():
    with tempfile.TemporaryDirectory() as folder:
        app = open_app(Settings(home=Path(folder) / "home", api_rate=1e6, api_burst=1e6))
        api = create_app(app, auth=Authenticator(desk=app.desk))
        yield schemathesis.openapi.from_asgi("/v1/openapi.json", api)
        app.close()


@pytest.fixture(scope="module")
def authorization(schema):
    kernel = schema.app.state.kernel
    caller = Caller(name="t", scope=Scope("local"), roles=frozenset({"admin", "operator"}))
    submit.submit(kernel.app.desk, a_request(job_id="job-1", tenant_id="local"), caller=caller)
    _, whole = keys.issue(
        kernel.app.desk, principal="t", roles=["admin", "approver"], tenant_id="", caller=owner("ada")
    )
    return {"Authorization": f"Bearer {whole}"}


def bounded(examples: int) -> settings:
    return settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )


def send_everything(schema, authorization, *, examples: int) -> int:
    """Requests to every operation, right ones and wrong ones; the number of operations."""
    count = 0
    for result in schema.get_all_operations():
        operation = result.ok()
        if operation.definition.raw["operationId"] == "follow_job":
            continue
        count += 1
        for mode in GenerationMode:

            @bounded(examples)
            @given(case=operation.as_strategy(generation_mode=mode))
            def check(case):
                case.call_and_validate(headers=authorization, checks=CHECKS)

            try:
                check()
            except Unsatisfiable:
                # There is no wrong way to ask for it.
                assert mode is GenerationMode.NEGATIVE, operation.label
    return count


@pytest.mark.requirement("CARD-4")
def test_every_answer_is_one_that_the_document_names(schema, authorization):
    assert send_everything(schema, authorization, examples=EXAMPLES) > 35


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_every_answer_is_one_that_the_document_names_for_long(schema, authorization):
    assert send_everything(schema, authorization, examples=300) > 35
