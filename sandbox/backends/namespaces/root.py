"""The file system of a sandbox: a private root with the standard library, evidence, workspace and nothing else."""

import contextlib
import os
import platform
import stat
import sys
import sysconfig
from pathlib import Path

from sandbox.backends.namespaces import kernel
from sandbox.backends.namespaces.plan import Bind, Plan

EVIDENCE = "/evidence"
WORKSPACE = "/workspace"
GUEST = "/opt/sandbox"
_LIBRARY_DIRECTORIES = (
    f"/lib/{platform.machine()}-linux-gnu",
    f"/usr/lib/{platform.machine()}-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/usr/share/zoneinfo",
)
_DEVICES = ("null", "zero", "urandom")
_READ_ONLY = kernel.ATTR_RDONLY | kernel.ATTR_NOSUID | kernel.ATTR_NODEV
_TMP = _BASE = "/tmp"  # noqa: S108 - only a place to mount over, in a mount namespace of our own


def interpreter_binds() -> tuple[Bind, ...]:
    """Return what imports inside a cell may still need from disk: the standard library and shared libraries."""
    prefix = sys.base_prefix
    if prefix in {"/usr", "/usr/local"}:
        paths = {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}
    else:
        paths = {f"{prefix}/lib"}
    binds = [Bind(source=path, target=path) for path in sorted(paths)]
    binds += [Bind(source=path, target=path) for path in _LIBRARY_DIRECTORIES if Path(path).is_dir()]
    guest = str(Path(__file__).parents[2] / "guest")
    return (*binds, Bind(source=guest, target=f"{GUEST}/guest"))


def foreign_packages() -> tuple[str, ...]:
    """Return the package directories inside the bound standard library, to be covered: they are the host's."""
    stdlib = Path(sysconfig.get_path("stdlib"))
    found = (stdlib / name for name in ("site-packages", "dist-packages"))
    return tuple(str(path) for path in found if path.is_dir())


class Trees:
    """Detached copies of everything to be mounted, taken before anything is mounted over a source."""

    def __init__(self, plan: Plan, *, fixed: tuple[Bind, ...], id_maps: dict[str, int]) -> None:
        self._trees = [
            self._take(bind, id_maps.get(bind.source)) for bind in (*fixed, *plan.guest_paths, *plan.evidence)
        ]
        self._trees += [(f"/dev/{name}", kernel.clone_tree(f"/dev/{name}"), False) for name in _DEVICES]

    def _take(self, bind: Bind, id_map: int | None) -> tuple[str, int, bool]:
        tree = kernel.clone_tree(bind.source)
        attributes = _READ_ONLY | (kernel.ATTR_NOEXEC if bind.is_evidence else 0)
        kernel.set_tree_attributes(tree, attributes=attributes)
        if id_map is not None:
            # Not every file system can map ids; what stays unreadable is reported by name after the uid is dropped.
            with contextlib.suppress(OSError):
                kernel.set_tree_attributes(tree, attributes=kernel.ATTR_IDMAP, user_namespace=id_map)
        return bind.target, tree, Path(bind.source).is_dir()

    def attach(self, root: str) -> None:
        for target, tree, is_directory in self._trees:
            _attach(tree, root + target, is_directory=is_directory)


def _attach(tree: int, target: str, *, is_directory: bool) -> None:
    place = Path(target)
    place.parent.mkdir(parents=True, exist_ok=True)
    if is_directory:
        place.mkdir(exist_ok=True)
    else:
        place.touch()
    kernel.attach_tree(tree, target)
    os.close(tree)


def build(plan: Plan, trees: Trees, *, covered: tuple[str, ...], uid: int) -> bool:
    """Build the root and enter it. Return whether it has a /proc of its own."""
    kernel.mount("", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)
    sealed = kernel.MS_NOSUID | kernel.MS_NODEV
    kernel.mount("tmpfs", _BASE, kind="tmpfs", flags=sealed, data="size=4m,mode=755,nr_inodes=4096")
    own = f"uid={uid},gid={uid}"
    _mount_tmpfs(
        f"{_BASE}{WORKSPACE}", f"size={plan.workspace_bytes},nr_inodes={plan.workspace_inodes},mode=700,{own}"
    )
    _mount_tmpfs(f"{_BASE}{_TMP}", f"size={plan.tmp_bytes},nr_inodes=4096,mode=1777")
    trees.attach(_BASE)
    for path in covered:
        kernel.mount(
            "tmpfs", _BASE + path, kind="tmpfs", flags=sealed | kernel.MS_RDONLY, data="size=4k,nr_inodes=2"
        )
    Path(f"{_BASE}{EVIDENCE}").mkdir(exist_ok=True)
    has_proc = _mount_proc(f"{_BASE}/proc")
    os.chdir(_BASE)
    kernel.pivot_root_here(platform.machine())
    os.chdir("/")
    kernel.mount("", "/", flags=kernel.MS_REMOUNT | kernel.MS_BIND | kernel.MS_RDONLY | sealed)
    os.chdir(WORKSPACE)
    return has_proc


def _mount_tmpfs(target: str, options: str) -> None:
    Path(target).mkdir()
    flags = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC
    kernel.mount("tmpfs", target, kind="tmpfs", flags=flags, data=options)


def _mount_proc(target: str) -> bool:
    """Mount /proc with the sandbox's own processes only; inside some containers that is forbidden."""
    Path(target).mkdir()
    flags = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC
    try:
        kernel.mount("proc", target, kind="proc", flags=flags, data="subset=pid")
    except OSError:
        return False
    return True


def needs_id_map(source: str) -> bool:
    """Say whether another uid may find something closed: a tree may hold private files, a file says it itself."""
    mode = Path(source).stat().st_mode
    return stat.S_ISDIR(mode) or not mode & stat.S_IROTH
