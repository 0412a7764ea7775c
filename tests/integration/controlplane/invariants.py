"""What must hold of jobs and their tenant after any fault."""

from controlplane.bootstrap import App
from controlplane.domain.budget import NOTHING
from controlplane.domain.identity import EVERY_TENANT


def check(app: App, job_ids: list[str], *, tenant_id: str = "local") -> None:
    """One accepted settle per job, every chain whole, every hold settled, and an account that equals its ledger."""
    for job_id in job_ids:
        view = app.job(job_id)
        assert view.state == "succeeded", f"{job_id} is {view.state}: {view.waiting_for}"
        assert view.lease is None
        app.verify_trace(job_id)
        app.verify_receipts(view.task_id)
        with app.store.read() as tx:
            kinds = [link.kind for link in tx.history.events(view.task_id)]
            assert kinds.count("result_folded") == kinds.count("job_finished") == 1
            assert tx.jobs.get(job_id, scope=EVERY_TENANT).tenant_hold is None
    with app.store.read() as tx:
        account, entries = tx.budgets.get(f"tenant:{tenant_id}"), tx.budgets.entries(f"tenant:{tenant_id}")
    spent, held = NOTHING, NOTHING
    for entry in entries:
        match entry.kind:
            case "settle":
                spent = spent.plus(entry.amount)
            case "hold":
                held = held.plus(entry.amount)
            case "release":
                held = held.minus(entry.amount)
    assert (account.spent, account.held) == (spent, held)
    assert account.held == NOTHING
