"""The loop with its real parts: sandbox, HTTP model, trace."""

import pytest

from rlm_worker.contracts import Budget
from tests.builders import a_spec, evidence_of
from tests.engine import QUICK, run_job
from tests.scripted_model import Answer, Fault, ScriptedModel, cells, in_turn

SUBMIT = "SUBMIT(answer='done')"


@pytest.mark.requirement("S3-RLM-1", "S3-RLM-2", "S3-RLM-6", "CARD-15", "CARD-16", "S3-RLM-12")
def test_a_model_writes_cells_whose_variables_persist_until_it_submits():
    with ScriptedModel(cells("x = 20 + 1", "x *= 2\nprint(x)", "SUBMIT(answer=str(x))")) as model:
        ran = run_job(a_spec(model=model.url))

    assert ran.result.status == "succeeded"
    assert ran.output == {"answer": "42"}
    assert ran.result.answered_by == "submit"
    assert ran.result.usage.iterations == 3


def test_the_next_prompt_shows_what_the_cell_printed_and_raised():
    with ScriptedModel(cells("print('seen by the model')", "1/0", SUBMIT)) as model:
        run_job(a_spec(model=model.url))
        second, third = (model.requests[i]["messages"][-1]["content"] for i in (1, 2))

    assert "seen by the model" in second
    assert "ZeroDivisionError" in third
    assert "line 1" in third


def test_a_failed_cell_keeps_the_variables_it_had_set():
    with ScriptedModel(cells("kept = 'yes'\n1/0", "SUBMIT(answer=kept)")) as model:
        assert run_job(a_spec(model=model.url)).output == {"answer": "yes"}


def test_a_turn_without_code_is_answered_with_a_correction():
    with ScriptedModel(in_turn("I think the answer is 42.", f"```python\n{SUBMIT}\n```")) as model:
        ran = run_job(a_spec(model=model.url))
        told = model.requests[1]["messages"][-1]["content"]

    assert ran.result.status == "succeeded"
    assert "no code" in told
    assert [event.kind for event in ran.of("cell_rejected")] == ["cell_rejected"]


@pytest.mark.requirement("S3-RLM-4", "S3-RLM-8", "S3-RLM-10", "CARD-4")
def test_predict_gives_typed_values_and_every_subcall_is_in_the_trace():
    code = """
r = predict("line -> severity: Literal['low','high'], count: int, when: date", line="disk full")
print(r.severity, type(r.count).__name__, type(r.when).__name__)
SUBMIT(answer=r.severity)
"""
    with ScriptedModel(cells(code)) as model:
        ran = run_job(a_spec(model=model.url))

    assert ran.output["answer"] in ("low", "high")
    assert ran.of("cell_finished")[0].stdout.split()[1:] == ["int", "date"]
    finished = ran.of("subcall_finished")
    assert len(finished) == 1
    assert finished[0].spend.input_tokens > 0


def test_an_answer_of_the_wrong_type_is_repaired_once_and_then_raises():
    code = """
try:
    predict("line -> n: int", line="x")
except SubcallError as error:
    SUBMIT(answer=str(error))
"""
    script = cells(code, otherwise=lambda request, n: {"n": "many"})
    with ScriptedModel(script) as model:
        ran = run_job(a_spec(model=model.url))
        asked = len(model.requests) - 1

    assert "no answer of the asked type" in ran.output["answer"]
    assert asked == 1 + QUICK.repairs
    assert ran.of("subcall_finished")[0].requests == asked


def test_a_batch_keeps_the_order_of_its_rows_and_failed_rows_are_values():
    code = """
rs = predict_batch("n: int -> double: int", [{"n": i} for i in range(30)])
print([r.double if r.ok else None for r in rs])
SUBMIT(answer=str(sum(not r.ok for r in rs)))
"""

    def doubled(request, n):
        text = request["messages"][-1]["content"]
        number = int(text.rsplit("Input n: ", 1)[1])
        return Fault(400, {"error": {"message": "no"}}) if number == 7 else {"double": number * 2}

    with ScriptedModel(cells(code, otherwise=doubled)) as model:
        ran = run_job(a_spec(model=model.url))

    expected = [None if i == 7 else 2 * i for i in range(30)]
    assert ran.of("cell_finished")[0].stdout.strip() == str(expected)
    assert ran.output == {"answer": "1"}


