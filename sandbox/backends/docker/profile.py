"""The engine's seccomp profile, from the same tables as our own filter. Pure: makes JSON.

It is the outer of two: the runtime needs `execve` to start the relay, and the relay needs a few calls to put on
its own, tighter filter, which closes them again.
"""

import errno
import json
import platform
from typing import Any

from sandbox.backends.namespaces.seccomp import SOCKET_TYPE_MASK, SOCKET_TYPES
from sandbox.backends.namespaces.syscalls import ALLOWED, EXAMINED, REFUSED

#: What runtime and relay need before the inner filter stands.
_TO_START = ("execve", "prctl", "prlimit64", "setrlimit", "capget", "capset", "seccomp")
_TO_CONFINE = ("landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self")
_AF_UNIX = 1
_CLONE_NAMESPACES = 0x7E020080
_ARCHITECTURES = {"x86_64": "SCMP_ARCH_X86_64"}


def profile(machine: str | None = None) -> str | None:
    """Return the profile as JSON, or nothing where no table is written for this machine."""
    machine = platform.machine() if machine is None else machine
    if machine not in ALLOWED or machine not in _ARCHITECTURES:
        return None
    started = {*_TO_START, *_TO_CONFINE}
    # What the inner filter examines by more than this profile can say is left to it.
    examined = set(EXAMINED[machine]) - {"socket", "socketpair", "clone"}
    refused = sorted(set(REFUSED[machine]) - started)
    rules = [
        _rule(sorted({*ALLOWED[machine], *started, *examined}), "SCMP_ACT_ALLOW"),
        *(
            _rule(
                ["socket", "socketpair"],
                "SCMP_ACT_ALLOW",
                _argument(0, _AF_UNIX, "SCMP_CMP_EQ"),
                _argument(1, SOCKET_TYPE_MASK, "SCMP_CMP_MASKED_EQ", kind),
            )
            for kind in SOCKET_TYPES
        ),
        _rule(["clone"], "SCMP_ACT_ALLOW", _argument(0, _CLONE_NAMESPACES, "SCMP_CMP_MASKED_EQ", 0)),
        {**_rule(refused, "SCMP_ACT_ERRNO"), "errnoRet": errno.EPERM},
        {**_rule(["clone3"], "SCMP_ACT_ERRNO"), "errnoRet": errno.ENOSYS},
    ]
    return json.dumps(
        {
            "defaultAction": "SCMP_ACT_ERRNO",
            "defaultErrnoRet": errno.ENOSYS,
            "architectures": [_ARCHITECTURES[machine]],
            "syscalls": rules,
        }
    )


def _rule(names: list[str], action: str, *arguments: dict[str, Any]) -> dict[str, Any]:
    return {"names": names, "action": action, "args": list(arguments)}


def _argument(index: int, value: int, operator: str, second: int = 0) -> dict[str, Any]:
    return {"index": index, "value": value, "valueTwo": second, "op": operator}
