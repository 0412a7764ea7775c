"""Exceptions whose own attributes and methods are hostile are described like any other."""

import json

import pytest

from sandbox.guest.failures import describe

CELL = "<cell 1>"

HOSTILE = {
    "a file name that cannot be hashed": "raise SyntaxError('x', ([], 1, 1, ''))",
    "a file name that lies": "class F(str):\n    def __hash__(self): raise SystemExit\nraise SyntaxError('x', (F('<cell 1>'), 1, 1, ''))",
    "a line that is no number": "raise SyntaxError('x', ('<cell 1>', 'one', 1, ''))",
    "a line that lies": "class I(int):\n    def __gt__(self, o): raise SystemExit\nraise SyntaxError('x', ('<cell 1>', I(1), 1, ''))",
    "a traceback that ends the process": "class E(Exception):\n    @property\n    def __traceback__(self): raise SystemExit\nraise E('x')",
    "a traceback that is none": "class E(Exception):\n    __traceback__ = 5\nraise E('x')",
    "a message that raises": "class E(Exception):\n    def __str__(self): raise SystemExit\nraise E",
    "a message that cannot be cut": "class S(str):\n    def __getitem__(self, i): raise SystemExit\nclass E(Exception):\n    def __str__(self): return S('x')\nraise E",
    "a name that raises": "class M(type):\n    @property\n    def __name__(self): raise SystemExit\nclass E(Exception, metaclass=M): pass\nraise E",
    "a cause that raises": "class E(Exception):\n    @property\n    def __cause__(self): raise SystemExit\nraise E",
    "notes that raise": "class E(Exception):\n    @property\n    def __notes__(self): raise SystemExit\nraise E",
    "a file name that is a property": "class E(SyntaxError):\n    @property\n    def filename(self): raise SystemExit\nraise E",
}  # fmt: skip


@pytest.mark.parametrize("code", HOSTILE.values(), ids=HOSTILE)
def test_nothing_an_exception_does_stops_its_description(code):
    try:
        exec(compile(code, CELL, "exec"), {"__name__": "cell"})
    except BaseException as error:  # noqa: BLE001 - whatever it is
        described = describe(error, files=frozenset({CELL}), hint=lambda _error: "")

    assert json.loads(json.dumps(described)) == described
    assert described["type"]
    assert described["line"] is None or type(described["line"]) is int


def test_the_line_is_found_although_a_property_hides_the_traceback():
    code = "class E(Exception):\n    __traceback__ = None\n\nraise E('x')"
    try:
        exec(compile(code, CELL, "exec"), {"__name__": "cell"})
    except Exception as error:  # noqa: BLE001 - a class of the code's own
        described = describe(error, files=frozenset({CELL}), hint=lambda _error: "")

    assert described["line"] == 4
