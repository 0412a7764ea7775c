"""From a policy to what the zygote must build. Knows paths inside the sandbox, makes nothing itself."""

import itertools
import os

from sandbox.backends.namespaces.plan import Bind, Plan
from sandbox.policy import Policy

_EVIDENCE = "/evidence"
_LIBRARIES = "/opt/libraries"
_numbers = itertools.count(1)


def plan_for(policy: Policy) -> Plan:
    limits = policy.limits
    return Plan(
        name=f"custody-{os.getpid()}-{next(_numbers)}",
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
        seed=policy.seed,
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
    )
