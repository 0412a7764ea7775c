"""Single pages of PDFs as inputs of predict(): cut out in a sandbox, sent alone, named in the record, replayed without."""

import asyncio
import base64
import hashlib
import io
from dataclasses import replace
from decimal import Decimal

import pypdf
import pytest
from pypdf.annotations import Link
from pypdf.generic import Fit

from controlplane.bootstrap import open_app
from controlplane.config import Settings
from rlm_worker import admission, cutting
from rlm_worker.contracts import Budget
from rlm_worker.replay import verify_replay
from tests.builders import a_spec
from tests.documents import a_pdf
from tests.engine import QUICK, attempt, run_job
from tests.memory_gateway import MemoryGateway
from tests.scripted_model import Answer, ScriptedModel, cells, schema_of

SEES_PDFS = "gpt-5-scripted"
SEES_IMAGES = "llava-vl"
PAGES = [["First page", "alpha"], ["Second page", "bravo"], ["Third page", "charlie"]]
LOOK = """
answer = predict("sheet: Pdf, hint -> total: float", sheet=evidence["report.pdf"].page(2), hint="sum")
SUBMIT(answer=str(answer.total))
"""


@pytest.fixture
def app(tmp_path):
    app = open_app(Settings(home=tmp_path / "home"))
    yield app
    app.close()


@pytest.fixture
def report(tmp_path):
    return a_pdf(tmp_path / "report.pdf", PAGES)


@pytest.fixture
def job(app, report):
    """A job over the report, whose model may be set otherwise."""
    refs = app.stage([report])
    return lambda model, **fields: a_spec(model=model.url, input_artifacts=refs, **fields)


def pdf_of(request):
    """The PDF that a request carries, as bytes and as the text of its pages."""
    content = request["messages"][-1]["content"]
    part = next(part for part in content if part["type"] == "file")
    data = base64.b64decode(part["file"]["file_data"].partition("base64,")[2])
    return data, [page.extract_text() for page in pypdf.PdfReader(io.BytesIO(data)).pages]


def subcalls_of(model):
    return [request for request in model.requests if schema_of(request) is not None]


def replayed(ran):
    return asyncio.run(verify_replay(ran.gateway.spec, ran.gateway.records)).verified


def test_a_page_goes_to_the_model_alone_and_into_the_record_by_its_place(job, tmp_path):
    with ScriptedModel(cells(LOOK), model=SEES_PDFS) as model:
        ran = run_job(job(model), artifacts=tmp_path / "kept")
        (asked,) = subcalls_of(model)

    data, pages = pdf_of(asked)
    assert [page.split() for page in pages] == [["Second", "page", "bravo"]]
    assert b"alpha" not in data
    assert b"charlie" not in data
    text = asked["messages"][-1]["content"][0]["text"]
    assert "Input sheet: (attached: page 2 of report.pdf, as a PDF of one page)" in text
    (started,) = ran.of("subcall_started")
    assert started.inputs["sheet"] == {
        "$media": {"media_type": "application/pdf", "document": "report.pdf", "page": 2}
    }
    digest = hashlib.sha256(data).hexdigest()
    assert started.cut_pages == (digest,)
    assert (tmp_path / "kept" / digest).read_bytes() == data
    assert ran.result.status == "succeeded"


def test_a_job_with_pages_replays_without_cutting_any(job, monkeypatch):
    with ScriptedModel(cells(LOOK), model=SEES_PDFS) as model:
        ran = run_job(job(model))
        asked = model.calls
        monkeypatch.setattr(admission, "cut_pages", None)
        assert replayed(ran)
        assert model.calls == asked


def test_pages_of_a_batch_are_rows_of_their_own(job):
    code = """
rows = predict_batch("sheet: Pdf -> total: float", evidence["report.pdf"].pages())
print([row.ok for row in rows])
SUBMIT(answer=str(len(rows)))
"""
    with ScriptedModel(cells(code), model=SEES_PDFS) as model:
        ran = run_job(job(model))
        sent = sorted(pdf_of(request)[1][0].split()[0] for request in subcalls_of(model))

    assert ran.of("cell_finished")[0].stdout == "[True, True, True]\n"
    assert sent == ["First", "Second", "Third"]
    assert replayed(ran)


