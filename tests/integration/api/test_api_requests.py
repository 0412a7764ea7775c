"""Requests: carried out once, only on what was seen, page by page, within limits; refused in one form."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from controlplane.api.app import create_app
from controlplane.api.authenticate import Authenticator
from controlplane.bootstrap import open_app
from controlplane.handlers import control, repeats
from tests.integration.api.scene import a_job, belongings, finished_job

KEY = {"Idempotency-Key": "once"}


def jobs_of(client):
    return client.get("/v1/jobs").json()["items"]


def test_the_same_key_makes_one_job_and_gets_the_same_answer(client):
    person = client("submitter")

    first = person.post("/v1/jobs", json=a_job(), headers=KEY)
    again = person.post("/v1/jobs", json=a_job(), headers=KEY)

    assert (first.status_code, first.content) == (again.status_code, again.content)
    assert again.headers["Idempotency-Replayed"] == "true"
    assert len(jobs_of(person)) == 1


def test_the_same_key_for_something_else_is_refused(client):
    person = client("submitter")
    person.post("/v1/jobs", json=a_job(), headers=KEY)

    other = person.post("/v1/jobs", json=a_job(task="Something else?"), headers=KEY)

    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")


def test_a_key_is_its_callers_own(client):
    one, other = client("submitter", name="one"), client("submitter", name="other")
    stranger = client("submitter", tenant="b", name="one")

    made = {
        caller.post("/v1/jobs", json=a_job(), headers=KEY).json()["job_id"]
        for caller in (one, other, stranger)
    }

    assert len(made) == 3


def test_what_was_refused_may_be_tried_again_with_the_same_key(client):
    person = client("submitter")
    assert person.post("/v1/jobs", json=a_job(task_id="task_nowhere"), headers=KEY).status_code == 404

    assert person.post("/v1/jobs", json=a_job(task_id="task_nowhere"), headers=KEY).status_code == 404
    assert person.post("/v1/jobs", json=a_job(), headers=KEY).status_code == 201


def test_two_at_once_with_one_key_make_one_job(client):
    person = client("submitter")
    begin = threading.Barrier(6)

    def send(_):
        begin.wait()
        return person.post("/v1/jobs", json=a_job(), headers=KEY)

    with ThreadPoolExecutor(6) as threads:
        answers = list(threads.map(send, range(6)))

    assert {answer.status_code for answer in answers} <= {201, 409}
    assert all(answer.headers["Retry-After"] == "1" for answer in answers if answer.status_code == 409)
    assert len(jobs_of(person)) == 1


def test_a_crash_before_anything_was_done_lets_the_key_be_taken_over(app, client, monkeypatch):
    person = client("submitter")
    monkeypatch.setattr("controlplane.handlers.repeats.give_back", lambda *_: None)
    assert person.post("/v1/jobs", json=a_job(task_id="task_nowhere"), headers=KEY).status_code == 404
    assert person.post("/v1/jobs", json=a_job(task_id="task_nowhere"), headers=KEY).status_code == 409

    monkeypatch.setattr("controlplane.handlers.repeats._GIVEN_UP_MS", 0)

    assert person.post("/v1/jobs", json=a_job(task_id="task_nowhere"), headers=KEY).status_code == 404


def test_a_crash_after_it_was_done_is_said_and_does_not_do_it_again(client, monkeypatch):
    person = client("operator")
    job_id = person.post("/v1/jobs", json=a_job()).json()["job_id"]
    with monkeypatch.context() as crash:
        crash.setattr("controlplane.handlers.repeats.keep", lambda *_, **__: 1 / 0)
        answer = person.post(f"/v1/jobs/{job_id}/steer", json={"text": "look"}, headers=KEY)
        assert answer.status_code == 500
        assert "ZeroDivisionError" not in answer.text
    monkeypatch.setattr("controlplane.handlers.repeats._GIVEN_UP_MS", 0)

    again = person.post(f"/v1/jobs/{job_id}/steer", json={"text": "look"}, headers=KEY)

    assert (again.status_code, again.json()["code"]) == (409, "under_way")
    assert "Retry-After" not in again.headers
    receipts = person.get(f"/v1/jobs/{job_id}/receipts").json()["items"]
    assert [receipt["kind"] for receipt in receipts].count("job_steered") == 1


def test_who_was_overtaken_finishes_nothing(app, monkeypatch):
    """The key of a request that took too long was taken over: its commit is refused."""
    from controlplane.domain.identity import owner
    from controlplane.errors import Stale

    desk, caller = app.desk, owner("ada")
    slow = repeats.take(desk, caller=caller, key="k", request_digest="0" * 64)
    monkeypatch.setattr("controlplane.handlers.repeats._GIVEN_UP_MS", 0)
    repeats.take(desk, caller=caller, key="k", request_digest="0" * 64)

    with pytest.raises(Stale, match="taken over"), desk.store.write() as tx:
        repeats.mark(tx, slow)


def test_the_secret_of_a_key_is_told_once_and_kept_nowhere(client, tmp_path):
    admin = client("admin")
    wish = {"principal": "robot", "roles": ["submitter"]}

    secret = admin.post("/v1/keys", json=wish, headers=KEY).json()["key"]
    again = admin.post("/v1/keys", json=wish, headers=KEY).json()

    assert again["key"] is None
    assert secret not in admin.get("/v1/keys").text
    bare = secret.rpartition("_")[2].encode()
    assert all(bare not in path.read_bytes() for path in (tmp_path / "home").glob("custody.db*"))


def test_an_order_holds_only_for_what_was_seen(app, client):
    person = client("operator")
    made = person.post("/v1/jobs", json=a_job())
    address, tag = f"/v1/jobs/{made.json()['job_id']}", made.headers["ETag"]
    assert person.get(address).headers["ETag"] == tag
    person.post(f"{address}/steer", json={"text": "look"})

    late = person.post(f"{address}/kill", headers={"If-Match": tag})
    weak = person.post(f"{address}/kill", headers={"If-Match": f"W/{person.get(address).headers['ETag']}"})

    assert (late.status_code, late.json()["code"]) == (412, "not_as_seen")
    assert weak.status_code == 412
    assert person.get(address).json()["state"] == "queued"
    now = person.get(address).headers["ETag"]
    done = person.post(f"{address}/kill", headers={"If-Match": f'"other", {now}'})
    assert (done.status_code, done.json()["state"]) == (200, "stopped")


def test_a_job_that_only_records_keeps_its_tag(app, client):
    from tests.integration.controlplane.hands import Hands, asked

    person = client("operator")
    job_id = person.post("/v1/jobs", json=a_job()).json()["job_id"]
    hands = Hands(gateway=app.gateway(), job_id=job_id)
    hands.claim()
    hands.record(asked(0))
    tag = person.get(f"/v1/jobs/{job_id}").headers["ETag"]
    hands.record(asked(1))

    assert person.get(f"/v1/jobs/{job_id}").headers["ETag"] == tag


def test_a_list_is_walked_through_by_its_cursors(client):
    person = client("submitter")
    made = [person.post("/v1/jobs", json=a_job()).json()["job_id"] for _ in range(5)]
    seen, cursor = [], None
    while True:
        params = {"limit": 2} | ({"cursor": cursor} if cursor else {})
        page = person.get("/v1/jobs", params=params).json()
        seen += [item["job_id"] for item in page["items"]]
        cursor = page["next"]
        if cursor is None:
            break

    assert sorted(seen) == sorted(made)
    assert len(seen) == 5


LISTS = ["jobs", "tasks", "audit", "keys", "tenants", "permissions", "budgets"]
NO_CURSORS = ["x", "W10", "eyJhIjoxfQ", "bnVsbA", "WzEsMiwzXQ", "[]", "😀", "WyJqb2JzIiwgLTFd", "Z" * 900]


def test_what_no_answer_gave_is_no_cursor(client):
    person = client("admin", "operator")
    for address in LISTS:
        for cursor in NO_CURSORS:
            answer = person.get(f"/v1/{address}", params={"cursor": cursor})
            assert (answer.status_code, answer.json()["code"]) == (400, "bad_cursor"), (address, cursor)


def test_texts_are_withheld_unless_they_are_asked_for_by_who_may(app, client):
    person, viewer = client("submitter"), client("viewer")
    job_id = finished_job(app, person, task="the secret question", params={"hint": "secret hint"})
    addresses = [
        f"/v1/jobs/{job_id}{part}" for part in ("", "/trace", "/result", "/receipts", "/artifacts", "/stream")
    ]

    for address in (*addresses, "/v1/jobs", "/v1/tasks"):
        assert "secret" not in viewer.get(address).text, address
        assert "out/made" not in viewer.get(address).text, address
        assert viewer.get(address, params={"content": True}).status_code == 403, address
        assert person.get(address, params={"content": True}).status_code == 200, address
    whole = "".join(person.get(address, params={"content": True}).text for address in addresses)
    assert all(
        secret in whole
        for secret in ("the secret question", "secret hint", "secret_of_a_cell", "secret of an answer")
    )
    mark = viewer.get(f"/v1/jobs/{job_id}").json()["task"]
    assert mark["withheld"] is True
    assert mark["length_bytes"] == len("the secret question")


def test_many_jobs_are_ordered_by_a_filter_that_fits_as_many_as_was_seen(client):
    person = client("operator")
    for _ in range(3):
        person.post("/v1/jobs", json=a_job(labels={"batch": "x"}))
    person.post("/v1/jobs", json=a_job())
    order = {"verb": "kill", "filter": {"labels": ["batch=x"]}, "reason": "enough"}

    dry = person.post("/v1/jobs:bulk", json={**order, "dry_run": True}).json()
    blind = person.post("/v1/jobs:bulk", json=order)
    person.post("/v1/jobs", json=a_job(labels={"batch": "x"}))
    late = person.post("/v1/jobs:bulk", json={**order, "expect": 3})
    done = person.post("/v1/jobs:bulk", json={**order, "expect": 4}).json()

    assert (dry["matched"], {item["outcome"] for item in dry["items"]}) == (3, {"would"})
    assert blind.status_code == 422
    assert late.status_code == 412
    assert [item["outcome"] for item in done["items"]] == ["done"] * 4
    assert {item["state"] for item in done["items"]} == {"stopped"}
    assert sum(job["state"] == "queued" for job in jobs_of(person)) == 1
    assert "bulk.kill" in person.get("/v1/audit").text


@pytest.mark.parametrize(
    ("method", "address", "sent", "status", "code"),
    [
        ("GET", "/v1/nowhere", {}, 404, "not_found"),
        ("PUT", "/v1/jobs", {"json": {}}, 405, "wrong_method"),
        (
            "POST",
            "/v1/jobs",
            {"content": b"{", "headers": {"Content-Type": "application/json"}},
            400,
            "bad_request",
        ),
        (
            "POST",
            "/v1/jobs",
            {"content": b"x=1", "headers": {"Content-Type": "text/plain"}},
            415,
            "wrong_media_type",
        ),
        ("POST", "/v1/jobs", {"json": {"task": ""}}, 422, "invalid_request"),
        (
            "POST",
            "/v1/jobs",
            {"content": b"[" * 100_000, "headers": {"Content-Type": "application/json"}},
            400,
            "bad_request",
        ),
        ("POST", "/v1/jobs", {"json": a_job(params={"a": "\x00"})}, 422, "invalid_request"),
        (
            "POST",
            "/v1/jobs",
            {"content": b'{"task": "\\ud800"}', "headers": {"Content-Type": "application/json"}},
            422,
            "invalid_request",
        ),
        (
            "POST",
            "/v1/jobs",
            {"content": b'{"params": {"x": NaN}}', "headers": {"Content-Type": "application/json"}},
            422,
            "invalid_request",
        ),
        ("POST", "/v1/jobs", {"json": a_job(unknown=1)}, 422, "invalid_request"),
        (
            "POST",
            "/v1/jobs",
            {"json": a_job(sub_model="http://169.254.169.254/v1#x")},
            422,
            "invalid_request",
        ),
        ("POST", "/v1/jobs", {"json": a_job(sandbox={"memory_bytes": 2**40})}, 422, "invalid_request"),
        (
            "POST",
            "/v1/jobs",
            {"json": a_job(), "headers": {"Idempotency-Key": "x" * 201}},
            422,
            "invalid_request",
        ),
        ("GET", "/v1/jobs?limit=0", {}, 422, "invalid_request"),
        ("GET", "/v1/jobs/%00", {}, 422, "invalid_request"),
    ],
)
def test_every_refusal_has_the_same_form(client, method, address, sent, status, code):
    answer = client("submitter").request(method, address, **sent)

    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    assert answer.headers["Content-Type"] == "application/problem+json"
    body = answer.json()
    assert body["status"] == status
    assert body["type"] == f"urn:custody:problem:{code}"
    assert body["title"]
    assert body["detail"]


def test_a_defect_is_an_id_that_the_log_knows(client, monkeypatch, caplog):
    monkeypatch.setattr("controlplane.handlers.guards.tag_of", lambda *_, **__: {}["a secret"])

    answer = client("viewer").get("/v1/jobs/job_1")

    assert (answer.status_code, answer.json()["code"]) == (500, "defect")
    assert "secret" not in answer.text
    assert answer.json()["error_id"] in caplog.text


def test_a_body_is_bounded_whether_it_says_its_length_or_not(client, settings):
    person = client("submitter")
    body = b'{"task": "' + b"x" * settings.max_body_bytes + b'"}'
    headers = {"Content-Type": "application/json"}

    said = person.post("/v1/jobs", content=body, headers=headers)
    unsaid = person.post("/v1/jobs", content=iter([body[:1000], body[1000:]]), headers=headers)

    for answer in (said, unsaid):
        assert (answer.status_code, answer.json()["code"]) == (413, "too_large")


def test_a_caller_that_asks_too_often_is_told_when_to_come_back(slow_settings, tmp_path, key, app, client):
    from starlette.testclient import TestClient

    headers = {"Authorization": f"Bearer {key('viewer', name='hasty')}"}
    other = {"Authorization": f"Bearer {key('viewer', name='calm')}"}
    app.settings = slow_settings
    with TestClient(create_app(app, auth=Authenticator(desk=app.desk))) as asking:
        answers = [asking.get("/v1/whoami", headers=headers) for _ in range(3)]

        assert [answer.status_code for answer in answers] == [200, 200, 429]
        assert int(answers[2].headers["Retry-After"]) >= 1
        assert answers[2].json()["code"] == "too_many_requests"
        assert asking.get("/v1/whoami", headers=other).status_code == 200


def test_when_everybody_is_at_work_callers_are_sent_away(app, api, client):
    import anyio

    from controlplane.api.pool import Pool
    from controlplane.api.problems import Busy

    async def crowd():
        pool = Pool(threads=1, waiting=1)
        begun, go_on = threading.Event(), threading.Event()

        def work():
            begun.set()
            go_on.wait(10)

        async with anyio.create_task_group() as group:
            group.start_soon(pool.run, work)
            group.start_soon(pool.run, work)
            while not begun.is_set() or pool.under_way < 2:
                await anyio.lowlevel.checkpoint()
            with pytest.raises(Busy):
                await pool.run(work)
            go_on.set()
        assert pool.under_way == 0

    anyio.run(crowd)


def test_a_store_that_cannot_be_asked_is_not_ready_and_says_when_to_come_back(app, client, monkeypatch):
    from controlplane.errors import Unavailable

    person = client("viewer")
    assert client().get("/readyz").json() == {"status": "ok", "checks": {"store": "ok"}}

    def gone(*_, **__):
        raise Unavailable("the database did not answer")

    monkeypatch.setattr(type(app.store), "read", gone)

    ready, job = client().get("/readyz"), person.get("/v1/jobs/job_1")
    assert (ready.status_code, ready.json()["status"]) == (503, "failing")
    assert client().get("/healthz").status_code == 200
    assert (job.status_code, job.json()["code"], job.headers["Retry-After"]) == (503, "unavailable", "1")


def test_orders_reach_jobs_in_every_state(app, client):
    person = client("operator")
    own = belongings(app, client, tenant="a")
    ready = f"/v1/jobs/{own['ready_job_id']}"

    assert person.post(f"{ready}/pause").json()["state"] == "held"
    assert person.post(f"{ready}/resume").json()["state"] == "queued"
    assert person.post(f"{ready}/steer", json={"text": "look"}).json()["steer_id"] > 0
    assert person.post(f"/v1/jobs/{own['asking_job_id']}/answer", json={"value": 5}).status_code == 422
    answered = person.post(f"/v1/jobs/{own['asking_job_id']}/answer", json={"value": "this one"})
    assert answered.json()["state"] == "queued"
    # What has ended is left as it is.
    assert person.post(f"/v1/jobs/{own['job_id']}/kill").json()["state"] == "succeeded"
    assert len(person.get(f"/v1/jobs/{own['job_id']}/attempts").json()["items"]) == 1


def test_an_order_waits_for_nobody_who_holds_the_event_loop(app, client, monkeypatch):
    """While one request waits for the store, another is answered."""
    person = client("operator")
    job_id = person.post("/v1/jobs", json=a_job()).json()["job_id"]
    begun, go_on = threading.Event(), threading.Event()
    stop = control.stop

    def slow(*args, **kwargs):
        begun.set()
        assert go_on.wait(10)
        return stop(*args, **kwargs)

    monkeypatch.setattr(control, "stop", slow)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(person.post, f"/v1/jobs/{job_id}/stop")
        assert begun.wait(10)
        assert person.get(f"/v1/jobs/{job_id}").status_code == 200
        go_on.set()
        assert waiting.result().status_code == 200


def test_an_app_opened_again_knows_its_keys_and_its_answers(settings, app, client):
    person = client("submitter", name="p")
    first = person.post("/v1/jobs", json=a_job(), headers=KEY)
    second = open_app(settings)
    try:
        from starlette.testclient import TestClient

        with TestClient(create_app(second, auth=Authenticator(desk=second.desk))) as other:
            again = other.post(
                "/v1/jobs", json=a_job(), headers={**KEY, "Authorization": person.headers["Authorization"]}
            )
        assert again.content == first.content
    finally:
        second.close()
