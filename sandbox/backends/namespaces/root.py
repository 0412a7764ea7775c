"""The file system of a sandbox: a private root with the standard library, evidence, workspace and nothing else.

What is the same for all is built once, as a read-only tree that each sandbox gets a copy of; a copy of mounts
shares their file systems and costs one system call.
"""

import contextlib
import os
import platform
import stat
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from pathlib import Path

from sandbox.backends.namespaces import kernel
from sandbox.backends.namespaces.plan import Bind, Plan

EVIDENCE = "/evidence"
WORKSPACE = "/workspace"
GUEST = "/opt/sandbox"
LIBRARIES = "/opt/libraries"
LANGUAGE = "/opt/language"
_LIBRARY_DIRECTORIES = (
    f"/lib/{platform.machine()}-linux-gnu",
    f"/usr/lib/{platform.machine()}-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/usr/share/zoneinfo",
)
# Not zero: mapped shared, it is memory that no process owns.
_DEVICES = ("null", "urandom")
_SEALED = kernel.ATTR_NOSUID | kernel.ATTR_NODEV
_READ_ONLY = kernel.ATTR_RDONLY | _SEALED
_TMP = BASE = "/tmp"  # noqa: S108 - only a place to mount over, in a mount namespace of our own
_TMP_INODES = 4096
_MACHINE = platform.machine()


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
    """Detached copies of what is to be mounted, taken before anything is mounted over a source."""

    def __init__(self, binds: Iterable[Bind], *, id_maps: Mapping[str, int]) -> None:
        self._trees = [self._take(bind, id_maps.get(bind.source)) for bind in binds]

    def _take(self, bind: Bind, id_map: int | None) -> tuple[str, int, bool]:
        tree = kernel.clone_tree(bind.source)
        attributes = _READ_ONLY | (kernel.ATTR_NOEXEC if bind.is_evidence else 0)
        kernel.set_tree_attributes(tree, attributes=attributes)
        if id_map is not None:
            # Not every file system can map ids; what stays unreadable is reported by name after the uid is dropped.
            with contextlib.suppress(OSError):
                kernel.set_tree_attributes(tree, attributes=kernel.ATTR_IDMAP, user_namespace=id_map)
        return bind.target, tree, Path(bind.source).is_dir()

    def attach(self, base: int, *, below: str) -> None:
        """Attach each at its target in the tree whose top is `base`, which stands for the path `below`."""
        for target, tree, is_directory in self._trees:
            _make_place(base, target.removeprefix(below).lstrip("/"), is_directory=is_directory)
            kernel.attach_tree(tree, target.removeprefix(below).lstrip("/"), at=base)
            os.close(tree)


def _make_place(base: int, path: str, *, is_directory: bool) -> None:
    parents = path.split("/") if is_directory else path.split("/")[:-1]
    for depth in range(1, len(parents) + 1):
        with contextlib.suppress(FileExistsError):
            os.mkdir("/".join(parents[:depth]), dir_fd=base)
    if not is_directory:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644, dir_fd=base))


def out_of_the_way() -> str:
    """Return a directory of no interest to mount over: it holds no evidence and nobody can remove it.

    Not the root itself: with a mount over its root a process counts as chrooted and gets no user namespace.
    """
    return next(path for path in ("/proc/tty", "/proc/fs", "/dev/mqueue", "/mnt") if Path(path).is_dir())


def build_fixed(trees: Trees, *, over: str, covered: tuple[str, ...]) -> int:
    """Mount the part of a root that all sandboxes have over a directory; return a descriptor of its top."""
    devices = {name: kernel.clone_tree(f"/dev/{name}") for name in _DEVICES}
    base = kernel.new_tree("tmpfs", "size=4m,mode=755,nr_inodes=4096", attributes=_SEALED)
    kernel.attach_tree(base, over)
    trees.attach(base, below="/")
    for path in covered:
        cover = kernel.new_tree("tmpfs", "size=4k,nr_inodes=2", attributes=_READ_ONLY)
        kernel.attach_tree(cover, path.lstrip("/"), at=base)
        os.close(cover)
    for name, tree in devices.items():
        _make_place(base, f"dev/{name}", is_directory=False)
        kernel.set_tree_attributes(tree, attributes=0)
        kernel.attach_tree(tree, f"dev/{name}", at=base)
        os.close(tree)
    for place in (EVIDENCE, WORKSPACE, LIBRARIES, LANGUAGE, _TMP, "/proc"):
        _make_place(base, place.lstrip("/"), is_directory=True)
    kernel.set_tree_attributes(base, attributes=_READ_ONLY, recursive=False)
    return base


class Additions:
    """What one sandbox shows beyond the fixed part: evidence and libraries, taken before the old root goes."""

    def __init__(self, plan: Plan, *, id_maps: Mapping[str, int]) -> None:
        self._trees = [
            (place, Trees(binds, id_maps=id_maps))
            for place, binds in (
                (LIBRARIES, plan.guest_paths),
                (LANGUAGE, plan.language_paths),
                (EVIDENCE, plan.evidence),
            )
            if binds
        ]

    def attach(self, base: int) -> None:
        for place, trees in self._trees:
            os.close(mount_collection(trees, place.lstrip("/"), below=place, at=base))


def mount_collection(trees: Trees, target: str, *, below: str, at: int = kernel.AT_FDCWD) -> int:
    """Mount a small read-only file system that holds nothing but places for trees, and the trees on them."""
    top = kernel.new_tree(
        "tmpfs", "size=4m,mode=755,nr_inodes=65536", attributes=_SEALED | kernel.ATTR_NOEXEC
    )
    kernel.attach_tree(top, target, at=at)
    trees.attach(top, below=below)
    kernel.set_tree_attributes(top, attributes=_READ_ONLY, recursive=False)
    return top


def enter(base: int, plan: Plan, *, uid: int) -> bool:
    """Give the root its own parts and make it the root of this process. Return whether it has a /proc."""
    own = f"uid={uid},gid={uid}"
    workspace = f"size={plan.workspace_bytes},nr_inodes={plan.workspace_inodes},mode=700,{own}"
    for place, options in (
        (WORKSPACE, workspace),
        (_TMP, f"size={plan.tmp_bytes},nr_inodes={_TMP_INODES},mode=1777"),
    ):
        tree = kernel.new_tree("tmpfs", options, attributes=_SEALED | kernel.ATTR_NOEXEC)
        kernel.attach_tree(tree, place.lstrip("/"), at=base)
        os.close(tree)
    has_proc = _mount_proc(base)
    os.fchdir(base)
    kernel.pivot_root_here(_MACHINE)
    os.chdir(WORKSPACE)
    return has_proc


def _mount_proc(base: int) -> bool:
    """Mount /proc with the sandbox's own processes only; inside some containers that is forbidden."""
    try:
        tree = kernel.new_tree("proc", "subset=pid", attributes=_SEALED | kernel.ATTR_NOEXEC)
        kernel.attach_tree(tree, "proc", at=base)
    except OSError:
        return False
    os.close(tree)
    return True


def needs_id_map(source: str) -> bool:
    """Say whether another uid may find something closed: a tree may hold private files, a file says it itself."""
    mode = Path(source).stat().st_mode
    return stat.S_ISDIR(mode) or not mode & stat.S_IROTH
