"""The namespaces backend as the session sees it: a guest from the pool where one of its shape is ready, else a new one."""

import atexit
import dataclasses
import os
import threading
from pathlib import Path

from sandbox import planning
from sandbox.backends.namespaces.plan import Plan
from sandbox.backends.namespaces.zygote_client import Guest as Spawned
from sandbox.backends.namespaces.zygotes import Zygotes
from sandbox.backends.port import Guest
from sandbox.errors import SandboxUnavailable
from sandbox.policy import Policy
from sandbox.pool import Pool

zygotes = Zygotes(Path(__file__).with_name("zygote.py"))


class _Current:
    """The pool of this process, made when one is first asked for."""

    lock = threading.Lock()
    pool: Pool[Plan, Spawned] | None = None


def _forget_parents_pool() -> None:
    _Current.lock = threading.Lock()
    _Current.pool = None


os.register_at_fork(after_in_child=_forget_parents_pool)


def open_guest(policy: Policy) -> Guest:
    plan = planning.plan_for(policy)
    ready = None if _Current.pool is None else _Current.pool.take(plan.shape)
    if ready is not None and _is_made_fit(ready, plan):
        return ready
    return zygotes.spawn(plan)


def take_ready(policy: Policy) -> Guest | None:
    """Return a guest that stands ready and needs nothing more, at once, or None."""
    if _Current.pool is None or policy.evidence:
        return None
    ready = _Current.pool.take(planning.plan_for(policy).shape)
    if ready is not None:
        ready.forget_namespaces()
    return ready


def _is_made_fit(guest: Spawned, plan: Plan) -> bool:
    """Bring the plan's evidence into a ready guest. One that cannot get it is thrown away, never used without."""
    try:
        if plan.evidence:
            zygotes.bring_in(guest, plan)
        else:
            guest.forget_namespaces()
    except BaseException as error:
        guest.kill()
        guest.release()
        if isinstance(error, SandboxUnavailable):
            return False
        raise
    return True


def warm() -> None:
    zygotes.warm()


def keep_ready(policy: Policy, size: int) -> None:
    """Keep so many sandboxes ready that differ from the policy's only in evidence, seed and calls."""
    pool().keep(planning.plan_for(policy).shape, size)


def pool() -> Pool[Plan, Spawned]:
    with _Current.lock:
        if _Current.pool is None:
            _Current.pool = Pool(_make)
            atexit.register(_Current.pool.close)
        return _Current.pool


def _make(shape: Plan) -> Spawned:
    return zygotes.spawn(dataclasses.replace(shape, name=planning.new_name()))
