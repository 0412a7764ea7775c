"""ask(): a job parks for a person's answer, holds nothing, and goes on with a typed value."""

import asyncio
import time

import pytest

from rlm_worker.replay import verify_replay
from tests.builders import a_spec
from tests.engine import Ran, attempt
from tests.memory_gateway import MemoryGateway
from tests.scripted_model import ScriptedModel

LABEL = '\'t -> label: Literal["x","y"]\''


def asking(code: str, output: str = "answer: str", **fields) -> MemoryGateway:
    gateway = MemoryGateway(a_spec(playbook=f"# %%\n{code}\n", output=output, **fields))
    attempt(gateway)
    return gateway


def question_of(gateway: MemoryGateway):
    return next(record.typed() for record in reversed(gateway.records) if record.kind == "question_asked")


def test_a_job_that_asks_is_parked_without_a_result_a_lease_or_a_hold():
    gateway = asking("year = ask('Which year is meant?', int)\nSUBMIT(answer=str(year))")

    assert gateway.result is None
    assert gateway.parked is not None
    assert (gateway.parked.reason, gateway.parked.detail) == ("asked", "Which year is meant?")
    assert question_of(gateway).answer_schema == {"type": "integer"}
    assert [record.kind for record in gateway.records][-1] == "parked"


def test_the_answer_comes_back_as_a_typed_value_with_who_and_when_on_record():
    gateway = asking(
        "import dataclasses, datetime\n"
        "@dataclasses.dataclass\nclass Signed:\n    name: str\n    on: datetime.date\n"
        "who = ask('Who signed, and when?', Signed)\n"
        "SUBMIT(answer=f'{type(who).__name__} {who.name} {who.on.year + 1}')"
    )

    gateway.answer(question_of(gateway).ordinal, {"name": "Ada", "on": "2023-05-01"}, by="grace")
    attempt(gateway)

    ran = Ran(gateway)
    (answered,) = ran.of("question_answered")
    assert ran.output == {"answer": "Signed Ada 2024"}
    assert (answered.by, answered.answered_ms) == ("grace", 1_700_000_000_000)
    assert asyncio.run(verify_replay(gateway.spec, gateway.records)).verified


@pytest.mark.parametrize(
    ("schema", "value", "said"),
    [
        ("str", "as it is", "'as it is'"),
        ("'year: int, sure: bool'", {"year": 2024, "sure": True}, "{'year': 2024, 'sure': True}"),
        ("{'type': 'string', 'format': 'date'}", "2024-02-03", "datetime.date(2024, 2, 3)"),
        ("Literal['yes', 'no']", "yes", "'yes'"),
        ("list[int]", [1, 2], "[1, 2]"),
    ],
)
def test_every_way_to_say_what_is_wanted(schema, value, said):
    gateway = asking(f"from typing import Literal\nSUBMIT(answer=repr(ask('What?', schema={schema})))")

    gateway.answer(question_of(gateway).ordinal, value)
    attempt(gateway)

    assert Ran(gateway).output == {"answer": said}


def test_what_was_done_before_the_question_is_not_paid_again():
    with ScriptedModel() as model:
        gateway = asking(
            f"import time\nlabel = predict({LABEL}, t=str(time.time())).label\nSUBMIT(answer=label + ask('And?'))",
            model=model.url,
        )
        gateway.answer(question_of(gateway).ordinal, "!")
        attempt(gateway)
        asked = model.calls

    assert Ran(gateway).output == {"answer": "x!"}
    assert asked == 1
    assert Ran(gateway).of("diverged") == []


def test_a_question_that_nobody_answers_in_time_raises_in_the_cell():
    code = (
        "try:\n    said = ask('Anybody?', timeout=0.2)\n"
        "except NobodyAnswered as error:\n    said = f'{type(error).__name__}: {error}'\nSUBMIT(answer=said)"
    )
    gateway = asking(code)
    assert gateway.parked is not None
    assert gateway.parked.not_before is not None
    while time.time() < gateway.parked.not_before.timestamp():
        time.sleep(0.01)

    gateway.unpark()
    attempt(gateway)

    assert Ran(gateway).output == {"answer": "NobodyAnswered: nobody answered in time: Anybody?"}
    assert asyncio.run(verify_replay(gateway.spec, gateway.records)).verified


def test_a_job_that_is_woken_without_an_answer_parks_again_and_asks_once():
    gateway = asking("SUBMIT(answer=ask('Well?'))")
    gateway.unpark()
    attempt(gateway)
    again = gateway.parked

    gateway.answer(question_of(gateway).ordinal, "well")
    attempt(gateway)

    assert again is not None
    assert len(Ran(gateway).of("question_asked")) == 1
    assert Ran(gateway).output == {"answer": "well"}


def test_questions_asked_side_by_side_are_each_answered():
    gateway = asking(
        "import asyncio\n"
        "async def both():\n    return await asyncio.gather(ask('One?'), ask('Two?'))\n"
        "SUBMIT(answer=' '.join(await both()))"
    )
    told: set[int] = set()
    for _ in range(2):
        for record in list(gateway.records):
            event = record.typed()
            if event.kind == "question_asked" and event.ordinal not in told:
                told.add(event.ordinal)
                gateway.answer(event.ordinal, event.question.lower())
        if gateway.result is None:
            attempt(gateway)

    assert Ran(gateway).output == {"answer": "one? two?"}


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("ask('')", "needs a question"),
        ("ask('x', {'type': 'nonsense'})", "cannot be used"),
        ("ask('x', timeout=-1)", "more than 0"),
    ],
)
def test_a_question_that_cannot_be_asked_is_an_error_in_the_cell(call, said):
    gateway = asking(f"try:\n    {call}\nexcept HostCallError as error:\n    SUBMIT(answer=str(error))")

    assert said in Ran(gateway).output["answer"]
