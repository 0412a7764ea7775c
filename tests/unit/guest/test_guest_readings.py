"""What the host told about documents, as cells meet it: kinds, encodings, text forms, tables, pages, ranks."""

import hashlib
import json

import pytest

from sandbox.guest.evidence import Evidence, NoSuchDocument
from sandbox.guest.ranking import FullText, InMemory
from sandbox.guest.tables import NoTable


def told(root, name, **index):
    folder = root / ".reading" / name
    folder.mkdir(parents=True)
    texts = index.pop("texts", {})
    for file, text in texts.items():
        (folder / file).write_text(text, encoding="utf-8")
    (folder / "index.json").write_text(json.dumps(index))


@pytest.fixture
def root(tmp_path):
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "old.txt").write_bytes("Müller zahlt\nnichts — gar nichts\n".encode("cp1252"))
    (docs / "t.csv").write_text('name;age\nAnn;3\n"Bo\nb";4;x\n\nCy\n')
    (docs / "r.jsonl").write_text('{"a": 1}\n\n[2]\nbroken\n')
    (docs / "a.pdf").write_bytes(b"%PDF-\0")
    (docs / "b.xlsx").write_bytes(b"PK\0")
    sheet = [["who", "who", ""], ["Ann", 1, None], ["Bo", 2, 3]]
    rows = "".join(json.dumps({"sheet": "S", "row": n, "values": v}) + "\n" for n, v in enumerate(sheet, 1))
    told(
        tmp_path,
        "docs",
        kinds={"csv": "text/csv", "jsonl": "application/jsonl", "pdf": "application/pdf", "xlsx": "sheet"},
        files={
            "old.txt": {"encoding": "cp1252", "kind": "text/plain"},
            "t.csv": {"delimiter": ";", "rows": 3},
            "a.pdf": {"text": "0.txt", "pages": [1, 3], "note": "a note"},
            "b.xlsx": {"text": "1.jsonl", "rows": 3, "sheets": ["S"]},
        },
        texts={"0.txt": "Page one\ngoes on\nThe second page\n", "1.jsonl": rows},
    )
    return tmp_path


@pytest.fixture
def evidence(root, tmp_path):
    return Evidence(root, scratch=str(tmp_path))


def test_what_is_known_of_evidence_is_no_evidence(evidence):
    assert list(evidence) == ["docs/a.pdf", "docs/b.xlsx", "docs/old.txt", "docs/r.jsonl", "docs/t.csv"]


def test_the_manifest_says_what_was_told(evidence, root):
    by_name = {entry["name"]: entry for entry in evidence.manifest()}

    assert by_name["docs/a.pdf"] == {
        "name": "docs/a.pdf",
        "kind": "application/pdf",
        "bytes": 6,
        "sha256": hashlib.sha256((root / "docs" / "a.pdf").read_bytes()).hexdigest(),
        "encoding": "utf-8",
        "rows": None,
        "pages": 2,
        "converted": True,
        "note": "a note",
    }
    assert by_name["docs/t.csv"]["rows"] == 3
    assert by_name["docs/old.txt"]["encoding"] == "cp1252"


def test_hashes_of_much_are_made_when_they_are_asked_for(evidence, monkeypatch):
    monkeypatch.setattr("sandbox.guest.evidence._HASHED", 3)

    assert {entry["sha256"] for entry in evidence.manifest()} == {None}
    assert all(len(entry["sha256"]) == 64 for entry in evidence.manifest(hashes=True))


def test_a_document_is_cited_with_its_content(evidence):
    address = evidence["docs/a.pdf"].content_citation

    assert address == f"docs/a.pdf#sha256={evidence['docs/a.pdf'].sha256}"
    assert str(evidence.at(address)).startswith("Page one")
    with pytest.raises(KeyError, match="has another content"):
        evidence.at(f"docs/a.pdf#sha256={'0' * 64}")


def test_text_in_another_encoding_is_read_searched_and_counted_in_place(evidence):
    old = evidence["docs/old.txt"]

    assert old.text == "Müller zahlt\nnichts — gar nichts\n"
    assert [hit.match for hit in evidence.search("müller|MÜLLER", flags=2)] == ["Müller"]
    assert [hit.text for hit in old.search("— gar")] == ["nichts — gar nichts"]
    assert old.search("第|Müller")[0].citation == "docs/old.txt:1"
    assert not old.is_converted


