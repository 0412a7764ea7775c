"""What may start now, and who is next: priority first, tenants by their share within it. Pure; knows no store, no clock, no queue."""

import heapq
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from controlplane.domain.switches import Subject, Switch

#: Priorities lie between this and its negative, so that ready jobs fall into few lanes.
MOST_PRIORITY = 1_000


class Kind(NamedTuple):
    """What limits and kill switches tell jobs apart by."""

    tenant_id: str
    model: str
    sub_model: str


class Lane(NamedTuple):
    """Ready jobs that nothing here tells apart: the oldest of them goes first."""

    priority: int
    kind: Kind

    @property
    def text(self) -> str:
        """Lanes sort by it, the highest priority first."""
        return json.dumps([f"{MOST_PRIORITY - self.priority:04d}", *self.kind])

    @classmethod
    def from_text(cls, text: str) -> "Lane":
        rank, *kind = json.loads(text)
        return cls(MOST_PRIORITY - int(rank), Kind(*kind))


@dataclass(frozen=True, kw_only=True)
class Share:
    """What a tenant gets of the workers, beside the others."""

    weight: int = 1
    #: Jobs of it at work at once; None: any number.
    max_jobs: int | None = None
    is_suspended: bool = False


@dataclass(frozen=True, kw_only=True)
class ModelLimit:
    """Jobs at work at once that ask a model of this name; `*` at its end stands for any ending."""

    pattern: str
    most: int


@dataclass(frozen=True, kw_only=True)
class Policy:
    """Everything but the jobs that a choice depends on."""

    shares: Mapping[str, Share] = field(default_factory=dict)
    other_share: Share = field(default_factory=Share)
    model_limits: Sequence[ModelLimit] = ()
    switches: Sequence[Switch] = ()

    def share(self, tenant_id: str) -> Share:
        return self.shares.get(tenant_id, self.other_share)


def fits(pattern: str, kind: Kind) -> bool:
    """Whether a job of this kind asks a model of that name."""
    names = (kind.model, kind.sub_model)
    if pattern.endswith("*"):
        return any(name.startswith(pattern[:-1]) for name in names if name)
    return pattern in names


def hindrance(kind: Kind, busy: Mapping[Kind, int], policy: Policy) -> str:
    """Why no further job of this kind may start now; empty: it may. `busy` counts jobs at work and on their way there."""
    for switch in policy.switches:
        if switch.covers(subject(kind)):
            return str(switch)
    share = policy.share(kind.tenant_id)
    if share.is_suspended:
        return f"tenant {kind.tenant_id} is suspended"
    if share.max_jobs is not None:
        at_work = sum(count for other, count in busy.items() if other.tenant_id == kind.tenant_id)
        if at_work >= share.max_jobs:
            return f"tenant {kind.tenant_id} has {at_work} jobs at work"
    return _model_words(kind, busy, policy)


def subject(kind: Kind, *, task_id: str = "", job_id: str = "") -> Subject:
    """Jobs of this kind, or one of them, as far as kill switches look at them."""
    models = tuple(filter(None, (kind.model, kind.sub_model)))
    return Subject(job_id=job_id, task_id=task_id, tenant_id=kind.tenant_id, models=models)


def _model_words(kind: Kind, busy: Mapping[Kind, int], policy: Policy) -> str:
    for limit in policy.model_limits:
        if fits(limit.pattern, kind):
            at_work = sum(count for other, count in busy.items() if fits(limit.pattern, other))
            if at_work >= limit.most:
                return f"model {limit.pattern} has {at_work} jobs at work"
    return ""


def choose(ready: Mapping[Lane, int], busy: Mapping[Kind, int], policy: Policy, *, room: int) -> list[Lane]:
    """The lanes from which the next jobs come, one entry for each job, in the order in which they shall start.

    A higher priority goes first. Within one, the tenant goes first that has least at work for its weight, so that whoever
    has one job waits for one place, not for the ten thousand jobs of somebody else.
    """
    tally = _Tally(busy, policy)
    chosen: list[Lane] = []
    for priority in sorted({lane.priority for lane in ready}, reverse=True):
        level = {lane: count for lane, count in ready.items() if lane.priority == priority and count > 0}
        chosen += _level(level, tally, room=room - len(chosen))
        if len(chosen) >= room:
            break
    return chosen


def _level(ready: dict[Lane, int], tally: "_Tally", *, room: int) -> list[Lane]:
    lanes: dict[str, list[Lane]] = {}
    for lane in ready:
        lanes.setdefault(lane.kind.tenant_id, []).append(lane)
    tenants = [(tally.load(tenant_id), tenant_id) for tenant_id in lanes]
    heapq.heapify(tenants)
    chosen: list[Lane] = []
    while tenants and len(chosen) < room:
        tenant_id = tenants[0][1]
        # What may not start now may not either once more have been chosen.
        open_lanes = lanes[tenant_id] = [
            lane for lane in lanes[tenant_id] if ready[lane] and tally.may(lane.kind)
        ]
        if not open_lanes:
            heapq.heappop(tenants)
            continue
        lane = min(open_lanes, key=lambda each: tally.busy[each.kind])
        ready[lane] -= 1
        tally.add(lane.kind)
        chosen.append(lane)
        heapq.heapreplace(tenants, (tally.load(tenant_id), tenant_id))
    return chosen


class _Tally:
    """What is at work, or chosen to be."""

    def __init__(self, busy: Mapping[Kind, int], policy: Policy) -> None:
        self.busy: Counter[Kind] = Counter(busy)
        self._policy = policy
        self._tenants: Counter[str] = Counter()
        self._models: Counter[str] = Counter()
        self._covered: dict[Kind, bool] = {}
        for kind, count in busy.items():
            self._count(kind, count)

    def _count(self, kind: Kind, count: int) -> None:
        self._tenants[kind.tenant_id] += count
        for limit in self._policy.model_limits:
            if fits(limit.pattern, kind):
                self._models[limit.pattern] += count

    def add(self, kind: Kind) -> None:
        self.busy[kind] += 1
        self._count(kind, 1)

    def load(self, tenant_id: str) -> float:
        return self._tenants[tenant_id] / max(self._policy.share(tenant_id).weight, 1)

    def may(self, kind: Kind) -> bool:
        share = self._policy.share(kind.tenant_id)
        if share.is_suspended or (
            share.max_jobs is not None and self._tenants[kind.tenant_id] >= share.max_jobs
        ):
            return False
        limits = self._policy.model_limits
        if any(fits(limit.pattern, kind) and self._models[limit.pattern] >= limit.most for limit in limits):
            return False
        if kind not in self._covered:
            self._covered[kind] = any(switch.covers(subject(kind)) for switch in self._policy.switches)
        return not self._covered[kind]


def parse_model_limits(text: str) -> tuple[ModelLimit, ...]:
    """Limits as an operator writes them: `openai:*=8, anthropic:claude-opus=2`. ValueError when they cannot be read."""
    return tuple(_one_limit(part.strip()) for part in text.split(",") if part.strip())


def _one_limit(part: str) -> ModelLimit:
    pattern, separator, most = part.rpartition("=")
    if not separator or not pattern or not most.isdecimal() or int(most) < 1 or "*" in pattern[:-1]:
        raise ValueError(
            f"{part!r} is no limit of a model: write NAME=JOBS, or BEGINNING*=JOBS, with JOBS above zero"
        )
    return ModelLimit(pattern=pattern, most=int(most))


def counted(entries: Iterable[tuple[Kind, int]]) -> Counter[Kind]:
    """Sum of several counts."""
    total: Counter[Kind] = Counter()
    for kind, count in entries:
        total[kind] += count
    return total
