"""The names in the REPL through the real engine: typed values, proposals, images, all awaitable, all replayable."""

import asyncio
import base64
import hashlib
import sysconfig
from dataclasses import replace

import pytest

from rlm_worker.contracts.job import SandboxPolicy
from rlm_worker.models.settings import ModelSettings
from rlm_worker.replay import verify_replay
from tests.builders import a_spec, evidence_of
from tests.engine import QUICK, run_job
from tests.scripted_model import Fault, ScriptedModel, cells, echo_schema

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 4


def replayed(ran) -> bool:
    return asyncio.run(verify_replay(ran.gateway.spec, ran.gateway.records)).verified


@pytest.mark.requirement("S3-RLM-4")
def test_classes_of_a_cell_come_back_as_instances_and_their_remarks_reach_the_model():
    code = '''
import dataclasses, enum
from datetime import date
from decimal import Decimal

class Level(enum.Enum):
    LOW = "low"
    HIGH = "high"

@dataclasses.dataclass
class Event:
    """Something that happened."""
    level: Level
    day: date   # when it happened
    cost: Decimal
    where: tuple[int, str]

a = predict(Event, text="disk full").value
b = predict("text -> events: list[Event], level: Level, first: Event | None", text="disk full")
print(a.level is Level.LOW, a.day.year, type(a.cost).__name__, type(a.where).__name__)
print(type(b.events[0]) is Event, b.level is Level.LOW, type(b.first) is Event)
SUBMIT(answer='x')
'''

    def priced(request, n):
        filled = echo_schema(request, n)

        def fix(value):
            if isinstance(value, dict):
                return {k: "1.50" if k == "cost" else fix(v) for k, v in value.items()}
            return [fix(v) for v in value] if isinstance(value, list) else value

        return fix(filled)

    with ScriptedModel(cells(code, otherwise=priced)) as model:
        ran = run_job(a_spec(model=model.url))
        asked = model.requests[1]

    assert ran.of("cell_finished")[0].stdout.splitlines() == [
        "True 2026 Decimal tuple",
        "True True True",
    ]
    assert "when it happened" in asked["messages"][-1]["content"]
    assert asked["response_format"]["json_schema"]["strict"] is False
    assert replayed(ran)


@pytest.mark.requirement("S3-RLM-4")
def test_what_comes_back_is_of_the_type_that_was_asked_for_however_json_spells_it():
    code = """
from typing import *
Level = Literal["low", "high"]
r = predict("t -> a: int, b: float, c: tuple[int, ...], d: set[float], e: float | None, f: int | str, g: Level", t=1)
print([type(r[name]).__name__ for name in "abcdefg"], type(r.c[0]).__name__, [type(x).__name__ for x in r.d])
r = predict("t -> a: int, b: list[float], c: typing.Optional[datetime.date], d: Annotated[int, 'how many']", t=1)
print(type(r.a).__name__, type(r.b[0]).__name__, type(r.c).__name__, type(r.d).__name__)
SUBMIT(answer='x')
"""
    answers = [
        {"a": 3.0, "b": 3, "c": [1.0, 2], "d": [4], "e": 5, "f": "6", "g": "low"},
        {"a": 3.0, "b": [3], "c": "2026-01-31", "d": 1},
    ]

    def answered(request, n):
        return answers["how many" in str(request)]

    with ScriptedModel(cells(code, otherwise=answered)) as model:
        ran = run_job(a_spec(model=model.url))

    assert ran.of("cell_finished")[0].stdout.splitlines() == [
        "['int', 'float', 'tuple', 'set', 'float', 'str', 'str'] int ['float']",
        "int float date int",
    ]
    assert replayed(ran)


@pytest.mark.requirement("S3-RLM-4")
def test_a_date_that_is_none_is_repaired_and_never_reaches_the_cell_or_the_result():
    code = """
for kind in ("date", "datetime"):
    try:
        print(repr(predict(f"t -> day: {kind}", t=kind).day))
    except SubcallError as error:
        print(error)
try:
    SUBMIT(answer="2026-02-30")
except SubmitRejected as error:
    print(error)
SUBMIT(answer="2026-02-28")
"""
    days = iter([{"day": "2026-02-30"}, {"day": "2026-02-28"}, {"day": "soon"}, {"day": "later"}])
    with ScriptedModel(cells(code, otherwise=lambda request, n: next(days))) as model:
        ran = run_job(a_spec(model=model.url, output="answer: date"))

    first, second, third = ran.of("cell_finished")[0].stdout.splitlines()
    assert first == "datetime.date(2026, 2, 28)"
    assert 'day: "later" is not a "date-time"' in second
    assert 'answer: "2026-02-30" is not a "date"' in third
    assert ran.output == {"answer": "2026-02-28"}
    assert replayed(ran)


