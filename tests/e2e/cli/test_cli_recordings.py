"""The cells of one job as the driver of another: the same code, asked anew."""

from tests.e2e.cli.custody import Custody
from tests.scripted_model import ScriptedModel, always, cells

CELLS = (
    "label = predict('t -> label: Literal[\"x\",\"y\"]', t=evidence['notes.txt'].text).label",
    "SUBMIT(answer=label * 3)",
)


def test_the_cells_of_a_job_run_again_live_with_other_answers(tmp_path):
    (tmp_path / "notes.txt").write_text("one\n")
    custody = Custody(tmp_path)
    with ScriptedModel(cells(*CELLS)) as model:
        done = custody(
            "run", "what?", "-e", "notes.txt", "--model", model.url, "--sub-model", model.url,
            "-o", "answer: str", "--json",
        )  # fmt: skip
    source = done.document["job_id"]
    with ScriptedModel(always({"label": "y"})) as other:
        again = custody("run", "what?", "--recording", source, "--sub-model", other.url, "--json")
        asked = other.calls

    assert done.document["result"]["structured_output"] == {"answer": "xxx"}
    assert again.code == 0, again.err
    assert again.document["result"]["structured_output"] == {"answer": "yyy"}
    assert again.document["driver"] == f"recording of {source}"
    assert asked == 1
    assert custody("replay", again.document["job_id"], "--verify").code == 0


def test_a_recording_and_another_driver_are_refused(tmp_path):
    custody = Custody(tmp_path)
    with ScriptedModel(cells("SUBMIT(answer='x')")) as model:
        source = custody("run", "what?", "--model", model.url, "-o", "answer: str", "--json").document[
            "job_id"
        ]
        done = custody("run", "what?", "--recording", source, "--model", model.url)

    assert done.code == 2
    assert "leave out --model" in done.err
