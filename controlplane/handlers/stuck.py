"""Looking for stuck jobs: each check is a question to the store; what is found is entered once, with what is done about it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import reduce

from controlplane.domain import job
from controlplane.domain.commands import QuarantineJob, ReportStuck
from controlplane.domain.findings import Action, Finding, Found
from controlplane.domain.identity import EVERY_TENANT, Caller
from controlplane.domain.switches import covering
from controlplane.handlers.apply import apply_task, end_job, load, result_without_worker
from controlplane.handlers.orders import order_job
from controlplane.handlers.permits import require
from controlplane.handlers.switches import subject_of
from controlplane.handlers.tails import Tail, look_at_tails
from controlplane.ports import Desk, Transaction
from controlplane.ports_control import StuckRow, StuckRules
from controlplane.views import FindingView, at

_BY = "stuck_keeper"
Check = Callable[[Transaction, StuckRules], list[StuckRow]]


def _undispatched(tx: Transaction, rules: StuckRules) -> list[StuckRow]:
    """A job under a kill switch, or refused with a reason, waits as it should."""
    switches = tx.controls.in_force()
    found = []
    for row in tx.findings.never_dispatched(rules):
        ready = tx.jobs.get(row.job_id, scope=EVERY_TENANT)
        if ready is not None and not row.facts["refusal"] and covering(switches, subject_of(ready)) is None:
            found.append(row)
    return found


#: The checks of the store, by the kind of what they find. Another table's check is one more entry.
CHECKS: dict[str, tuple[Check, str]] = {
    "no_progress": (
        lambda tx, rules: tx.findings.no_progress(rules),
        "nothing was recorded for longer than it may take",
    ),
    "wait_overdue": (
        lambda tx, rules: tx.findings.wait_overdue(rules),
        "it waits although its time has come",
    ),
    "retries_over": (
        lambda tx, rules: tx.findings.retries_over(rules),
        "it was tried more often than it may be",
    ),
    "never_answered": (
        lambda tx, rules: tx.findings.never_answered(rules),
        "what it asked was never answered",
    ),
    "crashed_repeatedly": (
        lambda tx, rules: tx.findings.crashed_repeatedly(rules),
        "it took its workers down and is in quarantine: look at it with `custody runbook`",
    ),
    "state_disagrees": (
        lambda tx, rules: tx.findings.state_disagrees(rules),
        "its state and its lease say different things",
    ),
    "never_dispatched": (
        _undispatched,
        "it is ready and no wake-up was sent for it",
    ),
}
#: Found once and open until the job's state changes: their queries leave out what is known.
_UNTIL_RETRIED = "crashed_repeatedly"


@dataclass
class Memory:
    """What a keeper remembers from one look to the next."""

    tails: dict[str, Tail] = field(default_factory=dict)


def keep(desk: Desk, rules: StuckRules, policy: Mapping[str, Action], *, memory: Memory) -> int:
    """Look once: enter what is new with what follows from it, close what is over; return how many were entered."""
    with desk.store.read() as tx:
        found = [*_asked(tx, rules), *look_at_tails(tx, memory.tails, rules=rules)]
        known = tx.findings.open()
        retried = tx.findings.no_longer_quarantined()
    still = {(each.job_id, each.kind) for each in found}
    is_known = {(each.job_id, each.kind) for each in known}
    over = [
        each.finding_id
        for each in known
        if each.kind != _UNTIL_RETRIED and (each.job_id, each.kind) not in still
    ]
    if over or retried:
        with desk.store.write("normal") as tx:
            tx.findings.resolve([*over, *retried])
    fresh = [each for each in found if (each.job_id, each.kind) not in is_known]
    for each in fresh:
        with desk.store.write() as tx:
            _enter(tx, desk, each, action=policy.get(each.kind, "warn"))
    if fresh:
        desk.store.announce()
    return len(fresh)


def _asked(tx: Transaction, rules: StuckRules) -> Iterable[Found]:
    for kind, (check, detail) in CHECKS.items():
        for row in check(tx, rules):
            seconds = max(0, tx.now_ms - row.since_ms) // 1000
            yield Found(
                job_id=row.job_id,
                tenant_id=row.tenant_id,
                kind=kind,
                detail=f"{detail} (for {seconds} s)",
                evidence={"since_ms": row.since_ms, **row.facts},
            )


def _enter(tx: Transaction, desk: Desk, found: Found, *, action: Action) -> None:
    """The finding, its event with a receipt, and what is done, in one transaction: it is done once."""
    if any(each.kind == found.kind and each.resolved_ms is None for each in tx.findings.of_job(found.job_id)):
        return
    rows = load(tx, found.job_id, scope=EVERY_TENANT)
    finding = Finding(
        finding_id=desk.new_id("fnd"),
        job_id=found.job_id,
        tenant_id=found.tenant_id,
        kind=found.kind,
        detail=found.detail,
        evidence=found.evidence,
        action=action,
        at_ms=tx.now_ms,
    )
    tx.findings.add(finding)
    report = ReportStuck(
        finding_id=finding.finding_id, condition=found.kind, detail=found.detail, action=action
    )
    # The job's own row stays as it is: being looked at is no progress.
    apply_task(tx, desk, row=rows[1], events=job.decide(rows[0].state, report), actor=_BY)
    _act(tx, desk, found, action)


def _act(tx: Transaction, desk: Desk, found: Found, action: Action) -> None:
    reason = f"{found.kind}: {found.detail}"
    if action in ("pause", "stop", "kill"):
        order_job(tx, desk, found.job_id, order=action, by=_BY, reason=reason, at_ms=tx.now_ms)
    elif action == "quarantine":
        _quarantine(tx, desk, found.job_id, reason=reason)


def _quarantine(tx: Transaction, desk: Desk, job_id: str, *, reason: str) -> None:
    """Whoever works on it loses its lease with this."""
    rows = load(tx, job_id, scope=EVERY_TENANT)
    events = job.decide(rows[0].state, QuarantineJob(reason=reason))
    if not events:
        return
    tx.leases.drop(job_id, outcome="lost", ended_ms=tx.now_ms)
    after = reduce(job.evolve, events, rows[0].state)
    result = result_without_worker(
        tx, rows[0], status="failed", failure_class="quarantined", message=after.reason
    )
    end_job(tx, desk, rows=rows, events=events, result=result, actor=_BY)


def page(
    desk: Desk, *, caller: Caller, limit: int = 50, before_ms: int | None = None, only_open: bool = True
) -> list[FindingView]:
    """Newest first."""
    with desk.store.read() as tx:
        require(tx, caller, "job.read", tenant_id=caller.scope.tenant_id or "")
        found = tx.findings.page(scope=caller.scope, limit=limit, before_ms=before_ms, only_open=only_open)
    return [view_of(each) for each in found]


def view_of(finding: Finding) -> FindingView:
    return FindingView(
        finding_id=finding.finding_id,
        job_id=finding.job_id,
        tenant_id=finding.tenant_id,
        kind=finding.kind,
        detail=finding.detail,
        evidence=dict(finding.evidence),
        action=finding.action,
        at=at(finding.at_ms),
        resolved_at=None if finding.resolved_ms is None else at(finding.resolved_ms),
    )
