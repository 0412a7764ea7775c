"""Hostile trees: what is collected is plain, bounded and in order, and nothing outside the tree is touched."""

import gc
import hashlib
import os
import resource
import socket
import stat
import sys
import threading
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox import ArtifactLimits, PolicyError, artifacts, walking
from sandbox.artifacts import Collected, copy_out, remove_tree
from sandbox.escaping import escape_name
from sandbox.globs import Globs


@pytest.fixture
def tree(tmp_path):
    path = tmp_path / "tree"
    path.mkdir()
    yield path
    remove_tree(path)


@pytest.fixture
def into(tmp_path):
    return tmp_path / "copies"


def collect(tree: Path, into: Path, **limits) -> Collected:
    directory = os.open(tree, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return copy_out(directory, into, ArtifactLimits(**limits))
    finally:
        os.close(directory)


def names_in(path: Path) -> set[str]:
    return {entry.name for entry in path.iterdir()}


def reasons(collected: Collected) -> dict[str, str]:
    return {skipped.path: skipped.reason for skipped in collected.skipped}


def paths(collected: Collected) -> list[str]:
    return [artifact.path for artifact in collected.artifacts]


# ---------------------------------------------------------------- what it costs


def test_copies_that_are_spoiled_count_like_those_that_succeed(tree, into, monkeypatch):
    """Code that lives can cut every file short while it is read: what the host writes stays bounded all the same."""
    for number in range(20):
        (tree / f"{number:02}").write_bytes(b"x" * 1_000)
    written = 0

    def spoiled(source, copy, size):
        nonlocal written
        written += size
        raise walking.Unfit("it shrank while it was read")

    monkeypatch.setattr(artifacts, "_copy_bytes", spoiled)
    collected = collect(tree, into, total_bytes=5_000)

    assert written <= 5_000
    assert (collected.artifacts, collected.skipped_total) == ((), 20)
    assert names_in(into) == set()


# ---------------------------------------------------------------- what is collected


def test_plain_files_are_copied_with_their_hash_in_the_order_of_their_names(tree, into):
    (tree / "b").mkdir()
    for name, data in {"c.txt": b"see", "a.txt": b"hay", "b/d": b"", "b/a": b"x" * 3_000_000}.items():
        (tree / name).write_bytes(data)

    collected = collect(tree, into)

    assert paths(collected) == ["a.txt", "b/a", "b/d", "c.txt"]
    for artifact in collected.artifacts:
        data = (tree / artifact.path).read_bytes()
        assert artifact.file.read_bytes() == data
        assert artifact.size_bytes == len(data)
        assert artifact.sha256 == hashlib.sha256(data).hexdigest()
        assert artifact.file.parent == into
        assert stat.S_IMODE(artifact.file.stat().st_mode) == 0o600
    assert collected.skipped_total == 0


def test_an_executable_or_setuid_file_is_copied_without_its_mode(tree, into):
    (tree / "run").write_bytes(b"#!/bin/sh\n")
    (tree / "run").chmod(0o6755)

    (artifact,) = collect(tree, into).artifacts

    assert stat.S_IMODE(artifact.file.stat().st_mode) == 0o600


def test_a_second_collection_does_not_overwrite_the_first(tree, into):
    (tree / "a").write_bytes(b"first")
    (first,) = collect(tree, into).artifacts
    (tree / "a").write_bytes(b"second")

    (second,) = collect(tree, into).artifacts

    assert (first.file.read_bytes(), second.file.read_bytes()) == (b"first", b"second")


def test_a_copy_is_not_written_through_a_link_that_waits_under_its_name(tree, into, tmp_path):
    victim = tmp_path / "victim"
    victim.write_bytes(b"mine")
    into.mkdir()
    (into / "000001").symlink_to(victim)
    (tree / "a").write_bytes(b"theirs")

    (artifact,) = collect(tree, into).artifacts

    assert victim.read_bytes() == b"mine"
    assert artifact.file.name == "000002"


def test_only_what_a_pattern_names_is_collected(tree, into):
    (tree / "out" / "deep").mkdir(parents=True)
    for name in ("a.csv", "a.txt", "out/b.csv", "out/deep/c.csv"):
        (tree / name).write_bytes(b"1")

    assert paths(collect(tree, into, only=("*.csv",))) == ["a.csv"]
    assert paths(collect(tree, into, only=("out/**", "*.txt"))) == ["a.txt", "out/b.csv", "out/deep/c.csv"]
    assert collect(tree, into, only=("nothing",)).skipped_total == 0


# ---------------------------------------------------------------- what is no plain file


def test_a_link_to_a_file_outside_is_not_followed(tree, into, tmp_path):
    (tmp_path / "secret").write_text("canary")
    (tree / "link").symlink_to(tmp_path / "secret")
    (tree / "folder").symlink_to(tmp_path)
    (tree / "dangling").symlink_to("nowhere")

    collected = collect(tree, into)

    assert paths(collected) == []
    assert reasons(collected) == dict.fromkeys(("link", "folder", "dangling"), "it is a link")


def test_a_hard_link_is_not_copied(tree, into, tmp_path):
    (tmp_path / "secret").write_text("canary")
    (tree / "hard").hardlink_to(tmp_path / "secret")

    assert reasons(collect(tree, into)) == {"hard": "it has 2 links"}


def test_a_pipe_and_a_socket_do_not_hold_the_host_up(tree, into):
    os.mkfifo(tree / "pipe")
    with socket.socket(socket.AF_UNIX) as listener, in_directory(tree):
        listener.bind("sock")

    assert reasons(collect(tree, into)) == {"pipe": "it is a named pipe", "sock": "it is a socket"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make device files")
def test_a_device_is_not_opened(tree, into):
    os.mknod(tree / "zero", 0o666 | stat.S_IFCHR, os.makedev(1, 5))
    os.mknod(tree / "block", 0o666 | stat.S_IFBLK, os.makedev(7, 0))

    assert reasons(collect(tree, into)) == {"zero": "it is a device", "block": "it is a device"}


# ---------------------------------------------------------------- what is too much


def test_a_sparse_terabyte_is_skipped_without_reading_it(tree, into):
    with (tree / "huge").open("wb") as file:
        file.truncate(1 << 40)

    collected = collect(tree, into)

    assert reasons(collected) == {"huge": f"it holds {1 << 40} bytes, more than the {64 << 20} of one file"}


def test_limits_count_files_and_bytes_together(tree, into):
    for number in range(6):
        (tree / f"{number}").write_bytes(b"x" * 10)

    few = collect(tree, into, files=2)
    small = collect(tree, into, total_bytes=35)

    assert (paths(few), few.skipped_total) == (["0", "1"], 4)
    assert reasons(few)["5"] == "there are more than 2 files"
    assert (paths(small), small.skipped_total) == (["0", "1", "2"], 3)


def test_four_thousand_nested_directories_are_walked_no_deeper_than_allowed(tree, into):
    (tree / "top.txt").write_bytes(b"1")
    nest(tree, 4_000)

    collected = collect(tree, into)

    assert paths(collected) == ["top.txt"]
    assert [skipped.reason for skipped in collected.skipped] == ["it lies deeper than 32 directories"]


def test_no_policy_can_make_the_walk_hold_thousands_of_descriptors(tree, into):
    nest(tree, 4_000)
    gc.collect()  # what earlier tests left open is not to be closed while this one counts
    held = len(names_in(Path("/proc/self/fd")))
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(400, hard), hard))
    try:
        collected = collect(tree, into, depth=100_000)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)

    assert [skipped.reason for skipped in collected.skipped] == ["it lies deeper than 200 directories"]
    assert len(names_in(Path("/proc/self/fd"))) == held


