"""One order to many jobs: each is its own act, with its own outcome. A filter must fit as many as the caller was told."""

from controlplane.api import answers as to
from controlplane.api.bodies import JobFilter, Problem
from controlplane.api.bodies_orders import BulkAnswer, BulkOutcome, BulkRequest
from controlplane.api.calls import Acting
from controlplane.api.problems import as_problem
from controlplane.domain.identity import Capability
from controlplane.errors import ControlPlaneError, Denied, InvalidRequest, NotAsSeen
from controlplane.handlers import audits, control, parking, queries, searching
from controlplane.handlers.permits import require
from controlplane.views import JobView

_MOST = 1_000
_PAGES = 40
_NEEDS: dict[str, Capability] = {
    "stop": "job.stop",
    "kill": "job.stop",
    "pause": "job.stop",
    "resume": "job.submit",
    "steer": "job.steer",
}


def carry_out(acting: Acting, body: BulkRequest) -> BulkAnswer:
    if (body.ids is None) == (body.filter is None):
        raise InvalidRequest("name jobs by their `ids` or by a `filter`, one of the two")
    if (body.verb == "steer") != bool(body.text.strip()):
        raise InvalidRequest("a steer, and nothing else, has a `text`")
    with acting.desk.store.read() as tx:
        require(tx, acting.caller, _NEEDS[body.verb], tenant_id=acting.caller.scope.tenant_id or "")
    found = list(dict.fromkeys(body.ids)) if body.ids is not None else _fitting(acting, body)
    if not body.dry_run:
        _enter(acting, body, len(found))
    items = tuple(_one(acting, body, job_id) for job_id in found)
    return BulkAnswer(dry_run=body.dry_run, matched=len(found), items=items)


def _fitting(acting: Acting, body: BulkRequest) -> list[str]:
    assert body.filter is not None
    found = select(acting, body.filter, limit=_MOST + 1)
    if len(found) > _MOST:
        raise InvalidRequest(f"more than {_MOST} jobs fit the filter: narrow it")
    if not body.dry_run and body.expect is None:
        raise InvalidRequest("say with `expect` how many jobs the filter must fit: a dry run tells")
    if body.expect is not None and body.expect != len(found):
        raise NotAsSeen(f"{len(found)} jobs fit the filter by now, not {body.expect}: look again")
    return found


def select(acting: Acting, wanted: JobFilter, *, limit: int) -> list[str]:
    """Ids of jobs that fit, newest first."""
    found: list[str] = []
    cursor: str | None = None
    for _ in range(_PAGES):
        page = searching.search(
            acting.desk, to.search(wanted), caller=acting.caller, limit=searching.MOST, cursor=cursor
        )
        found += [view.job_id for view in page.items]
        cursor = page.next
        if cursor is None or len(found) >= limit:
            return found[:limit]
    raise InvalidRequest("the filter would look at too many jobs: name a state, a task or a label")


def _enter(acting: Acting, body: BulkRequest, count: int) -> None:
    with acting.desk.store.write() as tx:
        tenant_id = acting.caller.scope.tenant_id or ""
        said = f"{count} jobs by {'ids' if body.filter is None else body.filter.model_dump_json(exclude_defaults=True)}"
        audits.enter(
            tx, acting.caller, f"bulk.{body.verb}", target="jobs", tenant_id=tenant_id, reason=said[:2_000]
        )


def _one(acting: Acting, body: BulkRequest, job_id: str) -> BulkOutcome:
    try:
        view = queries.job(acting.desk, job_id, caller=acting.caller)
        if body.dry_run:
            return BulkOutcome(
                job_id=job_id, outcome="unchanged" if view.is_terminal else "would", state=view.state
            )
        is_done = _order(acting, body, view)
        state = queries.job(acting.desk, job_id, caller=acting.caller).state
        return BulkOutcome(job_id=job_id, outcome="done" if is_done else "unchanged", state=state)
    except ControlPlaneError as error:
        if isinstance(error, Denied):
            audits.refused(acting.desk, error, caller=acting.caller, target=f"bulk.{body.verb} {job_id}")
        problem: Problem = as_problem(error, instance=f"/v1/jobs/{job_id}")
        return BulkOutcome(job_id=job_id, outcome="refused", problem=problem)


def _order(acting: Acting, body: BulkRequest, view: JobView) -> bool:
    desk, caller, job_id = acting.desk, acting.caller, view.job_id
    if body.verb in ("stop", "kill", "pause"):
        return control.stop(desk, job_id, order=body.verb, caller=caller, reason=body.reason)
    if view.is_terminal:
        return False
    if body.verb == "steer":
        control.steer(desk, job_id, text=body.text, caller=caller)
        return True
    if view.state == "parked":
        return parking.unpark(desk, job_id, caller=caller)
    control.resume(desk, job_id, caller=caller)
    return True
