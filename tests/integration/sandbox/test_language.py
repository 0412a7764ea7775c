"""Ordinary analysis code under both language policies, and the ways out of strict, in real sandboxes."""

import asyncio

import pytest

from sandbox import Finished, HostCall, Mount, Policy, SandboxUnavailable, open_session
from sandbox.strictness import package_directory
from tests.integration.sandbox.language_snippets import EVIDENCE, SNIPPETS, table, table_in_readme
from tests.integration.sandbox.strict_attempts import ATTEMPTS, ORDINARY


@pytest.fixture(scope="module")
def evidence(tmp_path_factory):
    path = tmp_path_factory.mktemp("evidence") / "app.log"
    path.write_text(EVIDENCE)
    return Mount(source=str(path), target="app.log")


async def _run(session, code) -> Finished:
    async for event in session.execute(code, deadline_seconds=20):
        if isinstance(event, HostCall):
            await session.answer(event.call_id, {"ok": True, "value": {"label": "yes"}, "model": "m"})
        elif isinstance(event, Finished):
            finished = event
    return finished


def _run_all(language, codes, *evidence) -> list[Finished]:
    async def story():
        session = await open_session(
            Policy(language=language, evidence=evidence, calls=frozenset({"predict"}))
        )
        try:
            return [await _run(session, code) for code in codes]
        finally:
            await session.close()

    return asyncio.run(story())


@pytest.fixture(scope="module")
def outcomes(evidence):
    """Every snippet in one session per policy, as a job's cells follow each other."""
    codes = [snippet.code for snippet in SNIPPETS]
    return {language: _run_all(language, codes, evidence) for language in ("open", "strict")}


@pytest.mark.parametrize("number", range(len(SNIPPETS)), ids=[snippet.kind for snippet in SNIPPETS])
def test_open_runs_ordinary_analysis_code(outcomes, number):
    finished = outcomes["open"][number]

    assert finished.outcome == "ok", finished.error
    assert finished.stdout.rstrip("\n") == SNIPPETS[number].prints


@pytest.mark.parametrize("number", range(len(SNIPPETS)), ids=[snippet.kind for snippet in SNIPPETS])
def test_strict_runs_it_too_or_says_what_to_do_instead(outcomes, number):
    snippet, finished = SNIPPETS[number], outcomes["strict"][number]

    if not snippet.refused:
        assert finished.outcome == "ok", finished.error
        assert finished.stdout.rstrip("\n") == snippet.prints
    else:
        assert finished.outcome == "error"
        assert snippet.refused in finished.error.message
        assert finished.error.line is not None
        assert snippet.instead


def test_strict_accepts_nine_tenths_of_at_least_sixty_snippets():
    accepted = sum(not snippet.refused for snippet in SNIPPETS)

    assert len(SNIPPETS) >= 60
    assert accepted / len(SNIPPETS) >= 0.9


def test_the_readme_shows_the_table_that_was_tested():
    assert table_in_readme() == table()


