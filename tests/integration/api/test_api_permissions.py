"""Permissions over the API: given and revoked by those who may, in force with the next act, on both databases."""

from datetime import UTC, datetime, timedelta

import pytest
from starlette.testclient import TestClient

from controlplane.api.app import create_app
from controlplane.api.authenticate import Authenticator
from controlplane.bootstrap import open_app
from controlplane.config import Settings
from controlplane.domain.identity import owner
from controlplane.handlers import keys
from tests.integration.api.scene import a_job, belongings, evidence, rows_of


@pytest.fixture(params=["sqlite", "postgresql"])
def app(request, tmp_path):
    url = None
    if request.param == "postgresql":
        from tests.servers import postgres_database

        url = postgres_database()
    opened = open_app(Settings(home=tmp_path / "home", database_url=url, api_rate=1e6, api_burst=1e6))
    yield opened
    opened.close()


@pytest.fixture
def client(app):
    api = create_app(app, auth=Authenticator(desk=app.desk))

    def make(*roles, tenant="a", name=""):
        principal = name or "-".join(roles)
        _, whole = keys.issue(
            app.desk, principal=principal, roles=roles, tenant_id=tenant, caller=owner("ada")
        )
        return TestClient(api, headers={"Authorization": f"Bearer {whole}"}, raise_server_exceptions=False)

    return make


def give(client, **fields):
    wish = {"subject": "vera", "capability": "job.stop", "effect": "allow", **fields}
    return client.post("/v1/permissions", json=wish)


def test_what_is_given_holds_from_the_next_act_until_it_is_revoked(client):
    admin, vera = client("admin"), client("viewer", name="vera")
    job = f"/v1/jobs/{admin.post('/v1/jobs', json=a_job()).json()['job_id']}"
    assert vera.post(f"{job}/pause").status_code == 403

    given = give(admin).json()
    assert vera.post(f"{job}/pause").json()["state"] == "held"
    revoked = admin.delete(f"/v1/permissions/{given['permission_id']}").json()
    assert revoked["revoked_by"] == "admin"
    assert vera.post(f"{job}/kill").status_code == 403

    acts = [(row["action"], row["outcome"]) for row in admin.get("/v1/audit").json()["items"]]
    assert ("permission.give", "done") in acts
    assert ("permission.revoke", "done") in acts
    assert acts.count(("job.stop", "refused")) == 2


def test_constraints_look_at_the_job(client):
    admin, vera = client("admin"), client("viewer", name="vera")
    give(admin, constraints={"labels": {"env": "test"}})
    for env, status in (("test", 200), ("prod", 403)):
        made = admin.post("/v1/jobs", json=a_job(labels={"env": env})).json()
        assert vera.post(f"/v1/jobs/{made['job_id']}/stop").status_code == status


def test_a_denial_wins_over_a_role_and_reaches_a_role(client):
    admin, sam = client("admin"), client("submitter", name="sam")
    give(
        admin,
        subject="role:submitter",
        capability="job.submit",
        effect="deny",
        constraints={"models": ["costly:model"]},
    )

    assert sam.post("/v1/jobs", json=a_job()).status_code == 201
    refused = sam.post("/v1/jobs", json=a_job(sub_model="costly:model"))
    assert refused.status_code == 403
    assert "prm_" in refused.json()["detail"]


def test_a_permission_ends_by_the_clock_of_the_database(client, app):
    admin, vera = client("admin"), client("viewer", name="vera")
    job = f"/v1/jobs/{admin.post('/v1/jobs', json=a_job()).json()['job_id']}"
    past = (datetime.now(UTC) - timedelta(seconds=1)).isoformat()
    assert give(admin, expires_at=past).status_code == 422
    given = give(admin, expires_at=(datetime.now(UTC) + timedelta(hours=1)).isoformat()).json()
    assert vera.post(f"{job}/pause").status_code == 200

    import sqlalchemy as sa

    from controlplane.adapters.schema_access import permission

    with app.store.write() as tx:
        tx.permissions._connection.execute(
            sa.update(permission)
            .where(permission.c.permission_id == given["permission_id"])
            .values(expires_ms=tx.now_ms)
        )
    assert vera.post(f"{job}/kill").status_code == 403


def test_nobody_gives_more_than_they_have(client):
    admin, helper = client("admin"), client("viewer", name="helper")
    give(admin, subject="helper", capability="key.manage")

    assert give(helper, capability="job.stop").status_code == 422
    assert give(helper, capability="job.read").status_code == 201
    assert helper.post("/v1/keys", json={"principal": "x", "roles": ["admin"]}).status_code == 422
    assert helper.post("/v1/keys", json={"principal": "x", "roles": ["viewer"]}).status_code == 201


def test_a_suspended_tenant_looks_and_stops_and_begins_nothing(client):
    platform, person = client("admin", tenant=""), client("operator", tenant="t")
    job = f"/v1/jobs/{person.post('/v1/jobs', json=a_job()).json()['job_id']}"
    assert platform.patch("/v1/tenants/t", json={"is_suspended": True}).json()["is_suspended"]

    assert person.post("/v1/jobs", json=a_job()).status_code == 403
    assert person.get(job).status_code == 200
    assert person.post(f"{job}/kill").status_code == 200


def test_budgets_are_set_by_those_who_look_after_all(client):
    platform, admin = client("admin", tenant=""), client("admin", tenant="t")

    assert admin.put("/v1/budgets/t", json={"tokens": 10**9}).status_code == 403
    done = platform.put("/v1/budgets/t", json={"tokens": 1_000, "cost_usd": "2.5"})
    assert done.json()["limits"]["cost_usd"] == "2.5"
    assert admin.get("/v1/budgets").json()["items"][0]["limits"]["tokens"] == 1_000
    assert platform.put("/v1/budgets/nobody", json={}).status_code == 404


def test_one_tenant_tells_and_changes_nothing_of_another(app, client):
    theirs = belongings(app, client, tenant="b")
    before = rows_of(app, "b")
    stranger = client("admin", "operator", tenant="a")

    for address in (f"/v1/jobs/{theirs['job_id']}", f"/v1/tasks/{theirs['task_id']}"):
        assert stranger.get(address).status_code == 404
    wish = a_job(evidence=[{"digest": theirs["digest"]}])
    assert stranger.post("/v1/jobs", json=wish).status_code == 404
    assert stranger.post(f"/v1/jobs/{theirs['ready_job_id']}/kill").status_code == 404
    assert stranger.get("/v1/jobs").json()["items"] == []
    assert rows_of(app, "b") == before


def test_requests_are_carried_out_once_and_evidence_is_used(client):
    person = client("submitter")
    wish = a_job(evidence=[{"digest": evidence(person, b"the notes")}])

    first = person.post("/v1/jobs", json=wish, headers={"Idempotency-Key": "k"})
    assert first.status_code == 201, first.text
    again = person.post("/v1/jobs", json=wish, headers={"Idempotency-Key": "k"})
    late = person.post(f"/v1/jobs/{first.json()['job_id']}/kill", headers={"If-Match": '"0-0"'})

    assert first.content == again.content
    assert late.status_code == 412
    assert len(person.get("/v1/jobs").json()["items"]) == 1