@pytest.mark.requirement("S3-RLM-12")
def test_an_identical_question_is_asked_once_per_job():
    code = """
a = predict("t -> label: Literal['x','y']", t="same")
b = predict_batch("t -> label: Literal['x','y']", [{"t": "same"}, {"t": "same"}, {"t": "other"}])
SUBMIT(answer=a.label)
"""
    with ScriptedModel(cells(code)) as model:
        ran = run_job(a_spec(model=model.url))
        asked = len(model.requests) - 1

    assert asked == 2
    assert ran.result.usage.subcalls == 2
    assert ran.result.usage.answered_from_journal >= 1


def test_usage_is_the_sum_over_all_calls_also_under_concurrency():
    code = """
rs = predict_batch("n: int -> label: Literal['x','y']", [{"n": i} for i in range(120)])
SUBMIT(answer=str(sum(r.ok for r in rs)))
"""
    with ScriptedModel(cells(code), latency_seconds=0.005) as model:
        ran = run_job(a_spec(model=model.url))
        peak = model.peak_in_flight

    calls = ran.of("subcall_finished") + ran.of("model_answered")
    usage = ran.result.usage
    assert peak > 8
    assert usage.subcalls == 120
    assert usage.input_tokens == sum(call.spend.input_tokens for call in calls)
    assert usage.output_tokens == sum(call.spend.output_tokens for call in calls)
    assert usage.input_tokens == sum(model_usage.input_tokens for model_usage in usage.by_model.values())


def test_a_broken_connection_is_tried_again_by_one_owner_only():
    code = "SUBMIT(answer=predict('t -> label: Literal[\"x\"]', t='a').label)"
    flaky = in_turn(Fault(503, "busy"), Fault(503, "busy"), {"label": "x"})
    with ScriptedModel(cells(code, otherwise=lambda request, n: flaky(request, n - 1))) as model:
        ran = run_job(a_spec(model=model.url))

    assert ran.output == {"answer": "x"}
    assert ran.of("subcall_finished")[0].requests == 3


def test_a_submit_of_the_wrong_shape_is_an_observation_and_the_job_goes_on():
    with ScriptedModel(cells("SUBMIT(answer=3)", "SUBMIT(anser='x')", SUBMIT)) as model:
        ran = run_job(a_spec(model=model.url))

    assert ran.result.status == "succeeded"
    rejected = ran.of("submit_rejected")
    assert len(rejected) == 2
    assert "answer" in rejected[0].errors[0]


@pytest.mark.requirement("S3-RLM-11")
def test_citations_are_checked_against_the_evidence(tmp_path):
    log = tmp_path / "app.log"
    log.write_text("one\ntwo ERROR\nthree\n")
    good = "hit = next(iter(evidence.search('ERROR')))\nSUBMIT(answer=hit.text, citations=[hit.citation])"
    with ScriptedModel(cells("SUBMIT(answer='x', citations=['app.log:99'])", good)) as model:
        spec = a_spec(
            model=model.url,
            output="answer: str, citations: list[Citation]",
            input_artifacts=(evidence_of(log),),
        )
        ran = run_job(spec)

    assert ran.output["citations"] == ["app.log:2"]
    assert (ran.result.citations.checked, ran.result.citations.verified) == (1, 1)
    assert "app.log:99" in ran.of("submit_rejected")[0].errors[0]


