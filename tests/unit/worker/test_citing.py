"""Addresses as text, and quotes beside them: what can be written can be read back, and nothing else is believed."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sandbox
from rlm_worker.citations import CitationBook, Quote, mistakes_of, quotes_in
from rlm_worker.contracts.job import Reading
from sandbox.guest.documents import Document
from sandbox.guest.tables import Row
from tests.builders import evidence_of

CITED = {"type": "string", "format": "citation"}
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)
NUMBERS = st.integers(min_value=1, max_value=10**9)


@given(NAMES, NUMBERS, NUMBERS)
def test_what_a_document_writes_as_an_address_is_read_back(name, one, other):
    document = Document(name, "/nowhere")
    first, last = sorted((one, other))
    row = Row()
    row.document, row.number = document, first

    assert sandbox.meanings_of(document.cite(first, last))[0] == sandbox.Address(name, "line", first, last)
    assert sandbox.meanings_of(document.cite(first))[0] == sandbox.Address(name, "line", first, first)
    assert sandbox.meanings_of(document.cite_bytes(first, last))[0] == sandbox.Address(
        name, "byte", first, last
    )
    assert sandbox.meanings_of(row.citation)[0] == sandbox.Address(name, "row", first, first)
    assert sandbox.meanings_of(f"{name}#page={first}")[0] == sandbox.Address(name, "page", first, first)


@given(st.text(max_size=200))
def test_any_text_has_at_least_the_meaning_of_a_name(text):
    meanings = sandbox.meanings_of(text)

    assert meanings[-1] == sandbox.Address(text)
    assert len(meanings) <= 2
    assert all(meaning.first >= 0 and len(meaning.name) <= len(text) for meaning in meanings)


@given(st.text(max_size=60))
def test_no_text_leads_out_of_the_evidence(text):
    book = CitationBook(())

    assert not book.exists(text)


@pytest.fixture
def book(tmp_path):
    log = tmp_path / "app.log"
    log.write_bytes("first line\nthe  second\tline\nMüller\n".encode("cp1252"))
    table = tmp_path / "t.csv"
    table.write_text('who,said\nAnn,"two\nlines"\nBo,x\n')
    lines = tmp_path / "r.jsonl"
    lines.write_text('{"said": "a \\"word\\""}\n{"said": "b"}\n')
    paper = tmp_path / "a.pdf"
    paper.write_bytes(b"%PDF-")
    return CitationBook(
        (
            told(log, tmp_path, {"encoding": "cp1252"}),
            told(table, tmp_path, {"kind": "text/csv"}),
            told(lines, tmp_path, {"kind": "application/jsonl"}),
            told(paper, tmp_path, {"text": "0.txt", "pages": [1, 3]}, text="One\ntwo\nthree\n"),
        )
    )


def told(path, folder, facts, text=""):
    reading = folder / f"reading of {path.name}"
    reading.mkdir()
    (reading / "index.json").write_text(json.dumps({"files": {"": facts}}))
    (reading / "0.txt").write_text(text)
    return evidence_of(path).model_copy(update={"reading": Reading(location=str(reading), digest="0" * 64)})


@pytest.mark.parametrize(
    ("there", "not_there"),
    [
        ("app.log:3", "app.log:4"),
        ("app.log@0-10", "app.log@0-99"),
        ("app.log@5-6", "app.log@6-6"),
        ("a.pdf#page=2", "a.pdf#page=3"),
        ("a.pdf#page=1-2", "a.pdf#page=0"),
        ("a.pdf:3", "a.pdf:4"),
        ("t.csv#row=0", "t.csv#row=3"),
        ("t.csv#row=1-2", "t.csv#row=2-1"),
        ("r.jsonl#row=2", "r.jsonl#row=3"),
        ("app.log", "app.log#page=1"),
    ],
)
def test_every_kind_of_address_is_looked_up(book, there, not_there):
    assert book.exists(there)
    assert not book.exists(not_there)


@pytest.mark.parametrize(
    ("address", "quote"),
    [
        ("app.log:2", "the second line"),
        ("app.log:1-2", "line the"),
        ("app.log:3", "Müller"),
        ("app.log@0-5", "first"),
        ("app.log", "second line Müller"),
        ("a.pdf#page=1", "One two"),
        ("a.pdf#page=2", "three"),
        ("t.csv#row=1", "two lines"),
        ("t.csv#row=1", "Ann,two"),
        ("r.jsonl#row=1", 'a "word"'),
    ],
)
def test_a_quote_that_stands_at_its_address_is_verified(book, address, quote):
    assert book.says(Quote(quote, (address,)))


@pytest.mark.parametrize(
    ("address", "quote"),
    [
        ("app.log:1", "second"),
        ("app.log:2", "The second line"),
        ("a.pdf#page=2", "One"),
        ("t.csv#row=2", "Ann"),
        ("app.log@0-5", "first line"),
        ("nowhere:1", "first"),
        ("app.log:9", ""),
    ],
)
def test_a_quote_from_elsewhere_is_not(book, address, quote):
    assert not book.says(Quote(quote, (address,)))


FINDING = {
    "type": "object",
    "properties": {"citation": CITED, "quote": {"type": "string"}, "title": {"type": "string"}},
}
SCHEMA = {
    "type": "object",
    "properties": {
        "findings": {"type": "array", "items": {"$ref": "#/$defs/finding"}},
        "where": {"type": "array", "items": CITED},
        "words": {"type": "string", "format": "quote"},
        "quote": {"type": "string"},
    },
    "$defs": {"finding": FINDING},
}


def test_quotes_are_found_beside_their_citations():
    fields = {
        "findings": [{"citation": "a:1", "quote": "x", "title": "t"}, {"citation": "a:2", "quote": " "}],
        "where": ["b:1", "b:2"],
        "words": "y",
    }

    assert list(quotes_in(fields, SCHEMA)) == [Quote("x", ("a:1",)), Quote("y", ("b:1", "b:2"))]


def test_a_quote_beside_no_citation_is_not_checked():
    assert list(quotes_in({"quote": "x", "findings": []}, SCHEMA)) == []


def test_the_report_counts_quotes_and_says_what_is_wrong(book):
    fields = {
        "findings": [
            {"citation": "app.log:1", "quote": "first line"},
            {"citation": "app.log:2", "quote": "made up"},
            {"citation": "app.log:77"},
        ]
    }

    report = book.report(fields, SCHEMA)

    assert (report.checked, report.verified, report.missing) == (3, 2, ("app.log:77",))
    assert (report.quotes_checked, report.quotes_verified, report.misquoted) == (2, 1, ("app.log:2",))
    assert mistakes_of(report) == (
        "1 of 3 citations do not exist in the evidence: 'app.log:77'",
        "1 of 2 quotes do not stand where they are cited: 'app.log:2'; quote word for word, from the text at the address",
    )


@pytest.mark.parametrize("ending", ["", "\n"])
def test_lines_are_found_across_blocks_of_a_large_document(tmp_path, ending):
    log = tmp_path / "big.log"
    lines = [f"line {number} " + "x" * (number % 97) for number in range(1, 40_001)]
    log.write_text("\n".join(lines) + ending)
    book = CitationBook((evidence_of(log),))

    for number in (1, 2, 17_000, 17_001, 39_999, 40_000):
        assert book.says(Quote(f"line {number} ", (f"big.log:{number}",)))
        assert not book.says(Quote(f"line {number} x", (f"big.log:{number % 40_000 + 1}",)))
    assert not book.exists("big.log:40001")
    assert book.says(Quote("line 39999 line 40000", ("big.log",))) is False
    assert book.says(Quote(" ".join(lines[16_998:17_002]), ("big.log:16999-17002",)))
