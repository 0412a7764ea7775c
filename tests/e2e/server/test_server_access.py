"""Keys, tenants and what each may see."""

from pathlib import Path

import pytest

from tests.e2e.server.served import Person


def person_of(tenant: str, role: str, admin: Person, folder: Path) -> Person:
    folder.mkdir()
    made = admin("keys", "create", f"{role}-of-{tenant}", "--role", role, "--tenant", tenant)
    assert made.code == 0, made.err
    return Person(folder, admin.served, key=made.out.strip())


def test_two_tenants_see_nothing_of_each_other(admin, tmp_path):
    of_a = person_of("a", "submitter", admin, tmp_path / "a")
    of_b = person_of("b", "submitter", admin, tmp_path / "b")
    job_id = of_a("run", "How often?", "-e", "notes.txt", "-p", "quick.py", "--json").document["job_id"]

    assert of_a("jobs", "-o", "ids").out.split() == [job_id]
    assert of_b("jobs", "-o", "ids").out == ""
    for words in (
        ("show", job_id),
        ("trace", job_id),
        ("stop", job_id),
        ("steer", job_id, "x"),
        ("export", job_id, "--out", "x.jsonl"),
    ):
        done = of_b(*words)
        assert (done.code, done.out) == (2, ""), words
        assert "there is no job" in done.err


@pytest.mark.slow
def test_a_viewer_sees_jobs_without_their_texts_and_orders_nothing(admin, tmp_path):
    submitter = person_of("c", "submitter", admin, tmp_path / "s")
    viewer = person_of("c", "viewer", admin, tmp_path / "v")
    job_id = submitter("run", "How often?", "-e", "notes.txt", "-p", "quick.py", "--json").document["job_id"]

    shown = viewer("show", job_id)
    listed = viewer("jobs")
    stopped = viewer("kill", job_id)
    traced = viewer("trace", job_id)

    assert "How often" not in shown.out + listed.out + traced.out
    assert "withheld" in shown.out
    assert "succeeded" in listed.out
    assert traced.code == 0, traced.err
    assert stopped.code in (0, 2)


def test_a_revoked_key_is_refused_at_once(admin, tmp_path):
    person = person_of("d", "submitter", admin, tmp_path / "d")
    key_id = next(
        key["key_id"] for key in admin("keys", "list", "--json").document["keys"] if key["tenant_id"] == "d"
    )

    assert person("jobs").code == 0
    assert admin("keys", "revoke", key_id).code == 0
    done = person("jobs")

    assert done.code == 2
    assert "not valid" in done.err


@pytest.mark.slow
def test_what_was_done_is_in_the_audit(admin, tmp_path):
    person_of("e", "viewer", admin, tmp_path / "e")

    found = admin("audit", "--json").document["audit"]

    assert any(one["action"] == "key.issue" and one["principal"] == "admin" for one in found)


def test_leaving_loopback_needs_a_key(tmp_path):
    from tests.e2e.cli.custody import Custody

    custody = Custody(tmp_path)

    done = custody("up", "--host", "0.0.0.0", "--port", "0")

    assert done.code == 2
    assert "custody keys create" in done.err


@pytest.mark.slow
def test_the_home_of_a_server_is_looked_after_with_the_same_commands(admin):
    home = str(admin.served.folder / "home")

    there = admin("keys", "list", "--json").document
    here = admin("keys", "list", "--json", "--home", home, there=False).document

    assert [key["key_id"] for key in here["keys"]] == [key["key_id"] for key in there["keys"]]
