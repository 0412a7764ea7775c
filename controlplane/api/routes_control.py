"""Control: kill switches, what watchdogs found, figures, and the page of a job that went wrong."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from fastapi.responses import Response

from controlplane.api import answers as to
from controlplane.api import withholding
from controlplane.api.bodies import Page
from controlplane.api.bodies_admin import (
    CaseBody,
    CheckpointBody,
    FindingBody,
    MonitorsBody,
    PendingBody,
    ReleaseRequest,
    SwitchBody,
    SwitchRequest,
)
from controlplane.api.calls import Acting, Called, Reply
from controlplane.api.cursors import cursor, number_place
from controlplane.api.operations import Content, Cursor, JobId, Key, Limit, answers
from controlplane.handlers import contents, monitors, runbook, stuck, switches
from controlplane.handlers.switches import WantedSwitch
from controlplane.views import CaseView, FindingView

routes = APIRouter(prefix="/v1", tags=["control"])
_cursor = cursor
Ended = Annotated[bool, Query(description="Also those that are over.")]


@routes.get("/switches", operation_id="list_switches", **answers(200, Page[SwitchBody]))
async def list_switches(
    call: Called, limit: Limit = 50, cursor: Cursor = None, *, ended: Ended = False
) -> Response:
    """Kill switches, the newest first: the caller's, and those of everybody."""

    def act(acting: Acting) -> Reply:
        found = switches.page(
            acting.desk,
            caller=acting.caller,
            limit=limit + 1,
            before=number_place("switches", cursor),
            only_in_force=not ended,
        )
        items = tuple(SwitchBody(**asdict(view)) for view in found[:limit])
        more = _cursor("switches", items[-1].order_id) if len(found) > limit else None
        return Reply(body=Page[SwitchBody](items=items, next=more))

    return await call.read(act)


@routes.post("/switches", operation_id="engage_switch", **answers(201, SwitchBody))
async def engage_switch(call: Called, body: SwitchRequest, key: Key = None) -> Response:
    """Put a kill switch in force. What it covers is ordered to end, and nothing that it covers starts after that."""

    def act(acting: Acting) -> Reply:
        wanted = WantedSwitch(
            scope_kind=body.scope_kind,
            scope_id=body.scope_id,
            action=body.action,
            reason=body.reason,
            tenant_id=body.tenant_id or "",
        )
        made = switches.engage(acting.desk, wanted, caller=acting.caller)
        return Reply(body=SwitchBody(**asdict(made)), status=201)

    _ = key
    return await call.write(act)


@routes.post("/switches/{switch_id}/release", operation_id="release_switch", **answers(200, SwitchBody))
async def release_switch(
    call: Called,
    switch_id: Annotated[int, Path(ge=1, lt=2**31)],
    body: ReleaseRequest,
    key: Key = None,
) -> Response:
    """Let what a kill switch covers go on."""

    def act(acting: Acting) -> Reply:
        view = switches.release(acting.desk, switch_id, reason=body.reason, caller=acting.caller)
        return Reply(body=SwitchBody(**asdict(view)))

    _ = key
    return await call.write(act)


@routes.get("/findings", operation_id="list_findings", **answers(200, Page[FindingBody]))
async def list_findings(
    call: Called, limit: Limit = 50, cursor: Cursor = None, *, ended: Ended = False, content: Content = False
) -> Response:
    """What watchdogs found, the newest first."""

    def act(acting: Acting) -> Reply:
        if content:
            contents.allow(acting.desk, caller=acting.caller)
        found = stuck.page(
            acting.desk,
            caller=acting.caller,
            limit=limit + 1,
            before_ms=number_place("findings", cursor),
            only_open=not ended,
        )
        items = tuple(_finding(view, content=content) for view in found[:limit])
        more = to.ms_of(items[-1].at) if len(found) > limit else None
        return Reply(
            body=Page[FindingBody](items=items, next=None if more is None else _cursor("findings", more))
        )

    return await call.read(act)


def _finding(view: FindingView, *, content: bool) -> FindingBody:
    fields = asdict(view)
    evidence = fields.pop("evidence")
    return FindingBody(
        **{**fields, "detail": withholding.text(view.detail, content=content)},
        evidence=evidence if content or not evidence else withholding.mark(evidence),
    )


@routes.get("/monitors", operation_id="get_monitors", **answers(200, MonitorsBody))
async def get_monitors(call: Called) -> Response:
    """Figures about jobs and workers as they stand."""

    def act(acting: Acting) -> Reply:
        return Reply(
            body=MonitorsBody.model_validate(asdict(monitors.monitors(acting.desk, caller=acting.caller)))
        )

    return await call.read(act)


@routes.get("/runbook/{job_id}", operation_id="get_case", **answers(200, CaseBody))
async def get_case(call: Called, job_id: JobId, *, content: Content = False) -> Response:
    """Everything about a job that went wrong on one page, and what can be done about it."""

    def act(acting: Acting) -> Reply:
        case = runbook.case(acting.desk, job_id, caller=acting.caller)
        if content:
            contents.allow(acting.desk, caller=acting.caller, tenant_id=case.job.tenant_id, job_id=job_id)
        return Reply(body=_case(case, content=content))

    return await call.read(act)


def _state(state: Mapping[str, Any], *, content: bool) -> Any:
    return dict(state) if content else withholding.mark(dict(state))


def _case(case: CaseView, *, content: bool) -> CaseBody:
    kept = case.checkpoint
    last, seen = case.last_event, case.observed
    return CaseBody(
        job=to.job(case.job, content=content),
        checkpoint=None
        if kept is None
        else CheckpointBody(
            seq=kept.seq,
            digest=kept.digest,
            state=_state(kept.state, content=content),
        ),
        step_id=case.step_id,
        step_status=case.step_status,
        task_status=case.task_status,
        iteration=case.iteration,
        last_event=None if last is None else to.trace_item(last, content=content),
        pending=tuple(PendingBody(**asdict(call)) for call in case.pending),
        observed=None if seen is None else to.trace_item(seen, content=content),
        findings=tuple(_finding(view, content=content) for view in case.findings),
        choices=case.choices,
    )
