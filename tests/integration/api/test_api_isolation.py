"""Nothing that a caller of one tenant asks returns, changes or reveals anything of another: over the whole OpenAPI, for every role."""

import json

import pytest

from controlplane.domain.identity import ROLES
from tests.integration.api.operations import NOTHING, OPERATIONS, documented, send
from tests.integration.api.scene import a_job, belongings, rows_of


@pytest.fixture
def where(api):
    return documented(api.openapi())


def test_every_operation_of_the_document_is_tried(where):
    assert set(OPERATIONS) == set(where)


def told(answer, ids):
    """What an answer says, with one name for the ids that were asked for."""
    text = answer.text
    for name, value in sorted(ids.items(), key=lambda pair: -len(pair[1])):
        # A tenant's name is too short to be looked for everywhere.
        text = text.replace(f"'{value}'" if name == "tenant_id" else value, f"<{name}>")
    if answer.headers.get("content-type") == "application/problem+json":
        body = json.loads(text)
        body["instance"] = ""
        text = json.dumps(body)
    headers = {name: value for name, value in answer.headers.items() if name != "content-length"}
    return answer.status_code, headers, text


@pytest.mark.requirement("LESSON-36", "LESSON-37")
@pytest.mark.parametrize("role", [*ROLES, "all"])
def test_what_is_anothers_is_answered_like_what_nobody_has(app, client, where, role):
    theirs = belongings(app, client, tenant="b")
    before = rows_of(app, "b")
    roles = tuple(ROLES) if role == "all" else (role,)
    stranger = client(*roles, tenant="a", name="stranger")
    differing = {}
    for name, operation in OPERATIONS.items():
        if operation.is_list:
            continue
        given = told(send(stranger, where[name], operation, theirs), theirs)
        nothing = told(send(stranger, where[name], operation, NOTHING), NOTHING)
        if given != nothing or given[0] < 400:
            differing[name] = (given, nothing)

    assert differing == {}
    assert rows_of(app, "b") == before


@pytest.mark.requirement("LESSON-36")
def test_lists_hold_nothing_of_others(app, client, where):
    theirs = belongings(app, client, tenant="b")
    before = rows_of(app, "b")
    stranger = client(*ROLES, tenant="a", name="stranger")
    names = {value for name, value in theirs.items() if name not in ("tenant_id", "path", "switch_id")}
    for name, operation in OPERATIONS.items():
        if not operation.is_list:
            continue
        answer = send(stranger, where[name], operation, NOTHING)
        assert not [value for value in names if value in answer.text], name
        assert '"b"' not in answer.text, name

    assert rows_of(app, "b") == before


def test_content_of_another_tenant_must_be_sent_again(app, client):
    theirs = belongings(app, client, tenant="b")
    stranger = client("submitter", tenant="a")

    begun = stranger.post("/v1/uploads", json={"sha256": theirs["content"], "size_bytes": 13}).json()

    assert not begun["is_complete"]
    assert begun["received_bytes"] == 0


def test_orders_to_many_leave_the_jobs_of_others_alone(app, client):
    theirs = belongings(app, client, tenant="b")
    before = rows_of(app, "b")
    stranger = client("operator", tenant="a")
    own = stranger.post("/v1/jobs", json=a_job()).json()["job_id"]
    ids = [own, theirs["ready_job_id"], NOTHING["job_id"]]

    items = stranger.post("/v1/jobs:bulk", json={"verb": "kill", "ids": ids}).json()["items"]
    found = stranger.post("/v1/jobs:bulk", json={"verb": "kill", "filter": {}, "dry_run": True}).json()

    assert [item["outcome"] for item in items] == ["done", "refused", "refused"]
    assert items[1]["problem"]["code"] == items[2]["problem"]["code"] == "not_found"
    assert found["matched"] == 1
    assert rows_of(app, "b") == before


@pytest.mark.parametrize("role", list(ROLES))
def test_a_role_does_what_it_may_and_each_refusal_goes_on_record(app, client, where, role):
    """Over the whole document: 403 and a row of the audit without the capability, anything else with it."""
    own = belongings(app, client, tenant="a")
    caller = client(role, tenant="a", name=f"the-{role}")
    wrong = {}
    for name, operation in OPERATIONS.items():
        is_able = not operation.is_platform and (not operation.needs or operation.needs in ROLES[role])
        if is_able and operation.needs == "key.manage" and name.startswith("revoke"):
            continue  # the last one that could look at it
        refused = refusals(app, f"the-{role}")
        answer = send(caller, where[name], operation, own)
        is_right = (answer.status_code == 403) is not is_able
        if not is_able and operation.needs:
            rows = refusals(app, f"the-{role}")
            is_right = is_right and len(rows) == len(refused) + 1
        if is_able and operation.status:
            is_right = answer.status_code in (operation.status, 409, 422)
        if not is_right:
            wrong[name] = (answer.status_code, answer.text[:300])

    assert wrong == {}


def refusals(app, principal):
    with app.store.read() as tx:
        from controlplane.domain.identity import EVERY_TENANT

        rows = tx.audits.page(scope=EVERY_TENANT, before=None, limit=500)
    return [row for row in rows if row.principal == principal and row.outcome == "refused"]