def test_a_class_that_refuses_an_answer_fails_its_row_alone():
    code = """
import dataclasses
@dataclasses.dataclass
class Even:
    n: int
    def __post_init__(self):
        if self.n % 2:
            raise ValueError(f"{self.n} is odd")

rows = predict_batch(Even, [{"t": n} for n in range(3)])
print([row.ok for row in rows], rows[1].error)
for row in (Even, "t -> even: Even"):
    try:
        predict(row, t=1)
    except SubcallError as error:
        print(error)
SUBMIT(answer='x')
"""

    def counted(request, n):
        value = {"n": int(request["messages"][-1]["content"].split("Input t")[1].strip(": \n")[0])}
        return {"even": value} if "even" in str(request["response_format"]) else value

    with ScriptedModel(cells(code, otherwise=counted)) as model:
        ran = run_job(a_spec(model=model.url))

    told = ran.of("cell_finished")[0].stdout.splitlines()
    refused = "the answer does not fit its class: ValueError: 1 is odd"
    assert told == [f"[True, False, True] {refused}", refused, refused]
    assert replayed(ran)


def test_a_field_that_would_hide_a_method_is_refused_with_another_name():
    code = "try:\n    predict('t -> keys: list[str]', t='x')\nexcept ValueError as e:\n    print(e)\nSUBMIT(answer='x')"
    with ScriptedModel(cells(code)) as model:
        ran = run_job(a_spec(model=model.url))

    assert "take another name, such as keys_found" in ran.of("cell_finished")[0].stdout


def test_a_pydantic_model_of_the_cell_works_where_the_guest_has_pydantic():
    code = """
from pydantic import BaseModel, Field

class Part(BaseModel):
    name: str = Field(description="as printed")

class Order(BaseModel):
    parts: list[Part]

r = predict(Order, text="two bolts")
b = predict("text -> order: Order", text="two bolts")
print(type(r.value) is Order, type(r.value.parts[0]) is Part, type(b.order) is Order)
SUBMIT(answer='x')
"""
    policy = SandboxPolicy(guest_paths=(sysconfig.get_paths()["purelib"],))
    with ScriptedModel(cells(code)) as model:
        ran = run_job(a_spec(model=model.url, sandbox_policy=policy))

    assert ran.of("cell_finished")[0].stdout.split() == ["True", "True", "True"], ran.of("cell_finished")[0]


def test_calls_are_awaited_at_the_top_of_a_cell_and_inside_its_functions():
    code = """
import asyncio
async def ask(n):
    return (await predict("n: int -> label: Literal['x','y']", n=n)).label
both = await asyncio.gather(ask(1), ask(2), predict("n: int -> label: Literal['x']", n=3))
texts = await llm_query_batched(["a", "b"])
await note("discovery", "found")
left = await budget()
print(len(both), len(texts), left.subcalls > 0)
SUBMIT(answer=both[0])
"""
    with ScriptedModel(cells(code)) as model:
        ran = run_job(a_spec(model=model.url))

    assert ran.output == {"answer": "x"}
    assert ran.of("cell_finished")[0].stdout == "3 2 True\n"
    assert replayed(ran)


@pytest.mark.requirement("S3X-RLM-1", "N3-SEC-7")
def test_proposals_stand_in_the_result_marked_untrusted_and_nothing_else_happens(tmp_path):
    (tmp_path / "a.log").write_text("disk full\n")
    code = """
propose_effect("ticket", target="OPS", reason="full", title=evidence["a.log"].line(1).text)
remember("disks fill up", subject="disks", source="a.log:1")
note("discovery", "disk full")
SUBMIT(answer='x')
"""
    with ScriptedModel(cells(code)) as model:
        ran = run_job(a_spec(model=model.url, input_artifacts=(evidence_of(tmp_path / "a.log"),)))

    effect, memory, note = ran.result.proposals
    assert (effect.kind, effect.body["request"]) == ("effect", {"title": "disk full"})
    assert (memory.kind, memory.body["source"]) == ("memory", "a.log:1")
    assert note.body == {"kind": "discovery", "text": "disk full"}
    assert {proposal.trust for proposal in ran.result.proposals} == {"untrusted"}
    assert ran.result.trust == "untrusted"
    assert replayed(ran)


def test_what_is_made_of_trusted_evidence_alone_is_trusted(tmp_path):
    (tmp_path / "a.log").write_text("fine\n")
    trusted = evidence_of(tmp_path / "a.log").model_copy(update={"trust": "trusted"})
    with ScriptedModel(cells("note('discovery', 'x')\nSUBMIT(answer='x')")) as model:
        ran = run_job(a_spec(model=model.url, input_artifacts=(trusted,)))

    assert (ran.result.trust, ran.result.proposals[0].trust) == ("trusted", "trusted")


