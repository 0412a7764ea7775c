"""Rows of traces: events, and their long texts apart, each once whatever number of events and jobs holds it. Append-only."""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import sqlalchemy as sa

from controlplane.adapters import long_texts, schema
from controlplane.adapters.driver_sql import DriverSql, Row
from controlplane.adapters.sql_archive import archived
from controlplane.errors import Tampered
from controlplane.ports import Cold
from rlm_worker.contracts import JsonObject, TraceRecord
from rlm_worker.contracts.trace import GENESIS

_TRACE, _TEXT = schema.trace_event, schema.trace_text
_COLUMNS = ("job_id", "seq", "kind", "at_ms", "body", "prev", "hash", "texts")
_ADD_EVENTS = DriverSql(sa.insert(_TRACE), _COLUMNS)
#: A text that is there already is left as it is; whether it is still what its mark says is for whoever verifies.
_ADD_TEXTS = DriverSql(sa.insert(_TEXT), ("mark", "content"), ending=" ON CONFLICT DO NOTHING")
_GET_TEXTS = sa.select(_TEXT).where(_TEXT.c.mark.in_(sa.bindparam("marks", expanding=True)))
# ASCII only: the database's text has no place for half a surrogate pair. Made once, and JSON values hold no circles.
_encode = json.JSONEncoder(check_circular=False).encode
Found = sa.RowMapping | Mapping[str, Any]
_OF_KIND = sa.select(_TRACE).where(
    _TRACE.c.job_id == sa.bindparam("job_id"), _TRACE.c.kind == sa.bindparam("kind")
)
#: Events read at once where a whole trace is: they and their texts are in memory together.
_PAGE = 200
#: Parameters of one statement; databases take some tens of thousands.
_MARKS = 10_000


class SqlTraces:
    def __init__(self, connection: sa.Connection, *, cold: Cold) -> None:
        self._connection = connection
        self._cold = cold

    def append(self, job_id: str, records: Sequence[TraceRecord]) -> None:
        kept: dict[str, bytes] = {}
        rows = [_to_row(job_id, record, kept) for record in records]
        if kept:
            # In one order everywhere, so that two writers of the same texts do not wait for each other.
            _ADD_TEXTS.many(self._connection, sorted(kept.items()))
        _ADD_EVENTS.many(self._connection, rows)

    def read(self, job_id: str, *, after: int, limit: int) -> list[TraceRecord]:
        return self._records(self._page(job_id, after=after, limit=limit))

    def last(self, job_id: str, *, kind: str) -> TraceRecord | None:
        query = _OF_KIND.order_by(_TRACE.c.seq.desc()).limit(1)
        found: list[Found] = list(
            self._connection.execute(query, {"job_id": job_id, "kind": kind}).mappings()
        )
        if not found:
            found = [row for row in self._archived(job_id, start=0) if row["kind"] == kind][-1:]
        return next(iter(self._records(found)), None)

    def end(self, job_id: str) -> tuple[int, str]:
        query = sa.select(_TRACE).where(_TRACE.c.job_id == job_id).order_by(_TRACE.c.seq.desc()).limit(1)
        last: Found | None = self._connection.execute(query).mappings().first()
        for row in self._archived(job_id, start=0) if last is None else ():
            last = row
        return (0, GENESIS) if last is None else (last["seq"] + 1, last["hash"])

    def of_kind(self, job_id: str, *, kind: str) -> list[TraceRecord]:
        query = _OF_KIND.order_by(_TRACE.c.seq)
        rows = self._connection.execute(query, {"job_id": job_id, "kind": kind}).mappings()
        old = [row for row in self._archived(job_id, start=0) if row["kind"] == kind]
        return self._records([*old, *rows])

    def checked(self, job_id: str) -> Iterator[TraceRecord]:
        after = 0
        while page := self._page(job_id, after=after, limit=_PAGE):
            texts = self._texts(page)
            for found in page:
                texts.check(found)
                record = _to_record(found, texts)
                if not _is_as_written(record, found):
                    raise Tampered(f"{_place(found)}: its text was changed")
                yield record
            after += len(page)

    def _page(self, job_id: str, *, after: int, limit: int) -> Sequence[Found]:
        query = (
            sa.select(_TRACE)
            .where(_TRACE.c.job_id == job_id, _TRACE.c.seq >= after)
            .order_by(_TRACE.c.seq)
            .limit(limit)
        )
        rows = self._connection.execute(query).mappings().all()
        if rows and rows[0]["seq"] == after:
            return rows
        old = list(islice(self._archived(job_id, start=after), limit))
        return [*old, *rows[: limit - len(old)]]

    def _archived(self, job_id: str, *, start: int) -> Iterator[Found]:
        return archived(self._connection, self._cold, "trace", job_id, start=start)

    def _records(self, page: Sequence[Found]) -> list[TraceRecord]:
        texts = self._texts(page)
        return [_to_record(found, texts) for found in page]

    def _texts(self, page: Sequence[Found]) -> "_Texts":
        """Every long text of a page, by one query; none where there is none."""
        wanted = list(dict.fromkeys(mark for found in page for mark in _marks(found)))
        contents: dict[str, bytes] = {}
        for start in range(0, len(wanted), _MARKS):
            some = self._connection.execute(_GET_TEXTS, {"marks": wanted[start : start + _MARKS]})
            contents.update((row.mark, row.content) for row in some)
        return _Texts(contents)


