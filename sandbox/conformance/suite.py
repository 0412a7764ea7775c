"""The whole suite, and how it is run over a backend: every case gets a verdict, none is passed over in silence."""

import asyncio
import os
import platform
import time
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from typing import Literal

from sandbox.conformance import channel, denials, endings, layers, limits, neighbours, network, secrets
from sandbox.conformance.case import Case, Opener, Refused, Stand
from sandbox.policy import Policy
from sandbox.session import open_session

CASES: tuple[Case, ...] = (
    *layers.CASES,
    *secrets.CASES,
    *network.CASES,
    *denials.CASES,
    *limits.CASES,
    *endings.CASES,
    *channel.CASES,
    *neighbours.CASES,
)

Verdict = Literal["holds", "refused by the language", "not claimed", "fails"]
_CASE_SECONDS = 120.0

#: Why a claim is not made, where a reader would ask.
WHY_NOT = {
    "cgroup": "no control group here: memory of many processes is bounded by forbidding them",
    "fork": "code cannot start processes here",
    "pid-ns": "the host's process ids are shared",
    "mount-ns": "the host's paths are shared: closed by Landlock, not absent",
    "net-ns": "the host's interfaces are shared: no socket can be made",
    "seccomp": "another kernel answers the code's system calls",
    "shared-kernel": "the code's processes are not the host's: the host cannot look at them",
    "own-proc": "there is no /proc inside",
    "inodes": "the number of files is bounded by memory only",
    "uid-each": "all sessions run as the same user",
    "memory-total": "nothing bounds memory that no process owns",
    "root-looks": "an ordinary user may not look at the sandbox's processes",
    "x86_64": "system calls have other numbers here",
}


@dataclass(frozen=True)
class Result:
    case: Case
    verdict: Verdict
    reason: str
    milliseconds: float

    @property
    def is_good(self) -> bool:
        return self.verdict != "fails"


def claims_of(policy: Policy, found: tuple[str, ...]) -> frozenset[str]:
    """What holds, by the layers of a session that is open: their names, and what follows from them."""
    names = {layer.partition(":")[0] for layer in found}
    claims = set(names)
    has_group = any(name.startswith("cgroup-v") for name in names) or "cgroup" in names
    is_gvisor = policy.backend == "docker" and policy.runtime == "runsc"
    derived = {
        "cgroup": has_group,
        "fork": "no-fork" not in names,
        "memory-total": has_group or "no-fork" in names,
        "shared-kernel": not is_gvisor,
        "own-proc": "own-proc" in names or policy.backend == "docker",
        "inodes": "mount-ns" in names,
        "uid-each": policy.backend != "landlock" and "user-ns" not in names,
        "root-looks": os.geteuid() == 0,
        "x86_64": platform.machine() == "x86_64",
    }
    return frozenset(claims | {name for name, holds in derived.items() if holds})


async def stand_for(policy: Policy, opener: Opener = open_session) -> Stand:
    """Open one session to see which layers hold. Raises SandboxUnavailable where none can be had."""
    session = await opener(policy)
    found = session.layers
    await session.close()
    return Stand(policy, opener, claims_of(policy, found))


async def try_case(case: Case, stand: Stand) -> Result:
    """Give a case its verdict."""
    missing = sorted(case.needs - stand.claims)
    if missing:
        reason = "; ".join(WHY_NOT.get(name, f"the layer {name!r} does not hold here") for name in missing)
        return Result(case, "not claimed", reason, 0.0)
    started = time.monotonic()
    verdict: Verdict = "holds"
    reason = ""
    try:
        async with asyncio.timeout(_CASE_SECONDS):
            await case.check(stand)
    except Refused as refusal:
        verdict, reason = "refused by the language", str(refusal)
    except AssertionError as error:
        verdict, reason = "fails", str(error)
    except TimeoutError:
        verdict, reason = "fails", f"no verdict within {_CASE_SECONDS:.0f} seconds"
    except Exception as error:  # noqa: BLE001 - a host that raises at what a guest does has failed the case
        verdict, reason = "fails", f"the host raised {type(error).__name__}: {error}"
    return Result(case, verdict, reason, (time.monotonic() - started) * 1000)


async def run(stand: Stand, cases: Iterable[Case] = CASES) -> AsyncIterator[Result]:
    """Try one case after the other."""
    for case in cases:
        yield await try_case(case, stand)