def test_thirty_thousand_entries_are_looked_at_only_as_far_as_allowed(tree, into):
    folder = os.open(tree, os.O_RDONLY)
    for number in range(30_000):
        os.symlink("x", f"{number}", dir_fd=folder)
    os.close(folder)

    collected = collect(tree, into, entries=1_000)

    assert collected.skipped_total == 1_001
    assert len(collected.skipped) == 100
    assert collected.skipped[0].reason.startswith("there are more than 1000 entries")


def test_a_path_longer_than_any_host_takes_is_skipped(tree, into):
    nest(tree, 30, name="n" * 200, leaf=b"1")

    collected = collect(tree, into)

    assert [skipped.reason for skipped in collected.skipped] == ["its path is longer than 4096 bytes"]
    assert len(collected.skipped[0].path) <= 301


# ---------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (b"\xff\xfe", r"\xff\xfe"),
        (b"a\nb\tc\rd", r"a\u000ab\u0009c\u000dd"),
        (b"\x1b[2J", r"\u001b[2J"),
        ("gnp.\u202eexe".encode(), r"gnp.\u202eexe"),
        (b"a\\xff", r"a\\xff"),
        ("Übersicht 表.csv".encode(), "Übersicht 表.csv"),
        (b"-rf", "-rf"),
        (b"\xed\xa0\x80", r"\xed\xa0\x80"),
    ],
)
def test_a_name_is_shown_on_one_line_and_its_file_is_copied(tree, into, name, shown):
    Path(os.fsdecode(os.fsencode(tree) + b"/" + name)).write_bytes(b"1")

    (artifact,) = collect(tree, into).artifacts

    assert artifact.path == shown
    assert artifact.file.name == "000001"


