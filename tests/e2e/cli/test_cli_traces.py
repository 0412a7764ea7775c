"""Traces as files: exported, verified alone, replayed elsewhere, imported into another home."""

import gzip
import json
import re
import shutil

import pytest

from tests.e2e.cli.custody import Custody
from tests.scripted_model import ScriptedModel, cells

LONG = "x" * 20_000
CELLS = (
    "import uuid, time\nprint(evidence['notes.txt'].text[:20000], uuid.uuid4(), time.time())",
    """print(evidence['notes.txt'].text[:20000])
label = predict('t -> label: Literal["x","y"]', t=evidence['notes.txt'].text[:9000]).label""",
    "SUBMIT(answer=label)",
)


@pytest.fixture
def custody(tmp_path):
    here = tmp_path / "here"
    here.mkdir()
    return Custody(here)


@pytest.fixture
def exported(custody):
    """A finished job over one file, exported; then its home is gone."""
    (custody.folder / "notes.txt").write_text(LONG + "\n")
    with ScriptedModel(cells(*CELLS)) as model:
        done = custody(
            "run", "what?", "-e", "notes.txt", "--model", model.url, "--sub-model", model.url,
            "-o", "answer: str", "--json",
        )  # fmt: skip
    assert done.code == 0, done.err
    path = custody.folder / "job.jsonl.gz"
    told = custody("export", done.document["job_id"], "-o", str(path), "--json")
    assert told.code == 0, told.err
    return path, done.document


@pytest.fixture
def elsewhere(tmp_path):
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    return Custody(folder)


def lines_of(path) -> list[dict]:
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]


def write_lines(path, lines) -> None:
    path.write_bytes(b"".join(json.dumps(line).encode() + b"\n" for line in lines))


def test_an_exported_file_begins_with_the_spec_and_holds_a_long_text_once(exported):
    path, job = exported
    header, *rest = lines_of(path)

    blobs = [line for line in rest if "blob" in line]
    assert header["spec"]["job_id"] == job["job_id"]
    assert header["events"] == job["trace"]["events"] == len(rest) - len(blobs)
    assert sum(LONG in line["text"] for line in blobs) <= 2  # with the id behind it, and as it is
    assert all(len(json.dumps(line)) < 20_000 for line in rest if "blob" not in line)


def test_a_file_alone_is_verified_without_a_home(exported, elsewhere):
    path, job = exported

    done = elsewhere("verify", str(path), "--json")

    assert done.code == 0, done.err
    assert done.document == {
        "job_id": job["job_id"],
        "events": job["trace"]["events"],
        "head": job["trace"]["head"],
        "chain": "whole",
        "spec": "proved",
    }
    assert not elsewhere.home.exists()


def _changed_event(lines):
    next(line for line in lines if line.get("event", {}).get("kind") == "cell_proposed")["event"]["code"] = (
        "1"
    )


def _changed_text(lines):
    next(line for line in lines if "blob" in line)["text"] += "!"


def _cut(lines):
    lines.pop()


def _other_spec(lines):
    lines[0]["spec"]["task"] = "something else"


def _other_answer(lines):
    lines[0]["result"]["structured_output"]["answer"] = "y"


@pytest.mark.parametrize("change", [_changed_event, _changed_text, _cut, _other_spec, _other_answer])
def test_a_file_that_was_changed_anywhere_is_refused(exported, elsewhere, change):
    lines = lines_of(exported[0])
    change(lines)
    write_lines(elsewhere.folder / "changed.jsonl", lines)

    for command in (("verify", "changed.jsonl"), ("import", "changed.jsonl")):
        done = elsewhere(*command)
        assert done.code == 4, done.out
        assert done.err.startswith("custody: ")
    assert elsewhere.jobs() == []


