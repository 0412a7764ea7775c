"""Both clients over a real server: every verb reads what the server really answers."""

import asyncio
import hashlib
from datetime import UTC, datetime, timedelta

import pytest

from controlplane.api.bodies import JobFilter, SubmitRequest, Withheld
from controlplane.api.bodies_admin import (
    KeyRequest,
    LimitsBody,
    PermissionRequest,
    SwitchRequest,
    TenantChange,
    TenantRequest,
)
from controlplane.api.bodies_orders import BulkRequest, RetuneRequest
from controlplane.client import AsyncClient, Client
from controlplane.client.errors import BadRequest, Conflict, Forbidden, Missing
from tests.integration.api.scene import a_job, asking_job, finished_job
from tests.integration.controlplane.hands import Hands


def request(**fields):
    return SubmitRequest.model_validate(a_job(**fields))


class Raw:
    """As the scenes want it: posts JSON, gives JSON."""

    def __init__(self, client):
        self._client = client

    def post(self, path, json):
        return self._client._http.post(path, json=json)


def test_a_job_is_submitted_once_however_often_it_is_sent(client):
    first = client.submit(request(), key="one")
    again = client.submit(request(), key="one")

    assert first.job_id == again.job_id
    assert len(list(client.jobs())) == 1


def test_lists_turn_their_pages_by_themselves(client):
    made = [client.submit(request(labels={"n": str(number)})).job_id for number in range(7)]

    assert [item.job_id for item in client.jobs(limit=2)] == made[::-1]
    assert [item.job_id for item in client.jobs(JobFilter(labels=("n=3",)), limit=2)] == [made[3]]
    assert list(client.jobs(JobFilter(states=("failed",)))) == []


def test_texts_are_withheld_unless_asked_for(client):
    job_id = client.submit(request()).job_id

    assert isinstance(client.job(job_id).task, Withheld)
    assert client.job(job_id, content=True).task == "What is in the evidence?"


def test_orders_are_carried_out_and_read(app, client):
    job_id = client.submit(request()).job_id

    assert client.steer(job_id, "look there").steer_id == 1
    assert client.pause(job_id).state == "held"
    assert client.resume(job_id).state == "queued"
    retuned = client.retune(job_id, RetuneRequest(budget={"max_subcalls": 99}, reason="more"))
    assert retuned.job_id == job_id
    assert client.stop(job_id, reason="enough").state == "stopped"
    assert client.wait(job_id, timeout=5).state == "stopped"
    assert client.result(job_id).state == "stopped"
    assert client.case(job_id).choices
    assert next(client.receipts(job_id)).kind == "job_submitted"


def test_a_change_insists_on_what_was_seen(client):
    job_id = client.submit(request()).job_id
    seen = client.versioned_job(job_id)
    client.pause(job_id)

    with pytest.raises(Conflict):
        client.stop(job_id, if_match=seen.etag)

    assert client.job(job_id).state == "held"


def test_many_jobs_are_ordered_after_a_look(client):
    for _ in range(3):
        client.submit(request(labels={"batch": "x"}))
    where = JobFilter(labels=("batch=x",))

    looked = client.bulk(BulkRequest(verb="stop", filter=where, dry_run=True))
    done = client.bulk(BulkRequest(verb="stop", filter=where, expect=looked.matched))

    assert looked.matched == 3
    assert {item.outcome for item in looked.items} == {"would"}
    assert {item.state for item in done.items} == {"stopped"}


def test_files_and_folders_become_evidence_and_are_sent_once(client, tmp_path):
    folder = tmp_path / "logs"
    (folder / "deep").mkdir(parents=True)
    (folder / "a.log").write_bytes(b"a" * 6_000_000)
    (folder / "deep" / "b.log").write_bytes(b"b")
    (folder / "link").symlink_to(folder / "a.log")
    told = []

    made = client.bring(folder, on_sent=lambda sent, total, path: told.append((sent, total, path)))
    again = client.bring(folder)

    assert (made.kind, made.files, made.name) == ("tree", 2, "logs")
    assert again.digest == made.digest
    assert client.evidence(made.digest).size_bytes == 6_000_001
    assert told[-1][:2] == (6_000_001, 6_000_001)
    assert [sent for sent, _, _ in told] == sorted(sent for sent, _, _ in told)


def test_an_empty_file_is_evidence(client, tmp_path):
    (tmp_path / "empty.txt").write_bytes(b"")

    assert client.bring(tmp_path / "empty.txt").size_bytes == 0


def test_artifacts_come_back_with_their_content_checked(app, client, tmp_path):
    job_id = finished_job(app, Raw(client))
    (artifact,) = client.artifacts(job_id)

    place = client.download(job_id, artifact, tmp_path / "made.txt")

    assert place.read_bytes() == b"made by a job"
    wrong = artifact.model_copy(update={"sha256": hashlib.sha256(b"else").hexdigest()})
    with pytest.raises(Exception, match="not what it should be"):
        client.download(job_id, wrong, tmp_path / "other.txt")
    assert not (tmp_path / "other.txt").exists()


def test_a_trace_is_read_and_followed_to_its_end(app, client):
    job_id = finished_job(app, Raw(client))

    trace = list(client.trace(job_id, content=True))
    updates = list(client.follow(job_id, content=True))

    assert [update.event for update in updates if update.event] == trace
    assert updates[-1].job is not None
    assert updates[-1].job.state == "succeeded"


def test_the_trace_of_a_working_job_ends_where_it_is(app, client):
    job_id = client.submit(request()).job_id
    Hands(gateway=app.gateway(), job_id=job_id).claim()

    assert list(client.trace(job_id)) == []