def test_the_same_page_is_asked_about_once(job):
    code = LOOK.replace("SUBMIT", "again = predict('sheet: Pdf, hint -> total: float', "
                        "sheet=evidence.at('report.pdf#page=2'), hint='sum')\nprint(again.cached)\nSUBMIT")  # fmt: skip
    with ScriptedModel(cells(code), model=SEES_PDFS) as model:
        ran = run_job(job(model))
        assert len(subcalls_of(model)) == 1

    assert ran.of("cell_finished")[0].stdout == "True\n"


def test_an_untyped_input_gets_the_text_of_the_page(job):
    code = 'predict("sheet -> total: float", sheet=evidence["report.pdf"].page(3))\nSUBMIT(answer="x")'
    with ScriptedModel(cells(code)) as model:
        run_job(job(model))
        (asked,) = subcalls_of(model)

    assert "charlie" in asked["messages"][-1]["content"]


def test_the_whole_document_goes_as_the_file_it_is(job, report):
    code = 'predict("sheets: Pdf -> total: float", sheets=evidence["report.pdf"])\nSUBMIT(answer="x")'
    with ScriptedModel(cells(code), model=SEES_PDFS) as model:
        run_job(job(model))
        data, _ = pdf_of(subcalls_of(model)[0])

    assert data == report.read_bytes()


REFUSED = """
try:
    {call}
except ({error}) as error:
    print(type(error).__name__, error)
SUBMIT(answer="x")
"""
ONE = 'predict("sheet: Pdf -> n: int", sheet=evidence["report.pdf"].page(2))'
MANY = 'predict_batch("sheet: Pdf -> n: int", [evidence["report.pdf"].page(2)])'


@pytest.mark.parametrize("call", [ONE, MANY])
def test_a_model_that_takes_images_only_is_not_asked_and_the_cell_is_told_to_use_the_text(job, call):
    with ScriptedModel(cells(REFUSED.format(call=call, error="SubcallError")), model=SEES_IMAGES) as model:
        ran = run_job(job(model))
        assert subcalls_of(model) == []

    said = ran.of("cell_finished")[0].stdout
    assert said.startswith("SubcallError")
    assert "evidence['report.pdf'].page(2).text" in said
    assert ran.result.usage.subcalls == 0
    assert replayed(ran)


def test_a_page_is_no_picture_and_the_cell_is_told_what_it_can_be(job):
    code = REFUSED.format(call=ONE.replace("Pdf", "Image"), error="ValueError")
    with ScriptedModel(cells(code), model=SEES_PDFS) as model:
        said = run_job(job(model)).of("cell_finished")[0].stdout

    assert "not drawn as pictures" in said
    assert "type the input Pdf" in said


FORGED = """
for document, page in (("report.pdf", 9), ("other.pdf", 1), ("../report.pdf", 1), ("report.pdf", 0)):
    forged = {"$media": {"media_type": "application/pdf", "document": document, "page": page}}
    try:
        predict("sheet -> n: int", sheet=forged)
    except SubcallError as error:
        print(error)
SUBMIT(answer="x")
"""


def test_a_page_that_is_not_in_the_evidence_is_refused_whoever_names_it(job):
    with ScriptedModel(cells(FORGED), model=SEES_PDFS) as model:
        ran = run_job(job(model))
        assert subcalls_of(model) == []

    said = ran.of("cell_finished")[0].stdout.splitlines()
    assert len(said) == 4
    assert all("in the evidence" in line for line in said)


