"""Evidence on disk: staged by what stat says, sealed by content."""

import os
import threading
import time

import pytest

from controlplane.adapters.evidence import EvidenceRoom
from controlplane.errors import InvalidRequest


@pytest.fixture
def room(tmp_path):
    return EvidenceRoom(tmp_path / "home")


def test_a_gigabyte_is_staged_like_a_byte(room, tmp_path):
    big, small = tmp_path / "big.log", tmp_path / "small.log"
    small.write_bytes(b"x")
    with big.open("wb") as opened:
        opened.truncate(1 << 30)

    begun = time.perf_counter()
    staged = room.stage([big, small])
    took = time.perf_counter() - begun

    assert [item.ref.size_bytes for item in staged] == [1 << 30, 1]
    assert took < 0.5
    assert all(item.manifest.is_file() for item in staged)


def test_a_tree_is_its_regular_files_and_links_are_not_followed(room, tmp_path):
    tree = tmp_path / "tree"
    (tree / "sub").mkdir(parents=True)
    (tree / "a.txt").write_text("a")
    (tree / "sub" / "b.txt").write_text("bb")
    (tree / "link").symlink_to("/etc")
    os.mkfifo(tree / "pipe")

    (staged,) = room.stage([tree])

    assert (staged.ref.kind, staged.ref.files, staged.ref.size_bytes) == ("tree", 2, 3)


def test_five_thousand_files_are_staged_at_once(room, tmp_path):
    tree = tmp_path / "tree"
    for folder in range(50):
        (tree / str(folder)).mkdir(parents=True)
        for number in range(100):
            (tree / str(folder) / f"{number}.txt").touch()

    begun = time.perf_counter()
    (staged,) = room.stage([tree])

    assert staged.ref.files == 5_000
    assert time.perf_counter() - begun < 1.0


def test_names_are_made_unique_and_fit_to_be_names(room, tmp_path):
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.log").write_text(folder)
    odd = tmp_path / ".hidden ü"
    odd.write_text("x")

    staged = room.stage([tmp_path / "one" / "a.log", tmp_path / "two" / "a.log", odd])

    assert [item.ref.name for item in staged] == ["a.log", "a-2.log", "hidden _"]


def test_missing_and_special_evidence_is_named(room, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "nowhere", tmp_path / "pipe"):
        with pytest.raises(InvalidRequest, match=path.name):
            room.stage([path])


@pytest.mark.requirement("S1-CONC-5")
def test_a_change_after_staging_is_seen_and_another_content_has_another_seal(room, tmp_path):
    path = tmp_path / "a.log"
    path.write_text("one")
    (staged,) = room.stage([path])
    sealed = room.seal(staged.ref, threading.Event())
    assert not room.changed(staged.ref)
    assert room.seal(staged.ref, threading.Event()) == sealed

    path.write_text("two")
    assert room.changed(staged.ref)
    assert room.seal(staged.ref, threading.Event()) != sealed
    path.unlink()
    assert room.changed(staged.ref)


class AfterLooks(threading.Event):
    """Is set after it was looked at so many times."""

    def __init__(self, looks: int) -> None:
        super().__init__()
        self.left = looks

    def is_set(self) -> bool:
        self.left -= 1
        return self.left < 0


@pytest.mark.parametrize("looks", [0, 2, 5])
def test_sealing_that_is_stopped_gives_nothing_and_keeps_nothing(room, tmp_path, looks):
    tree = tmp_path / "tree"
    tree.mkdir()
    for name in ("a", "b"):
        with (tree / name).open("wb") as opened:
            opened.truncate(12 << 20)
    (staged,) = room.stage([tree])

    assert room.seal(staged.ref, AfterLooks(looks)) is None
    assert list((tmp_path / "home" / "evidence").glob("sealed/*")) == []
    assert room.seal(staged.ref, threading.Event())