@given(first=st.binary(max_size=8), second=st.binary(max_size=8))
def test_no_two_names_are_written_the_same(first, second):
    assert (escape_name(first) == escape_name(second)) == (first == second)
    assert escape_name(first).isprintable()


# ---------------------------------------------------------------- changes during the walk


def test_a_directory_swapped_for_a_link_during_the_walk_leads_nowhere(tree, into, tmp_path):
    secret = tmp_path / "outside"
    secret.mkdir()
    (secret / "canary").write_text("canary")
    for number in range(40):
        (tree / f"{number}").mkdir()
        (tree / f"{number}" / "canary").write_text("harmless")

    with meanwhile(swap_all(tree, secret)):
        for attempt in range(30):
            collected = collect(tree, into / str(attempt))
            assert {artifact.file.read_text() for artifact in collected.artifacts} <= {"harmless"}


def test_a_file_that_grows_is_copied_as_it_was_and_one_that_shrinks_is_skipped(tree, into):
    grows, shrinks = tree / "grows", tree / "shrinks"

    def change() -> None:
        with grows.open("ab") as file:
            file.write(b"x" * 4096)
        with suppress(OSError):
            os.truncate(shrinks, 0)
        shrinks.write_bytes(b"y" * 4_000_000)

    with meanwhile(change):
        for attempt in range(20):
            collected = collect(tree, into / str(attempt))
            for artifact in collected.artifacts:
                data = artifact.file.read_bytes()
                assert len(data) == artifact.size_bytes
                assert hashlib.sha256(data).hexdigest() == artifact.sha256
            left = {artifact.file.name for artifact in collected.artifacts}
            assert names_in(into / str(attempt)) == left
    assert grows.stat().st_size > 0


def test_files_that_vanish_are_named_or_not_there(tree, into):
    def churn() -> None:
        for number in range(50):
            (tree / f"{number}").write_bytes(b"1")
        for number in range(50):
            (tree / f"{number}").unlink(missing_ok=True)

    with meanwhile(churn):
        for attempt in range(30):
            collected = collect(tree, into / str(attempt))
            assert set(reasons(collected).values()) <= {"it vanished"}


# ---------------------------------------------------------------- any tree


NAMES = st.binary(min_size=1, max_size=6).filter(
    lambda name: b"/" not in name and b"\0" not in name and name not in (b".", b"..")
)
LEAVES = st.one_of(
    st.binary(max_size=50).map(lambda data: ("file", data)),
    st.just(("link", b"/etc/passwd")),
    st.just(("link", b"..")),
    st.just(("pipe", b"")),
)
TREES = st.recursive(LEAVES, lambda inner: st.dictionaries(NAMES, inner, max_size=5), max_leaves=25)


def build(path: Path, content) -> None:
    if isinstance(content, dict):
        path.mkdir()
        for name, inner in content.items():
            build(path / os.fsdecode(name), inner)
    elif content[0] == "file":
        path.write_bytes(content[1])
    elif content[0] == "link":
        path.symlink_to(os.fsdecode(content[1]))
    else:
        os.mkfifo(path)


def plain_files(content, prefix: bytes = b"", depth: int = 0) -> list[tuple[str, bytes]]:
    found = []
    for name, inner in sorted(content.items()):
        if isinstance(inner, dict):
            found += plain_files(inner, prefix + name + b"/", depth + 1) if depth < 3 else []
        elif inner[0] == "file" and len(inner[1]) <= 40:
            found.append((escape_name(prefix + name), inner[1]))
    return found


@settings(max_examples=60, deadline=None)
@given(content=st.dictionaries(NAMES, TREES, max_size=6))
def test_of_any_tree_exactly_the_plain_files_within_the_limits_are_copied(tmp_path_factory, content):
    home = tmp_path_factory.mktemp("any")
    build(home / "tree", content)

    collected = collect(home / "tree", home / "copies", depth=3, file_bytes=40)

    assert [(a.path, a.file.read_bytes()) for a in collected.artifacts] == plain_files(content)
    remove_tree(home / "tree")
    assert names_in(home) == {"copies"}


