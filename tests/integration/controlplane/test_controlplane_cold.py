"""Old traces and events leave the database, and whoever reads them does not notice."""

import os
import signal
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from controlplane.adapters import schema
from controlplane.adapters.cold import ColdStorage
from controlplane.domain.identity import Caller, Scope
from controlplane.errors import Denied, Tampered
from controlplane.handlers import cooling
from rlm_worker.contracts.trace import CellProposed, CellRejected, NoProgress
from tests.integration.controlplane.hands import Hands, a_request, answered, asked

STORES = ("sqlite", "postgres")
ROOT = Path(__file__).parents[3]
NOW = timedelta(seconds=-1)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(cooling, "PIECE", 3)


def ended(app) -> Hands:
    """A job of eight events, one of them long and one with strange text."""
    hands = Hands(app.gateway(), app.submit(a_request()).job_id)
    hands.claim()
    hands.record(CellProposed(iteration=1, driver="playbook", code="x" * 10_000), asked(1))
    hands.record(answered(1), CellRejected(iteration=1, reason="syntax"))
    hands.record(*(NoProgress(iteration=1, detail=f"half a pair \ud83d, \x00, {n}") for n in range(4)))
    hands.settle()
    return hands


def rows_of(app, table) -> int:
    with app.store.database.reader.begin() as connection:
        return connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one()


def pieces(app) -> list[Path]:
    return sorted((app.settings.home / "cold").rglob("*.zst"))


def everything(app, hands) -> list:
    """What readers see of a job."""
    view = app.job(hands.job_id)
    trace = [
        app.trace(hands.job_id, after=after, limit=limit)
        for after, limit in ((0, 99), (2, 2), (3, 1), (7, 9), (8, 9))
    ]
    with app.store.read() as tx:
        events = [tx.history.events(view.task_id, after=after) for after in (-1, 0, 2, 99)]
        kinds = [
            tx.traces.of_kind(hands.job_id, kind="no_progress"),
            tx.traces.last(hands.job_id, kind="cell_proposed"),
        ]
    return [trace, events, kinds, app.verify_trace(hands.job_id), app.verify_receipts(view.task_id)]


def test_what_is_cold_is_read_as_before(app):
    hands, running = ended(app), Hands(app.gateway(), app.submit(a_request()).job_id)
    running.claim()
    running.record(NoProgress(iteration=1, detail="at work"))
    before = everything(app, hands)

    assert app.cool(older_than=timedelta(hours=1)).pieces == 0
    moved = app.cool(older_than=NOW)

    assert moved.links == 8 + app.task(app.job(hands.job_id).task_id).version
    assert rows_of(app, schema.trace_event) == 1
    assert everything(app, hands) == before
    assert app.cool(older_than=NOW) == cooling.Cooled()
    assert rows_of(app, schema.archive) == moved.pieces == len(pieces(app))


def test_a_cold_job_is_forked_and_its_task_grows_on(app):
    hands = ended(app)
    app.cool(older_than=NOW)

    fork = app.fork(hands.job_id, at=1)

    assert app.job(hands.job_id).forks == (fork.job_id,)
    assert app.verify_trace(fork.job_id) > 1
    before = everything(app, hands)
    assert app.cool(older_than=NOW).links == 1
    assert everything(app, hands) == before


@pytest.mark.parametrize("change", ["changed", "missing", "exchanged"])
def test_a_piece_that_was_tampered_with_is_refused_by_name(app, settings, change):
    hands = ended(app)
    app.cool(older_than=NOW)
    with app.store.read() as tx:
        digest = tx.archive.pieces("trace", hands.job_id)[1]
    piece = next(path for path in pieces(app) if path.stem == digest)
    if change == "missing":
        piece.unlink()
    elif change == "changed":
        piece.write_bytes(piece.read_bytes()[:-1] + b"!")
    else:
        with app.store.read() as tx:
            other = tx.archive.pieces("trace", hands.job_id)[0]
        with app.store.database.writer.begin() as connection:
            connection.execute(
                sa.update(schema.archive).where(schema.archive.c.digest == digest).values(digest=other)
            )

    app.store.cold = ColdStorage(settings.home / "cold")
    assert app.trace(hands.job_id, after=0, limit=3)
    for read in (lambda: app.trace(hands.job_id), lambda: app.verify_trace(hands.job_id)):
        with pytest.raises(Tampered, match=digest if change != "exchanged" else "cold piece"):
            read()


@pytest.mark.parametrize("place", ["before_blob", "after_blob", "before_delete", "after_delete"])
def test_a_process_killed_while_it_cools_loses_nothing(app, settings, place):
    hands = ended(app)
    before = everything(app, hands)
    environment = {**os.environ, "CUSTODY_CRASH_AT": f"cool.{place}", "PYTHONPATH": str(ROOT)}
    if settings.database_url is not None:
        environment["CUSTODY_DATABASE_URL"] = settings.database_url
    command = [sys.executable, "-m", "tests.integration.controlplane.cooling_home", str(settings.home)]
    assert (
        subprocess.run(command, check=False, env=environment, cwd=ROOT, timeout=60).returncode
        == -signal.SIGKILL
    )

    assert everything(app, hands) == before
    app.cool(older_than=NOW)
    assert rows_of(app, schema.trace_event) == rows_of(app, schema.event) == 0
    assert everything(app, hands) == before


def test_two_who_cool_at_once_move_each_link_once(app):
    jobs = [ended(app) for _ in range(4)]
    before = [everything(app, hands) for hands in jobs]
    threads = [threading.Thread(target=lambda: app.cool(older_than=NOW)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    app.cool(older_than=NOW)
    assert rows_of(app, schema.trace_event) == rows_of(app, schema.event) == 0
    assert [everything(app, hands) for hands in jobs] == before


def test_whoever_may_not_look_after_everything_may_not_cool(app):
    viewer = app.acting_as(Caller(name="v", scope=Scope("local"), roles=frozenset({"operator"})))
    with pytest.raises(Denied):
        viewer.cool(older_than=NOW)


def test_any_place_that_fsspec_knows_holds_pieces():
    cold = ColdStorage("memory://bucket/cold")
    digest = cold.keep(b"content" * 1_000)

    assert ColdStorage("memory://bucket/cold").read(digest) == b"content" * 1_000
    with pytest.raises(Tampered, match="is missing"):
        cold.read("0" * 64)
