"""Requests about jobs and tasks, one function each: what is asked, and what the answer is."""

from pydantic import JsonValue

from controlplane.api.bodies import (
    ArtifactBody,
    AttemptBody,
    JobBody,
    JobFilter,
    JobItem,
    Page,
    QuestionBody,
    ReceiptBody,
    ResultBody,
    SubmitRequest,
    TaskBody,
    TaskItem,
    TraceItem,
)
from controlplane.api.bodies_orders import (
    AnswerRequest,
    BulkAnswer,
    BulkRequest,
    CompleteRequest,
    ForkRequest,
    OrderRequest,
    RetryRequest,
    RetuneRequest,
    SteerAnswer,
    SteerRequest,
)
from controlplane.client.calls import Call, Said, Versioned, body_as, get, post, segment, versioned_as
from rlm_worker.contracts import Budget, JsonObject

_JOB = body_as(JobBody)


def _path(job_id: str, *parts: str) -> str:
    return "/".join(["/v1/jobs", segment(job_id), *parts])


def submit(request: SubmitRequest, *, key: str | None = None, content: bool = False) -> Call[JobBody]:
    """Enter a job. The key, made when none is given, makes sending it twice the same as sending it once."""
    return post("/v1/jobs", _JOB, request, key=key, query={"content": content})


def job(job_id: str, *, content: bool = False) -> Call[JobBody]:
    """One job as it stands; `content` asks for the texts of models and evidence, too."""
    return get(_path(job_id), _JOB, {"content": content})


def versioned_job(job_id: str, *, content: bool = False) -> Call[Versioned[JobBody]]:
    """One job, with the tag for `if_match` of a change that insists on what was seen."""
    return get(_path(job_id), versioned_as(JobBody), {"content": content})


def jobs(
    where: JobFilter | None = None, *, limit: int = 100, cursor: str | None = None, content: bool = False
) -> Call[Page[JobItem]]:
    """The jobs that fit a filter, newest first."""
    query = {**_fitting(where), "limit": limit, "cursor": cursor, "content": content}
    return get("/v1/jobs", body_as(Page[JobItem]), query)


def _fitting(where: JobFilter | None) -> dict[str, object]:
    if where is None:
        return {}
    return {
        "state": where.states,
        "task": where.task_id,
        "label": where.labels,
        "model": where.model,
        "words": where.words,
        "created_after": where.created_after,
        "created_before": where.created_before,
    }


def stop(job_id: str, *, reason: str = "", if_match: str = "", key: str | None = None) -> Call[JobBody]:
    """Order a stop: the job ends with what it has."""
    return _order(job_id, "stop", reason=reason, if_match=if_match, key=key)


def kill(job_id: str, *, reason: str = "", if_match: str = "", key: str | None = None) -> Call[JobBody]:
    """Order a kill: the job ends now."""
    return _order(job_id, "kill", reason=reason, if_match=if_match, key=key)


def pause(job_id: str, *, reason: str = "", if_match: str = "", key: str | None = None) -> Call[JobBody]:
    """Order a pause: the job gives up its lease and waits, with everything it has."""
    return _order(job_id, "pause", reason=reason, if_match=if_match, key=key)


def resume(job_id: str, *, reason: str = "", if_match: str = "", key: str | None = None) -> Call[JobBody]:
    """Let a paused, parked or quarantined job go on."""
    return _order(job_id, "resume", reason=reason, if_match=if_match, key=key)


def _order(job_id: str, verb: str, *, reason: str, if_match: str, key: str | None) -> Call[JobBody]:
    return post(_path(job_id, verb), _JOB, OrderRequest(reason=reason), key=key, if_match=if_match)


def steer(job_id: str, text: str, *, if_match: str = "", key: str | None = None) -> Call[SteerAnswer]:
    """Leave an instruction for the job's next iteration."""
    request = SteerRequest(text=text)
    return post(_path(job_id, "steer"), body_as(SteerAnswer), request, key=key, if_match=if_match)


def retune(
    job_id: str, request: RetuneRequest, *, if_match: str = "", key: str | None = None
) -> Call[JobBody]:
    """Change limits of a job that has not ended."""
    return post(_path(job_id, "retune"), _JOB, request, key=key, if_match=if_match)


def retry(job_id: str, *, reason: str, if_match: str = "", key: str | None = None) -> Call[JobBody]:
    """Try a job anew that failed or was quarantined."""
    return post(_path(job_id, "retry"), _JOB, RetryRequest(reason=reason), key=key, if_match=if_match)