def test_a_document_is_read_in_its_text_form_and_its_bytes_are_still_there(evidence):
    paper = evidence["docs/a.pdf"]

    assert paper.text == "Page one\ngoes on\nThe second page\n"
    assert paper.raw == b"%PDF-\0"
    assert [hit.citation for hit in evidence.search("second")] == ["docs/a.pdf:3"]
    assert [(page.citation, str(page)) for page in paper.pages()] == [
        ("docs/a.pdf#page=1", "Page one\ngoes on"),
        ("docs/a.pdf#page=2", "The second page"),
    ]
    with pytest.raises(IndexError, match="no page 3"):
        paper.page(3)


def test_rows_are_counted_as_records_and_not_as_lines(evidence):
    rows = list(evidence["docs/t.csv"].rows())

    assert rows == [
        {"name": "Ann", "age": "3"},
        {"name": "Bo\nb", "age": "4", "column 3": "x"},
        {"name": "Cy", "age": ""},
    ]
    assert [row.citation for row in rows] == [f"docs/t.csv#row={n}" for n in (1, 2, 3)]
    assert next(evidence["docs/t.csv"].rows(header=False)).citation == "docs/t.csv#row=0"


def test_rows_of_a_workbook_know_their_sheet(evidence):
    rows = list(evidence["docs/b.xlsx"].rows())

    assert rows == [{"who": "Ann", "who 2": 1, "column 3": None}, {"who": "Bo", "who 2": 2, "column 3": 3}]
    assert [(row.sheet, row.citation) for row in rows] == [
        ("S", "docs/b.xlsx#row=2"),
        ("S", "docs/b.xlsx#row=3"),
    ]


def test_a_broken_record_is_named_and_can_be_left_out(evidence):
    lines = evidence["docs/r.jsonl"]

    with pytest.raises(ValueError, match=r"docs/r\.jsonl:4 is not JSON"):
        list(lines.records())
    assert [(row.number, row) for row in lines.records(strict=False)] == [(1, {"a": 1}), (3, {"value": [2]})]


def test_what_is_no_table_says_what_it_is(evidence):
    with pytest.raises(NoTable, match="text/plain, not a table"):
        evidence["docs/old.txt"].rows()


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("docs/old.txt:2", "nichts — gar nichts"),
        ("docs/old.txt:1-2", "Müller zahlt\nnichts — gar nichts"),
        ("docs/old.txt@0-6", "Müller"),
        ("docs/a.pdf#page=2", "The second page"),
        ("docs/t.csv#row=1", {"name": "Ann", "age": "3"}),
        ("docs/a.pdf", "Page one\ngoes on\nThe second page"),
    ],
)
def test_every_address_leads_to_what_stands_there(evidence, address, said):
    assert evidence.at(address) == said


def test_an_address_of_nothing_names_what_is_close(evidence):
    with pytest.raises(NoSuchDocument, match=r"did you mean 'docs/old\.txt'"):
        evidence.at("docs/odl.txt:3")
    with pytest.raises(IndexError):
        evidence.at("docs/t.csv#row=9")


def test_passages_that_fit_words_come_first_and_have_an_address(evidence, tmp_path):
    best = evidence.rank("second page", limit=2)

    assert best[0].citation == "docs/a.pdf:1-3"
    assert best[0].score >= best[-1].score
    assert evidence.rank("second page", limit=2) == best
    assert evidence.rank("the words nobody wrote: zebra") is not None
    assert evidence.rank("...") == []
    assert not list(tmp_path.glob(".ranking*")), "the index is nobody's artifact"


TEXTS = ["apples and pears", "pears", "a word about apples, apples and more apples", "nothing here", "pears"]


@pytest.mark.parametrize("index", [FullText, InMemory])
def test_both_indexes_rank_alike_and_equal_ones_keep_their_order(tmp_path, index):
    ranked = index(str(tmp_path)) if index is FullText else index()
    ranked.add(TEXTS)

    assert [number for number, _ in ranked.best(["pears"], 10)] == [2, 5, 1]
    assert [number for number, _ in ranked.best(["apples"], 1)] == [3]
    assert ranked.best(["zebra"], 10) == []


def test_a_word_with_quotes_is_a_word_and_no_command(tmp_path, evidence):
    assert evidence.rank('page" OR NOT (x NEAR') != []


def test_an_index_that_cannot_be_read_leaves_the_evidence_as_it_lies(root):
    (root / ".reading" / "docs" / "index.json").write_text("{")

    assert Evidence(root)["docs/a.pdf"].bytes == b"%PDF-\0"


def test_evidence_by_places_finds_what_is_known_of_it(root):
    places = {"docs": str(root / "docs"), ".reading/docs": str(root / ".reading" / "docs")}

    assert Evidence(places)["docs/a.pdf"].page_count == 2
    assert len(Evidence(places)) == 5
