"""Finding jobs by what they are and say, page by page; a cursor belongs to the question it came from."""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from controlplane.domain import terms
from controlplane.domain.identity import Caller
from controlplane.errors import BadCursor, InvalidRequest
from controlplane.handlers.permits import require
from controlplane.handlers.queries import job_view
from controlplane.handlers.turns import Turns
from controlplane.ports import Desk, JobFilter, JobKey
from controlplane.views import JobPage
from rlm_worker.contracts import digest

MOST = 500
_MOST_TERMS = 16


@dataclass(frozen=True, kw_only=True)
class Search:
    """What is looked for; every condition must hold."""

    #: Any of these.
    states: frozenset[str] = frozenset()
    task_id: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    #: Who writes the cells or answers predict().
    model: str | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None
    #: All of these words are in the question, whole and in any order.
    words: str = ""


def search(
    desk: Desk, wanted: Search, *, caller: Caller, limit: int = 50, cursor: str | None = None
) -> JobPage:
    """One page, newest first. A page may be short although there is a next one: it has looked at enough jobs then."""
    if not 1 <= limit <= MOST:
        raise InvalidRequest(f"a page has 1 to {MOST} jobs, not {limit}")
    filter_ = _filter(wanted)
    mark = _mark(filter_, caller)
    with desk.store.read() as tx:
        require(tx, caller, "job.read", tenant_id=caller.scope.tenant_id or "")
        after = None if cursor is None else _key(cursor, mark)
        rows, go_on = tx.jobs.search(filter_, scope=caller.scope, limit=limit, after=after)
        turns = Turns(tx, desk.rules)
        views = tuple(job_view(tx, row, turns) for row in rows)
    return JobPage(items=views, next=None if go_on is None else _cursor(go_on, mark))


def _filter(wanted: Search) -> JobFilter:
    asked = list(terms.words(wanted.words))
    if wanted.words.strip() and not asked:
        raise InvalidRequest(f"there is no word of two letters or more in {wanted.words!r}")
    asked = [*(terms.label(*each) for each in sorted(wanted.labels.items())), *asked]
    asked = [*([terms.model(wanted.model)] if wanted.model else []), *asked]
    # The first is walked along, and a task is the narrowest.
    asked = [*([terms.task(wanted.task_id)] if wanted.task_id else []), *asked]
    if len(asked) > _MOST_TERMS:
        raise InvalidRequest(
            f"a search has at most {_MOST_TERMS} words and labels, this one has {len(asked)}"
        )
    return JobFilter(
        states=wanted.states,
        terms=tuple(asked),
        since_ms=_ms(wanted.created_after),
        before_ms=_ms(wanted.created_before),
    )


def _ms(at: datetime | None) -> int | None:
    return None if at is None else int(at.timestamp() * 1000)


def _mark(wanted: JobFilter, caller: Caller) -> str:
    """Of a question, and of who asks it."""
    said = [sorted(wanted.states), list(wanted.terms), wanted.since_ms, wanted.before_ms]
    return digest([*said, caller.scope.tenant_id])[:16]


def _cursor(key: JobKey, mark: str) -> str:
    return base64.urlsafe_b64encode(json.dumps([*key, mark]).encode()).decode().rstrip("=")


def _key(cursor: str, mark: str) -> JobKey:
    try:
        created_ms, job_id, of = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        is_key = isinstance(created_ms, int) and 0 <= created_ms < 2**53 and isinstance(job_id, str)
        if not is_key or not job_id.isascii() or not job_id.isprintable():
            raise ValueError("no key")  # noqa: TRY301 - told below
    except (ValueError, TypeError, RecursionError) as error:
        raise BadCursor("this is no cursor: take the one that came with the page before") from error
    if of != mark:
        raise BadCursor("this cursor belongs to another search: begin this one without a cursor")
    return created_ms, job_id
