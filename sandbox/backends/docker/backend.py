"""The docker backend as the session sees it: from a policy to a container whose relay has reported."""

import contextlib
import dataclasses
import json
import os
import platform
import threading
from pathlib import Path
from typing import Any

from sandbox.backends.docker import engine as engines
from sandbox.backends.docker import owners, readback, settings
from sandbox.backends.docker.attached import Attached
from sandbox.backends.docker.guest import Guest, Process
from sandbox.backends.docker.inside.confinement import OWN_PROCESSES, Orders
from sandbox.backends.docker.inside.records import RecordError
from sandbox.backends.namespaces import seccomp, syscalls
from sandbox.errors import EvidenceUnreadable, SandboxUnavailable
from sandbox.policy import Policy
from sandbox.strictness import package_directory

_REPORT_SECONDS = 60.0


class _Swept:
    """The engine whose orphans were swept: once per process and engine."""

    lock = threading.Lock()
    engine: engines.Engine | None = None


def open_guest(policy: Policy) -> Guest:
    """Return a guest in a container of its own, or raise and leave nothing."""
    if policy.language == "strict":
        package_directory()
    engine = _ready_engine()
    engine.require(policy.runtime)
    container = settings.plan_container(policy, small_ids=engine.maps_users)
    identity = _create(engine, policy, container)
    try:
        return _start(engine, policy, container, identity)
    except BaseException:
        with contextlib.suppress(*engines.Failure):
            engine.remove(identity)
        raise


def warm() -> None:
    """Connect, sweep and import the image beside what the caller does next."""

    def prepare() -> None:
        with contextlib.suppress(SandboxUnavailable):
            _ready_engine().image()

    threading.Thread(target=prepare, daemon=True, name="sandbox-warm").start()


def _ready_engine() -> engines.Engine:
    engine = engines.current()
    with _Swept.lock:
        if _Swept.engine is not engine:
            try:
                owners.sweep(engine)
            except engines.Failure:
                # It does not answer any more: find out whether another does.
                engines.forget()
                engine = engines.current()
            _Swept.engine = engine
    engine.remove_left()
    return engine


def _create(engine: engines.Engine, policy: Policy, container: settings.Container) -> str:
    try:
        return engine.create(settings.configuration(policy, container, image_name=engine.image()))
    except SandboxUnavailable:
        # The image may have been removed, the engine restarted: look at both anew, once.
        engines.forget()
        engine.forget_image()
        again = engines.current()
        return again.create(settings.configuration(policy, container, image_name=again.image()))


def _start(engine: engines.Engine, policy: Policy, container: settings.Container, identity: str) -> Guest:
    attached = Attached(engine.attach(identity))
    process = None
    try:
        engine.start(identity)
        process = _find_process(engine, identity)
        can_fork = process.group is not None and bool(process.group.layer)
        found = _ask(attached, _orders(policy, container, can_fork=can_fork))
        _check(found, container)
        guest = Guest(engine, identity, attached, process)
    except BaseException:
        attached.link.close()
        if process is not None and process.handle >= 0:
            os.close(process.handle)
        raise
    names = readback.layers(found, _expected(policy, container), process.group)
    names += () if can_fork else ("no-fork",)
    guest.layers = (*names, "strict-language") if policy.language == "strict" else names
    return guest


def _find_process(engine: engines.Engine, identity: str) -> Process:
    """Find the container's first process; a number that is not surely its own is only shown, never signalled."""
    try:
        pid = int(engine.state(identity)["Pid"])
        handle = os.pidfd_open(pid)
    except (*engines.Failure, ValueError):
        return Process(0, -1, None)
    try:
        is_own = identity in Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8")
    except OSError:
        is_own = False
    if is_own:
        return Process(pid, handle, readback.group_of(pid))
    os.close(handle)
    return Process(pid, -1, None)


def _orders(policy: Policy, container: settings.Container, *, can_fork: bool) -> bytes:
    limits = policy.limits
    orders = Orders(
        memory_bytes=limits.memory_bytes,
        processes=limits.processes,
        open_files=limits.open_files,
        workspace_bytes=limits.workspace_bytes,
        cpu_seconds=limits.cpu_seconds,
        frame_bytes=limits.frame_bytes,
        frame_depth=limits.frame_depth,
        calls_in_flight=limits.calls_in_flight,
        language=policy.language,
        libraries=tuple(bind.target for bind in container.binds if not bind.is_evidence),
        evidence=tuple(bind.target for bind in container.binds if bind.is_evidence),
        runner_filter=_filter(can_fork=can_fork),
        relay_filter=_filter(can_fork=False),
    )
    return json.dumps(dataclasses.asdict(orders)).encode()


def _expected(policy: Policy, container: settings.Container) -> readback.Expected:
    limits = policy.limits
    return readback.Expected(
        uid=container.uid,
        host_name=container.name,
        runtime=policy.runtime,
        limits={
            "core": 0,
            "data": limits.memory_bytes,
            "fsize": limits.workspace_bytes,
            "nofile": limits.open_files,
            "nproc": limits.processes + OWN_PROCESSES,
        },
        spaces=settings.spaces(policy),
    )


def _filter(*, can_fork: bool) -> str | None:
    machine = platform.machine()
    if machine not in syscalls.AUDIT_ARCH:
        return None
    return seccomp.compile_filter(machine, allow_fork=can_fork).hex()


def _ask(attached: Attached, orders: bytes) -> dict[str, Any]:
    try:
        found = json.loads(attached.report(orders, seconds=_REPORT_SECONDS))
    except (TimeoutError, EOFError, RecordError, OSError, ValueError) as error:
        said = attached.complaint.decode(errors="replace").strip() or repr(error)
        raise SandboxUnavailable(f"the container did not come up: {said[-1000:]}", layer="docker") from error
    assert isinstance(found, dict)
    return found


def _check(found: dict[str, Any], container: settings.Container) -> None:
    if "failed" in found:
        raise SandboxUnavailable(f"the container did not come up: {found['failed']}", layer="docker")
    if "unreadable" in found:
        source = next(bind.source for bind in container.binds if bind.target == found["unreadable"])
        raise EvidenceUnreadable(
            f"evidence {source!r} cannot be read with the container's uid {container.uid}: make it readable for others,"
            " or use the namespaces backend, which can show private evidence"
        )