class _Texts:
    """The long texts of one page, each in memory once."""

    def __init__(self, contents: dict[str, bytes]) -> None:
        self._contents = contents
        self._decoded: dict[str, str] = {}
        self._checked: set[str] = set()

    def __call__(self, mark: str) -> str:
        if mark not in self._decoded:
            self._decoded[mark] = long_texts.to_text(self._contents[mark])
        return self._decoded[mark]

    def check(self, found: Found) -> None:
        """Refuse an event one of whose texts is gone, or not what its mark says."""
        for mark in _marks(found):
            if mark not in self._contents:
                raise Tampered(f"{_place(found)}: its long text {mark[:16]} is missing")
            if mark not in self._checked and long_texts.mark_of(self._contents[mark]) != mark:
                raise Tampered(f"{_place(found)}: its long text {mark[:16]} was changed")
            self._checked.add(mark)


def _marks(found: Found) -> list[str]:
    return found["texts"].split() if found["texts"] else []


def _place(found: Found) -> str:
    return f"trace of {found['job_id']}, event {found['seq']}"


def _stored(event: JsonObject, kept: dict[str, bytes]) -> tuple[str, str | None]:
    """Body and marks of an event's row; its long texts go into `kept`."""
    whole = _encode(event)
    if len(whole) <= long_texts.LARGE:
        return whole, None
    apart: dict[str, bytes] = {}
    left = long_texts.packed(event, apart)
    if not apart:
        return whole, None
    kept.update(apart)
    return _encode(left), " ".join(apart)


def _is_as_written(record: TraceRecord, found: Found) -> bool:
    """Whether the row is, to the byte, what is written for this event."""
    event = record.event
    written = (_encode(event), None) if found["texts"] is None else _stored(event, {})
    return record.kind == found["kind"] and written == (found["body"], found["texts"])


def _to_row(job_id: str, record: TraceRecord, kept: dict[str, bytes]) -> Row:
    body, texts = _stored(record.event, kept)
    return job_id, record.seq, record.event["kind"], record.at_ms, body, record.prev, record.hash, texts


def _to_record(found: Found, texts: _Texts) -> TraceRecord:
    try:
        event = json.loads(found["body"])
        if found["texts"]:
            event = long_texts.unpacked(event, texts)
        # Its hash is checked where it matters; validating each value again would double the cost of a resume.
        record = TraceRecord.made(
            seq=found["seq"], at_ms=found["at_ms"], event=event, prev=found["prev"], hash=found["hash"]
        )
        assert record.kind
    except (ValueError, KeyError, TypeError, AssertionError) as error:
        raise Tampered(f"{_place(found)}: its text was changed") from error
    return record
