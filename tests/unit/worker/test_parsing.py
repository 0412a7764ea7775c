"""A model's turn: one cell, or the reason why there is none."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlm_worker.drivers.driver import Cell, NoCell
from rlm_worker.parsing import read_turn, remark


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("```python\nx = 1\n```", "x = 1\n"),
        ("Plan.\n\n```python\nx = 1\n```\nDone.", "x = 1\n"),
        ("```py\nx = 1\n```", "x = 1\n"),
        ("```Python\nx = 1\n```", "x = 1\n"),
        ("``` python\nx = 1\n```", "x = 1\n"),
        ("```python title=first\nx = 1\n```", "x = 1\n"),
        ("```{python}\nx = 1\n```", "x = 1\n"),
        ("```repl\nx = 1\n```", "x = 1\n"),
        ("```\nx = 1\n```", "x = 1\n"),
        ("~~~python\nx = 1\n~~~", "x = 1\n"),
        ("~~~python\ns = '''\n```\n'''\n~~~", "s = '''\n```\n'''\n"),
        ("````python\ns = '''\n```\n'''\n````", "s = '''\n```\n'''\n"),
        ("```python\nx = 1\n````", "x = 1\n"),
        ("```python\nx = 1", "x = 1\n"),
        ("```python\nx = 1\n``", "x = 1\n``\n"),
        ("```python\r\nx = 1\r\ny = 2\r\n```\r\n", "x = 1\ny = 2\n"),
        ("1. So:\n   ```python\n   if x:\n       y = 1\n   ```\n", "if x:\n    y = 1\n"),
        ("```python\n    x = 1\n```", "    x = 1\n"),
        ("```json\n{}\n```\n```python\nx = 1\n```", "x = 1\n"),
        ("```python\n\n```\n```python\nx = 1\n```", "x = 1\n"),
        ("Use `x` or ```x``` here.\n```python\nx = 1\n```", "x = 1\n"),
        ("```python\nx = '\u2028\x0c'\n```", "x = '\u2028\x0c'\n"),
        ("```python\nx = 1\n```\n```python\ny = 2\n```", "x = 1\n"),
        ("```python\nx = 1\n```\n~~~\ny = 2\n~~~", "x = 1\n"),
        ("<think>I could\n```python\nz = 9\n```\n</think>\n```python\nx = 1\n```", "x = 1\n"),
        ("<think>a</think><thinking>b</thinking>```python\nx = 1\n```", "x = 1\n"),
        ("so I will look.\n</think>\n\n```python\nx = 1\n```", "x = 1\n"),
        ("```python\nx = '<think>a</think>'\n```", "x = '<think>a</think>'\n"),
        (
            '```python\ns = """\n```json\n{}\n```\n"""\nprint(s)\n```\nDone.',
            's = """\n```json\n{}\n```\n"""\nprint(s)\n',
        ),
        ("```python\nx = (\n```\n```python\ny = 2\n```", "x = (\n"),
        ("It printed\n```\nfoo bar\n```\n```python\nx = 1\n```", "x = 1\n"),
        ("```python\nx = 1```", "x = 1\n"),
        ("```python\nx = 1\n``` and so on", "x = 1\n"),
        ("```python\nx = 1\n```<|im_end|>", "x = 1\n"),
        ("\ufeff```python\nx = 1\n```", "x = 1\n"),
        ("```tool_code\nx = 1\n```", "x = 1\n"),
        ('{"name": "python", "arguments": {"code": "x = 1"}}', "x = 1\n"),
        ('```json\n{"name": "python", "arguments": "{\\"code\\": \\"x = 1\\"}"}\n```', "x = 1\n"),
        ('<tool_call>\n{"name": "repl", "arguments": {"code": "x = 1"}}\n</tool_call>', "x = 1\n"),
        ('I look.\n<tool_call>{"function": {"name": "py", "arguments": {"source": "x = 1"}}}', "x = 1\n"),
        ('<invoke name="repl"><parameter name="code">\nx = 1\n</parameter></invoke>', "x = 1\n"),
        ("<code>\nx = 1\n</code>", "x = 1\n"),
        ("<|python_tag|>x = 1", "x = 1\n"),
        ("```\ns = '''\n<code>y</code>\n'''\n```", "s = '''\n<code>y</code>\n'''\n"),
        ("```\n{'a': f()}\n```", "{'a': f()}\n"),
        ("x = 1\nprint(x)", "x = 1\nprint(x)\n"),
        ("SUBMIT(answer='x')", "SUBMIT(answer='x')\n"),
        ("await predict('t -> n: int', t='x')", "await predict('t -> n: int', t='x')\n"),
    ],
)
def test_a_turn_with_one_block_is_a_cell(text, code):
    turn = read_turn(text)

    assert isinstance(turn, Cell), turn
    assert turn.code == code


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "was empty"),
        (" \n\t", "was empty"),
        ("The answer is 42.", "has no code"),
        ("```inline```", "has no code"),
        ("```json\n{}\n```", "found: json"),
        ("```\n\n```", "found: empty"),
        ("Done", "has no code"),
        ("answer, why", "has no code"),
        ("42", "has no code"),
        ('{"answer": 42}', "call SUBMIT"),
        ('{"name": "search", "arguments": {"query": "x"}}', "has no code"),
        ("<tool_call>{not json", "has no code"),
        ("<tool_call>" + '{"a":' * 5_000, "has no code"),
        ("<think>```python\nx = 1\n```</think>", "was empty"),
        ("<think>I go on and on", "was empty"),
    ],
)
def test_a_turn_without_one_block_says_why(text, told):
    turn = read_turn(text)

    assert isinstance(turn, NoCell)
    assert told in turn.reason
    assert turn.text == text


def test_the_text_around_the_block_is_the_reasoning():
    turn = read_turn("First.\n```python\nx\n```\nThen.")

    assert isinstance(turn, Cell)
    assert turn.reasoning == "First.\nThen."


def test_a_turn_with_several_blocks_is_told_that_only_the_first_was_run():
    assert "2 code blocks: only the first was run" in remark("```python\nx\n```\n```\ny\n```")
    assert remark("```python\nx\n```\n```json\n{}\n```") == ""


PIECES = st.sampled_from(
    [
        "```",
        "~~~",
        "````",
        "python",
        "\n",
        "\r\n",
        " ",
        "\t",
        "x = 1",
        "`",
        "'''",
        "{",
        "é",
        "\0",
        "<think>",
        "</think>",
    ]
)


@settings(max_examples=300)
@given(st.one_of(st.text(), st.lists(PIECES, max_size=40).map("".join)))
def test_no_text_breaks_the_reader(text):
    turn = read_turn(text)

    assert isinstance(turn, Cell | NoCell)
    if isinstance(turn, Cell):
        assert turn.code.strip()
        assert turn.code.endswith("\n")


@given(st.lists(st.text(st.characters(exclude_characters="`~\n\r"), max_size=20), min_size=1, max_size=6))
def test_code_comes_out_as_it_went_in(lines):
    code = "\n".join(lines)

    turn = read_turn(f"Plan.\n```python\n{code}\n```\n")

    if code.strip():
        assert isinstance(turn, Cell)
        assert turn.code == code.rstrip() + "\n"


@pytest.mark.parametrize(
    "text",
    [
        "`" * 200_000,
        "~" * 200_000,
        " " * 200_000 + "```",
        "```\n" * 50_000,
        "<think>" * 50_000,
        "</think>" * 50_000,
        "```python\n(\n" + "```\n" * 50_000,
        "```python\n(\n" + "``` x\n" * 50_000,
        "<tool_call>" * 20_000,
        "\n<code>" * 20_000,
    ],
)
def test_a_hostile_answer_costs_no_more_than_its_length(text):
    began = time.process_time()

    read_turn(text)

    assert time.process_time() - began < 1
