"""From a policy to what the zygote must build. Knows paths inside the sandbox, makes nothing itself."""

import itertools
import os

from sandbox.backends.namespaces.plan import Bind, Plan
from sandbox.policy import Policy
from sandbox.strictness import package_directory

_EVIDENCE = "/evidence"
_LIBRARIES = "/opt/libraries"
_LANGUAGE = "/opt/language"
_numbers = itertools.count(1)


def new_name() -> str:
    """Return a name for a sandbox's control group; it says whose it is."""
    return f"custody-{os.getpid()}-{next(_numbers)}"


def plan_for(policy: Policy) -> Plan:
    limits = policy.limits
    return Plan(
        name=new_name(),
        evidence=tuple(
            Bind(
                source=os.path.realpath(mount.source), target=f"{_EVIDENCE}/{mount.target}", is_evidence=True
            )
            for mount in policy.evidence
        ),
        guest_paths=tuple(
            Bind(source=os.path.realpath(path), target=f"{_LIBRARIES}/{index}")
            for index, path in enumerate(policy.guest_paths)
        ),
        memory_bytes=limits.memory_bytes,
        processes=limits.processes,
        open_files=limits.open_files,
        workspace_bytes=limits.workspace_bytes,
        workspace_inodes=limits.workspace_inodes,
        tmp_bytes=limits.tmp_bytes,
        cpu_seconds=limits.cpu_seconds,
        frame_bytes=limits.frame_bytes,
        frame_depth=limits.frame_depth,
        calls_in_flight=limits.calls_in_flight,
        language=policy.language,
        language_paths=_language_paths(policy),
    )


def _language_paths(policy: Policy) -> tuple[Bind, ...]:
    if policy.language == "open":
        return ()
    source = package_directory()
    return (Bind(source=source, target=f"{_LANGUAGE}/{os.path.basename(source)}"),)  # noqa: PTH119 - a string
