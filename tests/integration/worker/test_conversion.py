"""Hostile documents in the sandbox in which they become text: each ends in its own reason, and touches nothing else."""

import asyncio

import pytest

import sandbox
from rlm_worker import conversion
from rlm_worker.conversion import Order, convert_all
from tests.documents import ORDER_STRINGS, ORDERS, a_docx, a_pdf, an_xlsx


@pytest.fixture
def convert(tmp_path):
    def run(*orders):
        into = tmp_path / "into"
        into.mkdir(exist_ok=True)
        return convert_all(
            [Order(source=path, how=how) for path, how in orders], into, libraries=tmp_path / "lib"
        )

    return run


def test_documents_become_text_in_their_order(convert, tmp_path):
    forms = convert(
        (a_pdf(tmp_path / "a.pdf", [["One"], ["Two"]]), "pdf"),
        (a_docx(tmp_path / "a.docx", ["A paragraph"]), "docx"),
        (an_xlsx(tmp_path / "a.xlsx", {"S": ORDERS}, strings=ORDER_STRINGS), "xlsx"),
    )

    assert [form.error for form in forms] == ["", "", ""]
    assert forms[0].file.read_text() == "One\nTwo\n"
    assert forms[0].facts.pages == (1, 2)
    assert forms[1].file.read_text() == "A paragraph\n"
    assert (forms[2].facts.rows, forms[2].facts.sheets) == (3, ("S",))


def test_a_private_document_is_converted_too(convert, tmp_path):
    document = a_docx(tmp_path / "a.docx", ["secret"])
    document.chmod(0o600)

    assert convert((document, "docx"))[0].file.read_text() == "secret\n"


def test_one_broken_document_does_not_cost_the_others(convert, tmp_path):
    broken = tmp_path / "b.docx"
    broken.write_bytes(b"PK broken")

    bad, good = convert((broken, "docx"), (a_docx(tmp_path / "a.docx", ["good"]), "docx"))

    assert bad.file is None
    assert "it is no zip file" in bad.error
    assert good.file.read_text() == "good\n"


def test_a_document_that_swells_in_memory_is_ended_at_its_limit(convert, tmp_path, monkeypatch):
    monkeypatch.setattr(conversion, "_MEMORY", 96 << 20)
    bomb = tmp_path / "a.xlsx"
    an_xlsx(bomb, {"S": ""}, strings=("x" * (200 << 20),))

    (form,) = convert((bomb, "xlsx"))

    assert form.file is None
    assert "not converted" in form.error


def test_a_document_that_takes_for_ever_is_ended(convert, tmp_path, monkeypatch):
    monkeypatch.setattr(conversion, "_SECONDS", 0.5)
    page = tmp_path / "a.html"
    page.write_text("<p>" * 20_000_000)

    (form,) = convert((page, "html"))

    assert form.file is None
    assert "not converted" in form.error


def test_a_kind_that_nobody_knows_is_an_error_and_no_exception(convert, tmp_path):
    (tmp_path / "a").write_text("x")

    assert "nobody knows how" in convert((tmp_path / "a", "mystery"))[0].error


def test_what_needs_a_library_that_is_not_there_says_which(convert, tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    (tmp_path / "a.parquet").write_bytes(b"PAR1")

    assert "custody[parquet]" in convert((tmp_path / "a.parquet", "parquet"))[0].error


def test_without_a_sandbox_nothing_is_converted(convert, tmp_path, monkeypatch):
    async def nowhere(policy):
        raise sandbox.SandboxUnavailable("there is none", layer="mount-ns")

    maker = conversion._Maker(
        tmp_path, libraries=tmp_path, backend="namespaces", runtime="runc", open_session=nowhere
    )
    (form,) = asyncio.run(maker.convert_all([Order(source=a_docx(tmp_path / "a.docx", ["x"]), how="docx")]))

    assert form.file is None
    assert "there is none" in form.error


FORGED = {
    "pages beyond the text": ("one\n", '{"pages": [1, 99]}'),
    "pages out of order": ("one\ntwo\n", '{"pages": [2, 1]}'),
    "rows that are not there": ("{}\n", '{"rows": 7}'),
    "fields of its own": ("one\n", '{"text": "../../etc/passwd"}'),
    "no json": ("one\n", "pages"),
    "no text": (b"\xff\xfe\x00", "{}"),
}


@pytest.mark.parametrize("what", FORGED)
def test_what_comes_out_of_the_sandbox_is_believed_only_as_far_as_it_fits(tmp_path, what):
    text, facts = FORGED[what]
    (tmp_path / "text").write_bytes(text if isinstance(text, bytes) else text.encode())
    (tmp_path / "facts").write_text(facts)

    form = conversion._checked(tmp_path / "text", tmp_path / "facts")

    assert form.file is None
    assert form.error.startswith("not converted")


def test_a_parquet_file_is_a_json_line_a_row(convert, tmp_path):
    arrow = pytest.importorskip("pyarrow", reason="an extra: pip install 'custody[parquet]'")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table({"who": ["Ann", "Bo"], "n": [1, None]}), tmp_path / "a.parquet")

    (form,) = convert((tmp_path / "a.parquet", "parquet"))

    assert form.error == ""
    assert form.file.read_text() == '{"who":"Ann","n":1}\n{"who":"Bo","n":null}\n'
    assert form.facts.rows == 2
