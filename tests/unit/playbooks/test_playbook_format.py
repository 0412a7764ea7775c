"""The text of a playbook, and where its mistakes are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm_worker.drivers.playbook_format import PlaybookError, parse

FRONT = """# ---
# name = "small"
# title = "A small one"
# output = "answer: str, places: list[Citation]"
# budget = "subcalls=3, time=5m"
# [params.limit]
# default = 24
# description = "how many"
# ---
"""


def test_front_matter_and_cells_are_read_with_their_lines():
    text = parse(FRONT + "\n# %% Look\nx = 1\n\n# %%\ny = await z\n\n")
    assert (text.meta.name, text.meta.defaults()) == ("small", {"limit": 24})
    assert text.meta.schema_of_output()["required"] == ["answer", "places"]
    assert [(cell.title, cell.code, cell.first_line) for cell in text.cells] == [
        ("Look", "x = 1", 12),
        ("", "y = await z", 15),
    ]


def test_front_matter_may_name_the_model_that_answers():
    text = parse(FRONT.replace("# [params", '# sub_model = "openai:gpt-5.4-mini"\n# [params') + "pass")
    assert text.meta.sub_model == "openai:gpt-5.4-mini"
    assert parse(FRONT + "pass").meta.sub_model is None


def test_code_before_the_first_mark_is_a_cell_and_empty_cells_are_none():
    text = parse("#!/usr/bin/env custody\n" + FRONT + "import re\n# %% nothing\n\n# %% more\npass\n")
    assert [cell.code for cell in text.cells] == ["import re", "pass"]


def test_a_schema_may_be_given_as_json():
    front = FRONT.replace(
        '# output = "answer: str, places: list[Citation]"\n',
        '# output_schema = \'\'\'\n# {"type": "object",\n#  "properties": {"n": {"type": "integer"}}}\n# \'\'\'\n',
    )
    assert parse(front + "pass").meta.schema_of_output()["properties"] == {"n": {"type": "integer"}}


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("", 1, "no code"),
        ("# ---\n# name = 'x'\n", 3, "not closed"),
        ("# ---\n# name = 'x'\nx = 1\n# ---\n", 3, "not closed"),
        (FRONT, 10, "no code"),
        (FRONT.replace('"small"', "small") + "pass", 2, "not TOML"),
        (FRONT.replace('"small"', '"Small One"') + "pass", 2, "name"),
        (FRONT.replace("list[Citation]", "lisst[Citation]") + "pass", 4, "unknown type"),
        (FRONT.replace("# [params", "# sub_model = 'http://x/v1#m'\n# [params") + "pass", 6, "sub_model"),
        (FRONT.replace("# [params", "# sub_model = 'gpt'\n# [params") + "pass", 6, "sub_model"),
        (FRONT.replace("# output", "# result") + "pass", 4, "result"),
        (FRONT.replace("default", "defalt") + "pass", 7, "defalt"),
        (FRONT.replace("subcalls=3", "subcalls"), 5, "budget"),
        (FRONT + "# %% Look\nx = 1\n\n\nx = = 2\n", 14, "cell 'Look' is not Python"),
        (FRONT + "# %% Look\nx = '''\n# %% Cut\n'''\n", 11, "not Python"),
    ],
)
def test_a_mistake_is_told_with_its_line(text, line, reason):
    with pytest.raises(PlaybookError, match=reason) as caught:
        parse(text)
    assert caught.value.line == line


CELL = st.sampled_from(
    ["x = 1", "y = 2\n\nz = 3", "def f():\n    return '%%'", "# only words", "a = '''\n\n'''"]
)


@given(
    st.lists(
        st.tuples(st.from_regex(r"[A-Za-z][A-Za-z ,.]{0,20}", fullmatch=True), CELL, st.integers(0, 3)),
        min_size=1,
    )
)
def test_what_is_written_is_what_is_read(cells):
    source = FRONT + "".join(f"# %% {title}\n{blank * chr(10)}{code}\n" for title, code, blank in cells)
    read = parse(source).cells
    assert [(cell.title, cell.code) for cell in read] == [(title.strip(), code) for title, code, _ in cells]
    lines = source.split("\n")
    for cell in read:
        first = cell.code.split("\n")[0]
        assert lines[cell.first_line - 1] == first
        assert cell.padded.split("\n")[cell.first_line - 1] == first


@given(st.text(max_size=300) | st.text(max_size=300).map(FRONT.__add__))
def test_any_text_is_read_or_refused_with_a_line(text):
    try:
        parse(text)
    except PlaybookError as error:
        line = error.line
    else:
        line = 1
    assert line >= 1


def test_front_matter_may_be_left_out():
    text = parse("x = 1\n# %% Next\nSUBMIT(answer=x)\n")

    assert text.meta is None
    assert [cell.title for cell in text.cells] == ["", "Next"]