# ---------------------------------------------------------------- removal


def test_a_tree_deeper_than_any_stack_is_removed(tmp_path):
    tree = tmp_path / "deep"
    tree.mkdir()
    nest(tree, 4_000, leaf=b"1")
    assert sys.getrecursionlimit() < 4_000

    remove_tree(tree)

    assert names_in(tmp_path) == set()


def test_removal_follows_no_link(tmp_path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").write_text("here")
    tree = tmp_path / "tree"
    (tree / "inner").mkdir(parents=True)
    (tree / "inner" / "link").symlink_to(tmp_path / "kept")
    os.mkfifo(tree / "pipe")

    remove_tree(tree)

    assert names_in(tmp_path) == {"kept"}
    assert (tmp_path / "kept" / "file").read_text() == "here"


def test_a_link_in_the_place_of_a_tree_is_not_removed_through(tmp_path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").write_text("here")
    (tmp_path / "link").symlink_to(tmp_path / "kept")

    with pytest.raises(OSError):
        remove_tree(tmp_path / "link")

    assert (tmp_path / "kept" / "file").read_text() == "here"


def test_nothing_to_remove_is_fine(tmp_path):
    remove_tree(tmp_path / "never" / "was")


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes an ordinary user")
def test_an_ordinary_user_removes_directories_that_were_closed_to_him():
    import tempfile

    base = Path(tempfile.mkdtemp())
    base.chmod(0o777)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setgid(65534)
            os.setuid(65534)
            inner = base / "tree" / "a" / "b"
            inner.mkdir(parents=True)
            (inner / "file").write_text("x")
            for path in (inner, inner.parent, base / "tree"):
                path.chmod(0)
            remove_tree(base / "tree")
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)

    assert os.waitstatus_to_exitcode(status) == 0
    assert names_in(base) == set()
    base.rmdir()


# ---------------------------------------------------------------- patterns


@pytest.mark.parametrize(
    ("pattern", "path", "fits"),
    [
        ("*", "a", True),
        ("*", "a/b", False),
        ("**", "a/b/c", True),
        ("**/*.csv", "a.csv", True),
        ("**/*.csv", "x/y/a.csv", True),
        ("out/**", "out", False),
        ("out/**", "out/a/b", True),
        ("out/**/z", "out/z", True),
        ("out/**/z", "out/a/b/z", True),
        ("a?c", "abc", True),
        ("[ab].txt", "b.txt", True),
        ("a.c", "abc", False),
        ("*" * 60 + "b", "a" * 250, False),
    ],
)
def test_patterns_speak_of_whole_paths(pattern, path, fits):
    assert Globs((pattern,)).match(path) is fits


def test_a_limit_of_nothing_is_refused():
    with pytest.raises(PolicyError):
        ArtifactLimits(files=0)


@pytest.mark.parametrize("pattern", ["", "/etc/*", "../*", "a//b", "out/", "./a"])
def test_a_pattern_that_can_fit_no_file_of_the_workspace_is_refused(pattern):
    with pytest.raises(PolicyError, match="relative"):
        ArtifactLimits(only=(pattern,))


# ---------------------------------------------------------------- scenery


def nest(tree: Path, levels: int, *, name: str = "d", leaf: bytes | None = None) -> None:
    here = os.open(tree, os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(levels):
        os.mkdir(name, dir_fd=here)
        inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY, dir_fd=here)
        os.close(here)
        here = inner
    if leaf is not None:
        os.close(os.open("leaf", os.O_WRONLY | os.O_CREAT, dir_fd=here))
    os.close(here)


@contextmanager
def in_directory(path: Path):
    before = Path.cwd()
    os.chdir(path)
    try:
        yield
    finally:
        os.chdir(before)


@contextmanager
def meanwhile(change):
    """Repeat a change in another thread as fast as it goes."""
    done = threading.Event()

    def repeat() -> None:
        while not done.is_set():
            change()

    change()
    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def swap_all(tree: Path, target: Path):
    def swap() -> None:
        for number in range(40):
            path, aside = tree / f"{number}", tree / "aside"
            path.rename(aside)
            path.symlink_to(target)
            path.unlink()
            aside.rename(path)

    return swap
