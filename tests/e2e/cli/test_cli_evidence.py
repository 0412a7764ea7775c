"""Evidence from the command line: given in every way, shown file by file, used by the next job."""

import json
import subprocess
import sys
import tarfile

from tests.documents import a_pdf
from tests.e2e.cli.custody import Custody, environment

BOOK = """# %%
for name in evidence:
    print(name)
(workspace / 'out.csv').write_text('who,paid\\nAnn,3\\n')
SUBMIT(answer=' '.join(evidence), citations=[f'{name}:1' for name in evidence])
"""
ROWS = """# %%
row = next(evidence['out.csv'].rows())
SUBMIT(answer=row['who'], citations=[row.citation])
"""


def test_evidence_of_many_kinds_is_answered_over_shown_and_replayed(custody: Custody):
    (custody.folder / "book.py").write_text(BOOK)
    (custody.folder / "a.log").write_text("one\n")
    (custody.folder / "b.log").write_text("two\n")
    a_pdf(custody.folder / "paper.pdf", [["On paper"]])
    with tarfile.open(custody.folder / "logs.tar.gz", "w:gz") as archive:
        archive.add(custody.folder / "a.log", "deep/a.log")

    done = custody(
        *("run", "What is there?", "-p", "book.py", "--collect", "*.csv", "--json"),
        *("-e", "*.log", "-e", "logs.tar.gz", "-e", "memo=paper.pdf"),
    )

    assert done.code == 0, done.err
    assert done.document["result"]["structured_output"]["answer"] == "a.log b.log logs.tar.gz/deep/a.log memo"
    assert done.document["result"]["citations"]["verified"] == 4
    job_id = done.document["job_id"]
    shown = custody("evidence", job_id, "--json").document["evidence"]
    assert [piece["name"] for piece in shown] == ["a.log", "b.log", "logs.tar.gz", "memo"]
    (paper,) = shown[3]["manifest"]
    assert (paper["kind"], paper["pages"], paper["is_converted"]) == ("application/pdf", 1, True)
    assert len(paper["digest"]) == 64
    assert "unpacked from" in custody("show", job_id).out
    assert "application/pdf" in custody("evidence", job_id).out
    assert custody("replay", job_id, "--verify").code == 0

    (custody.folder / "rows.py").write_text(ROWS)
    then = custody("run", "Who paid?", "-p", "rows.py", "-e", f"job:{job_id}/out.csv", "--json")
    assert then.code == 0, then.err
    assert then.document["result"]["structured_output"] == {"answer": "Ann", "citations": ["out.csv#row=1"]}


def test_standard_input_is_evidence(custody: Custody):
    (custody.folder / "book.py").write_text(BOOK)

    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "controlplane.cli.main",
            "run",
            "q",
            "-p",
            "book.py",
            "-e",
            "pipe.txt=-",
            "--json",
        ],
        input="piped\n",
        cwd=custody.folder,
        env=environment() | {"CUSTODY_HOME": str(custody.home)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["result"]["structured_output"]["answer"] == "pipe.txt"


def test_evidence_that_cannot_be_had_is_refused_in_one_line(custody: Custody):
    (custody.folder / "book.py").write_text(BOOK)
    (custody.folder / "broken.zip").write_bytes(b"PK broken")
    for source, says in (
        ("broken.zip", "cannot be read"),
        ("nowhere.log", "there is no evidence at"),
        ("*.nothing", "no file fits the pattern"),
        ("job:job_nothing", "job_nothing"),
        ("memory://nothing", "there is nothing at"),
    ):
        done = custody("run", "q", "-p", "book.py", "-e", source)
        assert done.code == 2, (source, done.err)
        assert says in done.err
        assert "defect" not in done.err
    assert custody("run", "q", "-p", "book.py", "-e", "-", "-e", "-").code == 2