def complete(
    job_id: str, output: JsonObject, *, reason: str, if_match: str = "", key: str | None = None
) -> Call[JobBody]:
    """Answer a job by hand; the answer must fit its schema, and says that it is an operator's."""
    request = CompleteRequest(output=output, reason=reason)
    return post(_path(job_id, "complete"), _JOB, request, key=key, if_match=if_match)


def fork(
    job_id: str,
    *,
    at: int | None = None,
    steer: str = "",
    budget: Budget | None = None,
    key: str | None = None,
) -> Call[JobBody]:
    """A new job that shares the first iterations of another."""
    request = ForkRequest(at=at, steer=steer, budget=budget)
    return post(_path(job_id, "fork"), _JOB, request, key=key)


def answer(
    job_id: str, value: JsonValue, *, question: int | None = None, key: str | None = None
) -> Call[JobBody]:
    """Answer what a job asks; it goes on with it."""
    request = AnswerRequest(question=question, value=value)
    return post(_path(job_id, "answer"), _JOB, request, key=key)


def attempts(job_id: str, *, limit: int = 100, cursor: str | None = None) -> Call[Page[AttemptBody]]:
    """The leases a job has had."""
    return get(_path(job_id, "attempts"), body_as(Page[AttemptBody]), {"limit": limit, "cursor": cursor})


def trace(
    job_id: str,
    *,
    limit: int = 500,
    cursor: str | None = None,
    content: bool = False,
) -> Call[Page[TraceItem]]:
    """The events of a job's trace, page by page; what a working job adds later is not waited for."""
    query = {"limit": limit, "cursor": cursor, "content": content}
    return get(_path(job_id, "trace"), body_as(Page[TraceItem]), query)


def result(job_id: str, *, content: bool = False) -> Call[ResultBody]:
    """How a job ended; null as long as it has not."""
    return get(_path(job_id, "result"), body_as(ResultBody), {"content": content})


def questions(
    job_id: str, *, limit: int = 100, cursor: str | None = None, content: bool = False
) -> Call[Page[QuestionBody]]:
    """What a job wants to know of people."""
    query = {"limit": limit, "cursor": cursor, "content": content}
    return get(_path(job_id, "questions"), body_as(Page[QuestionBody]), query)


def receipts(job_id: str, *, limit: int = 100, cursor: str | None = None) -> Call[Page[ReceiptBody]]:
    """The proofs of what the control plane did with a job."""
    return get(_path(job_id, "receipts"), body_as(Page[ReceiptBody]), {"limit": limit, "cursor": cursor})


def artifacts(
    job_id: str, *, limit: int = 100, cursor: str | None = None, content: bool = True
) -> Call[Page[ArtifactBody]]:
    """The files a job made that were kept. Their names are the job's own text."""
    query = {"limit": limit, "cursor": cursor, "content": content}
    return get(_path(job_id, "artifacts"), body_as(Page[ArtifactBody]), query)


def artifact(job_id: str, path: str) -> Call[Said]:
    """The content of one of those files."""
    return get(_path(job_id, "artifacts", *(segment(part) for part in path.split("/"))), lambda said: said)


def stream(job_id: str, *, after: str = "", content: bool = False) -> Call[Said]:
    """The job's events as they come, from behind the one with this id."""
    headers = {"Accept": "text/event-stream", **({"Last-Event-ID": after} if after else {})}
    query = (("content", "true"),) if content else ()
    return Call(
        method="GET", path=_path(job_id, "stream"), read=lambda said: said, query=query, headers=headers
    )


def bulk(request: BulkRequest, *, key: str | None = None) -> Call[BulkAnswer]:
    """One order to many jobs, by ids or by a filter; a dry run tells what it would do."""
    return post("/v1/jobs:bulk", body_as(BulkAnswer), request, key=key)


def tasks(*, limit: int = 100, cursor: str | None = None, content: bool = False) -> Call[Page[TaskItem]]:
    """Tasks, newest first."""
    query = {"limit": limit, "cursor": cursor, "content": content}
    return get("/v1/tasks", body_as(Page[TaskItem]), query)


def task(task_id: str, *, content: bool = False) -> Call[TaskBody]:
    """One task, with its jobs and receipts."""
    return get(f"/v1/tasks/{segment(task_id)}", body_as(TaskBody), {"content": content})
