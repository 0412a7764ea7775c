"""Long texts of traces lie in the database once, for all events and all jobs, and a change to one is found where it is used."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from hypothesis import given
from hypothesis import strategies as st

from controlplane.adapters import migrate, schema, sqlite
from controlplane.adapters.sql_store import SqlStore
from controlplane.adapters.trace_files import TraceFile, TraceHeader, verified, write_trace
from controlplane.bootstrap import App, open_app
from controlplane.config import Settings
from controlplane.errors import Tampered, Unavailable, VersionConflict
from rlm_worker.contracts.gateway import ReadTraceRequest
from rlm_worker.contracts.trace import (
    GENESIS,
    CellFinished,
    CellProposed,
    Hold,
    HostCallFinished,
    SubcallStarted,
    SubmitAccepted,
    TraceRecord,
    link,
    link_hash,
)
from tests.integration.controlplane.hands import KEY, Hands, answered
from tests.unit.controlplane.test_long_texts import values

LONG = "a page of evidence, quoted in full. " * 400
TEXT, EVENT = schema.trace_text, schema.trace_event


def asking(ordinal: int, *, text: str = LONG) -> SubcallStarted:
    return SubcallStarted(
        iteration=1,
        ordinal=ordinal,
        key=KEY,
        model="m",
        signature="page -> b",
        inputs={"page": text},
        hold=Hold(subcalls=1),
    )


def printed(text: str, *, iteration: int = 1) -> CellFinished:
    counts = {"stdout_bytes": len(text), "stderr_bytes": 0}
    return CellFinished(iteration=iteration, outcome="ok", stdout=text, stderr="", digest=KEY, **counts)


def kept(app: App) -> tuple[int, int, int]:
    """Long texts, their bytes, and the bytes of all events without them."""
    with app.store.database.reader.connect() as connection:
        count, size = connection.execute(
            sa.select(
                sa.func.count(), sa.func.coalesce(sa.func.sum(sa.func.length(TEXT.c.content)), 0)
            ).select_from(TEXT)
        ).one()
        bodies = connection.execute(sa.select(sa.func.sum(sa.func.length(EVENT.c.body)))).scalar_one()
    return count, size, bodies


def execute(app: App, statement: sa.Executable) -> None:
    with app.store.database.writer.begin() as connection:
        connection.execute(statement)


@pytest.fixture
def quoting(hands) -> Hands:
    """A job whose cell asks twice about the same page, prints it, and ends."""
    worker: Hands = hands()
    worker.claim()
    worker.record(CellProposed(iteration=1, driver="playbook", code="predict(page)"), asking(1), asking(2))
    worker.record(answered(1), answered(2), printed(LONG))
    return worker


@pytest.mark.requirement("S3-FIVE-5")
def test_a_text_that_several_events_and_jobs_hold_is_stored_once(app, hands, quoting):
    quoting.settle()
    other = hands()
    other.claim()
    other.record(asking(1))
    fork = app.fork(quoting.job_id, at=1, by="ada")

    count, size, bodies = kept(app)

    assert (count, size) == (1, len(LONG))
    assert bodies < len(LONG)
    assert [
        record.event["inputs"] for record in app.trace(fork.job_id) if record.kind == "subcall_started"
    ] == [{"page": LONG}] * 2
    for job_id in (quoting.job_id, other.job_id, fork.job_id):
        assert app.verify_trace(job_id) == app.job(job_id).trace_events


def test_a_job_exported_and_imported_elsewhere_shares_its_texts_there_too(app, quoting, tmp_path):
    quoting.record(SubmitAccepted(iteration=1, fields={"answer": "x"}))
    quoting.settle()
    view = app.job(quoting.job_id)
    header = TraceHeader(
        spec=view.spec, state=view.state, result=view.result, events=view.trace_events, head=view.trace_head
    )
    write_trace(tmp_path / "job.jsonl", header, app.trace(quoting.job_id))
    elsewhere = open_app(Settings(home=tmp_path / "elsewhere"))
    with TraceFile(tmp_path / "job.jsonl") as trace:
        elsewhere.import_job(trace.header.spec, trace.header.result, verified(trace), by="ada")

    assert elsewhere.trace(quoting.job_id) == app.trace(quoting.job_id)
    assert kept(elsewhere)[:2] == (1, len(LONG))
    assert elsewhere.verify_trace(quoting.job_id) == view.trace_events
    elsewhere.close()


def test_a_large_value_without_a_long_text_is_kept_apart_too(app, hands):
    worker = hands()
    worker.claim()
    rows = [{"n": n, "label": "x"} for n in range(1_000)]
    call = HostCallFinished(iteration=1, ordinal=1, name="tool", payload_digest=KEY, answer=rows)
    worker.record(call, call.model_copy(update={"ordinal": 2}))

    count, _, bodies = kept(app)

    assert count == 1
    assert bodies < 1_000
    assert [record.event["answer"] for record in app.trace(worker.job_id)] == [rows, rows]
    assert app.verify_trace(worker.job_id) == 2


def test_short_events_are_kept_whole_and_need_no_second_query(app, hands):
    worker = hands()
    worker.work()
    statements: list[str] = []
    sa.event.listen(
        app.store.database.reader, "before_cursor_execute", lambda *given: statements.append(given[2])
    )

    app.trace(worker.job_id)

    assert not [statement for statement in statements if "trace_text" in statement]
    assert kept(app)[:2] == (0, 0)


def test_the_texts_of_a_page_are_read_by_one_query(app, hands):
    worker = hands()
    worker.claim()
    worker.record(*(printed(f"{n} {LONG}", iteration=n) for n in range(50)))
    statements: list[str] = []
    sa.event.listen(
        app.store.database.reader, "before_cursor_execute", lambda *given: statements.append(given[2])
    )

    page = worker.gateway.read_trace(
        ReadTraceRequest(job_id=worker.job_id, fence=worker.fence, after=10, limit=30)
    )

    assert [record.event["stdout"] for record in page.records] == [f"{n} {LONG}" for n in range(10, 40)]
    assert page.more
    assert len([statement for statement in statements if "trace_text" in statement]) == 1


def changes() -> list[tuple[str, str, sa.Executable]]:
    body, text = EVENT.c.body, sa.func.replace
    second = sa.update(EVENT).where(EVENT.c.seq == 2)
    return [
        (
            "a byte of the text",
            "event 1: its long text .* was changed",
            sa.update(TEXT).values(content=b"A" + LONG[1:].encode()),
        ),
        (
            "the text is cut",
            "event 1: its long text .* was changed",
            sa.update(TEXT).values(content=LONG[:-1].encode()),
        ),
        ("the text is gone", "event 1: its long text .* is missing", sa.delete(TEXT)),
        ("a byte of the row", "event 2: its content", second.values(body=text(body, '"page"', '"pale"'))),
        ("a blank in the row", "event 2: its text was changed", second.values(body=text(body, ": ", ":"))),
        (
            "another mark in the row",
            "event 2: its text was changed",
            second.values(body=text(body, "blob", "blub")),
        ),
        ("no marks beside the row", "event 2: its", second.values(texts=None)),
        ("other marks beside it", "event 2: its long text .* is missing", second.values(texts="0" * 64)),
        (
            "marks that are not used",
            "event 0: its text was changed",
            sa.update(EVENT).where(EVENT.c.seq == 0).values(texts=sa.select(TEXT.c.mark).scalar_subquery()),
        ),
    ]


@pytest.mark.requirement("S3-FIVE-5")
@pytest.mark.parametrize(("what", "place", "change"), changes(), ids=[what for what, _, _ in changes()])
def test_a_changed_byte_in_an_event_or_in_a_shared_text_is_found_at_the_first_event_it_concerns(
    app, quoting, what, place, change
):
    execute(app, change)

    with pytest.raises(Tampered, match=place):
        app.verify_trace(quoting.job_id)


def test_a_change_to_a_shared_text_is_found_in_every_job_that_holds_it_and_in_no_other(app, hands, quoting):
    sharing, apart = hands(), hands()
    for worker, events in ((sharing, (answered(7), asking(8))), (apart, (printed("other " * 2_000),))):
        worker.claim()
        worker.record(*events)
    mark = (
        sa.select(EVENT.c.texts).where(EVENT.c.job_id == sharing.job_id, EVENT.c.seq == 1).scalar_subquery()
    )
    execute(app, sa.update(TEXT).where(TEXT.c.mark == mark).values(content=b"something else"))

    for job_id, place in ((quoting.job_id, "event 1"), (sharing.job_id, "event 1")):
        with pytest.raises(Tampered, match=f"{job_id}, {place}"):
            app.verify_trace(job_id)
    assert app.verify_trace(apart.job_id) == 1


def test_a_page_whose_text_is_gone_is_refused_and_not_shown_without_it(app, quoting):
    execute(app, sa.delete(TEXT))

    with pytest.raises(Tampered, match="event 1"):
        app.trace(quoting.job_id)


def old_home(folder: Path, records: list[TraceRecord]) -> Path:
    """A database as the release before this one left it: whole texts in every row, and no table of them."""
    path = folder / "custody.db"
    config = Config()
    config.set_main_option("script_location", str(Path(migrate.__file__).parent / "migrations"))
    engine = sqlite.engine(path, synchronous="FULL")
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0002")
        named = [column.name for column in EVENT.c if column.name != "texts"]
        insert = f"INSERT INTO trace_event ({', '.join(named)}) VALUES ({', '.join('?' * len(named))})"
        for record in records:
            row = (record.seq, record.kind, record.at_ms, json.dumps(record.event), record.prev, record.hash)
            connection.exec_driver_sql(insert, ("job-old", *row))
    engine.dispose()
    return path


def chained(*events: dict) -> list[TraceRecord]:
    made: list[TraceRecord] = []
    for seq, event in enumerate(events):
        prev = made[-1].hash if made else GENESIS
        hash_ = link_hash(seq=seq, at_ms=1, event=event, prev=prev)
        made.append(TraceRecord(seq=seq, at_ms=1, event=event, prev=prev, hash=hash_))
    return made


def test_a_home_of_the_release_before_is_upgraded_read_as_it_is_and_goes_on(tmp_path):
    looks_packed = {"$blob": "0" * 64}
    records = chained(
        {"kind": "cell_finished", "stdout": LONG},
        {"kind": "host_call_finished", "answer": looks_packed, "error": LONG},
    )
    path = old_home(tmp_path, records)

    store = SqlStore(path)
    more = link(printed(LONG), seq=2, at_ms=1, prev=records[-1].hash)
    with store.write() as tx:
        assert tx.traces.read("job-old", after=0, limit=9) == records
        tx.traces.append("job-old", [more])
        tx.traces.append("job-new", chained(records[1].event))
    with store.read() as tx:
        assert list(tx.traces.checked("job-old")) == [*records, more]
        assert next(iter(tx.traces.checked("job-new"))).event == records[1].event
    with store.database.reader.connect() as connection:
        assert connection.execute(
            sa.select(EVENT.c.texts.is_(None)).order_by(EVENT.c.job_id, EVENT.c.seq)
        ).scalars().all() == [False, True, True, False]
        # LONG once for all of them, and once the value that only looks like a reference.
        assert connection.execute(sa.select(sa.func.count()).select_from(TEXT)).scalar_one() == 2
    store.close()


def test_a_changed_byte_in_a_row_of_the_release_before_is_still_found(tmp_path):
    path = old_home(tmp_path, chained({"kind": "cell_finished", "stdout": LONG}))
    store = SqlStore(path)
    with store.database.writer.begin() as connection:
        connection.execute(
            sa.update(EVENT).values(body=sa.func.replace(EVENT.c.body, '"stdout": ', '"stdout":'))
        )

    with pytest.raises(Tampered, match="event 0"), store.read() as tx:
        list(tx.traces.checked("job-old"))
    store.close()


@pytest.fixture(scope="module")
def one_store(tmp_path_factory) -> Iterator[SqlStore]:
    folder = tmp_path_factory.mktemp("texts")
    store = SqlStore(folder / "custody.db")
    yield store
    store.close()
    shutil.rmtree(folder)


jobs_made = iter(range(1_000_000))


@given(st.lists(values, max_size=5))
def test_any_events_come_back_as_they_went_in_and_their_chain_holds(one_store, parts):
    job_id = f"job-{next(jobs_made)}"
    # What JSON text makes of it: two halves of a character next to each other become one.
    records = chained(*({"kind": "k", "value": json.loads(json.dumps(part))} for part in parts))
    with one_store.write("normal") as tx:
        for record in records:
            tx.traces.append(job_id, [record])

    with one_store.read() as tx:
        back = tx.traces.read(job_id, after=0, limit=100)
        checked = list(tx.traces.checked(job_id))
    assert repr(back) == repr(records) == repr(checked)
    assert [link_hash(seq=r.seq, at_ms=r.at_ms, event=r.event, prev=r.prev) for r in back] == [
        r.hash for r in records
    ]


def test_what_the_driver_refuses_is_told_as_any_other_refusal_of_the_database(tmp_path):
    store = SqlStore(tmp_path / "custody.db")
    record = chained({"kind": "k"})
    with store.write() as tx:
        tx.traces.append("job-twice", record)

    with pytest.raises(VersionConflict), store.write() as tx:
        tx.traces.append("job-twice", record)
    with store.database.writer.begin() as connection:
        connection.exec_driver_sql("DROP TABLE trace_event")
    with pytest.raises(Unavailable, match="no such table"), store.write() as tx:
        tx.traces.append("job-once", record)
    store.close()
