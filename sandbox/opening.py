"""From a policy to a confined guest whose layers hold. Chooses the backend by name and falls back to none."""

import importlib
from typing import cast

from sandbox.advice import how_to_get
from sandbox.backends.port import BackendModule, Guest
from sandbox.errors import SandboxUnavailable
from sandbox.policy import Backend, Policy


def backend(name: Backend) -> BackendModule:
    """Return the backend's module, imported only now: a backend's libraries cost time."""
    try:
        module = importlib.import_module(f"sandbox.backends.{name}.backend")
    except ModuleNotFoundError as error:
        raise SandboxUnavailable(
            f"the {name} backend needs the module {error.name!r}, which is not installed", layer=name
        ) from error
    return cast("BackendModule", module)


def take_ready(policy: Policy) -> Guest | None:
    """Return a guest that stands ready, checked like any other, without waiting for anything; or None."""
    take = getattr(backend(policy.backend), "take_ready", None)
    guest = take(policy) if take is not None else None
    return None if guest is None else _checked(guest, policy)


def open_guest(policy: Policy) -> Guest:
    """Return a guest with every layer that the policy requires, or raise SandboxUnavailable and leave nothing. Blocking."""
    return _checked(backend(policy.backend).open_guest(policy), policy)


def _checked(guest: Guest, policy: Policy) -> Guest:
    active = {layer.partition(":")[0] for layer in guest.layers} | set(guest.layers)
    active |= {"cgroup" for layer in guest.layers if layer.startswith("cgroup-v")}
    for missing in sorted(policy.required - active):
        guest.kill()
        guest.release()
        raise SandboxUnavailable(
            f"the policy requires the layer {missing!r}, which is missing here. {how_to_get(missing)}".strip(),
            layer=missing,
        )
    return guest
