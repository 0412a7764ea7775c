"""Finding jobs, newest first: each page reads what it shows and little else, whatever number of jobs there is.

Every question is answered by walking along an index that has the order of the page. A condition that no index can hold
beside another is looked at on the way, for a bounded number of jobs: such a page may be short, and says where to go on.
"""

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from controlplane.adapters import schema
from controlplane.domain.identity import Scope
from controlplane.ports import JobFilter, JobKey

_JOB, _TERM = schema.job, schema.job_term
#: Jobs with the first term that one page looks at for further conditions.
SCAN = 2_000


@dataclass(frozen=True, kw_only=True)
class Hits:
    rows: list[sa.RowMapping]
    #: Where the next page begins; None: there is none.
    after: JobKey | None


def search(
    connection: sa.Connection, wanted: JobFilter, *, scope: Scope, limit: int, after: JobKey | None
) -> Hits:
    rows: list[sa.RowMapping] = []
    floors: list[JobKey] = []
    for query, floor in _queries(connection, wanted, scope=scope, limit=limit, after=after):
        found = connection.execute(query).mappings().all()
        rows += found
        if (
            floor is not None
            and len(found) <= limit
            and (last := connection.execute(floor).mappings().first())
        ):
            floors.append(_key(last))
    rows.sort(key=_key, reverse=True)
    if floors:
        # Behind the place where one of them stopped looking, nobody knows yet what is missing.
        rows = [row for row in rows if _key(row) >= max(floors)]
    if len(rows) > limit:
        return Hits(rows=rows[:limit], after=_key(rows[limit - 1]))
    return Hits(rows=rows, after=max(floors) if floors else None)


def _key(row: sa.RowMapping) -> JobKey:
    return row["created_ms"], row["job_id"]


Query = tuple[sa.Select[Any], sa.Select[Any] | None]


def _queries(
    connection: sa.Connection, wanted: JobFilter, *, scope: Scope, limit: int, after: JobKey | None
) -> list[Query]:
    """What to ask, each with a question for the place where it stopped looking."""
    if scope.tenant_id is None and not wanted.terms and not wanted.states:
        return [(_page(_JOB, wanted, after, limit).with_only_columns(_JOB), None)]
    tenants = [scope.tenant_id] if scope.tenant_id is not None else _tenants(connection)
    if wanted.terms:
        return [_by_term(tenant, wanted, after=after, limit=limit) for tenant in tenants]
    found: list[Query] = []
    for tenant in tenants:
        states: list[str | None] = [*sorted(wanted.states)] or [None]
        for state in states:
            query = _page(_JOB, wanted, after, limit).with_only_columns(_JOB)
            query = query.where(_JOB.c.tenant_id == tenant)
            found.append((query if state is None else query.where(_JOB.c.state == state), None))
    return found


def _page(table: sa.Table, wanted: JobFilter, after: JobKey | None, limit: int) -> sa.Select[Any]:
    """A page of a table that has the order of jobs."""
    query = sa.select(table.c.created_ms, table.c.job_id)
    query = query.order_by(table.c.created_ms.desc(), table.c.job_id.desc()).limit(limit + 1)
    if after is not None:
        mark = sa.tuple_(sa.literal(after[0], sa.BigInteger), sa.literal(after[1]))
        query = query.where(sa.tuple_(table.c.created_ms, table.c.job_id) < mark)
    if wanted.since_ms is not None:
        query = query.where(table.c.created_ms >= wanted.since_ms)
    if wanted.before_ms is not None:
        query = query.where(table.c.created_ms < wanted.before_ms)
    return query


def _by_term(tenant: str, wanted: JobFilter, *, after: JobKey | None, limit: int) -> Query:
    first, *others = wanted.terms
    is_simple = not others and not wanted.states
    scan = limit if is_simple else SCAN - 1
    looked_at = _page(_TERM, wanted, after, scan).where(_TERM.c.tenant_id == tenant, _TERM.c.term == first)
    inner = looked_at.subquery("looked_at")
    query = sa.select(_JOB).join(inner, inner.c.job_id == _JOB.c.job_id)
    for term in others:
        other = _TERM.alias()
        query = query.where(
            sa.exists().where(
                other.c.tenant_id == tenant,
                other.c.term == term,
                other.c.created_ms == inner.c.created_ms,
                other.c.job_id == inner.c.job_id,
            )
        )
    if wanted.states:
        query = query.where(_JOB.c.state.in_(sorted(wanted.states)))
    query = query.order_by(inner.c.created_ms.desc(), inner.c.job_id.desc()).limit(limit + 1)
    return query, None if is_simple else looked_at.offset(SCAN - 1).limit(1)


def _tenants(connection: sa.Connection) -> list[str]:
    """Every tenant that has jobs, by one look at the index for each."""
    found: list[str] = []
    while True:
        query = sa.select(sa.func.min(_JOB.c.tenant_id))
        last = connection.execute(query.where(_JOB.c.tenant_id > found[-1]) if found else query).scalar()
        if last is None:
            return found
        found.append(last)
