"""The shipped playbooks over real small evidence, with a model that answers by rule."""

import re
from pathlib import Path

import pytest

import rlm_worker.playbooks
from rlm_worker.citations import citations_in
from rlm_worker.drivers.playbook_format import parse
from tests.unit.guest.guest_host import GuestHost

FOLDER = Path(rlm_worker.playbooks.__file__).parent
NAMES = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "__init__")

SOURCES = {
    "code/alpha/one.py": (
        "import os\n"
        "x = 1  # XXX this is a bug when x is zero\n"
        "url = 'http://x/#FIXME'\n"
        "# A workaround for old compilers:\n"
        "# they forget the sign.\n"
        "# TODO remove it\n"
        "y = 2\n"
        "# Nothing to see here\n"
    ),
    "code/beta.py": "# FIXME: a missing feature, dates\n# XXX\n",
    "code/test/test_one.py": "# XXX tests do not count\n",
    "code/gamma/notes.txt": "# XXX no source file\n",
}
LOG = (
    "2024-03-01 10:00:00 INFO server started on 10.0.0.1:80\n"
    "2024-03-01 10:05:10 ERROR disk read of /var/data/77 failed after 31 ms\n"
    "2024-03-01 10:06:10 ERROR disk read of /var/data/78 failed after 99 ms\n"
    "2024-03-01 10:07:00 INFO 0 errors so far\n"
    "2024-03-01 12:00:00 FATAL out of memory, high use 0xdeadbeef\n"
    "Mar  1 13:00:00 host app[12]: warning: network unreachable\n"
    "free text without any level"
)
LETTERS = (
    "Dear board,\n\nThe contract with Alder was signed on 2021-03-04 in Bern, yes.\n\n"
    "Lunch was good.\n\nOn 2019-05-06 the agreement with Birch was cancelled, yes.\n\n"
    "Contracts in general are dull, yes.\n\nThe subcontractor slept.\n"
)