@pytest.mark.requirement("S3-RLM-5", "N3-RESULT-11")
def test_a_child_has_its_own_repl_under_the_same_budget():
    def root(request, n):
        text = request["messages"][1]["content"]
        if "count the letters" in text:
            return "```python\nmine = len(params['inputs']['word'])\nSUBMIT(n=mine)\n```"
        return (
            "```python\nmine = 'parent'\n"
            "r = rlm_query('count the letters', signature='-> n: int', inputs={'word': 'abcd'})\n"
            "SUBMIT(answer=f'{mine} {r.n}')\n```"
        )

    with ScriptedModel(root) as model:
        ran = run_job(a_spec(model=model.url, budget=Budget(max_depth=1)))

    assert ran.output == {"answer": "parent 4"}
    assert ran.result.usage.iterations == 2
    assert ran.result.usage.depth == 1
    child = ran.of("child_finished")[0].child_id
    assert {event.node for event in ran.of("sandbox_opened")} == {"", child}


@pytest.mark.requirement("LESSON-30")
def test_a_model_that_repeats_the_same_failing_cell_is_ended_as_no_progress():
    with ScriptedModel(cells(*["1/0"] * 10)) as model:
        ran = run_job(a_spec(model=model.url))

    assert ran.result.status == "failed"
    assert ran.result.usage.iterations == 3
    assert "no progress" in ran.result.message


@pytest.mark.requirement("N3-FAIL-7")
def test_a_model_that_cannot_be_asked_fails_the_job_with_its_class():
    with ScriptedModel(lambda request, n: Fault(401, {"error": {"message": "bad key"}})) as model:
        ran = run_job(a_spec(model=model.url))

    assert (ran.result.status, ran.result.failure_class) == ("failed", "model_error")
    assert ran.of("model_answered")[0].ok is False


def test_a_playbook_drives_the_same_loop_without_a_root_model():
    book = "# %% look\nx = 6\n# %% answer\nSUBMIT(answer=str(x * 7))\n"

    ran = run_job(a_spec(playbook=book))

    assert ran.output == {"answer": "42"}
    assert [event.driver for event in ran.of("cell_proposed")] == ["playbook", "playbook"]


@pytest.mark.requirement("N3-FAIL-6", "N3-FAIL-7", "N3-PLAN-3")
@pytest.mark.parametrize(
    ("book", "failure"),
    [
        ("# %%\nx = 1\n", "output_invalid"),
        ("# %%\n1/0\n", "output_invalid"),
        ("# %%\npredict('t -> label: str', t='x')\n", "model_error"),
    ],
)
def test_a_playbook_that_cannot_answer_names_the_cause(book, failure):
    ran = run_job(a_spec(playbook=book))

    assert (ran.result.status, ran.result.failure_class) == ("failed", failure)


def test_a_playbook_that_fails_after_a_draft_delivers_the_draft():
    ran = run_job(a_spec(playbook="# %%\nDRAFT(answer='so far')\n# %%\n1/0\n"))

    assert (ran.result.status, ran.result.failure_class) == ("partial", "partial_success")
    assert (ran.output, ran.result.answered_by) == ({"answer": "so far"}, "draft")


def test_a_steer_reaches_the_next_turn_and_is_acknowledged():
    from tests.engine import Ran, attempt
    from tests.memory_gateway import MemoryGateway

    def patient(request, n):
        if n == 0:
            gateway.steer("look at the config first")
            return Answer("```python\nimport time; time.sleep(0.3)\n```")
        return f"```python\n{SUBMIT}\n```"

    with ScriptedModel(patient) as model:
        gateway = MemoryGateway(a_spec(model=model.url))
        attempt(gateway)
        told = model.requests[1]["messages"][-1]["content"]

    assert "look at the config first" in told
    assert Ran(gateway).of("steer_observed")[0].iteration == 2


BROKEN = """# ---
# name = "broken"
# title = "Broken"
# output = "answer: str"
# ---

# %% first
x = 1

# %% second
def deep(n):
    return 1 / n

deep(0)
"""


def test_the_error_of_a_playbook_names_the_line_of_its_file():
    ran = run_job(a_spec(playbook=BROKEN))

    line = BROKEN.splitlines().index("    return 1 / n") + 1
    finished = ran.of("cell_finished")[-1]
    assert f"the playbook ended in line {line} of the file (cell 2, line {finished.error_line} of it)" in (
        ran.result.message
    )
    assert BROKEN.splitlines()[line - 1].strip() == "return 1 / n"
