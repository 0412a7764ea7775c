"""One attack, and how it is carried out over a session. Every detector looks at every attack."""

import asyncio
import re
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from sandbox import HostCall, Limits, Policy, Session, SessionEnded
from sandbox.conformance.case import PRELUDE
from sandbox.conformance.channel import FORGE
from tests.attacks.scene import DETECTORS, Record, Scene

CALLS = frozenset({"predict", "draft", "submit", "tool"})
SMALL = Limits(
    memory_bytes=160 << 20, workspace_bytes=24 << 20, tmp_bytes=8 << 20, workspace_inodes=300, processes=24,
    open_files=64, output_bytes=20_000, calls_in_flight=16, frame_bytes=1 << 20,
)  # fmt: skip


@dataclass(frozen=True)
class Attack:
    goal: str
    name: str
    code: str
    #: Detectors that are seen to fire over the weak backend; none where the attack is the same there.
    fires: str = ""
    limits: Limits = field(default=SMALL)
    deadline: float = 4.0
    #: A fair chance is given to what an attack left behind.
    wait: float = 0.0
    weak: bool = True

    @property
    def id(self) -> str:
        return f"{self.goal}: {self.name}"


def parse(goal: str, text: str, **options: object) -> list[Attack]:
    """Attacks from text: a heading `## name` or `## name !detector`, then code."""
    found = []
    for piece in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        heading, _, code = piece.partition("\n")
        name, _, fires = heading.partition(" !")
        found.append(Attack(goal, name.strip(), code, fires.strip(), **options))
    return found


NEIGHBOUR = """
import os, sys, builtins
found = [n for n, v in [('builtins', vars(builtins)), ('sys', vars(sys)), ('env', os.environ)] if any('poison' in str(k) for k in v)]
found += ['poison in ' + d for d in ('/tmp', '/dev/shm', os.getcwd(), '/workspace') if os.path.isdir(d) and any('poison' in f for f in os.listdir(d))]
import sandbox.guest.calls as c
found += ['poison in calls'] if hasattr(c, 'poison') or c.host_call.__module__ != 'sandbox.guest.calls' else []
print(['poison', found] if found else 'clean')
"""

Opener = Callable[[Policy], Awaitable[Session]]


async def carry_out(attack: Attack, scene: Scene, policy: Policy, opener: Opener) -> Record:
    """Run the attack in a session of its own, then an innocent one; record what the host saw."""
    record = Record(CALLS)
    started = time.monotonic()
    session = await opener(policy)
    try:
        async with asyncio.timeout(30):
            for code in (PRELUDE + FORGE + scene.facts() + attack.code, "print('next cell')"):
                await _run(session, code, record, attack.deadline)
                if not session.alive:
                    break
            await asyncio.sleep(attack.wait)
            record.artifacts = await _artifacts(session)
            record.kill = await session.kill()
            await session.close()
        record.seconds = time.monotonic() - started - attack.wait
        neighbour = await opener(policy)
        later = Record(CALLS)
        await _run(neighbour, NEIGHBOUR, later, 10)
        record.neighbour = later.endings[-1].stdout
        await neighbour.close()
    except TimeoutError:
        record.broken = "the host waited for more than 30 seconds"
    except Exception as error:  # noqa: BLE001 - a host that raises at what a guest does is broken
        record.broken = f"the host raised {type(error).__name__}: {error}"
    finally:
        session.kill_now()
    return record


async def _run(session: Session, code: str, record: Record, deadline: float) -> None:
    async for event in session.execute(code, deadline_seconds=deadline):
        record.events.append(event)
        if isinstance(event, HostCall):
            record.calls.append(event)
            if event.payload.get("keep") is None:
                record.answers[event.call_id] = f"true answer {event.call_id}"
                await session.answer(event.call_id, record.answers[event.call_id])
    record.endings.append(event)


async def _artifacts(session: Session) -> bytes:
    with tempfile.TemporaryDirectory() as directory:
        try:
            collected = await session.artifacts(Path(directory) / "out")
        except (OSError, SessionEnded):
            return b""
        return b"".join(found.file.read_bytes() for found in collected.artifacts)


def judge(scene: Scene, record: Record) -> dict[str, str]:
    """What each detector saw, of those that saw something."""
    return {name: seen for name in DETECTORS if (seen := getattr(scene, name)(record))}
