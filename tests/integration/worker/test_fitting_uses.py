"""What such reasoning is good for, each over evidence that no prompt holds: code narrows, typed questions judge, citations are checked."""

from pathlib import Path

import pytest

from tests.builders import a_spec, evidence_of
from tests.engine import run_job
from tests.scripted_model import ScriptedModel, user_text

FILLER = "Nothing of this paragraph matters to anyone who reads it with care.\n"


def a_specification(folder: Path) -> None:
    chapters = [FILLER * 400 for _ in range(40)]
    chapters[3] += "4.2 A session ends after 30 minutes without a request.\n"
    chapters[21] += "22.7 A password has at least 12 characters.\n"
    chapters[36] += "37.1 A session ends after 90 minutes without a request.\n"
    (folder / "spec.txt").write_text("".join(chapters))


def many_logs(folder: Path) -> None:
    for n in range(30):
        lines = [f"12:{m:02}:00 node{n} request served\n" for m in range(60)] * 20
        if n % 3 == 0:
            lines.append(f"12:31:0{n % 10} node{n} ERROR no connection to the database\n")
        (folder / f"node{n}.log").write_text("".join(lines))
    (folder / "db.log").write_text("12:30:58 db disk full, going down\n")


def a_code_base(folder: Path) -> None:
    for n in range(200):
        (folder / f"m{n}.py").write_text(f"import m{n + 1}\n" if n in (3, 4) else "import os\n" * 50)


def a_report_and_its_source(folder: Path) -> None:
    rows = "".join(f"{n},{('north', 'south')[n % 2]},{n}\n" for n in range(20_000))
    (folder / "orders.csv").write_text("id,region,amount\n" + rows)
    (folder / "report.csv").write_text("region,total\nnorth,99990000\nsouth,100000001\n")


USES = {
    "a contradiction in a long specification": (
        a_specification,
        """
rules = list(evidence.search(r"\\d+[.]\\d+ A .*\\d+.*"))
pairs = [(a, b) for i, a in enumerate(rules) for b in rules[i + 1:]]
judged = predict_batch("first, second -> contradict: bool", [{"first": a.text, "second": b.text} for a, b in pairs])
found = [pair for pair, one in zip(pairs, judged) if one.contradict]
SUBMIT(answer=f"{len(found)} of {len(pairs)}", citations=[hit.citation for pair in found for hit in pair])
""",
        "1 of 3",
        ("spec.txt:1601", "spec.txt:14803"),
    ),
    "the cause of a failure across many logs": (
        many_logs,
        """
hits = sorted(evidence.search(r"\\d\\d:\\d\\d:\\d\\d .*(ERROR|down)"), key=lambda hit: hit.text)
first = next(hit for hit in hits if predict("line -> is_cause: bool", line=hit.text).is_cause)
SUBMIT(answer=f"{len(hits)} lines, first: {first.text[9:]}", citations=[first.citation])
""",
        "11 lines, first: db disk full, going down",
        ("db.log:1",),
    ),
    "the blast radius of a change": (
        a_code_base,
        """
uses = {}
for hit in evidence.search(r"import (m\\d+)$"):
    uses.setdefault(hit.groups[0], []).append((hit.citation.rsplit("/", 1)[-1].split(".")[0], hit.citation))
reached, queue, where = set(), ["m5"], []
while queue:
    for name, citation in uses.get(queue.pop(), []):
        if name not in reached:
            reached.add(name); queue.append(name); where.append(citation)
SUBMIT(answer=", ".join(sorted(reached)), citations=sorted(where))
""",
        "m3, m4",
        ("m3.py:1", "m4.py:1"),
    ),
    "an artifact against its source": (
        a_report_and_its_source,
        """
from collections import Counter
true = Counter()
for line in evidence["given/orders.csv"].search(r"^\\d+,(\\w+),(\\d+)$"):
    true[line.groups[0]] += int(line.groups[1])
rows = list(evidence["given/report.csv"].search(r"^(north|south),(\\d+)$"))
wrong = [row for row in rows if int(row.groups[1]) != true[row.groups[0]]]
SUBMIT(answer=", ".join(f"{r.groups[0]}: {true[r.groups[0]]}" for r in wrong), citations=[r.citation for r in wrong])
""",
        "south: 100000000",
        ("report.csv:3",),
    ),
}


def judge(request, n):
    """What a model would say of two rules, or of a line."""
    said = user_text(request)
    fields = request["response_format"]["json_schema"]["schema"]["properties"]
    if "contradict" in fields:
        return {"contradict": said.count("A session ends after") == 2}
    return {"is_cause": "disk full" in said}


@pytest.mark.requirement("S3-RLM-13", "S3-RLM-11", "N3-PLAN-10")
@pytest.mark.parametrize("use", USES)
def test_a_fitting_use_is_answered_with_its_places(tmp_path, use):
    make, code, answer, places = USES[use]
    (tmp_path / "given").mkdir()
    make(tmp_path / "given")
    with ScriptedModel(judge) as model:
        spec = a_spec(
            playbook=f"# %% {use}\n{code}",
            model=model.url,
            output="answer: str, citations: list[Citation]",
            input_artifacts=(evidence_of(tmp_path / "given"),),
        )
        ran = run_job(spec)

    assert ran.result.status == "succeeded", ran.result.message
    assert ran.output == {"answer": answer, "citations": [f"given/{place}" for place in places]}
    assert ran.result.citations.verified == ran.result.citations.checked == len(places)
