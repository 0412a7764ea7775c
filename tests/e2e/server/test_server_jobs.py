"""A person works with a server as with a home: other folder, other process, the same commands."""

import json
import stat

import pytest


def test_a_job_is_run_with_evidence_of_another_folder_and_shown_as_it_happens(admin):
    done = admin("run", "How often?", "-e", "notes.txt", "--playbook", "quick.py")

    assert done.code == 0, done.err
    assert "answer     1" in done.out
    assert "1 of 1 citations checked and found" in done.out
    assert "SUBMIT" in done.err


def test_a_key_is_kept_where_only_its_owner_reads_it_and_shown_nowhere(admin):
    file = admin.folder / "config" / "custody" / "profiles.json"

    listed = admin("profiles", there=False)

    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "there" in listed.out
    assert admin.served.first_key not in listed.out + listed.err


def test_a_key_on_the_command_line_is_refused(admin):
    done = admin("login", "other", "--server", admin.served.address, "--key", "cst_1_2", there=False)

    assert done.code == 2
    assert "list of processes" in done.err


def test_profiles_that_others_may_read_are_refused(admin):
    file = admin.folder / "config" / "custody" / "profiles.json"
    file.chmod(0o644)

    done = admin("jobs")

    assert done.code == 2
    assert "chmod 600" in done.err


def test_a_folder_is_sent_whole_and_only_once(admin):
    folder = admin.folder / "logs"
    (folder / "deep").mkdir(parents=True)
    (folder / "a.log").write_text("the pump failed\n")
    (folder / "deep" / "b.log").write_text("the pump worked\n")

    first = admin("run", "How often?", "-e", "logs", "--playbook", "quick.py", "--json")
    second = admin("run", "How often?", "-e", "logs", "--playbook", "quick.py", "--json")

    assert first.document["result"]["structured_output"]["answer"] == "2"
    refs = [done.document["spec"]["input_artifacts"][0] for done in (first, second)]
    assert refs[0]["manifest_digest"] == refs[1]["manifest_digest"]
    assert refs[0]["files"] == 2


@pytest.mark.slow
def test_standard_input_is_evidence_there_too(admin):
    done = admin("run", "How often?", "-e", "-", "--playbook", "quick.py", "--quiet", stdin="pump\npump\n")

    assert done.code == 0, done.err
    assert "answer     2" in done.out


@pytest.mark.slow
def test_files_that_a_job_made_come_back_checked(admin):
    (admin.folder / "makes.py").write_text(
        '# %% make\nimport pathlib\npathlib.Path("out.csv").write_text("a,b\\n")\n# %% answer\nSUBMIT(answer="x", citations=[])\n'
    )

    done = admin(
        "run", "Make", "-e", "notes.txt", "--playbook", "makes.py", "--collect", "*.csv", "--out", "kept"
    )

    assert done.code == 0, done.err
    assert (admin.folder / "kept" / "out.csv").read_text() == "a,b\n"


def test_jobs_are_listed_filtered_and_handed_on_as_ids(admin):
    label = "batch=listing"
    for _ in range(2):
        assert (
            admin("run", "Which pump?", "-e", "notes.txt", "-p", "quick.py", "--label", label, "-q").code == 0
        )

    by_label = admin("jobs", "--label", label, "-o", "ids")
    by_words = admin("jobs", "--search", "which", "--label", label, "-o", "ids")
    by_state = admin("jobs", "--state", "failed", "--label", label, "-o", "ids")
    whole = admin("jobs", "--label", label, "-o", "json", "-n", "1").document

    assert len(by_label.out.split()) == 2
    assert by_words.out == by_label.out
    assert by_state.out == ""
    assert whole["truncated"] is True
    assert whole["jobs"][0]["result"]["structured_output"]["answer"] == "1"


def test_an_export_is_verified_and_replayed_without_the_server(admin):
    job_id = admin("run", "How often?", "-e", "notes.txt", "-p", "quick.py", "--json").document["job_id"]

    exported = admin("export", job_id, "--out", "job.jsonl.gz")
    verified = admin("verify", "job.jsonl.gz", there=False)
    replayed = admin("replay", "job.jsonl.gz", "--verify", "-e", "notes.txt=notes.txt", there=False)

    assert exported.code == 0, exported.err
    assert "the chain is whole" in verified.out
    assert "result: the same" in replayed.out
    assert admin("verify", job_id).code == 0


def test_what_needs_this_machine_says_what_to_do_instead(admin):
    done = admin("replay", "job_x")

    assert done.code == 2
    assert "custody export" in done.err
    assert len(done.err.strip().splitlines()) == 1


@pytest.mark.slow
def test_the_trace_of_a_server_is_that_of_a_home(admin):
    job_id = admin("run", "How often?", "-e", "notes.txt", "-p", "quick.py", "--json").document["job_id"]
    home = str(admin.served.folder / "home")

    there = admin("trace", job_id, "--json", "--all")
    here = admin("trace", job_id, "--json", "--all", "--home", home, there=False)

    assert [json.loads(line) for line in there.out.splitlines()] == [
        json.loads(line) for line in here.out.splitlines()
    ]


@pytest.mark.parametrize("words", [("show", "job_nobody"), ("trace", "job_nobody"), ("stop", "job_nobody")])
def test_a_job_that_is_not_there_is_one_paragraph(admin, words):
    done = admin(*words)

    assert done.code == 2
    assert len(done.err.strip().splitlines()) == 1


def test_a_server_that_is_not_there_is_one_paragraph_with_what_to_do(admin):
    done = admin("jobs", "--server", "http://127.0.0.1:9", there=False)

    assert done.code == 4
    assert "custody doctor" in done.err
    assert len(done.err.strip().splitlines()) == 1
