"""The corpus over every backend that claims to hold it, and first over one that holds nothing, to see the detectors fire."""

import asyncio

import pytest

from sandbox import Finished, HostCall, Policy, SandboxError, open_session
from tests.attacks import exceeding, forging, reaching, reading, tampering
from tests.attacks.attack import CALLS, Attack, carry_out, judge
from tests.attacks.scene import Record, Scene
from tests.attacks.weak import open_weak

ATTACKS: list[Attack] = [
    *reading.ATTACKS,
    *reaching.ATTACKS,
    *forging.ATTACKS,
    *exceeding.ATTACKS,
    *tampering.ATTACKS,
]
BACKENDS = {
    "namespaces": {},
    "runc": {"backend": "docker", "runtime": "runc"},
    "runsc": {"backend": "docker", "runtime": "runsc"},
}
MARKS = dict.fromkeys(("runc", "runsc"), pytest.mark.docker)
_unavailable: dict[str, str] = {}


def policy_for(attack: Attack, scene: Scene, **backend) -> Policy:
    return Policy(
        evidence=scene.mounts, calls=CALLS, limits=attack.limits, interrupt_grace_seconds=0.3, **backend
    )


def need(backend: str) -> None:
    """Skip, with the reason, where a backend cannot be had; found out once."""

    async def trial() -> None:
        await (await open_session(Policy(**BACKENDS[backend]))).close()

    if backend not in _unavailable:
        try:
            asyncio.run(trial())
            _unavailable[backend] = ""
        except SandboxError as error:
            _unavailable[backend] = str(error)
    if _unavailable[backend]:
        pytest.skip(f"no {backend} here: {_unavailable[backend]}")


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.id)
@pytest.mark.parametrize("backend", [pytest.param(name, marks=MARKS.get(name, ())) for name in BACKENDS])
def test_an_attack_gets_nowhere(backend, attack):
    need(backend)
    with Scene() as scene:
        policy = policy_for(attack, scene, **BACKENDS[backend])
        record = asyncio.run(carry_out(attack, scene, policy, open_session))
        seen = judge(scene, record)

    assert seen == {}, f"{seen}\n{record.endings[:1]}"


@pytest.mark.parametrize("attack", [a for a in ATTACKS if a.fires], ids=lambda attack: attack.id)
def test_a_detector_fires_where_nothing_is_contained(attack):
    with Scene() as scene:
        policy = policy_for(attack, scene, required_layers=frozenset())
        record = asyncio.run(carry_out(attack, scene, policy, open_weak))
        seen = judge(scene, record)

    assert attack.fires in seen, f"{seen}\n{record.endings[:1]} {record.broken}"


def test_the_corpus_is_large_and_every_attack_has_a_name_of_its_own():
    assert len({attack.id for attack in ATTACKS}) == len(ATTACKS) >= 110
    assert all(attack.code.strip() for attack in ATTACKS)
    assert {attack.fires for attack in ATTACKS} >= {
        "leaked",
        "reached",
        "left",
        "exceeded",
        "tampered",
        "influenced",
    }


def ended(**changes) -> Finished:
    said = {"stdout": "", "stderr": "", "stdout_bytes": 0, "stderr_bytes": 0, "cpu_ms": 0, "memory_bytes": 0}
    return Finished(**{"outcome": "ok", "error": None, **said, "state_lost": False, "detail": "", **changes})


def a_call(number: int, name: str = "predict") -> HostCall:
    return HostCall(call_id=number, name=name, payload={})


#: The session is the host's own, also over the weak backend: these detectors are shown a record that is wrong.
WRONG_RECORDS = {
    "forged: a call twice": ("forged", {"calls": [a_call(1), a_call(1)]}),
    "forged: an undeclared call": ("forged", {"calls": [a_call(1, "shell")]}),
    "forged: an answer": ("forged", {"answers": {1: "forged"}}),
    "down: the host raised": ("down", {"broken": "the host raised KeyError"}),
    "down: the host waited": ("down", {"endings": [ended()], "seconds": 25.0}),
    "down: an end without a reason": ("down", {"endings": [ended(outcome="crashed", state_lost=True)]}),
    "down: no end": ("down", {}),
    "escaped: in output": ("escaped", {"endings": [ended(stdout="\x1b[2J")]}),
    "escaped: in a name": ("escaped", {"calls": [a_call(1, "x\x9b")]}),
}


@pytest.mark.parametrize(("detector", "found"), WRONG_RECORDS.values(), ids=WRONG_RECORDS)
def test_a_detector_fires_at_a_record_that_is_wrong(detector, found):
    with Scene() as scene:
        record = Record(CALLS, **found)

        assert getattr(scene, detector)(record) != ""


def test_no_detector_fires_at_a_record_that_is_right():
    with Scene() as scene:
        record = Record(
            CALLS, calls=[a_call(1)], answers={1: "true answer 1"}, endings=[ended(stdout="fine\n")]
        )

        assert judge(scene, record) == {}