def test_a_flood_of_proposals_is_refused():
    code = "for n in range(300):\n    note('discovery', str(n))"
    with ScriptedModel(cells(code, "SUBMIT(answer='x')")) as model:
        ran = run_job(a_spec(model=model.url))

    assert len(ran.result.proposals) == 200
    assert "200 proposals" in ran.of("cell_finished")[0].error_message


LOOK = f"""
(workspace / "p.png").write_bytes({PNG!r})
r = predict("page: Image, hint -> total: float", page=workspace / "p.png", hint="sum")
again = predict("page: Image, hint -> total: float", page=evidence["scan.png"], hint="sum")
print(r.total, again.cached)
SUBMIT(answer='x')
"""


class TestImages:
    @pytest.fixture
    def spec(self, tmp_path):
        (tmp_path / "scan.png").write_bytes(PNG)
        return lambda model: a_spec(model=model.url, input_artifacts=(evidence_of(tmp_path / "scan.png"),))

    def test_an_image_goes_to_the_model_as_a_part_and_into_the_record_as_a_digest(self, spec, tmp_path):
        with ScriptedModel(cells(LOOK), model="llava-7b-vl") as model:
            ran = run_job(spec(model), artifacts=tmp_path / "kept")
            content = model.requests[1]["messages"][-1]["content"]

        digest = hashlib.sha256(PNG).hexdigest()
        text, image = content
        assert image["image_url"]["url"] == "data:image/png;base64," + base64.b64encode(PNG).decode()
        assert "Input page: (attached: image/png, 1,032 bytes)" in text["text"]
        started = ran.of("subcall_started")
        assert len(started) == 1
        assert started[0].inputs["page"] == {
            "$media": {"media_type": "image/png", "sha256": digest, "bytes": len(PNG)}
        }
        assert (tmp_path / "kept" / digest).read_bytes() == PNG
        assert ran.of("cell_finished")[0].stdout.split()[1] == "True"
        assert replayed(ran)

    def test_a_model_that_is_not_known_to_see_is_not_asked(self, spec):
        code = "try:\n    predict('p: Image -> n: int', p=evidence['scan.png'])\nexcept SubcallError as e:\n    print(e)\n"
        batch = "try:\n    predict_batch('p: Image -> n: int', [evidence['scan.png']])\nexcept SubcallError as e:\n    print(e)\n"
        with ScriptedModel(cells(code + batch + "SUBMIT(answer='x')")) as model:
            ran = run_job(spec(model))
            asked = len(model.requests) - 1

        assert asked == 0
        assert ran.of("cell_finished")[0].stdout.count("not known to take image/png") == 2
        assert replayed(ran)

    def test_a_listed_model_is_asked(self, spec):
        settings = replace(QUICK, models=ModelSettings(seeing_models=("scripted",)))
        with ScriptedModel(cells(LOOK)) as model:
            assert run_job(spec(model), settings=settings).result.status == "succeeded"

    def test_a_file_that_is_no_image_is_refused_in_the_cell(self, spec):
        code = """
for value, kind in ((b"text", "Image"), (b"%PDF-1.7 x", "Image"), (b"x" * (5 << 20), "Pdf"), (3, "Image")):
    try:
        predict(f"p: {kind} -> n: int", p=value)
    except (ValueError, TypeError) as error:
        print(error)
SUBMIT(answer='x')
"""
        with ScriptedModel(cells(code), model="llava-vl") as model:
            said = run_job(spec(model)).of("cell_finished")[0].stdout.splitlines()

        assert "no Image" in said[0]
        assert "found application/pdf" in said[1]
        assert "make it smaller" in said[2]
        assert "not int" in said[3]

    def test_a_pdf_goes_as_a_file(self, spec):
        code = "predict('p: Pdf -> n: int', p=b'%PDF-1.7 tiny')\nSUBMIT(answer='x')"
        with ScriptedModel(cells(code), model="gpt-5-scripted") as model:
            run_job(spec(model))
            part = model.requests[1]["messages"][-1]["content"][1]

        assert part["type"] == "file"
        assert part["file"]["file_data"].startswith("data:application/pdf;base64,")


def test_a_server_without_structured_outputs_is_asked_in_words_and_repaired():
    answers = iter(["not json", '{"label": "x"}'])

    def plain(request, n):
        if "response_format" in request:
            return Fault(400, {"error": {"message": "response_format is not supported"}})
        if any("following this JSON Schema" in str(m["content"]) for m in request["messages"]):
            return next(answers)
        return "```python\nSUBMIT(answer=predict(\"t -> label: Literal['x']\", t='a').label)\n```"

    with ScriptedModel(plain) as model:
        ran = run_job(a_spec(model=model.url))

    assert ran.output == {"answer": "x"}
    assert ran.of("subcall_finished")[0].requests == 2
