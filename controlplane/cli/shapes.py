"""The JSON documents of the command line. Their shapes are stable: keys are added, never renamed.

A job: job_id, task_id, tenant_id, state, desired, generation, attempts, created_at, updated_at, question, driver, sub_model,
labels, usage, trace {events, head}, lease, stop, result, receipt_id, exit_code; `show` and `run` add spec.
"""

import json
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import click

from controlplane.cli.exits import exit_of_state
from controlplane.cli.figures import as_utc
from controlplane.custodian import driver_name
from controlplane.views import JobView, LeaseView, QuestionView, StopView
from rlm_worker.contracts.base import JsonObject


def write_json(document: Any) -> None:
    """Write the one document of a command to stdout."""
    click.echo(json.dumps(document, ensure_ascii=False, indent=2))


def write_json_lines(documents: Iterable[Any]) -> None:
    """Write a stream: one document a line."""
    for document in documents:
        click.echo(json.dumps(document, ensure_ascii=False))


def moment(at: datetime | None) -> str | None:
    return None if at is None else as_utc(at).isoformat().replace("+00:00", "Z")


def job_document(view: JobView, *, whole: bool = False) -> JsonObject:
    """A job as JSON; `whole` adds its spec, which holds the playbook's source and the schema."""
    document: JsonObject = {
        "job_id": view.job_id,
        "task_id": view.task_id,
        "tenant_id": view.tenant_id,
        "state": view.state,
        "desired": view.desired,
        "generation": view.generation,
        "attempts": view.attempts,
        "created_at": moment(view.created_at),
        "updated_at": moment(view.updated_at),
        "question": view.spec.task,
        "driver": driver_name(view.spec),
        "sub_model": view.spec.sub_model,
        "labels": dict(view.spec.labels),
        "usage": view.usage.model_dump(mode="json"),
        "trace": {"events": view.trace_events, "head": view.trace_head},
        "waiting_for": view.waiting_for,
        "not_before": moment(view.not_before),
        "lease": _lease(view.lease),
        "stop": stop_document(view.stop),
        "result": None if view.result is None else view.result.model_dump(mode="json"),
        "receipt_id": view.receipt_id,
        "forked_from": None if view.spec.fork is None else view.spec.fork.model_dump(mode="json"),
        "forks": list(view.forks),
        "exit_code": int(exit_of_state(view.state)) if view.is_terminal else None,
    }
    if whole:
        document["spec"] = view.spec.model_dump(mode="json")
    return document


def question_document(asked: QuestionView) -> JsonObject:
    return {
        "job_id": asked.job_id,
        "question": asked.question,
        "text": asked.text,
        "schema": asked.schema,
        "asked_at": moment(asked.asked_at),
        "until": moment(asked.until),
        "is_answered": asked.is_answered,
    }


def stop_document(stop: StopView | None) -> JsonObject | None:
    """How far a stop has come: moments, and milliseconds since it was asked for."""
    if stop is None:
        return None
    return {
        "order": stop.order,
        "requested_at": moment(stop.requested_at),
        "observed_at": moment(stop.observed_at),
        "verified_at": moment(stop.verified_at),
        "observed_ms": _since(stop.requested_at, stop.observed_at),
        "verified_ms": _since(stop.requested_at, stop.verified_at),
        "survivors": list(stop.survivors),
    }


def _since(start: datetime, end: datetime | None) -> int | None:
    return None if end is None else max(round((as_utc(end) - as_utc(start)).total_seconds() * 1000), 0)


def _lease(lease: LeaseView | None) -> JsonObject | None:
    if lease is None:
        return None
    return {
        "worker_id": lease.worker_id,
        "fence": lease.fence,
        "attempt": lease.attempt,
        "expires_at": moment(lease.expires_at),
    }