#: Each reached the interpreter, or a file of the host, under RestrictedPython with a sensible import list.
WAYS_OUT = {
    "dataclasses.sys": "import dataclasses\ngot = dataclasses.sys.modules['os']",
    "statistics.sys": "import statistics\ngot = statistics.sys",
    "re.enum.sys": "import re\ngot = re.enum.sys",
    "enum.sys": "import enum\ngot = enum.sys",
    "csv.re": "import csv\ngot = csv.re.enum.sys",
    "contextlib.os": "import contextlib\ngot = contextlib.os",
    "asyncio.sys": "import asyncio\ngot = asyncio.sys",
    "json.codecs": "import json\ngot = json.codecs.builtins.open",
    "from json import codecs": "from json import codecs\ngot = codecs",
    "from asyncio import subprocess": "from asyncio import subprocess\ngot = subprocess",
    "dunder by import": "from json import __class__ as got",
    "reduce by import": "from json import __reduce_ex__ as r\ngot = r(4)",
    "from os import system": "from os import system\ngot = system",
    "import asyncio.subprocess": "import asyncio.subprocess as s\ngot = s",
    "io.open": "import io\ngot = io.open('/proc/self/status')",
    "io.FileIO": "import io\ngot = io.FileIO('/proc/self/status')",
    "open elsewhere": "got = open('/proc/self/status').read()",
    "open by link": "import os\nos.symlink('/proc/self', 'l')\ngot = open('l/status')",
    "open by dots": "got = open('../proc/self/status')",
    "open a descriptor": "got = open(3, 'rb')",
    "open with opener": "got = open('x', 'w', opener=print)",
    "pathlib": "from pathlib import Path\ngot = Path('/proc/self/status').read_text()",
    "pathlib by workspace": "got = (workspace / '../proc/self/status').read_text()",
    "pathlib's own class": "got = type(workspace).mro()[1]('/proc/self/status').read_text()",
    "pathlib by super": "class P(type(workspace)):\n    def get(self): return super(type(workspace), self).read_text()\ngot = P('/proc/self/status').get()",
    "pathlib that changes its mind": """
class P(type(workspace)):
    n = [0]
    def __fspath__(self):
        self.n[0] += 1
        return "/workspace/x" if self.n[0] < 2 else "/proc/self/status"
    def __str__(self): return self.__fspath__()
(workspace / "x").write_text("mine")
got = P("/workspace/x").read_text()
assert got != "mine\"""",
    "attrgetter": "from operator import attrgetter\ngot = attrgetter('__class__.__base__')(())",
    "attrgetter deep": "from operator import attrgetter\ngot = attrgetter('real.__class__')(1)",
    "methodcaller": "from operator import methodcaller\ngot = methodcaller('__reduce__')(1)",
    "string.Formatter": "import string\ngot = string.Formatter().get_field('0.__class__', ((),), {})",
    "str.format": "got = '{0.__class__.__base__}'.format(())",
    "str.format unbound": "got = str.format('{0.__class__}', ())",
    "str.format nested": "got = '{:{0.__class__}}'.format(())",
    "format_map": "got = '{a.__class__}'.format_map({'a': ()})",
    "format by getattr": "got = getattr('{0.__class__}', 'format')(())",
    "getattr": "got = getattr((), '__class__')",
    "getattr with a str that lies": "class S(str): pass\ngot = getattr((), S('__class__'))",
    "__class__": "got = ().__class__.__base__.__subclasses__()",
    "__globals__": "def f(): pass\ngot = f.__globals__",
    "__builtins__": "got = __builtins__",
    "__import__": "got = __import__('os')",
    "gi_frame": "g = (x for x in [1])\ngot = g.gi_frame.f_back",
    "gi_frame by getattr": "g = (x for x in [1])\ngot = getattr(g, 'gi_frame')",
    "cr_frame": "async def f(): pass\nc = f()\ngot = c.cr_frame",
    "ag_frame": "async def f(): yield 1\ngot = f().ag_frame",
    "tb_frame": "try:\n    1/0\nexcept Exception as e:\n    got = e.__traceback__.tb_frame",
    "AttributeError.obj": "import json\ntry:\n    json.nothing\nexcept AttributeError as e:\n    got = e.obj",
    "AttributeError.obj by pattern": "try:\n    (1).nothing\nexcept AttributeError as e:\n    match e:\n        case AttributeError(obj=o): got = o",
    "class pattern": "match ():\n    case object(__class__=c): got = c",
    "positional class pattern": "class A:\n    __match_args__ = ('__class__',)\nmatch A():\n    case A(c): got = c",
    "__match_args__ unpacked": "class A:\n    __match_args__, x = ('__class__',), 1\ngot = A",
    "guard replaced": "_getattr_ = getattr\ngot = 1",
    "guard replaced by import": "from json import loads as _getattr_\ngot = 1",
    "guard as a parameter": "def f(_getattr_): return ().x\ngot = f(print)",
    "guard replaced through globals()": "globals()['__builtins__'] = {}\ngot = globals()['__builtins__']['x']",
    "three-argument type": "got = type('X', (), {'__annotations__': {'x: int; import os': int}})",
    "type of a class": "got = type(type(1))('X', (), {})",
    "metaclass": "class M(type): pass\ngot = M",
    "wraps copies globals": "from functools import update_wrapper\nimport statistics\ndef f(): pass\nupdate_wrapper(f, statistics.mean, updated=('__globals__',))\ngot = sys",
    "annotation in quotes": "import typing\nclass A(typing.TypedDict):\n    x: '().__class__.__base__'\ngot = predict(A)",
    "get_type_hints": "import typing\ngot = typing.get_type_hints",
    "timeit runs text": "import timeit\ngot = timeit.timeit('import os')",
    "exception group that lies": "class G(ExceptionGroup):\n    def split(self, *a): return 'x'\ngot = G",
    "monkeypatch of the guest": "Document.text = 'forged'\ngot = 1",
    "monkeypatch of a module": "import json\njson.dumps = print\ngot = 1",
    "setattr of a foreign class": "setattr(type(evidence), 'search', print)\ngot = 1",
    "private of the guest": "got = evidence._root",
    "inherited private": "class D(Document):\n    def get(self): return self._path\ngot = D('a', 'b').get()",
    "document of any path": "got = Document('n', '/proc/self/status').text",
    "class of a document": "got = type(evidence['app.log'])('n', '/proc/self/status').text",
    "document made anew": "got = evidence['app.log'].__init__('n', '/proc/self/status')",
    "document made anew by its class": "got = object.__init__(evidence)",
    "evidence of any root": "got = type(evidence)('/')",
    "evidence made anew": "got = evidence.__init__('/')",
    "file class of a file": "got = type(open('f', 'wb').raw)('/proc/self/status')",
    "file opened anew": "got = open('f', 'wb').raw.__init__('/proc/self/status')",
    "channel by the output's class": "import sys\ngot = type(sys.stdout)(3, running=None)",
    "connection's class": "import sqlite3\ngot = type(sqlite3.connect(':memory:'))('/proc/self/status')",
    "function's class": "got = type(lambda: 0)()",
    "path's class by its parent": "got = workspace.parent.parent.joinpath('proc/self/status').read_text()",
    "bound method's self": "got = predict.__self__",
    "sys.modules": "import sys\ngot = sys.modules",
    "types.FunctionType": "import types\ngot = types.FunctionType",
    "subprocess": "import subprocess\ngot = subprocess.run",
    "ctypes": "import ctypes\ngot = ctypes.CDLL(None)",
    "gc": "import gc\ngot = gc.get_objects()",
    "os.environ of the process": "import os\ngot = os.putenv",
    "sqlite extension": "import sqlite3\ngot = sqlite3.connect(':memory:').enable_load_extension(True)",
    "star import": "from os import *\ngot = system",
    "library written to the workspace": "(workspace / 'tzdata.py').write_text('x = 1')\nimport tzdata\ngot = tzdata.x",
    **ATTEMPTS,
}  # fmt: skip


