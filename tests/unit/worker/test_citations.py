"""Citations against the evidence as it lies on disk: what exists, and that no address leads out of it."""

import hashlib
import os

import pytest

from rlm_worker.citations import CitationBook, citations_in
from rlm_worker.contracts.signature import fields_schema
from tests.builders import evidence_of

CITED = {"type": "string", "format": "citation"}


@pytest.fixture
def place(tmp_path):
    tree = tmp_path / "src"
    (tree / "deep").mkdir(parents=True)
    (tree / "a.py").write_text("one\ntwo\nthree")
    (tree / "deep" / "b:7.py").write_text("x\n")
    (tree / "empty.txt").write_text("")
    (tree / "crlf.txt").write_bytes(b"one\r\ntwo\r\n")
    (tmp_path / "outside.txt").write_text("secret\n")
    (tree / "out").symlink_to(tmp_path / "outside.txt")
    (tree / "within").symlink_to(tree / "a.py")
    (tree / "loop").symlink_to(tree / "loop")
    (tree / "dangling").symlink_to(tree / "nothing")
    os.mkfifo(tree / "pipe")
    (tmp_path / "app.log").write_text("l1\nl2\n")
    return tmp_path


@pytest.fixture
def book(place):
    return CitationBook((evidence_of(place / "src"), evidence_of(place / "app.log")))


@pytest.mark.parametrize(
    "address",
    [
        "src/a.py",
        "src/a.py:1",
        "src/a.py:3",
        "src/a.py:1-3",
        "src/a.py:2-2",
        "src/deep/b:7.py:1",
        "src/deep/b:7.py",
        "src/empty.txt",
        "src/empty.txt:1",
        "src/crlf.txt:2",
        "src/within:3",
        "src/deep/../a.py:1",
        "app.log:2",
        "app.log",
    ],
)
def test_an_address_in_the_evidence_exists(book, address):
    assert book.exists(address)


@pytest.mark.parametrize(
    "address",
    [
        "",
        ":1",
        "src",
        "src/",
        "src/deep",
        "src/deep:1",
        "src/a.py:0",
        "src/a.py:4",
        "src/a.py:3-2",
        "src/a.py:2-4",
        "src/a.py:1-",
        "src/a.py:-1",
        "src/a.py:1\n",
        "src/a.py:999999999999",
        "src/a.py:" + "9" * 5_000,
        "src/empty.txt:2",
        "src/nothing.py:1",
        "src/out:1",
        "src/../outside.txt:1",
        "src/deep/../../outside.txt:1",
        "src//etc/passwd",
        "/etc/passwd:1",
        "src/loop:1",
        "src/dangling:1",
        "src/pipe:1",
        "src/\0:1",
        "src/\ud800:1",
        "src/" + "x" * 5_000,
        "other/a.py:1",
        "app.log/x:1",
        "app.log:3",
    ],
    ids=lambda address: repr(address)[:40].encode("ascii", "backslashreplace").decode(),
)
def test_an_address_elsewhere_does_not(book, address):
    assert not book.exists(address)


def test_a_file_whose_name_is_not_utf8_can_be_cited_as_python_spells_it(place, book):
    (place / "src").joinpath(os.fsdecode(b"caf\xe9.txt")).write_text("x\n")

    assert book.exists("src/caf\udce9.txt:1")
    assert not book.exists("src/caf\udce9.txt:2")


def test_a_file_that_cannot_be_read_has_no_lines_to_cite(place, book, monkeypatch):
    def unreadable(path, *_mode, **_options):
        raise PermissionError(13, "no", str(path))

    monkeypatch.setattr("pathlib.Path.open", unreadable)

    assert not book.exists("src/a.py:1")


def test_a_document_is_counted_once(place, book):
    assert book.exists("app.log:2")
    (place / "app.log").write_text("")

    assert book.exists("app.log:2")


def test_a_report_counts_and_shows_at_most_twenty_that_are_missing(book):
    schema = fields_schema("where: list[Citation]")

    report = book.report({"where": ["app.log:1"] + ["nowhere:1"] * 30}, schema)

    assert (report.checked, report.verified, len(report.missing)) == (31, 1, 20)


@pytest.mark.parametrize(
    ("value", "schema"),
    [
        ("c:1", CITED),
        ({"a": "c:1", "b": "text"}, {"properties": {"a": CITED, "b": {"type": "string"}}}),
        (["c:1"], {"type": "array", "items": CITED}),
        (["x", "c:1"], {"prefixItems": [{"type": "string"}], "items": CITED}),
        ({"any": "c:1"}, {"additionalProperties": CITED}),
        ("c:1", {"anyOf": [{"type": "null"}, CITED]}),
        ("c:1", {"anyOf": [CITED, CITED]}),
        ("c:1", {"oneOf": [CITED]}),
        ("c:1", {"allOf": [{"type": "string"}, CITED]}),
        ({"a": "c:1"}, {"$defs": {"c/d": CITED}, "properties": {"a": {"$ref": "#/$defs/c~1d"}}}),
        (
            {"next": {"next": {"at": "c:1"}}},
            {"properties": {"at": CITED, "next": {"$ref": "#"}}},
        ),
    ],
)
def test_a_citation_is_found_wherever_the_schema_has_one(value, schema):
    assert list(citations_in(value, schema)) == ["c:1"]


def test_a_schema_that_refers_to_itself_is_no_trap():
    assert list(citations_in("x", {"$ref": "#"})) == []
    assert list(citations_in("x", {"$ref": "#/nowhere"})) == []
    assert list(citations_in(["x"], True)) == []


def test_a_citation_of_a_content_holds_while_the_document_has_it(place):
    log = place / "app.log"
    address = f"app.log#sha256={hashlib.sha256(log.read_bytes()).hexdigest()}"

    assert CitationBook((evidence_of(log),)).exists(address)
    assert not CitationBook((evidence_of(log),)).exists(f"app.log#sha256={'0' * 64}")
    log.write_text("l1\nl3\n")
    assert not CitationBook((evidence_of(log),)).exists(address)
