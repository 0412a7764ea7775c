"""Finding jobs: every condition narrows, pages join without a gap, and nobody finds what is not theirs."""

from dataclasses import replace
from datetime import timedelta
from itertools import product
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.migration import MigrationContext
from alembic.operations import Operations
from alembic.script import ScriptDirectory

from controlplane.adapters import migrate, schema, sql_search
from controlplane.domain.identity import Caller, Scope
from controlplane.errors import InvalidRequest
from controlplane.handlers.searching import Search
from tests.integration.controlplane.hands import Hands, a_request

STORES = ("sqlite", "postgres")
QUESTIONS = ("Which invoices are overdue?", "Which invoices were PAID twice?", "Was the Änderung announced?")


@pytest.fixture
def entered(app):
    """Jobs of two tenants, with every mixture of question, label and state."""
    made = []
    for tenant, question, region in product(("acme", "umbrella"), QUESTIONS, ("eu", "us")):
        request = a_request(
            task=question,
            tenant_id=tenant,
            labels={"region": region, "odd \0": "\0"},
            sub_model="m-" + region,
        )
        made.append(app.submit(replace(request, budget=request.budget)))
    app.stop(made[0].job_id)
    Hands(app.gateway(), made[1].job_id).work()
    return [app.job(view.job_id) for view in made]


def found(app, *, limit=500, **wanted):
    return {view.job_id for view in app.search(Search(**wanted), limit=limit).items}


def test_every_condition_narrows(app, entered):
    def those(holds):
        return {view.job_id for view in entered if holds(view)}

    assert found(app) == those(lambda view: True)
    assert found(app, words="INVOICES which") == those(lambda view: "invoices" in view.spec.task)
    assert found(app, words="änderung") == those(lambda view: "Änderung" in view.spec.task)
    assert found(app, words="nowhere") == set()
    eu = those(lambda view: view.spec.labels["region"] == "eu")
    assert found(app, labels={"region": "eu"}) == found(app, model="m-eu") == eu
    assert found(app, labels={"region": "eu", "odd \0": "\0"}, words="paid") == those(
        lambda view: view.job_id in eu and "PAID" in view.spec.task
    )
    ended = those(lambda view: view.state in ("stopped", "succeeded"))
    assert len(ended) == 2
    assert found(app, states=frozenset({"stopped", "succeeded"})) == ended
    assert found(app, states=frozenset({"stopped"}), words="overdue") == {entered[0].job_id}
    assert found(app, task_id=entered[3].task_id) == {entered[3].job_id}
    middle = entered[5].created_at
    assert found(app, created_after=middle) == those(lambda view: view.created_at >= middle)
    assert found(app, created_before=middle, words="which") == those(
        lambda view: view.created_at < middle and "Which" in view.spec.task
    )
    assert found(app, created_after=middle + timedelta(days=1)) == set()


@pytest.mark.parametrize(
    "wanted",
    [
        {},
        {"words": "which"},
        {"states": frozenset({"queued", "stopped"})},
        {"words": "which", "states": frozenset({"queued"})},
    ],
    ids=["all", "a word", "two states", "both"],
)
@pytest.mark.parametrize("scan", [1, 3, 2_000])
def test_pages_join_without_a_gap_or_a_repetition(app, entered, monkeypatch, wanted, scan):
    monkeypatch.setattr(sql_search, "SCAN", scan)
    whole = sorted(
        (view for view in entered if view.job_id in found(app, **wanted))
        if scan > 3
        else _by_hand(entered, wanted),
        key=lambda view: (view.created_at, view.job_id),
        reverse=True,
    )
    seen, cursor = [], None
    for _ in range(40):
        page = app.search(Search(**wanted), limit=2, cursor=cursor)
        assert len(page.items) <= 2
        seen += [view.job_id for view in page.items]
        cursor = page.next
        if cursor is None:
            break

    assert cursor is None
    assert seen == [view.job_id for view in whole]


def _by_hand(entered, wanted):
    return [
        view
        for view in entered
        if wanted.get("words", "").casefold() in view.spec.task.casefold()
        and (not wanted.get("states") or view.state in wanted["states"])
    ]


@pytest.mark.requirement("LESSON-36", "LESSON-37")
def test_a_tenant_finds_its_own_jobs_only_and_another_ones_cursor_gives_nothing(app, entered):
    acme = app.acting_as(Caller(name="a", scope=Scope("acme"), roles=frozenset({"viewer"})))
    umbrella = app.acting_as(Caller(name="u", scope=Scope("umbrella"), roles=frozenset({"viewer"})))
    mine = {view.job_id for view in entered if view.tenant_id == "acme"}

    for wanted in ({}, {"words": "which"}, {"labels": {"region": "eu"}}, {"states": frozenset({"queued"})}):
        assert found(acme, **wanted) == found(app, **wanted) & mine
    assert found(acme, task_id=entered[-1].task_id) == set()
    assert entered[-1].tenant_id == "umbrella"
    cursor = acme.search(Search(), limit=1).next
    with pytest.raises(InvalidRequest, match="another search"):
        umbrella.search(Search(), cursor=cursor)


@pytest.mark.parametrize("cursor", ["x", "", "e30", "W10", "\0", "WzEsMl0"])
def test_what_is_no_cursor_is_refused(app, cursor):
    with pytest.raises(InvalidRequest, match="cursor"):
        app.search(Search(), cursor=cursor)


def test_a_cursor_of_another_question_a_huge_page_and_too_many_words_are_refused(app, entered):
    cursor = app.search(Search(words="which"), limit=1).next
    with pytest.raises(InvalidRequest, match="another search"):
        app.search(Search(words="invoices"), cursor=cursor)
    for limit in (0, 501):
        with pytest.raises(InvalidRequest, match="a page has"):
            app.search(Search(), limit=limit)
    with pytest.raises(InvalidRequest, match="at most"):
        app.search(Search(words=" ".join(f"word{n}" for n in range(17))))
    with pytest.raises(InvalidRequest, match="no word"):
        app.search(Search(words="?!"))


@pytest.mark.parametrize(
    "fields",
    [{"labels": {"odd \ud83d": "x"}}, {"labels": {"x": "\ud83d"}}, {"task": "\ud83d"}],
    ids=["a label's name", "a label", "the question"],
)
def test_half_a_character_in_a_request_is_refused_and_not_written_as_something_else(app, fields):
    with pytest.raises(InvalidRequest, match="cannot be submitted"):
        app.submit(a_request(**fields))
    assert app.jobs() == []


def test_jobs_that_were_there_before_the_search_are_found_too(app, settings):
    old = app.submit(a_request(task="Where did the ledger go?", labels={"region": "eu"}))
    version = ScriptDirectory(str(Path(migrate.__file__).parent / "migrations")).get_revision("0004").module
    with app.store.database.writer.begin() as connection:
        connection.execute(sa.delete(schema.job_term))
        with Operations.context(MigrationContext.configure(connection)):
            version._find_jobs_by_words()

    assert found(app, words="ledger", labels={"region": "eu"}) == {old.job_id}
    assert found(app, task_id=old.task_id, model=old.spec.sub_model) == {old.job_id}
