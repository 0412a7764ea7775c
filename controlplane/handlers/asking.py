"""Questions of jobs to people: which are open, and a person's answer, checked and kept with who gave it and when."""

from dataclasses import dataclass

from pydantic import JsonValue

from controlplane.domain import job
from controlplane.domain.commands import AnswerJob, UnparkJob
from controlplane.domain.identity import Caller
from controlplane.errors import InvalidRequest
from controlplane.handlers.apply import apply_job, load
from controlplane.handlers.permits import require
from controlplane.handlers.retrying import retried
from controlplane.ports import Desk, JobRow, TaskRow, Transaction
from controlplane.schemas import checker
from rlm_worker.contracts import JsonObject, digest
from rlm_worker.contracts.keeping import QuestionAsked


@dataclass(frozen=True, kw_only=True)
class Question:
    """What a job wants to know."""

    job_id: str
    question: int
    text: str
    schema: JsonObject
    asked_ms: int
    until_ms: int | None
    #: A person has answered, and the job has not taken it up yet.
    is_answered: bool = False


def open_questions(tx: Transaction, job_id: str) -> list[Question]:
    """Questions that the job has not had an answer to, oldest first."""
    over = {record.event["ordinal"] for record in tx.traces.of_kind(job_id, kind="question_answered")}
    given = {answer.question for answer in tx.answers.of(job_id)}
    found: list[Question] = []
    for record in tx.traces.of_kind(job_id, kind="question_asked"):
        asked = QuestionAsked.model_validate(record.event)
        if asked.ordinal not in over:
            found.append(
                Question(
                    job_id=job_id,
                    question=asked.ordinal,
                    text=asked.question,
                    schema=asked.answer_schema,
                    asked_ms=record.at_ms,
                    until_ms=asked.until_ms,
                    is_answered=asked.ordinal in given,
                )
            )
    return found


def questions(desk: Desk, job_id: str, *, caller: Caller) -> list[Question]:
    with desk.store.read() as tx:
        rows = load(tx, job_id, scope=caller.scope)
        require(tx, caller, "job.read", tenant_id=rows[0].state.tenant_id, job_id=job_id)
        return open_questions(tx, job_id)


@retried
def answer(desk: Desk, job_id: str, *, question: int | None, value: JsonValue, caller: Caller) -> Question:
    """Keep an answer that fits and let the job go on; a question that is over, or answered, is refused."""
    with desk.store.write() as tx:
        rows = load(tx, job_id, scope=caller.scope)
        require(tx, caller, "job.answer", tenant_id=rows[0].state.tenant_id, job_id=job_id)
        asked = _chosen(tx, job_id, question)
        error = next(checker(asked.schema).iter_errors(value), None)
        if error is not None:
            raise InvalidRequest(f"the answer does not fit question {asked.question}: {error.message}")
        command = AnswerJob(question=asked.question, answer_digest=digest(value), by=caller.name)
        events = job.decide(rows[0].state, command)
        tx.answers.add(job_id, question=asked.question, value=value, by=caller.name)
        rows = apply_job(tx, desk, rows=rows, events=events, actor=caller.name)
        wake_if_answered(tx, desk, rows, by=caller.name)
    desk.store.announce(job_id)
    return asked


def _chosen(tx: Transaction, job_id: str, question: int | None) -> Question:
    waiting = [asked for asked in open_questions(tx, job_id) if not asked.is_answered]
    in_time = [asked for asked in waiting if asked.until_ms is None or tx.now_ms < asked.until_ms]
    fitting = [asked for asked in in_time if question in (None, asked.question)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        numbers = ", ".join(str(asked.question) for asked in fitting)
        raise InvalidRequest(f"job {job_id} asks several questions, say which with --question: {numbers}")
    raise InvalidRequest(
        f"job {job_id} has no such open question: `custody ask list` shows those that wait for an answer"
    )


def wake_if_answered(tx: Transaction, desk: Desk, rows: tuple[JobRow, TaskRow], *, by: str) -> None:
    """Make a parked job ready when an answer is there that it has not taken up."""
    parked = rows[0].state.parked
    if parked is None or parked.reason != "asked":
        return
    if any(asked.is_answered for asked in open_questions(tx, rows[0].state.job_id)):
        events = job.decide(rows[0].state, UnparkJob(by=by))
        apply_job(tx, desk, rows=rows, events=events, actor=by)