def test_a_page_with_links_brings_no_other_page_along(app, tmp_path):
    plain = a_pdf(tmp_path / "plain.pdf", PAGES)
    writer = pypdf.PdfWriter(clone_from=plain)
    writer.add_annotation(0, Link(rect=(0, 0, 100, 100), target_page_index=1, fit=Fit.fit()))
    linked = tmp_path / "report.pdf"
    with linked.open("wb") as file:
        writer.write(file)
    code = LOOK.replace("page(2)", "page(1)")
    with ScriptedModel(cells(code), model=SEES_PDFS) as model:
        run_job(a_spec(model=model.url, input_artifacts=app.stage([linked])))
        data, pages = pdf_of(subcalls_of(model)[0])

    assert [page.split()[0] for page in pages] == ["First"]
    assert b"bravo" not in data


@pytest.mark.parametrize("memory", [None, 32 << 20], ids=["broken", "too large"])
def test_a_document_that_cannot_be_cut_costs_the_call_and_not_the_job(job, report, memory, monkeypatch):
    if memory is None:
        report.write_bytes(b"%PDF-1.4 and no more")
    else:
        monkeypatch.setattr(cutting, "_MEMORY", memory)
        report.write_bytes(report.read_bytes() + b" " * (64 << 20))
    code = REFUSED.format(call=ONE, error="SubcallError")
    batch = 'row = predict_batch("sheet: Pdf -> n: int", [evidence["report.pdf"].page(1)])[0]\nprint(row.ok, row.error)\n'
    with ScriptedModel(cells(batch + code), model=SEES_PDFS) as model:
        ran = run_job(job(model))
        assert subcalls_of(model) == []

    row, single = ran.of("cell_finished")[0].stdout.splitlines()
    assert row.startswith("False")
    assert "page 1 of report.pdf cannot be cut out" in row
    assert "use its text, evidence['report.pdf'].page(2).text" in single
    assert ran.result.status == "succeeded"
    assert replayed(ran)


def test_a_worker_that_died_after_the_answer_does_not_ask_about_the_page_again(job):
    with ScriptedModel(cells(LOOK), model=SEES_PDFS) as model:
        spec = job(model)
        whole = run_job(spec)
        last = next(n for n, event in enumerate(whole.events) if event.kind == "subcall_finished")
        gateway = MemoryGateway(spec)
        gateway.records = whole.gateway.records[: last + 1]
        model.requests.clear()
        attempt(gateway)

    assert model.requests == []
    assert gateway.result is not None
    assert gateway.result.structured_output == whole.output


def test_through_a_providers_own_client_a_page_and_an_image_are_sent_and_paid_for(
    app, report, tmp_path, monkeypatch
):
    png = tmp_path / "scan.png"
    png.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    book = """# %%
page = predict("sheet: Pdf -> total: float", sheet=evidence["report.pdf"].page(1)).total
seen = predict("scan: Image -> total: float", scan=evidence["scan.png"]).total
SUBMIT(answer=f"{page} {seen}")
"""
    told = {"prompt_tokens": 1_000_000, "completion_tokens": 1_000_000, "total_tokens": 2_000_000}
    with ScriptedModel(lambda request, n: Answer({"total": n}, usage=told)) as server:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-scripted")
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        spec = a_spec(
            playbook=book,
            sub_model="openai-chat:gpt-4o-mini",
            input_artifacts=app.stage([report, png]),
            budget=Budget(max_cost_usd=Decimal(50)),
        )
        ran = run_job(spec, settings=replace(QUICK, repairs=0))
        page, image = (request["messages"][-1]["content"][1] for request in server.requests)

    assert page["type"] == "file"
    assert page["file"]["file_data"].startswith("data:application/pdf;base64,")
    assert image["image_url"]["url"] == "data:image/png;base64," + base64.b64encode(png.read_bytes()).decode()
    assert [event.spend.input_tokens for event in ran.of("subcall_finished")] == [1_000_000] * 2
    first = ran.of("subcall_finished")[0].spend
    assert first.cost_usd is not None
    assert first.cost_usd > 0
    assert ran.result.usage.cost_usd == 2 * first.cost_usd
    assert ran.output == {"answer": "0.0 1.0"}
