"""Which layers this machine offers, found out by making one sandbox and asking it. For `custody doctor`."""

import asyncio
import functools
import select
import threading
from dataclasses import dataclass

from sandbox import opening
from sandbox.advice import how_to_get
from sandbox.backends.port import Guest
from sandbox.errors import SandboxUnavailable
from sandbox.policy import REQUIRED_LAYERS, Backend, Language, Policy, Runtime

#: Worth having where it can be had, beyond what is required.
_WELCOME: dict[Backend, tuple[str, ...]] = {
    "namespaces": ("own-proc", "cgroup"),
    "docker": ("seccomp",),
    "landlock": ("uid",),
}
_END_MILLISECONDS = 5_000


@dataclass(frozen=True, kw_only=True)
class Layer:
    name: str
    active: bool
    note: str


@dataclass(frozen=True, kw_only=True)
class LayerReport:
    backend: Backend
    runtime: Runtime
    layers: tuple[Layer, ...]
    # Whether a session with the default policy of this backend can be opened.
    usable: bool
    advice: tuple[str, ...]


@functools.cache
def probe(backend: Backend = "namespaces", runtime: Runtime = "runc") -> LayerReport:
    """Make one sandbox, end it, and report. The answer is kept for the life of the process."""
    try:
        found, failure = _layers_of_a_trial(backend, runtime), None
    except SandboxUnavailable as error:
        found, failure = (), error
    required = REQUIRED_LAYERS[backend]
    layers = tuple(_judge(name, found) for name in (*sorted(required), *_WELCOME[backend]))
    missing = {layer.name for layer in layers if not layer.active}
    advice = [f"{layer.name}: {layer.note}" for layer in layers if not layer.active and layer.note]
    return LayerReport(
        backend=backend,
        runtime=runtime,
        layers=layers,
        usable=failure is None and not required & missing,
        advice=tuple(advice) if failure is None else (str(failure),),
    )


def _layers_of_a_trial(backend: Backend, runtime: Runtime) -> tuple[str, ...]:
    language: Language = "strict" if backend == "landlock" else "open"
    policy = Policy(backend=backend, runtime=runtime, language=language, required_layers=frozenset())
    guest = opening.open_guest(policy)
    guest.kill()
    # In a thread of its own: the caller may be inside an event loop.
    cleaner = threading.Thread(target=_clean_up, args=(guest,))
    cleaner.start()
    cleaner.join()
    return guest.layers


def _clean_up(guest: Guest) -> None:
    waiter = select.poll()
    waiter.register(guest.gone, select.POLLIN)
    waiter.poll(_END_MILLISECONDS)
    asyncio.run(guest.ending())
    guest.release()


def _judge(name: str, found: tuple[str, ...]) -> Layer:
    for layer in found:
        kind, _, version = layer.partition(":")
        if kind == name or kind.startswith(f"{name}-v"):
            return Layer(name=name, active=True, note=layer if version else "")
    return Layer(name=name, active=False, note=how_to_get(name))
