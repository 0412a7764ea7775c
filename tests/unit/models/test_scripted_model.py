"""The scripted model keeps its own promises: valid fillings, cells in order, a process of its own."""

import json
import subprocess
import sys
import urllib.request
from pathlib import Path

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from tests.scripted_model import cells, completion, fill, usage_of

simple = st.sampled_from(
    [
        {"type": "string", "minLength": 3},
        {"type": "string", "maxLength": 2},
        {"type": "integer", "minimum": 5, "maximum": 7},
        {"type": "number", "exclusiveMinimum": 0},
        {"type": "boolean"},
        {"enum": ["a", 2, None]},
        {"const": 4},
        {"type": "string", "format": "date"},
        {"anyOf": [{"type": "null"}, {"type": "integer"}]},
        {"type": ["string", "null"]},
    ]
)
schemas = st.recursive(
    simple,
    lambda inner: (
        st.dictionaries(st.text(max_size=4), inner, max_size=3).map(
            lambda p: {"type": "object", "properties": p, "required": list(p), "additionalProperties": False}
        )
        | st.builds(lambda i, n: {"type": "array", "items": i, "minItems": n}, inner, st.integers(0, 3))
    ),
    max_leaves=6,
)


@given(schemas, st.integers(0, 10**9))
def test_a_filling_is_valid(schema, seed: int) -> None:
    jsonschema_rs.validate(schema, fill(schema, seed=seed))


def test_references_of_pydantic_schemas_are_followed() -> None:
    adapter = TypeAdapter(dict[str, list[tuple[int, str]]] | None)
    assert adapter.validate_python(fill(adapter.json_schema())) == {}


def test_cells_answer_root_turns_in_order_and_subcalls_by_schema() -> None:
    script = cells("x = 1", "SUBMIT(x=x)")
    root = {"messages": [{"role": "user", "content": "go"}]}
    sub = {**root, "response_format": {"json_schema": {"schema": {"type": "integer", "minimum": 3}}}}
    assert "```python\nx = 1\n```" in script(root, 0)
    assert script(sub, 1) == 3
    assert "SUBMIT" in script(root, 2)
    assert "SUBMIT" in script(root, 3)


def test_usage_follows_from_request_and_answer() -> None:
    request = {"messages": [{"role": "user", "content": "x" * 40}]}
    assert completion(request, 0, "y" * 20)["usage"] == usage_of(request, "y" * 20)
    assert usage_of(request, "y" * 20) == {"prompt_tokens": 14, "completion_tokens": 5, "total_tokens": 19}


@pytest.mark.parametrize(("rule", "content"), [("echo_schema", "ok"), ("text:hello there", "hello there")])
def test_it_runs_as_a_process_of_its_own(rule: str, content: str) -> None:
    script = Path(__file__).parents[2] / "scripted_model.py"
    process = subprocess.Popen(
        [sys.executable, str(script), "--rule", rule], stdout=subprocess.PIPE, text=True
    )
    try:
        url = json.loads(process.stdout.readline())["url"].partition("#")[0]
        body = json.dumps({"messages": [{"role": "user", "content": "hi"}]}).encode()
        with urllib.request.urlopen(urllib.request.Request(f"{url}/chat/completions", data=body)) as answer:
            assert json.load(answer)["choices"][0]["message"]["content"] == content
    finally:
        process.terminate()
        process.communicate()
