"""Which layers this machine offers, found out by making one sandbox and asking it. For `custody doctor`."""

import functools
import select
import socket
from dataclasses import dataclass

from sandbox.advice import how_to_get
from sandbox.backends.namespaces import zygote_client
from sandbox.errors import SandboxUnavailable
from sandbox.planning import plan_for
from sandbox.policy import DEFAULT_LAYERS, Policy

_KNOWN = (*sorted(DEFAULT_LAYERS), "own-proc", "cgroup")
_END_MILLISECONDS = 5_000


@dataclass(frozen=True, kw_only=True)
class Layer:
    name: str
    active: bool
    note: str


@dataclass(frozen=True, kw_only=True)
class LayerReport:
    backend: str
    layers: tuple[Layer, ...]
    # Whether a session with the default policy can be opened.
    usable: bool
    advice: tuple[str, ...]


@functools.cache
def probe() -> LayerReport:
    """Make one sandbox, end it, and report. The answer is kept for the life of the process."""
    try:
        found, failure = _layers_of_a_trial(), None
    except SandboxUnavailable as error:
        found, failure = (), error
    layers = tuple(_judge(name, found) for name in _KNOWN)
    missing = [layer.name for layer in layers if not layer.active]
    advice = [f"{layer.name}: {layer.note}" for layer in layers if not layer.active and layer.note]
    if failure is not None:
        advice = [str(failure)]
    return LayerReport(
        backend="namespaces",
        layers=layers,
        usable=failure is None and not DEFAULT_LAYERS & set(missing),
        advice=tuple(advice),
    )


def _layers_of_a_trial() -> tuple[str, ...]:
    guest = zygote_client.spawn(plan_for(Policy()))
    guest.kill()
    waiter = select.poll()
    waiter.register(guest.init, select.POLLIN)
    waiter.poll(_END_MILLISECONDS)
    _wait_for_clean_up(guest.report)
    guest.release()
    return guest.layers


def _wait_for_clean_up(report: socket.socket) -> None:
    report.settimeout(_END_MILLISECONDS / 1000)
    try:
        while report.recv(1 << 16):
            pass
    except OSError:
        return


def _judge(name: str, found: tuple[str, ...]) -> Layer:
    for layer in found:
        kind, _, version = layer.partition(":")
        if kind == name or kind.startswith(f"{name}-v"):
            return Layer(name=name, active=True, note=layer if version else "")
    return Layer(name=name, active=False, note=how_to_get(name))