@pytest.fixture(scope="module")
def attempts(evidence):
    codes = [f"got = None\n{code}\nprint('OUT', repr(got)[:50])" for code in WAYS_OUT.values()]
    return dict(zip(WAYS_OUT, _run_all("strict", codes, evidence), strict=True))


@pytest.mark.parametrize("way", WAYS_OUT)
def test_no_known_way_leads_out_of_strict(attempts, way):
    finished = attempts[way]

    assert finished.outcome == "error", finished.stdout
    assert "OUT" not in finished.stdout
    assert finished.error.type not in {"SyntaxError", "NameError", "IndentationError"}, finished.error


@pytest.fixture(scope="module")
def ordinary(evidence):
    codes = [code for code, _prints in ORDINARY.values()]
    return dict(zip(ORDINARY, _run_all("strict", codes, evidence), strict=True))


@pytest.mark.parametrize("kind", ORDINARY)
def test_ordinary_code_beside_the_ways_out_runs_under_strict(ordinary, kind):
    finished = ordinary[kind]

    assert finished.outcome == "ok", finished.error
    assert finished.stdout.rstrip("\n") == ORDINARY[kind][1]


def test_strict_is_a_layer_and_only_its_one_package_comes_in(in_box):
    async def strict(box):
        assert "strict-language" in box.session.layers

    async def usual(box):
        assert "strict-language" not in box.session.layers
        assert await box.value("import os; os.path.exists('/opt/language/RestrictedPython')") == "False"

    in_box(strict, language="strict", required_layers=frozenset({"strict-language", "seccomp"}))
    in_box(usual)


def test_without_its_package_strict_does_not_open(monkeypatch):
    package_directory.cache_clear()
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)

    with pytest.raises(SandboxUnavailable, match="install RestrictedPython") as caught:
        asyncio.run(open_session(Policy(language="strict")))

    assert caught.value.layer == "strict-language"


def test_lines_and_tracebacks_of_strict_code_are_those_of_the_source(in_box):
    code = """
class A:
    def f(self):
        self.n = 1
        return self.n.missing
x = [1,
     A().f()]
"""

    async def story(box):
        finished = await box.run(code)
        assert (finished.error.type, finished.error.line) == ("AttributeError", 5)
        assert "return self.n.missing" in finished.error.traceback
        assert "guards" not in finished.error.traceback

    in_box(story, language="strict")


def test_a_cell_that_cannot_work_runs_not_one_statement(in_box):
    async def story(box):
        await box.run("before = 1")
        finished = await box.run("before = 2\nimport numpy")
        assert (finished.outcome, finished.error.type, finished.error.line) == (
            "error",
            "NotInThisSandbox",
            2,
        )
        assert await box.value("before") == "1"

    in_box(story)
    in_box(story, language="strict")


def test_what_fails_later_gets_the_same_advice(in_box):
    async def story(box):
        finished = await box.run("def f():\n    import pandas\nf()")
        assert finished.error.type == "ModuleNotFoundError"
        assert "csv" in finished.error.message
        finished = await box.run("import socket\ndef g(): socket.socket(socket.AF_INET)\ng()")
        assert "network is off" in finished.error.message

    in_box(story)