@pytest.mark.requirement("CARD-21", "S3-FIVE-5")
def test_a_job_replays_to_the_same_from_the_file_and_the_evidence_alone(exported, custody, elsewhere):
    path, _ = exported
    moved = elsewhere.folder / "brought.txt"
    shutil.move(custody.folder / "notes.txt", moved)
    shutil.move(path, elsewhere.folder / "job.jsonl.gz")
    shutil.rmtree(custody.home)

    done = elsewhere("replay", "job.jsonl.gz", "--evidence", f"notes.txt={moved}", "--verify", "--json")
    moved.write_text("y" * 20_000)
    other = elsewhere("replay", "job.jsonl.gz", "--evidence", f"notes.txt={moved}", "--verify", "--json")
    without = elsewhere("replay", "job.jsonl.gz", "--verify")

    assert done.code == 0, done.out + done.err
    assert (done.document["cells"], done.document["same"]) == (3, 3)
    assert other.code == 4
    assert other.document["evidence_changed"] == ["notes.txt"]
    assert without.code == 2
    assert "--evidence notes.txt=PATH" in without.err


def test_an_imported_job_is_read_verified_and_replayed_like_one_of_this_home(exported, custody, elsewhere):
    path, job = exported

    first, second = (elsewhere("import", str(path), "--json") for _ in range(2))

    assert first.code == 0, first.err
    assert (first.document["imported"], second.document["imported"]) == (True, False)
    shown = elsewhere("show", job["job_id"], "--json").document
    assert shown["state"] == "succeeded"
    assert shown["result"] == job["result"]
    assert elsewhere("verify", job["job_id"]).code == 0
    notes = f"notes.txt={custody.folder / 'notes.txt'}"
    assert elsewhere("replay", job["job_id"], "--evidence", notes, "--verify").code == 0
    again = elsewhere.folder / "again.jsonl.gz"
    assert elsewhere("export", job["job_id"], "-o", str(again)).code == 0
    assert again.read_bytes() == path.read_bytes()


def test_an_exported_file_is_read_like_the_job_it_came_from(custody, exported, elsewhere):
    path, job = exported
    here = custody("trace", job["job_id"])
    there = elsewhere("trace", str(path))

    assert there.code == 0, there.err
    assert there.out == here.out
    assert elsewhere("trace", str(path), "--json").out == custody("trace", job["job_id"], "--json").out
    assert not (elsewhere.folder / ".custody").exists()


def test_a_file_that_was_changed_is_refused_while_it_is_read(exported, elsewhere):
    path, _ = exported
    lines = lines_of(path)
    place = next(n for n, line in enumerate(lines) if line.get("event", {}).get("kind") == "cell_proposed")
    lines[place]["event"]["code"] = "something else"
    write_lines(elsewhere.folder / "changed.jsonl", lines)

    done = elsewhere("trace", "changed.jsonl")

    assert done.code == 4
    assert "its content does not match its hash" in done.err


def test_a_file_is_not_followed(exported, elsewhere):
    path, _ = exported

    done = elsewhere("trace", str(path), "--follow")

    assert done.code == 2
    assert "a file does not grow" in done.err


def test_a_pipe_gets_whole_lines_with_the_time_since_the_start(custody, exported):
    _, job = exported
    lines = custody("trace", job["job_id"], "--all").out.splitlines()

    assert re.match(r" +0 +0\.00 s  attempt 1 by ", lines[0])
    asked = next(line for line in lines if "subcall" in line and "→" in line)
    assert "x" * 9_000 in asked
    assert any(LONG in line for line in lines)
    assert "…" not in asked


def test_dates_and_times_are_shown_when_they_are_asked_for(custody, exported):
    _, job = exported
    out = custody("trace", job["job_id"], "--times").out

    assert re.match(r" +0  \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}  attempt 1 by ", out)


def test_the_lines_of_an_output_are_cut_unless_all_is_asked_for(custody):
    (custody.folder / "many.py").write_text(
        "# %%\nfor n in range(100):\n    print('line', n)\n# %%\nSUBMIT(answer='x')\n"
    )
    done = custody("run", "count", "--playbook", "many.py", "-o", "answer: str", "--json")
    assert done.code == 0, done.err
    job_id = done.document["job_id"]

    assert "… 88 more lines" in custody("trace", job_id).out
    assert "line 99" in custody("trace", job_id, "--full").out
    assert "… 95 more lines" in custody("trace", job_id, "--lines", "5").out
