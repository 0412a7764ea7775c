"""How to get a layer that is missing: one sentence an operator can act on. Reads settings, changes none."""

import platform
from pathlib import Path

_SWITCHES = (
    (
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        "1",
        (
            "AppArmor restricts user namespaces: give the interpreter an AppArmor profile with `userns`, or set"
            " kernel.apparmor_restrict_unprivileged_userns=0"
        ),
    ),
    (
        "/proc/sys/kernel/unprivileged_userns_clone",
        "0",
        "user namespaces are off for users: set kernel.unprivileged_userns_clone=1",
    ),
    (
        "/proc/sys/user/max_user_namespaces",
        "0",
        "no user namespace is allowed: raise user.max_user_namespaces",
    ),
)
_ADVICE = {
    "mount-ns": "needs CAP_SYS_ADMIN and Linux 5.12 or newer: in a container, allow mount namespaces for it",
    "pid-ns": "needs CAP_SYS_ADMIN: run the worker as a full root, or as an ordinary user",
    "landlock": "needs Linux 5.13 or newer with `landlock` in the `lsm=` list of the kernel's command line",
    "cgroup": "run the worker as root, or in a systemd unit with `Delegate=memory pids`; until then cells cannot fork",
    "own-proc": "the container masks /proc: cells run without one",
}


def how_to_get(layer: str) -> str:
    """Return what to do about a missing layer, or nothing where nothing general can be said."""
    if layer == "user-ns":
        for path, closed, sentence in _SWITCHES:
            if _read(path) == closed:
                return sentence
        return "user namespaces are forbidden here (often by a container's seccomp profile): allow them, or run as root"
    if layer == "seccomp" and platform.machine() != "x86_64":
        return f"no system call filter is written for {platform.machine()}"
    return _ADVICE.get(layer, "")


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii").strip()
    except OSError:
        return ""
