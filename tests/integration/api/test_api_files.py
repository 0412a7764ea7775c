"""Files: sent in pieces that may be interrupted, checked by their hash, made evidence of by who owns them."""

import hashlib
import io
import tarfile
from pathlib import Path

import pytest

from tests.integration.api.scene import a_job, evidence, finished_job, upload

PIECE = {"Content-Type": "application/octet-stream"}


def begin(client, content, **fields):
    wish = {"sha256": hashlib.sha256(content).hexdigest(), "size_bytes": len(content), **fields}
    return client.post("/v1/uploads", json=wish)


def send(client, upload_id, content, offset):
    return client.patch(
        f"/v1/uploads/{upload_id}", content=content, headers={**PIECE, "Upload-Offset": str(offset)}
    )


def test_an_interrupted_upload_goes_on_where_it_was(client):
    person, content = client("submitter"), b"0123456789" * 1_000
    upload_id = begin(person, content).json()["upload_id"]
    send(person, upload_id, content[:4_000], 0)

    again = begin(person, content).json()
    wrong = send(person, upload_id, content[5_000:], 5_000)
    stands = person.get(f"/v1/uploads/{upload_id}")
    rest = send(person, upload_id, content[4_000:], 4_000)

    assert (again["upload_id"], again["is_complete"]) == (upload_id, False)
    assert (wrong.status_code, wrong.json()["code"]) == (409, "stale")
    assert stands.headers["Upload-Offset"] == "4000"
    assert rest.json()["is_complete"]
    assert begin(person, content).json()["is_complete"]
    assert send(person, upload_id, b"more", len(content)).status_code == 422


def test_what_was_sent_must_have_the_hash_that_was_announced(app, client):
    person = client("submitter")
    upload_id = begin(person, b"honest").json()["upload_id"]

    lied = send(person, upload_id, b"hostil", 0)

    assert lied.status_code == 422
    assert "was dropped" in lied.json()["detail"]
    assert person.get(f"/v1/uploads/{upload_id}").status_code == 404
    assert app.evidence.inbox.find(hashlib.sha256(b"hostil").hexdigest()) is None


def test_no_more_is_taken_than_was_announced(client):
    person = client("submitter")
    upload_id = begin(person, b"short").json()["upload_id"]

    assert send(person, upload_id, b"short and more", 0).status_code == 422
    assert send(person, upload_id, b"short", 0).json()["is_complete"]


def test_a_tenant_brings_in_as_much_as_its_quota(client, app):
    from dataclasses import replace

    app.settings = replace(app.settings, upload_quota_bytes=10)
    person, other = client("submitter"), client("submitter", tenant="b")
    upload(person, b"12345678")

    assert (begin(person, b"abc").status_code, begin(person, b"abc").json()["code"]) == (409, "over_budget")
    assert begin(person, b"ab").status_code == 200
    assert begin(other, b"abc").status_code == 200


def test_an_upload_that_was_left_is_dropped(app, client, monkeypatch):
    person = client("submitter")
    upload_id = begin(person, b"left behind").json()["upload_id"]
    send(person, upload_id, b"left", 0)
    monkeypatch.setattr("controlplane.handlers.uploads.KEPT_MS", -1)

    begin(person, b"another")

    assert person.get(f"/v1/uploads/{upload_id}").status_code == 404
    assert app.evidence.inbox.received_bytes(upload_id) == 0


def test_an_empty_file_is_complete_at_once(client):
    assert begin(client("submitter"), b"").json()["is_complete"]


def test_a_job_uses_evidence_that_was_brought_in(app, client):
    person = client("submitter")
    digest = evidence(person, b"the notes")

    made = person.post("/v1/jobs", json=a_job(evidence=[{"digest": digest}]))

    (ref,) = app.job(made.json()["job_id"]).spec.input_artifacts
    assert Path(ref.location).read_bytes() == b"the notes"
    # Where it lies on the server is nobody's business.
    shown = person.get(f"/v1/jobs/{made.json()['job_id']}", params={"content": True})
    assert str(app.settings.home) not in shown.text
    assert shown.json()["spec"]["input_artifacts"][0]["name"] == "notes.txt"


def test_different_content_of_the_same_size_is_different_evidence(app, client):
    person = client("submitter")
    places = set()
    for content in (b"aaaa", b"bbbb"):
        digest = evidence(person, content)
        job_id = person.post("/v1/jobs", json=a_job(evidence=[{"digest": digest}])).json()["job_id"]
        (ref,) = app.job(job_id).spec.input_artifacts
        places.add(ref.location)
        assert Path(ref.location).read_bytes() == content

    assert len(places) == 2


def test_an_archive_is_unpacked_and_several_files_are_a_folder(client):
    person = client("submitter")
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name in ("a.txt", "b/c.txt"):
            entry = tarfile.TarInfo(name)
            entry.size = 3
            archive.addfile(entry, io.BytesIO(b"abc"))
    files = [{"path": name, "sha256": upload(person, name.encode())} for name in ("x", "y/z")]

    tree = person.get(f"/v1/evidence/{evidence(person, packed.getvalue(), name='notes.tar.gz')}").json()
    folder = person.post("/v1/evidence", json={"name": "folder", "files": files}).json()
    plain = {"name": "p.tar.gz", "plain": True}
    kept = person.post(
        "/v1/evidence",
        json={**plain, "files": [{"path": "p.tar.gz", "sha256": upload(person, packed.getvalue())}]},
    ).json()

    assert (tree["kind"], tree["files"]) == ("tree", 2)
    assert (folder["kind"], folder["files"]) == ("tree", 2)
    assert (kept["kind"], kept["files"]) == ("file", 1)


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/../../b", "C:/x", "a//b", ".", "a\\..\\b"])
def test_no_path_leads_out_of_the_evidence(client, path):
    person = client("submitter")
    digest = upload(person, b"x")
    files = [{"path": path, "sha256": digest}, {"path": "ok", "sha256": digest}]

    assert person.post("/v1/evidence", json={"name": "e", "files": files}).status_code == 422


def test_a_file_cannot_be_a_folder_too(client):
    person = client("submitter")
    digest = upload(person, b"x")
    files = [{"path": path, "sha256": digest} for path in ("a", "a/b")]

    assert person.post("/v1/evidence", json={"name": "e", "files": files}).status_code == 422


def test_a_job_cannot_name_a_place_on_the_server(client):
    person = client("submitter")
    place = {"name": "e", "kind": "file", "location": "/etc/passwd", "manifest_digest": "0" * 64}

    for wish in (
        {"evidence": [place]},
        {"input_artifacts": [place]},
        {"sandbox": {"guest_paths": ["/"]}},
        {"sub_model": "/models/x.gguf"},
    ):
        assert person.post("/v1/jobs", json=a_job(**wish)).status_code == 422


def test_an_artifact_is_handed_out_as_a_file_to_be_saved(app, client):
    person, viewer = client("submitter"), client("viewer")
    job_id = finished_job(app, person)

    got = person.get(f"/v1/jobs/{job_id}/artifacts/out/made.txt")

    assert got.content == b"made by a job"
    assert got.headers["Content-Disposition"] == "attachment"
    assert got.headers["X-Content-Type-Options"] == "nosniff"
    assert viewer.get(f"/v1/jobs/{job_id}/artifacts/out/made.txt").status_code == 403
    for path in ("out/other.txt", "../../custody.db", "%2e%2e/custody.db"):
        assert person.get(f"/v1/jobs/{job_id}/artifacts/{path}").status_code == 404
