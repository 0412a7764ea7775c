"""Documents to text forms, as it is done inside the sandbox: what each kind gives, and what is refused."""

import bz2
import gzip
import json
import lzma
import zipfile

import pytest

from sandbox.guest.conversion.start import convert
from sandbox.guest.conversion.xml_parts import BadDocument
from tests.documents import ORDER_STRINGS, ORDERS, a_docx, a_pdf, an_xlsx


@pytest.fixture
def converted(tmp_path):
    def run(how, source, *, max_bytes=1 << 20):
        convert(how, source=str(source), folder=str(tmp_path), max_bytes=max_bytes)
        return (tmp_path / "text").read_text(encoding="utf-8"), json.loads(
            (tmp_path / "facts.json").read_text()
        )

    return run


def test_a_web_page_is_what_a_reader_sees(tmp_path, converted):
    page = tmp_path / "a.html"
    page.write_text(
        "<!doctype html><html><head><title>Rates</title><style>p{}</style></head><body><script>steal()</script>"
        "<p>Two   words<br>and &amp; more</p><ul><li>one<li>two</ul><table><tr><td>a</td><td>b</td></tr></table>"
        "<pre>  kept\n  as is</pre><img alt='a chart'></body></html>"
    )

    text, _ = converted("html", page)

    assert text.splitlines() == [
        *("Rates", "Two words", "and & more", "- one", "- two", "a\tb"),
        *("  kept", "  as is", "[a chart]"),
    ]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"<meta charset='iso-8859-1'><p>caf\xe9", "café"),
        (b"<p>caf\xe9", "café"),
        ("<p>café".encode(), "café"),
        ("<p>café".encode("utf-16"), "café"),
    ],
)
def test_a_web_page_is_read_in_its_own_encoding(tmp_path, converted, body, said):
    page = tmp_path / "a.html"
    page.write_bytes(body)

    assert converted("html", page)[0] == said + "\n"


def test_a_word_file_is_a_line_a_paragraph_and_a_line_a_row(tmp_path, converted):
    document = a_docx(
        tmp_path / "a.docx", ["First", "Second"], table=[["x", "y"], ["1", "2"]], footnote="See law"
    )

    text, _ = converted("docx", document)

    assert text.splitlines() == ["First", "Second", "x\ty", "1\t2", "", "[footnotes]", "See law"]


def test_a_workbook_is_a_json_line_a_row_with_dates_as_dates(tmp_path, converted):
    book = an_xlsx(tmp_path / "a.xlsx", {"Orders": ORDERS, "Empty": ""}, strings=ORDER_STRINGS)

    text, facts = converted("xlsx", book)

    assert [json.loads(line) for line in text.splitlines()] == [
        {"sheet": "Orders", "row": 1, "values": ["who", "paid", "when"]},
        {"sheet": "Orders", "row": 2, "values": ["Ann", 12.5, "2024-01-01"]},
        {"sheet": "Orders", "row": 4, "values": ["Bo", None, "2024-01-01T12:00:00"]},
    ]
    assert facts["sheets"] == ["Orders", "Empty"]
    assert facts["rows"] == 3


def test_a_pdf_is_the_text_of_its_pages(tmp_path, converted):
    document = a_pdf(tmp_path / "a.pdf", [["Page one", "goes on"], [], ["The third"]])

    text, facts = converted("pdf", document)

    assert text.splitlines() == ["Page one", "goes on", "", "The third"]
    assert facts["pages"] == [1, 3, 4]
    assert "1 of 3 pages hold no text" in facts["note"]


@pytest.mark.parametrize(
    ("how", "pack"), [("gzip", gzip.compress), ("bzip2", bz2.compress), ("xz", lzma.compress)]
)
def test_packed_text_is_unpacked(tmp_path, converted, how, pack):
    packed = tmp_path / "a.packed"
    packed.write_bytes(pack(b"one\r\ncaf\xe9\nlast"))

    assert converted(how, packed)[0] == "one\ncafé\nlast\n"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-be"])
def test_wide_text_becomes_utf8(tmp_path, converted, encoding):
    wide = tmp_path / "a.txt"
    mark = "" if encoding in ("utf-16", "utf-32") else "\ufeff"
    wide.write_bytes(f"{mark}Grüße\r\n第二\n".encode(encoding))

    assert converted(encoding[:6], wide)[0] == "Grüße\n第二\n"


def test_a_text_form_ends_at_its_size_and_says_so(tmp_path, converted):
    packed = tmp_path / "a.gz"
    packed.write_bytes(gzip.compress(b"0123456789\n" * 1_000_000))

    text, facts = converted("gzip", packed, max_bytes=1_000)

    assert len(text) <= 1_000
    assert "it has reached 1,000 bytes" in facts["note"]


BILLION_LAUGHS = '<!DOCTYPE d [<!ENTITY a "ha"><!ENTITY b "&a;&a;">]><d>&b;</d>'


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (BILLION_LAUGHS, "declares"),
        ('<!DOCTYPE d SYSTEM "file:///etc/passwd"><d/>', "declares"),
        ("<d>" * 1_000, "nested deeper"),
        ("<d><e></d>", "broken"),
        ("", "broken"),
    ],
)
def test_hostile_xml_is_refused(tmp_path, converted, body, says):
    document = tmp_path / "a.docx"
    with zipfile.ZipFile(document, "w") as package:
        package.writestr("word/document.xml", body)

    with pytest.raises(BadDocument, match=says):
        converted("docx", document)


def test_a_cell_beyond_the_last_column_is_refused(tmp_path, converted):
    book = an_xlsx(tmp_path / "a.xlsx", {"S": '<row r="1"><c r="ZZZ1"><v>1</v></c></row>'})

    with pytest.raises(BadDocument, match="beyond 16,384 columns"):
        converted("xlsx", book)
