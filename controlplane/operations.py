"""What operators can ask of an App beyond jobs: limits, kill switches, findings, monitors, the runbook."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from pydantic import JsonValue

from controlplane.domain.commands import Order
from controlplane.domain.findings import read_policy
from controlplane.domain.identity import Caller
from controlplane.domain.switches import ScopeKind
from controlplane.handlers import control, monitors, queries, retuning, runbook, stuck, switches
from controlplane.handlers.switches import WantedSwitch
from controlplane.ports import Desk
from controlplane.views import CaseView, FindingView, JobView, Monitors, SwitchView
from controlplane.watchdogs.stuck_keeper import StuckKeeper
from rlm_worker.contracts import JsonObject, TraceRecord

_PAGE = 500


class Operations:
    """The operator's half of an App."""

    desk: Desk
    caller: Caller

    def _whole(self, job_id: str) -> str:
        return queries.resolve(self.desk, job_id, caller=self.caller)

    def _view(self, job_id: str) -> JobView:
        return queries.job(self.desk, job_id, caller=self.caller)

    def retune(self, job_id: str, changes: Mapping[str, JsonValue], *, reason: str) -> JobView:
        """Change limits of a job that has not ended; `changes` names fields of Budget."""
        whole = self._whole(job_id)
        retuning.retune(self.desk, whole, changes, reason=reason, caller=self.caller)
        return self._view(whole)

    def engage(
        self,
        scope_kind: ScopeKind,
        scope_id: str = "",
        *,
        action: Order = "kill",
        reason: str,
        tenant_id: str = "",
    ) -> SwitchView:
        """Engage a kill switch. Pressed again it always acts: a stop becomes a kill."""
        name = self._whole(scope_id) if scope_kind == "job" else scope_id
        wanted = WantedSwitch(
            scope_kind=scope_kind, scope_id=name, action=action, reason=reason, tenant_id=tenant_id
        )
        return switches.engage(self.desk, wanted, caller=self.caller)

    def release(self, order_id: int, *, reason: str) -> SwitchView:
        return switches.release(self.desk, order_id, reason=reason, caller=self.caller)

    def switches(
        self, *, limit: int = 50, before: int | None = None, only_in_force: bool = True
    ) -> list[SwitchView]:
        """Kill switches, newest first; with `only_in_force` off their history."""
        return switches.page(
            self.desk, caller=self.caller, limit=limit, before=before, only_in_force=only_in_force
        )

    def findings(
        self, *, limit: int = 50, before_ms: int | None = None, only_open: bool = True
    ) -> list[FindingView]:
        return stuck.page(
            self.desk, caller=self.caller, limit=limit, before_ms=before_ms, only_open=only_open
        )

    def monitors(self) -> Monitors:
        return monitors.monitors(self.desk, caller=self.caller)

    def case(self, job_id: str) -> CaseView:
        """The runbook's page of a job."""
        return runbook.case(self.desk, self._whole(job_id), caller=self.caller)

    def retry(self, job_id: str, *, reason: str) -> JobView:
        """Try a job anew that failed or was quarantined."""
        whole = self._whole(job_id)
        runbook.retry(self.desk, whole, reason=reason, caller=self.caller)
        return self._view(whole)

    def complete(self, job_id: str, output: JsonObject, *, reason: str) -> JobView:
        """Answer a job by hand."""
        whole = self._whole(job_id)
        runbook.complete(self.desk, whole, output, reason=reason, caller=self.caller)
        return self._view(whole)

    def recover(self, job_id: str, *, reason: str) -> JobView:
        """Resume a held or parked job as a step of the runbook: with a reason, on record."""
        whole = self._whole(job_id)
        runbook.chosen(self.desk, whole, action="job.resume", reason=reason, caller=self.caller)
        control.resume(self.desk, whole, caller=self.caller)
        return self._view(whole)

    def cancel(self, job_id: str, *, reason: str, order: Order = "stop") -> JobView:
        """Stop a job as a step of the runbook: with a reason, on record."""
        whole = self._whole(job_id)
        runbook.chosen(self.desk, whole, action=f"job.{order}", reason=reason, caller=self.caller)
        control.stop(self.desk, whole, order=order, caller=self.caller, reason=reason)
        return self._view(whole)

    def export_case(self, job_id: str, path: Path, *, reason: str) -> None:
        """Write a job with its trace and result to a file that a regression test replays: `custody replay FILE`."""
        from controlplane.adapters.trace_files import TraceHeader, write_trace  # noqa: PLC0415

        whole = self._whole(job_id)
        view = self._view(whole)
        runbook.chosen(self.desk, whole, action="job.export", reason=reason, caller=self.caller)
        header = TraceHeader(
            spec=view.spec,
            state=view.state,
            result=view.result,
            events=view.trace_events,
            head=view.trace_head,
        )
        write_trace(path, header, self._records(whole, until=view.trace_events))

    def _records(self, job_id: str, *, until: int) -> Iterator[TraceRecord]:
        after = 0
        while after < until and (
            page := queries.trace(
                self.desk, job_id, caller=self.caller, after=after, limit=min(_PAGE, until - after)
            )
        ):
            yield from page
            after += len(page)

    def stuck_keeper(self) -> StuckKeeper:
        """The watchdog over stuck jobs, as this installation wants it."""
        settings = self.desk.rules.stuck
        return StuckKeeper(self.desk, rules=settings, policy=read_policy(self.desk.rules.stuck_policy))
