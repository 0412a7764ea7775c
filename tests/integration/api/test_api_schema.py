"""Schemathesis over the whole API: whatever is sent, the answer is one that the document names, and never a defect."""

import os
import tempfile
from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from starlette.testclient import TestClient

from controlplane.api.app import create_app
from controlplane.api.authenticate import Authenticator
from controlplane.bootstrap import open_app
from controlplane.config import Settings
from controlplane.domain.identity import owner
from controlplane.handlers import keys
from rlm_worker.contracts.signature import fields_schema
from tests.integration.api.scene import belongings

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
    _, whole = keys.issue(
        kernel.app.desk, principal="t", roles=["admin", "approver"], tenant_id="", caller=owner("ada")
    )
    return {"Authorization": f"Bearer {whole}"}


@pytest.fixture(scope="module")
def known(schema):
    """Ids of things that are there, so that requests come further than to `not found`."""
    app = schema.app.state.kernel.app

    def client(*roles, tenant, name):
        _, whole = keys.issue(app.desk, principal=name, roles=roles, tenant_id=tenant, caller=owner("ada"))
        return TestClient(schema.app, headers={"Authorization": f"Bearer {whole}"})

    return belongings(app, client, tenant="t")


def bounded(examples: int) -> settings:
    return settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )


def with_known(case, known, chance):
    """The same request about something that is there, half of the time."""
    if chance is None:
        return
    for name in case.path_parameters or {}:
        case.path_parameters[name] = known[chance if name == "job_id" else name]
    if case.operation.definition.raw["operationId"] == "submit_job" and isinstance(case.body, dict):
        case.body = {**case.body, "output_schema": fields_schema("answer: str"), "sub_model": "a:b"}
        case.body |= {"driver": None, "evidence": [{"digest": known["digest"]}], "tenant_id": "t"}


CHANCES = st.sampled_from([None, "job_id", "ready_job_id", "asking_job_id"])


def send(operation, mode, authorization, known, examples: int) -> None:
    @bounded(examples)
    @given(case=operation.as_strategy(generation_mode=mode), chance=CHANCES)
    def check(case, chance):
        if mode is GenerationMode.POSITIVE:
            with_known(case, known, chance)
        case.call_and_validate(headers=authorization, checks=CHECKS)

    try:
        check()
    except Unsatisfiable:
        # There is no wrong way to ask for it.
        assert mode is GenerationMode.NEGATIVE, operation.label


def send_everything(schema, authorization, known, *, examples: int) -> int:
    """Requests to every operation, right ones and wrong ones; the number of operations."""
    count = 0
    for result in schema.get_all_operations():
        operation = result.ok()
        if operation.definition.raw["operationId"] == "follow_job":
            continue
        count += 1
        for mode in GenerationMode:
            send(operation, mode, authorization, known, examples)
    return count


@pytest.mark.requirement("CARD-4")
def test_every_answer_is_one_that_the_document_names(schema, authorization, known):
    assert send_everything(schema, authorization, known, examples=EXAMPLES) > 35


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_every_answer_is_one_that_the_document_names_for_long(schema, authorization, known):
    assert send_everything(schema, authorization, known, examples=60) > 35
