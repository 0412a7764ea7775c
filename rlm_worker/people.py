"""ask(): a question to a person. The job lets go of everything until there is an answer, or nobody gave one in time."""

import time
from datetime import UTC, datetime

from pydantic import JsonValue

from rlm_worker.contracts import JsonObject, digest
from rlm_worker.contracts.keeping import QuestionAnswered, QuestionAsked
from rlm_worker.contracts.signature import SignatureError, fields_schema
from rlm_worker.errors import BadCall, CallRefused, MustPark
from rlm_worker.execution import Execution
from rlm_worker.meter import Meter
from rlm_worker.redaction import redact
from rlm_worker.schemas import SchemaRefused, shape_of
from rlm_worker.workbench import Workbench

_MAX_QUESTION = 10_000


class NobodyAnswered(CallRefused):
    """No person answered in the time that the cell gave."""

    guest_error = "NobodyAnswered"


class People:
    """The ask() of one REPL."""

    def __init__(self, bench: Workbench, meter: Meter) -> None:
        self._bench = bench
        self._meter = meter

    async def ask(self, at: Execution, payload: JsonObject) -> JsonValue:
        """The answer of a person; parks the job while there is none."""
        question, schema, seconds = _read(payload)
        key = digest(["ask", question, schema])
        answered = at.person(key)
        if answered is None:
            at.must_be_live("an ask() call")
            asked = at.question(key) or await self._ask(at, key, question, schema, seconds)
            answered = await self._outcome(asked)
        if not answered.ok:
            raise NobodyAnswered(answered.error)
        return {"value": answered.value, "schema": schema}

    async def _ask(
        self, at: Execution, key: str, question: str, schema: JsonObject, seconds: float | None
    ) -> QuestionAsked:
        self._meter.count_host_call()
        asked = QuestionAsked(
            node=at.node,
            iteration=at.iteration,
            ordinal=self._bench.journal.take_ordinal(),
            key=key,
            question=question,
            answer_schema=schema,
            until_ms=None if seconds is None else _now_ms() + int(seconds * 1000),
        )
        await self._bench.writer.write(asked)
        return asked

    async def _outcome(self, asked: QuestionAsked) -> QuestionAnswered:
        """What came of a question, recorded before the cell sees it; MustPark while nothing has."""
        given = self._bench.answers.get(asked.ordinal)
        is_late = asked.until_ms is not None and _now_ms() >= asked.until_ms
        if given is None and not is_late:
            park = self._bench.waiting.must(
                MustPark("asked", asked.question, not_before=_moment(asked.until_ms))
            )
            await self._bench.waiting.quiet()
            raise park
        said: JsonObject = (
            {"ok": False, "error": f"nobody answered in time: {asked.question[:200]}"}
            if given is None
            else {"ok": True, "value": given.value, "by": given.by, "answered_ms": given.answered_ms}
        )
        place = {"node": asked.node, "iteration": asked.iteration, "ordinal": asked.ordinal, "key": asked.key}
        answered = redact(QuestionAnswered.model_validate({**place, **said}))
        await self._bench.writer.write(answered)
        return answered


def _read(payload: JsonObject) -> tuple[str, JsonObject, float | None]:
    question, schema, seconds = payload.get("question"), payload.get("schema"), payload.get("timeout")
    if not isinstance(question, str) or not question.strip() or len(question) > _MAX_QUESTION:
        raise BadCall(f"ask(question, schema=…) needs a question of 1 to {_MAX_QUESTION} characters")
    if seconds is not None and (not isinstance(seconds, int | float) or seconds <= 0):
        raise BadCall(
            "timeout is how many seconds an answer may take, more than 0; leave it out to wait for ever"
        )
    try:
        if isinstance(schema, str):
            schema = fields_schema(schema)
        if not isinstance(schema, dict):
            raise BadCall("schema is a type, a JSON Schema, or fields such as 'year: int, sure: bool'")
        shape_of(schema)
    except (SignatureError, SchemaRefused) as error:
        raise BadCall(f"the schema of this question cannot be used: {error}") from error
    return question, schema, None if seconds is None else float(seconds)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _moment(at_ms: int | None) -> datetime | None:
    return None if at_ms is None else datetime.fromtimestamp(at_ms / 1000, UTC)