def test_questions_are_asked_and_answered(app, client):
    job_id = asking_job(app, Raw(client))

    (asked,) = client.questions(job_id, content=True)
    client.answer(job_id, "the second", question=asked.question)

    assert [one.is_answered for one in client.questions(job_id)] == [True]
    assert client.job(job_id).state == "queued"


def test_keys_tenants_permissions_budgets_and_the_audit(client, address, key):
    with Client(address, key=key("admin", tenant="")) as everyone:
        tenant = everyone.make_tenant(TenantRequest(tenant_id="b", name="B"))
        assert everyone.change_tenant("b", TenantChange(max_jobs=3)).max_jobs == 3
        assert tenant.tenant_id in {one.tenant_id for one in everyone.tenants()}
        assert everyone.set_budget("b", LimitsBody(tokens=5)).limits.tokens == 5
        assert "b" in {one.tenant_id for one in everyone.budgets()}
    ends = datetime.now(UTC) + timedelta(days=1)
    made = client.make_key(KeyRequest(principal="eve", roles=frozenset({"viewer"}), expires_at=ends))
    assert made.key is not None
    with Client(address, key=made.key) as eve:
        assert eve.whoami().name == "eve"
        with pytest.raises(Forbidden):
            eve.submit(request())
        assert client.revoke_key(made.key_id).revoked_at is not None
        with pytest.raises(Forbidden, match="not valid"):
            eve.whoami()
    wish = PermissionRequest(subject="role:viewer", capability="job.stop", effect="deny")
    permission = client.grant(wish)
    assert client.revoke_permission(permission.permission_id).revoked_at is not None
    assert permission.permission_id in {one.permission_id for one in client.permissions()}
    assert "key.issue" in {one.action for one in client.audit(limit=2)}


def test_switches_workers_findings_monitors_and_health(client):
    job_id = client.submit(request()).job_id
    switch = client.engage(SwitchRequest(scope_kind="job", scope_id=job_id, reason="for a test"))

    assert [one.order_id for one in client.switches()] == [switch.order_id]
    assert client.release(switch.order_id, reason="over").released_at is not None
    assert list(client.switches()) == []
    assert list(client.workers()) == []
    assert list(client.findings()) == []
    assert client.monitors().queue_depth >= 0
    assert client.health().status == "ok"
    assert client.readiness().checks["store"] == "ok"
    assert client.version().api == "v1"


def test_refusals_say_what_happened_and_what_to_do(client):
    with pytest.raises(Missing, match="there is no job 'job_nobody'") as missing:
        client.job("job_nobody")
    with pytest.raises(BadRequest, match=r"query\.label") as bad:
        client.do(_list_with_a_bad_label())

    assert missing.value.problem is not None
    assert missing.value.problem.code == "not_found"
    assert bad.value.problem is not None
    assert bad.value.problem.errors


def _list_with_a_bad_label():
    from controlplane.api.bodies import JobItem, Page
    from controlplane.client.calls import body_as, get

    return get("/v1/jobs", body_as(Page[JobItem]), {"label": "no-equals-sign"})


def test_nothing_of_another_tenant_is_there(client, address, key):
    job_id = client.submit(request()).job_id

    with Client(address, key=key("admin", "operator", tenant="b")) as other:
        assert list(other.jobs()) == []
        for ask in (other.job, other.stop, other.result, other.case):
            with pytest.raises(Missing):
                ask(job_id)


def test_the_asynchronous_client_does_the_same(address, key, tmp_path):
    (tmp_path / "notes.txt").write_text("pump\n")

    async def everything():
        async with AsyncClient(address, key=key("admin", "operator")) as client:
            brought = await client.bring(tmp_path / "notes.txt")
            wanted = request(evidence=[{"digest": brought.digest}])
            made = [(await client.submit(wanted)).job_id for _ in range(3)]
            listed = [item.job_id async for item in client.jobs(limit=1)]
            stopped = await client.stop(made[0])
            ended = await client.wait(made[0], timeout=5)
            updates = [update async for update in client.follow(made[0])]
            with pytest.raises(Missing):
                await client.job("job_nobody")
            return made, listed, stopped.state, ended.state, updates

    made, listed, stopped, ended, updates = asyncio.run(everything())

    assert listed == made[::-1]
    assert (stopped, ended) == ("stopped", "stopped")
    assert updates[-1].job.state == "stopped"


def test_a_stream_goes_on_when_the_server_was_restarted(app, address, client):
    """The connection is cut under the follower; it comes back behind the last event that it saw."""
    job_id = finished_job(app, Raw(client))
    whole = [update.event for update in client.follow(job_id) if update.event]
    cut = Cutting(client, after_lines=4)

    with Client(address, key=client._http.headers["Authorization"].split()[1], transport=cut) as other:
        seen = [update.event for update in other.follow(job_id) if update.event]

    assert seen == whole
    assert cut.connections > 1
    assert cut.last_ids[1:] == ["0"]


class Cutting:
    """A transport that breaks the first connection of a stream after some lines of it."""

    def __init__(self, client, *, after_lines):
        import httpx2

        self._inner = httpx2.HTTPTransport()
        self._after = after_lines
        self._client = client
        self.connections = 0
        self.last_ids = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._inner.close()

    def close(self):
        self._inner.close()

    def handle_request(self, sent):
        import httpx2

        answer = self._inner.handle_request(sent)
        if not sent.url.path.endswith("/stream"):
            return answer
        self.connections += 1
        self.last_ids.append(sent.headers.get("last-event-id"))
        if self.connections > 1:
            return answer
        lines = b"".join(answer.stream).splitlines(keepends=True)[: self._after]
        answer.close()

        class Broken(httpx2.SyncByteStream):
            def __iter__(self):
                yield b"".join(lines)
                raise httpx2.ReadError("cut")

        return httpx2.Response(200, headers=answer.headers, stream=Broken())
