"""Several threads and processes decide at once: what they agree on is as if one had come after the other."""

import json
import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from controlplane.domain.budget import NOTHING, Account, Limits
from controlplane.domain.identity import EVERY_TENANT, owner
from controlplane.gateway import LocalGateway
from controlplane.handlers import control, verify
from controlplane.handlers.submit import submit
from rlm_worker.contracts import Budget
from rlm_worker.contracts.gateway import Claimed, ClaimRequest
from tests.contract.store.crowd import JOBS, LIMIT, a_desk, work
from tests.integration.controlplane.hands import Hands, a_request

ROOT = Path(__file__).parents[3]
ME = owner("tester")


def all_at_once(*acts):
    """Begin these together; what each returned."""
    gate = threading.Barrier(len(acts))

    def begin(act):
        gate.wait(timeout=10)
        return act()

    with ThreadPoolExecutor(len(acts)) as pool:
        return list(pool.map(begin, acts))


def check(store, *, spent: int) -> None:
    """Nothing is held, the account is what its ledger says, every chain holds."""
    desk = a_desk(store)
    with store.read() as tx:
        tenant = tx.budgets.get("tenant:local")
        entries = tx.budgets.entries("tenant:local")
        tasks = {tx.jobs.get(job_id, scope=EVERY_TENANT).state.task_id for job_id in JOBS}
        assert tx.leases.all() == []
    counted = Counter(entry.kind for entry in entries)
    assert counted["hold"] == counted["settle"] == counted["release"] == len(JOBS)
    assert (tenant.held, tenant.spent.subcalls) == (NOTHING, spent)
    assert sum(entry.amount.subcalls for entry in entries if entry.kind == "settle") == spent
    for task_id in tasks:
        verify.verify_receipts(desk, task_id, caller=ME)


def enter_all(store) -> None:
    """Half of them steps of one task, under a tenant whose budget holds two at a time."""
    desk = a_desk(store)
    with store.write() as tx:
        tx.budgets.set_limits("tenant:local", Limits(subcalls=20 + len(JOBS)))
    first = submit(desk, a_request(job_id=JOBS[0], budget=Budget(max_subcalls=10)), caller=ME)
    with store.read() as tx:
        shared = tx.jobs.get(first, scope=EVERY_TENANT).state.task_id
    for number, job_id in enumerate(JOBS[1:]):
        more = {"task_id": shared} if number % 2 else {}
        submit(desk, a_request(job_id=job_id, budget=Budget(max_subcalls=10), **more), caller=ME)


@pytest.mark.requirement("S1-CONC-2", "LESSON-1")
def test_of_many_who_claim_a_job_one_gets_it(open_store):
    stores = [open_store() for _ in range(4)]
    job_id = submit(a_desk(stores[0]), a_request(), caller=ME)

    def claim(store, name):
        request = ClaimRequest(worker_id=name, job_id=job_id, generation=1)
        return LocalGateway(a_desk(store)).claim(request)

    answers = all_at_once(*(lambda s=s, n=n: claim(s, f"w{n}") for n, s in enumerate(stores * 2)))

    assert sum(isinstance(answer, Claimed) for answer in answers) == 1
    with stores[0].read() as tx:
        assert tx.budgets.get("tenant:local").held.subcalls == 10
        assert len(tx.budgets.entries("tenant:local")) == 1


def test_the_same_submission_from_several_at_once_is_one_job(open_store):
    desks = [a_desk(open_store()) for _ in range(4)]

    made = all_at_once(*(lambda d=d: submit(d, a_request(job_id="the-job"), caller=ME) for d in desks))

    assert set(made) == {"the-job"}
    with desks[0].store.read() as tx:
        assert sum(count for _, count in tx.backlog.lanes(after="", most=9, count_to=9)) == 1


def test_no_claim_passes_the_tenants_limits_by_coming_at_the_same_moment(open_store):
    stores = [open_store() for _ in range(4)]
    enter_all(stores[0])

    def claim(store, job_id):
        request = ClaimRequest(worker_id=job_id, job_id=job_id, generation=1)
        return LocalGateway(a_desk(store)).claim(request)

    answers = all_at_once(*(lambda j=j, s=s: claim(s, j) for j, s in zip(JOBS, stores * 2, strict=True)))

    assert sum(isinstance(answer, Claimed) for answer in answers) == LIMIT
    with stores[0].read() as tx:
        assert tx.budgets.get("tenant:local").held.subcalls == 10 * LIMIT


def test_processes_that_do_everything_at_once_do_each_thing_once(open_store, place):
    store = open_store()
    enter_all(store)
    command = [sys.executable, "-m", "tests.contract.store.crowd", str(place)]
    processes = [
        subprocess.Popen([*command, str(number)], cwd=ROOT, stdout=subprocess.PIPE) for number in (1, 2)
    ]

    ours = work(store, "worker-0")
    said = [json.loads(process.communicate(timeout=60)[0]) for process in processes]

    assert [process.returncode for process in processes] == [0, 0]
    assert sorted([*ours, *said[0], *said[1]]) == sorted(JOBS)
    check(store, spent=len(JOBS))


def test_a_stop_and_a_settlement_at_once_end_the_job_once(open_store):
    stores = [open_store(), open_store()]
    desk = a_desk(stores[0])
    for job_id in ("job-a", "job-b", "job-c"):
        submit(desk, a_request(job_id=job_id), caller=ME)
        hands = Hands(gateway=LocalGateway(a_desk(stores[1])), job_id=job_id)
        hands.claim()
        all_at_once(
            hands.settle,
            lambda j=job_id: control.stop(desk, j, order="stop", caller=ME, reason="enough"),
        )

        with stores[0].read() as tx:
            row = tx.jobs.get(job_id, scope=EVERY_TENANT)
            kinds = [link.kind for link in tx.history.events(row.state.task_id)]
        assert row.state.is_terminal
        assert kinds.count("result_folded") == 1
        verify.verify_receipts(desk, row.state.task_id, caller=ME)
    with stores[0].read() as tx:
        assert tx.budgets.get("tenant:local") == Account()
