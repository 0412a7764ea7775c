"""The names every cell finds: evidence, predict, SUBMIT and the rest. Puts them together and holds no logic of its own."""

from pathlib import Path
from typing import Any

from sandbox.guest.asking import Person
from sandbox.guest.calls import (
    BudgetExceeded,
    HostCallError,
    NetworkRefused,
    NobodyAnswered,
    SubcallError,
    SubmitRejected,
    host_call,
    host_call_async,
)
from sandbox.guest.declared import Tool
from sandbox.guest.documents import Chunk, Document, Line, Page
from sandbox.guest.evidence import Evidence, Root
from sandbox.guest.fetch import Web
from sandbox.guest.job import Job
from sandbox.guest.passages import Passage
from sandbox.guest.results import Result
from sandbox.guest.search import Hit
from sandbox.guest.subcalls import AsyncCall, Call, Subcalls
from sandbox.guest.tables import Row

#: Host calls behind the names below: no tool can take their place.
BUILT_IN_CALLS = frozenset(
    {
        "predict",
        "predict_batch",
        "rlm_query",
        "submit",
        "draft",
        "budget",
        "note",
        "propose_effect",
        "remember",
        "params",
        "question",
        "progress",
        "network",
        "ask",
    }
)


def install(
    namespace: dict[str, Any],
    *,
    evidence_root: Root,
    workspace: str,
    call: Call = host_call,
    call_async: AsyncCall = host_call_async,
) -> None:
    """Put the names of a session into the namespace in which its cells run."""
    evidence = Evidence(evidence_root, scratch=workspace)
    job = Job(call, namespace)
    names: dict[str, Any] = {
        "evidence": evidence,
        "context": evidence,
        "workspace": Path(workspace),
        **_subcall_names(Subcalls(call, call_async, namespace)),
        **_job_names(job),
        "fetch": Web(call).fetch,
        "ask": Person(call, call_async, namespace).ask,
        **{kind.__name__: kind for kind in _TYPES},
    }
    job.own(frozenset(names))
    namespace.update(names)


def install_tools(namespace: dict[str, Any], declared: list[str], *, call: Call = host_call) -> None:
    """Put every declared call that is no built-in into the namespace, as a function by its name."""
    for name in declared:
        if name.isidentifier() and name not in BUILT_IN_CALLS and name not in namespace:
            namespace[name] = Tool(name, call)


_TYPES: tuple[type, ...] = (
    *(Document, Line, Chunk, Page, Passage, Row, Hit, Result),
    *(HostCallError, SubcallError, BudgetExceeded, SubmitRejected, NetworkRefused, NobodyAnswered),
)


def _subcall_names(subcalls: Subcalls) -> dict[str, Any]:
    return {
        "predict": subcalls.predict,
        "apredict": subcalls.apredict,
        "predict_batch": subcalls.predict_batch,
        "rlm_query": subcalls.rlm_query,
        "rlm_query_batched": subcalls.rlm_query_batched,
        "llm_query": subcalls.llm_query,
        "llm_query_batched": subcalls.llm_query_batched,
    }


def _job_names(job: Job) -> dict[str, Any]:
    return {
        "DRAFT": job.draft,
        "SUBMIT": job.submit,
        "budget": job.budget,
        "note": job.note,
        "propose_effect": job.propose_effect,
        "remember": job.remember,
        "progress": job.progress,
        "params": job.params,
        "question": job.question,
        "show_vars": job.show_vars,
        "SHOW_VARS": job.show_vars,
    }
