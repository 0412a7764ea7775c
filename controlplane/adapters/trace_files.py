"""A job as a file: JSON Lines with its spec, its trace and its result, complete without the home it came from.

    {"custody": "trace", "version": 1, "spec": {…}, "state": "…", "result": {…}, "events": N, "head": "…"}
    {"blob": SHA256, "text": "…"}                       a long text, once, before the first event that holds it
    {"seq": 0, "at_ms": …, "event": {…}, "prev": "…", "hash": "…"}

In an event a reference stands for the text (see long_texts); put back, every hash of the chain holds. Reading and writing
hold one event at a time; long texts wait in a temporary file.
"""

import contextlib
import gzip
import json
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any, Literal, Self

from pydantic import ValidationError

from controlplane.adapters.long_texts import mark_of, packed, to_bytes, to_text, unpacked
from controlplane.errors import InvalidRequest, Tampered
from rlm_worker.contracts import JobResult, JobSpec, TraceRecord, digest
from rlm_worker.contracts.base import Contract, Count, JsonObject, Sha256
from rlm_worker.contracts.trace import GENESIS, BrokenChain, check_link

_LINE_BYTES = 256 << 20


class TraceHeader(Contract):
    """The first line: what the trace is of, and where it must end."""

    custody: Literal["trace"] = "trace"
    version: Literal[1] = 1
    spec: JobSpec
    state: str
    result: JobResult | None = None
    events: Count
    head: Sha256
    #: False when the spec came from a server, which keeps to itself where evidence lies there: then its digest cannot be checked.
    is_spec_whole: bool = True


def write_trace(path: Path, header: TraceHeader, records: Iterable[TraceRecord]) -> None:
    """Write a trace, whole or not at all. A name that ends in .gz is compressed."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with contextlib.ExitStack() as stack:
            raw = stack.enter_context(fresh.open("xb"))
            # Without a time and a name in it, the same trace is the same file.
            lines: Any = (
                stack.enter_context(gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0))
                if path.suffix == ".gz"
                else raw
            )
            _write_lines(lines, header, records)
        fresh.replace(path)
    except OSError as error:
        raise InvalidRequest(f"the trace cannot be written to {str(path)!r}: {error.strerror}") from error
    finally:
        fresh.unlink(missing_ok=True)


def _write_lines(lines: IO[bytes], header: TraceHeader, records: Iterable[TraceRecord]) -> None:
    _write_line(lines, header.model_dump(mode="json"))
    known: set[bytes] = set()
    for record in records:
        kept: dict[str, bytes] = {}
        event = packed(record.event, kept)
        for mark, content in kept.items():
            if bytes.fromhex(mark) not in known:
                known.add(bytes.fromhex(mark))
                _write_line(lines, {"blob": mark, "text": to_text(content)})
        place = {"seq": record.seq, "at_ms": record.at_ms, "event": event}
        _write_line(lines, {**place, "prev": record.prev, "hash": record.hash})


def _write_line(lines: IO[bytes], document: Any) -> None:
    # ASCII only, so that half a surrogate pair survives.
    lines.write(json.dumps(document, separators=(",", ":")).encode() + b"\n")


class TraceFile:
    """A trace file that is being read. Every line is checked as it comes; Tampered names the first that does not hold."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._texts = tempfile.TemporaryFile()  # noqa: SIM115 - closed with this
        self._places: dict[bytes, tuple[int, int]] = {}
        try:
            opened: Any = gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")  # noqa: SIM115
        except OSError as error:
            raise InvalidRequest(f"the trace {str(path)!r} cannot be read: {error.strerror}") from error
        self._lines: IO[bytes] = opened
        self._number = 0
        self.header = self._read_header()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._lines.close()
        self._texts.close()

    def _read_header(self) -> TraceHeader:
        first = self._next()
        if not isinstance(first, dict) or first.get("custody") != "trace":
            raise InvalidRequest(
                f"{str(self._path)!r} is not an exported trace: make one with `custody export JOB -o FILE`"
            )
        try:
            return TraceHeader.model_validate(first)
        except ValidationError as error:
            raise Tampered(f"{self._where()}: the header does not hold: {error.errors()[0]['msg']}") from None

    def _where(self) -> str:
        return f"{self._path} line {self._number}"

    def _next(self) -> Any:
        try:
            line = self._lines.readline(_LINE_BYTES)
        except (OSError, EOFError) as error:
            raise Tampered(f"{self._path} after line {self._number}: it is cut or damaged: {error}") from None
        self._number += 1
        if not line:
            return None
        try:
            return json.loads(line)
        except ValueError:
            raise Tampered(
                f"{self._where()} is no JSON: the trace was changed or cut. It is refused."
            ) from None

    def records(self) -> Iterator[TraceRecord]:
        """Every record in order, its chain checked, ending where the header says; once."""
        seq, head = 0, GENESIS
        while (document := self._next()) is not None:
            if isinstance(document, dict) and set(document) == {"blob", "text"}:
                self._take_text(document)
                continue
            record = self._record(document)
            try:
                check_link(record, seq=seq, prev=head)
            except BrokenChain as broken:
                raise Tampered(f"{self._where()}: the trace was changed, {broken}. It is refused.") from None
            seq, head = seq + 1, record.hash
            yield record
        if (seq, head) != (self.header.events, self.header.head):
            raise Tampered(
                f"{self._path}: {self.header.events} events were exported, the chain holds only up to event {seq}"
            )

    def _take_text(self, document: JsonObject) -> None:
        text = document["text"]
        content = to_bytes(text) if isinstance(text, str) else b""
        if not isinstance(text, str) or mark_of(content) != document["blob"]:
            raise Tampered(f"{self._where()}: a text does not match its hash. It is refused.")
        place = self._texts.seek(0, os.SEEK_END)
        self._texts.write(content)
        self._places[bytes.fromhex(mark_of(content))] = (place, len(content))

    def _record(self, document: Any) -> TraceRecord:
        try:
            return TraceRecord.model_validate({**document, "event": unpacked(document["event"], self._text)})
        except (ValidationError, KeyError, TypeError, ValueError):
            raise Tampered(f"{self._where()} is not a trace record: the trace was changed or cut.") from None

    def _text(self, mark: str) -> str:
        place, length = self._places[bytes.fromhex(mark)]
        self._texts.seek(place)
        return to_text(self._texts.read(length))


def verified(trace: TraceFile) -> Iterator[TraceRecord]:
    """The records of a file, and at their end the proof that spec and result are those of this very trace."""
    header, submitted = trace.header, None
    spec = digest(header.spec.model_dump(mode="json"))
    for record in trace.records():
        known = record.event.get("spec_digest", "") if record.kind == "attempt_started" else ""
        if header.is_spec_whole and known not in ("", spec):
            raise Tampered(f"event {record.seq}: it is of another spec than the file's header holds")
        if record.kind == "submit_accepted" and not record.event.get("node"):
            submitted = record.event["fields"]
        yield record
    result = header.result
    if result is None:
        return
    if (result.trace_ref.events, result.trace_ref.head) != (header.events, header.head):
        raise Tampered("the result in the header stands at another end than this trace's")
    if result.answered_by == "submit" and result.structured_output != submitted:
        raise Tampered("the result in the header is not what the trace says was submitted")
