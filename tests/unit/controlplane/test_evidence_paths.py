"""Paths and sources that others chose: what is safe, what is refused, what was meant."""

import os
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from controlplane.adapters.sources.bounds import Bounds, Tally
from controlplane.adapters.sources.packed import unpacked_name
from controlplane.adapters.sources.paths import free_path, safe_path
from controlplane.adapters.sources.remote import shown_url
from controlplane.adapters.sources.typed import Source, sources_of
from controlplane.errors import InvalidRequest

PARTS = st.sampled_from(["..", ".", "", "a", "b.txt", "/", "\\", "C:", "\0", "\n", "é", "x" * 300, "\udce9"])


@given(st.lists(PARTS, max_size=8).map("/".join) | st.text(max_size=80))
@example("../../etc/passwd")
@example("a/../../b")
@example("..\\..\\windows")
@example("//server/share")
def test_a_safe_path_stays_below_the_folder_it_is_put_in(name):
    path = safe_path(name)

    if path is None:
        return
    pure = PurePosixPath(path)
    assert not pure.is_absolute()
    assert ".." not in pure.parts
    assert os.path.normpath(f"/top/{path}") == f"/top/{path}"
    assert "\0" not in path
    assert path.encode()


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("./a/b.txt", "a/b.txt"),
        ("a//b", "a/b"),
        ("a\\b.txt", "a/b.txt"),
        ("..a/b..", "..a/b.."),
        ("/etc/passwd", None),
        ("C:\\x", None),
        ("c:x", None),
        ("a/../b", None),
        ("", None),
        (".", None),
        ("a/" * 65 + "b", None),
        ("a\nb", None),
        ("x" * 256, None),
    ],
)
def test_what_becomes_of_a_members_path(name, path):
    assert safe_path(name) == path


@given(st.lists(st.lists(st.sampled_from("ab"), min_size=1, max_size=4).map("/".join), max_size=12))
def test_files_that_are_taken_can_all_stand_in_one_tree(paths):
    taken, folders = set(), set()
    kept = [path for path in paths if free_path(path, taken, folders)]

    assert len(kept) == len(set(kept))
    assert not [(a, b) for a in kept for b in kept if b.startswith(f"{a}/")]


def test_bytes_are_refused_while_they_come_and_not_after():
    tally = Tally(what="it", bounds=Bounds(total_bytes=10))
    seen = []

    with pytest.raises(InvalidRequest, match="more than 10 bytes"):
        seen.extend(tally.count(b"x" * 4 for _ in range(1_000_000)))
    assert len(seen) == 2


def test_what_swells_is_refused_only_once_it_is_large():
    bounds = Bounds(swelling=10, swelling_from=1_000)

    assert sum(map(len, Tally(what="it", bounds=bounds, packed_bytes=1).count([b"x" * 1_000]))) == 1_000
    with pytest.raises(InvalidRequest, match="decompression bomb"):
        list(Tally(what="it", bounds=bounds, packed_bytes=100).count([b"x" * 1_001]))


@pytest.mark.parametrize(
    ("name", "packing", "plain"),
    [
        ("a.log.gz", ".gz", "a.log"),
        ("A.LOG.GZ", ".gz", "A.LOG"),
        (".gz", ".gz", "unpacked"),
        ("d.tgz", ".gz", "d.tar"),
    ],
)
def test_a_packed_file_loses_its_last_suffix(name, packing, plain):
    assert unpacked_name(name, packing) == plain


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a.log", "b.log", "c.txt", "n=1", "at@HEAD"):
        Path(name).write_text("x")
    (tmp_path / "repo" / ".git").mkdir(parents=True)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("-", Source(kind="stdin", name="stdin")),
        ("app.log=-", Source(kind="stdin", name="app.log")),
        ("a.log", Source(address="a.log")),
        ("mine=a.log", Source(address="a.log", name="mine")),
        ("n=1", Source(address="n=1")),
        ("at@HEAD", Source(address="at@HEAD")),
        ("plain:a.zip", Source(address="a.zip", is_plain=True)),
        ("repo@v1.0", Source(kind="git", address="repo", part="v1.0")),
        ("git:other@main~2", Source(kind="git", address="other", part="main~2")),
        ("code=repo@v1", Source(kind="git", address="repo", part="v1", name="code")),
        ("s3://bucket/key", Source(kind="url", address="s3://bucket/key")),
        ("zip://a.csv::s3://b/x.zip", Source(kind="url", address="zip://a.csv::s3://b/x.zip")),
        ("x=https://h/a?b=c", Source(kind="url", address="https://h/a?b=c", name="x")),
        ("job:job_1", Source(kind="job", address="job_1")),
        ("job:job_1/out/a.csv", Source(kind="job", address="job_1", part="out/a.csv")),
        ("nowhere", Source(address="nowhere")),
    ],
)
def test_what_was_typed_is_understood(folder, text, meant):
    assert sources_of(text) == (meant,)


def test_a_pattern_is_every_file_that_fits(folder):
    assert [source.address for source in sources_of("*.log")] == [str(Path("a.log")), "b.log"]
    with pytest.raises(InvalidRequest, match="no file fits"):
        sources_of("*.pdf")
    with pytest.raises(InvalidRequest, match="one name to 2 files"):
        sources_of("x=*.log")
    for number in range(101):
        Path(f"{number}.many").touch()
    with pytest.raises(InvalidRequest, match="name their folder instead"):
        sources_of("*.many")


def test_git_without_a_commit_is_refused(folder):
    with pytest.raises(InvalidRequest, match="names no commit"):
        sources_of("git:repo")


def test_a_url_is_shown_without_its_secrets():
    assert shown_url("https://me:pw@host:8/a/b.csv?token=x#y") == "https://host:8/a/b.csv"
