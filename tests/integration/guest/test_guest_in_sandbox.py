"""The guest's names inside a real sandbox: evidence mounted read-only, every answer through the channel."""

import asyncio
import sysconfig
from pathlib import Path

import pytest

import rlm_worker.playbooks
import sandbox
from rlm_worker.drivers.playbook_format import parse
from sandbox import HostCall, Mount, Policy
from sandbox.guest.calls import HostCallError
from tests.unit.guest.guest_host import GuestHost

CALLS = frozenset(
    {
        "predict",
        "predict_batch",
        "rlm_query",
        "draft",
        "submit",
        "budget",
        "note",
        "params",
        "question",
        "progress",
    }
)
PLAYBOOKS = Path(rlm_worker.playbooks.__file__).parent


@pytest.fixture(autouse=True, scope="module")
def _namespaces_work():
    report = sandbox.probe()
    if not report.usable:
        pytest.skip(f"no namespaces here: {'; '.join(report.advice)}")


async def run_cells(host: GuestHost, cells, evidence: dict[str, Path]):
    """Run cells in a fresh session; what the host refuses reaches the cell as an exception."""
    mounts = tuple(Mount(source=str(path), target=name) for name, path in evidence.items())
    session = await sandbox.open_session(Policy(evidence=mounts, calls=CALLS))
    finished = []
    try:
        for cell in cells:
            async for event in session.execute(cell, deadline_seconds=30):
                if isinstance(event, HostCall):
                    await answer(session, host, event)
                elif isinstance(event, sandbox.Finished):
                    finished.append(event)
    finally:
        await session.close()
    return finished


async def answer(session, host, event):
    try:
        value = host.call(event.name, event.payload)
    except HostCallError as refusal:
        await session.refuse(event.call_id, error=type(refusal).__name__, message=str(refusal))
    else:
        await session.answer(event.call_id, value)


def outputs(host, cells, evidence):
    finished = asyncio.run(run_cells(host, cells, evidence))
    assert [cell.outcome for cell in finished] == ["ok"] * len(cells), finished
    return [cell.stdout for cell in finished]


@pytest.mark.requirement("S3-RLM-11", "S3-RLM-4", "CARD-15")
def test_evidence_is_searched_and_types_are_filled_through_the_channel(tmp_path):
    (tmp_path / "app.log").write_bytes(b"fine\nhigh water in Basel\n" + b"x" * (2 << 20) + b"\nlow tide\n")
    cells = [
        "hits = list(evidence.search('high|low'))\nprint(*(hit.citation for hit in hits))",
        "r = predict(\"line -> level: Literal['low', 'high']\", line=hits[0])\nprint(r.level, r.probability)",
        "rs = predict_batch(\"line -> level: Literal['low', 'high']\", hits)\nprint([r.level for r in rs])",
        "import asyncio\nrs = await asyncio.gather(*(predict('q -> n: int', q=n) for n in range(3)))\nprint(len(rs))",
        (
            "import dataclasses, datetime\n@dataclasses.dataclass\nclass Found:\n    day: datetime.date\n"
            "print(predict(Found, text='on 2024-01-02').value)"
        ),
        "print([r.ok for r in rlm_query_batched(['a', 'b'])])",
    ]
    said = outputs(GuestHost(), cells, {"app.log": tmp_path / "app.log"})
    assert said == [
        "app.log:2 app.log:4\n",
        "high 0.75\n",
        "['high', 'low']\n",
        "3\n",
        "Found(day=datetime.date(2024, 1, 2))\n",
        "[True, True]\n",
    ]


def test_refusals_reach_the_cell_as_its_own_exceptions(tmp_path):
    (tmp_path / "a.txt").write_text("text\n")
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    cells = [
        "try:\n    predict('a -> b: str', a=1)\nexcept BudgetExceeded as error:\n    print('budget:', error)",
        "try:\n    SUBMIT(n='three')\nexcept SubmitRejected as error:\n    print('submit:', error)",
    ]
    host = GuestHost(subcalls=0, output_schema=schema)
    said = outputs(host, cells, {"a.txt": tmp_path / "a.txt"})
    assert said[0].startswith("budget: this needs 1 subcalls and 0 are left")
    assert said[1].startswith("submit: n: ")


def test_many_large_documents_stay_within_the_descriptor_limit(tmp_path):
    for number in range(300):
        with (tmp_path / f"{number:03}.log").open("wb") as file:
            file.write(b"needle\n")
            file.truncate((1 << 20) + 1)
    cell = "hits = list(evidence.search('needle', binary=True))\nprint(len(hits), {hit.text for hit in hits})"
    assert outputs(GuestHost(), [cell], {"logs": tmp_path}) == ["300 {'needle'}\n"]


def test_the_demo_playbook_audits_the_standard_library(tmp_path):
    playbook = parse((PLAYBOOKS / "audit_comments.py").read_text())
    host = GuestHost(output_schema=playbook.meta.schema_of_output(), params=playbook.meta.defaults())
    cells = [cell.code for cell in playbook.cells]
    stdlib = Path(sysconfig.get_path("stdlib"))
    finished = asyncio.run(run_cells(host, cells, {"stdlib": stdlib}))
    assert [cell.outcome for cell in finished] == ["ok"] * (len(cells) - 1) + ["ended"], finished
    assert host.submitted["classified"] == 24
    assert host.submitted["admitted"] > 100
    for finding in host.submitted["findings"]:
        name, line = finding["citation"].removeprefix("stdlib/").rsplit(":", 1)
        assert finding["comment"].split()[0] in (stdlib / name).read_text(encoding="utf-8")
        assert int(line) >= 1
