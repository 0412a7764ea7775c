"""What a job leaves behind is whole: each turn and call in the trace, files between turns, a labelled end when its sandbox is lost for good."""

from dataclasses import replace

import pytest

from rlm_worker.contracts import Budget
from rlm_worker.contracts.job import SandboxPolicy
from tests.builders import a_spec, evidence_of
from tests.engine import QUICK, Ran, attempt, run_job
from tests.memory_gateway import MemoryGateway
from tests.scripted_model import Answer, Hang, ScriptedModel, cells, in_turn, schema_of

LEAVES = "(workspace / 'kept').mkdir()\n(workspace / 'kept' / 'a.txt').write_text('of the first turn')"
READS = "SUBMIT(answer=(workspace / 'kept' / 'a.txt').read_text())"


@pytest.mark.requirement("S3-RLM-3")
def test_a_file_that_one_turn_wrote_is_there_in_a_later_one():
    with ScriptedModel(cells(LEAVES, "x = 1", READS)) as model:
        ran = run_job(a_spec(model=model.url))

    assert ran.output == {"answer": "of the first turn"}


@pytest.mark.requirement("S3-RLM-3", "S3-RLM-12", "LESSON-16", "S2-FAQ-1")
def test_files_variables_and_answers_are_there_again_when_the_sandbox_was_lost():
    first = f"{LEAVES}\nlabel = predict('t -> label: str', t='x').label"
    dies = "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)"
    with ScriptedModel(cells(first, dies, f"assert label\n{READS}")) as model:
        ran = run_job(a_spec(model=model.url))
        asked = sum(schema_of(request) is not None for request in model.requests)

    assert ran.output == {"answer": "of the first turn"}
    assert [cell.outcome for cell in ran.of("cell_finished")] == ["ok", "crashed", "ended"]
    assert asked == 1


@pytest.mark.requirement("S3-RLM-7", "S3-RLM-9", "N3-RESULT-9")
def test_every_turn_and_every_call_of_a_cell_stands_in_the_trace():
    code = "budget()\nnote('discovery', 'n')\nDRAFT(answer='d')\npredict('t -> label: str', t='x')"
    turns = in_turn("prose", f"```python\n{code}\n```", "", "```python\nSUBMIT(answer='x')\n```")
    with ScriptedModel(
        lambda request, n: {"label": "y"} if schema_of(request) else turns(request, n)
    ) as model:
        ran = run_job(a_spec(model=model.url))
    root = [event for event in ran.of("model_answered") if event.iteration]

    assert [event.iteration for event in ran.of("cell_rejected")] == [1]
    assert [event.iteration for event in ran.of("cell_proposed")] == [2, 3]
    assert len(ran.of("cell_finished")) == len(ran.of("cell_proposed"))
    assert [event.iteration for event in root] == list(range(1, ran.result.usage.iterations + 1))
    assert [event.name for event in ran.of("host_call_finished")] == ["budget"]
    assert [event.proposal.kind for event in ran.of("proposal_made")] == ["note"]
    assert [event.fields for event in ran.of("draft_recorded")] == [{"answer": "d"}]
    assert len(ran.of("subcall_finished")) == 1
    assert ran.result.usage.host_calls == 3


@pytest.mark.requirement("LESSON-27", "N3-PLAN-3")
def test_a_call_that_hangs_fails_in_its_own_time_and_its_cell_goes_on():
    code = """
kept = 1
try:
    predict("t -> label: str", t="x")
except SubcallError as error:
    SUBMIT(answer=str(error))
"""
    settings = replace(QUICK, model_timeout_seconds=0.3)
    with ScriptedModel(cells(code, otherwise=lambda request, n: Hang())) as model:
        ran = run_job(
            a_spec(model=model.url, sandbox_policy=SandboxPolicy(cell_seconds=30)), settings=settings
        )

    assert ran.result.status == "succeeded"
    assert "0.3 s" in str(ran.output["answer"])


@pytest.mark.requirement("N3-FAIL-4", "N3-FAIL-9")
def test_a_sandbox_that_cannot_be_built_up_again_ends_the_job_by_that_name(tmp_path):
    (tmp_path / "a.txt").write_text("fine")
    code = "import os\nif evidence['a.txt'].text == 'deadly':\n    os._exit(1)"
    with ScriptedModel(cells(code, "print(1)", "SUBMIT(answer='x')")) as model:
        gateway = MemoryGateway(a_spec(model=model.url, input_artifacts=(evidence_of(tmp_path / "a.txt"),)))
        attempt(gateway)
        last = [record.typed().kind for record in gateway.records].index("cell_finished")
        (tmp_path / "a.txt").write_text("deadly")
        again = resumed(gateway, kept=last + 1)

    assert (again.result.status, again.result.failure_class) == ("failed", "sandbox_fatal")
    assert "rebuilding iteration 1" in again.result.message


def resumed(gateway: MemoryGateway, *, kept: int) -> Ran:
    """The job as a later attempt finds it, whose worker died after so many records."""
    later = MemoryGateway(gateway.spec)
    later.records = gateway.records[:kept]
    attempt(later)
    return Ran(later)


@pytest.mark.requirement("S3-BOUND-15")
def test_a_cell_that_was_killed_has_its_time_counted():
    book = "# %% burn\nimport signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass\n# %% more\n1/0\n"
    spec = a_spec(
        playbook=book, sandbox_policy=SandboxPolicy(cell_seconds=0.5), budget=Budget(max_iterations=3)
    )
    ran = run_job(spec)

    cell = ran.of("cell_finished")[0]
    assert (cell.outcome, cell.state_lost) == ("timed_out", True)
    assert cell.cpu_ms >= 500
    assert ran.result.usage.sandbox_cpu_ms >= cell.cpu_ms


def test_an_answer_in_a_tool_call_is_a_cell():
    call = '<tool_call>\n{"name": "python", "arguments": {"code": "SUBMIT(answer=\'x\')"}}\n</tool_call>'
    with ScriptedModel(in_turn(Answer(call))) as model:
        assert run_job(a_spec(model=model.url)).output == {"answer": "x"}


def test_half_a_character_does_not_cost_an_answer():
    usage = {"prompt_tokens": 9, "completion_tokens": 9, "total_tokens": 18}
    code = "said = predict('t -> label: str', t='x').label\nSUBMIT(answer=said + 'cut \ud83d')"
    typed = Answer('{"label": "half \\ud83d "}', usage=usage)
    turn = Answer(f"```python\n{code}\n```", usage=usage)
    with ScriptedModel(lambda request, n: typed if schema_of(request) else turn) as model:
        ran = run_job(a_spec(model=model.url))

    assert ran.output == {"answer": "half \ufffd cut \ufffd"}
    assert model.calls == 2
