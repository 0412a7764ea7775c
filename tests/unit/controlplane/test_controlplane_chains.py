"""Chains of receipts, tasks by decide and evolve, and the reading of settings."""

from dataclasses import replace
from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.config import Settings, load_settings, setting_rows
from controlplane.domain import receipts, task
from controlplane.domain.commands import CreateTask, FoldResult, PlannedStep, StartStep
from controlplane.domain.events import from_json, to_json
from controlplane.domain.task import TaskState
from controlplane.engine_settings import ENGINE
from controlplane.errors import InvalidRequest, Tampered
from rlm_worker.config import WorkerSettings


def chain(length: int) -> list[receipts.Link]:
    links: list[receipts.Link] = []
    for seq in range(length):
        prev = links[-1].hash if links else receipts.GENESIS
        links.append(
            receipts.link(stream="receipt", seq=seq, at_ms=seq, body={"n": seq}, prev=prev, kind="k")
        )
    return links


@given(st.integers(1, 6), st.data())
def test_any_change_to_a_chain_is_found_at_its_place(length, data):
    links = chain(length)
    place = data.draw(st.integers(0, length - 1))
    change = data.draw(st.sampled_from(["body", "kind", "at_ms", "drop", "swap"]))
    changed = list(links)
    match change:
        case "body":
            changed[place] = replace(links[place], body={"n": -1})
        case "kind":
            changed[place] = replace(links[place], kind="other")
        case "at_ms":
            changed[place] = replace(links[place], at_ms=99)
        case "drop":
            del changed[place]
        case "swap":
            changed[place] = replace(links[place], hash="f" * 64)

    receipts.verify(links, stream="receipt", length=length, head=links[-1].hash)
    with pytest.raises(Tampered, match=rf"link {place}\b|up to link {place}\b"):
        receipts.verify(changed, stream="receipt", length=length, head=links[-1].hash)


def a_task(*commands) -> TaskState:
    state = TaskState()
    step = PlannedStep(step_id="s")
    first = CreateTask(task_id="t", tenant_id="local", goal="g", steps=(step,))
    for command in (first, StartStep(step_id="s", job_id="j"), *commands):
        events = [from_json(to_json(event)) for event in task.decide(state, command)]
        state = reduce(task.evolve, events, state)
    return state


def fold(status: str) -> FoldResult:
    return FoldResult(
        step_id="s",
        job_id="j",
        status=status,
        spec_digest="",
        result_digest="",
        trace_events=0,
        trace_head="",
    )


@pytest.mark.parametrize(
    ("status", "ends"),
    [
        ("succeeded", "completed"),
        ("partial", "completed"),
        ("failed", "failed"),
        ("quarantined", "failed"),
        ("stopped", "cancelled"),
    ],
)
def test_a_result_ends_a_task_of_one_step(status, ends):
    assert a_task(fold(status)).status == ends


@pytest.mark.requirement("CARD-17")
def test_a_result_is_folded_once():
    folded = a_task(fold("succeeded"))

    assert task.decide(folded, fold("failed")) == []


def test_a_flag_wins_over_the_environment_which_wins_over_the_file(tmp_path):
    (tmp_path / "custody.toml").write_text('worker_threads = 9\nlease_seconds = 3\ntenant = "file"\n')
    env = {"CUSTODY_WORKER_THREADS": "8", "CUSTODY_TENANT": "env"}

    read = load_settings({"tenant": "flag"}, env=env, folder=tmp_path)

    assert (read.tenant, read.worker_threads, read.lease_seconds) == ("flag", 8, 3.0)
    sources = {name: source for name, _, source in setting_rows(read)}
    assert sources["tenant"] == "--tenant"
    assert sources["worker_threads"] == "CUSTODY_WORKER_THREADS"
    assert sources["lease_seconds"].endswith("custody.toml")
    assert sources["home"] == "default"


@pytest.mark.parametrize("text", ["worker_threads = 'many'", "lease_seconds = 0", "wat = 1", "= broken"])
def test_a_bad_settings_file_is_named(tmp_path, text):
    (tmp_path / "custody.toml").write_text(text)

    with pytest.raises(InvalidRequest, match=r"custody\.toml"):
        load_settings({}, env={}, folder=tmp_path)


def test_the_engine_has_the_settings_of_the_installation_under_the_same_names_and_defaults():
    ours, its = Settings(), WorkerSettings()

    assert {name: getattr(ours, name) for name in ENGINE} == {name: getattr(its, name) for name in ENGINE}
    with pytest.raises(ValueError, match="no profile 'llama'"):
        WorkerSettings(profile="llama")