def write(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def play(name, root, **host):
    playbook = parse((FOLDER / f"{name}.py").read_text())
    host.setdefault("params", playbook.meta.defaults())
    schema = playbook.meta.schema_of_output()
    served = GuestHost(output_schema=schema, **host)
    namespace = served.run(playbook.cells, root)
    assert served.submitted is not None, "the playbook did not submit"
    evidence = namespace["evidence"]
    for answer in [*served.drafts, served.submitted]:
        for citation in citations_in(answer, schema):
            document, first, last = re.fullmatch(r"(.+):(\d+)(?:-(\d+))?", citation).groups()
            assert 1 <= int(first) <= int(last or first) <= evidence[document].line_count
    return served


@pytest.mark.parametrize("name", NAMES)
class TestEveryPlaybook:
    def test_its_file_is_named_as_it_is(self, name):
        playbook = parse((FOLDER / f"{name}.py").read_text())
        assert playbook.meta.name == name
        assert playbook.meta.description
        assert all(cell.title for cell in playbook.cells)
        assert all(param.description for param in playbook.meta.params.values())

    def test_no_evidence_gives_an_honest_empty_answer(self, name, tmp_path):
        served = play(name, tmp_path)
        assert [value for value in served.submitted.values() if isinstance(value, int) and value] == []
        assert [ask for ask, _ in served.asked if ask.startswith("predict")] == []

    def test_an_empty_and_a_binary_file_are_no_obstacle(self, name, tmp_path):
        (tmp_path / "empty.py").write_bytes(b"")
        (tmp_path / "blob").write_bytes(b"\0ERROR # XXX contract \xff")
        (tmp_path / "broken.log").write_bytes(b"\xff\xfe ERROR # XXX contract 2020 \xc3")
        play(name, tmp_path, question="the contract")

    def test_any_budget_of_subcalls_is_kept_and_something_is_delivered(self, name, tmp_path):
        write(tmp_path, {**SOURCES, "app.log": LOG, "letters.txt": LETTERS})
        for subcalls in range(6):
            served = play(name, tmp_path, subcalls=subcalls, question="contract with Alder")
            assert served.submitted["summary"]

    def test_failed_rows_are_left_out(self, name, tmp_path):
        write(tmp_path, {**SOURCES, "app.log": LOG, "letters.txt": LETTERS})
        playbook = parse((FOLDER / f"{name}.py").read_text())
        served = GuestHost(
            output_schema=playbook.meta.schema_of_output(),
            params=playbook.meta.defaults(),
            question="contract with Alder",
        )
        served.failing_rows = 1000
        served.run(playbook.cells, tmp_path)
        assert served.submitted.get("classified", served.submitted.get("examined")) == 0

    def test_it_asks_the_same_each_time(self, name, tmp_path):
        write(tmp_path, {**SOURCES, "app.log": LOG, "letters.txt": LETTERS})
        first, second = (play(name, tmp_path, question="contract with Alder") for _ in range(2))
        assert first.asked == second.asked

    def test_its_cells_fit_its_budget(self, name):
        playbook = parse((FOLDER / f"{name}.py").read_text())
        iterations = int(re.search(r"iterations=(\d+)", playbook.meta.budget)[1])
        assert len(playbook.cells) <= iterations


class TestAuditComments:
    def test_admissions_are_found_in_comments_only_and_once(self, tmp_path):
        answer = play("audit_comments", write(tmp_path, SOURCES)).submitted
        found = {finding["citation"]: finding for finding in answer["findings"]}
        assert set(found) == {"code/alpha/one.py:2", "code/alpha/one.py:4", "code/beta.py:1"}
        assert answer["admitted"] == answer["classified"] == 3
        assert answer["scanned_files"] == 2
        assert found["code/alpha/one.py:4"]["comment"] == (
            "A workaround for old compilers: they forget the sign. TODO remove it"
        )
        assert found["code/alpha/one.py:4"]["kind"] == "workaround"
        assert answer["by_kind"] == {"bug": 1, "missing feature": 1, "workaround": 1}
        assert answer["by_module"] == [
            {"module": "alpha", "admissions": 2},
            {"module": "beta", "admissions": 1},
        ]

    def test_a_draft_is_kept_after_every_eight(self, tmp_path):
        lines = "".join(f"x = {n}  # FIXME number {n} is broken\n" for n in range(40))
        served = play("audit_comments", write(tmp_path, {"t/a.py": lines, "t/b.py": "# XXX lonely\n"}))
        assert [draft["classified"] for draft in served.drafts] == [8, 16, 24]
        assert {finding["module"] for finding in served.submitted["findings"]} == {"a", "b"}
        assert served.submitted["admitted"] == 41

    def test_other_languages_and_tests_can_be_asked_for(self, tmp_path):
        write(tmp_path, {"t/test/a.c": 'char *u = "http://FIXME"; // FIXME wrong\n'})
        params = {"files": "*.c", "skip": "", "limit": 3}
        assert play("audit_comments", tmp_path, params=params).submitted["admitted"] == 1


class TestLogTriage:
    def test_lines_are_grouped_by_shape_with_first_and_last(self, tmp_path):
        (tmp_path / "app.log").write_text(LOG)
        answer = play("log_triage", tmp_path).submitted
        assert (answer["lines"], answer["trouble_lines"], answer["shapes"]) == (7, 4, 3)
        groups = {group["first"]: group for group in answer["groups"]}
        disk = groups["app.log:2"]
        assert disk["shape"] == "<time> ERROR disk read of <path> failed after <n> ms"
        assert (disk["count"], disk["last"], disk["level"], disk["subsystem"]) == (
            2,
            "app.log:3",
            "error",
            "disk",
        )
        assert (disk["first_seen"], disk["last_seen"]) == ("2024-03-01 10:05:10", "2024-03-01 10:06:10")
        assert groups["app.log:5"]["level"] == "fatal"
        assert groups["app.log:6"]["first_seen"] == "03-01 13:00:00"
        assert answer["by_subsystem"] == {"disk": 2, "memory": 1, "network": 1}

    def test_the_timeline_counts_trouble_in_at_most_48_buckets(self, tmp_path):
        lines = [f"2024-03-{1 + n // 24:02} {n % 24:02}:30:00 ERROR disk {n}\n" for n in range(24 * 20)]
        (tmp_path / "app.log").write_text("".join(lines))
        timeline = play("log_triage", tmp_path).submitted["timeline"]
        assert len(timeline) == 20
        assert timeline[0] == {"start": "2024-03-01 00:00:00", "trouble_lines": 24}

    def test_what_is_not_grouped_is_said(self, tmp_path):
        (tmp_path / "app.log").write_text("ERROR disk\n" * 50)
        answer = play("log_triage", tmp_path, params={"read": 10}).submitted
        assert answer["trouble_lines"] == 50
        assert "Only the first 10 were grouped" in answer["summary"]


class TestFindAndDate:
    def test_relevant_passages_are_put_in_order_of_time(self, tmp_path):
        (tmp_path / "letters.txt").write_text(LETTERS)
        answer = play("find_and_date", tmp_path, params={"subject": "contracts with Alder"}).submitted
        assert [(row["date"], row["citation"]) for row in answer["timeline"]] == [
            ("2019-05-06", "letters.txt:7"),
            ("2021-03-04", "letters.txt:3"),
        ]
        assert [row["citation"] for row in answer["undated"]] == ["letters.txt:9"]
        assert not any("subcontractor" in row["passage"] for row in answer["undated"])

    def test_a_date_whose_year_is_not_in_the_passage_is_not_believed(self, tmp_path):
        (tmp_path / "letters.txt").write_text("The contract, yes, ran from spring 2021 on.\n")
        answer = play("find_and_date", tmp_path, params={"subject": "contract"}).submitted
        assert (answer["timeline"], len(answer["undated"])) == ([], 1)

    def test_the_question_is_the_subject_when_none_is_given(self, tmp_path):
        (tmp_path / "letters.txt").write_text(LETTERS)
        answer = play("find_and_date", tmp_path, question="When was the contract signed?").submitted
        assert answer["subject"] == "When was the contract signed?"
        assert answer["candidates"] >= 2
