"""What `run` takes and refuses, before anything is made."""

import json
from decimal import Decimal

import pytest

from controlplane.cli.exits import Refusal
from controlplane.cli.inputs import Resolved, Typed, output_schema
from controlplane.cli.inputs import resolve as resolve_with
from controlplane.config import Settings
from controlplane.errors import InvalidRequest, NotFound

LOCAL = "http://127.0.0.1:9/v1#scripted"


def resolve(typed: Typed) -> Resolved:
    return resolve_with(typed, settings=Settings())


@pytest.fixture(autouse=True)
def no_keys(monkeypatch):
    for name in ("ANTHROPIC", "OPENAI", "GOOGLE", "GEMINI", "MISTRAL", "GROQ", "CUSTODY"):
        monkeypatch.delenv(f"{name}_API_KEY", raising=False)
    for name in ("CUSTODY_MODEL", "CUSTODY_SUB_MODEL"):
        monkeypatch.delenv(name, raising=False)


def test_without_an_output_the_answer_has_citations():
    request = resolve(Typed(question="Why?", model=LOCAL)).request

    assert list(request.output_schema["properties"]) == ["answer", "citations"]
    assert request.sub_model == LOCAL


def test_a_playbook_brings_schema_budget_and_parameters():
    request = resolve(
        Typed(
            question="Why?",
            playbook="audit_comments",
            evidence=(__file__,),
            params=("limit=3",),
            budget=("subcalls=5,usd=0.10",),
            sub_model=LOCAL,
        )
    ).request

    assert request.driver.kind == "playbook"
    assert "findings" in request.output_schema["properties"]
    assert request.budget.max_subcalls == 5
    assert request.budget.max_wall_time_ms == 1_200_000
    assert request.budget.max_cost_usd == Decimal("0.10")
    assert request.params["limit"] == 3
    assert "site-packages" in request.params["skip"]


def test_without_a_key_the_refusal_says_what_can_be_done():
    with pytest.raises(Refusal) as refused:
        resolve(Typed(question="Why?"))

    words = str(refused.value)
    assert "cannot write cells" in words
    assert "audit_comments, find_and_date, log_triage" in words


@pytest.mark.parametrize(
    ("typed", "error", "says"),
    [
        ({"question": "  "}, Refusal, "the question is empty"),
        ({"evidence": ("no/such/file",)}, Refusal, "there is no evidence at 'no/such/file'"),
        ({"model": "gpt"}, InvalidRequest, "no model goes by this name"),
        ({"sub_model": "embedded:nothing"}, InvalidRequest, "nothing"),
        ({"playbook": "nothing"}, NotFound, "Shipped are: audit_comments"),
        ({"playbook": "nothing.py"}, NotFound, "there is no playbook file"),
        ({"playbook": "log_triage", "params": ("colour=red",)}, Refusal, "no parameter 'colour'"),
        ({"playbook": "log_triage", "model": LOCAL}, Refusal, "use --sub-model"),
        ({"output": "answer: strong"}, Refusal, "unknown type 'strong'"),
        ({"output": "no-such.json"}, Refusal, "cannot be read"),
        ({"budget": ("time=soon",)}, Refusal, "Write it like time=10m"),
    ],
)
def test_bad_input_is_refused_with_a_reason(typed, error, says):
    given = {"question": "Why?"} | typed
    if "playbook" not in given:
        given.setdefault("model", LOCAL)

    with pytest.raises(error) as refused:
        resolve(Typed(**given))

    assert says in str(refused.value)


def test_a_schema_file_is_read_and_checked(tmp_path):
    good, scalar, wrong = tmp_path / "good.json", tmp_path / "scalar.json", tmp_path / "wrong.json"
    good.write_text(json.dumps({"type": "object", "properties": {"n": {"type": "integer"}}}))
    scalar.write_text('{"type": "string"}')
    wrong.write_text('{"type": "object", "properties": {"n": {"type": "whole"}}}')

    assert output_schema(str(good), playbook=None)["properties"] == {"n": {"type": "integer"}}
    with pytest.raises(Refusal, match="must be an object"):
        output_schema(str(scalar), playbook=None)
    with pytest.raises(Refusal, match="not a usable JSON Schema"):
        output_schema(str(wrong), playbook=None)


def test_a_shipped_playbook_without_evidence_is_refused():
    with pytest.raises(Refusal, match="reads evidence"):
        resolve(Typed(question="Why?", playbook="log_triage", sub_model=LOCAL))


def test_a_playbook_with_a_mistake_names_its_line(tmp_path):
    mine = tmp_path / "mine.py"
    mine.write_text('# ---\n# name = "mine"\n# title = "T"\n# output = "n: int"\n# ---\n\n# %% a\nx = = 1\n')

    with pytest.raises(InvalidRequest, match="line 8"):
        resolve(Typed(question="Why?", playbook=str(mine), sub_model=LOCAL))
