"""Evidence on disk: staged by what stat says, sealed by content."""

import os
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
    sealed = room.seal(staged.ref)
    assert not room.changed(staged.ref)
    assert room.seal(staged.ref) == sealed

    path.write_text("two")
    assert room.changed(staged.ref)
    assert room.seal(staged.ref) != sealed
    path.unlink()
    assert room.changed(staged.ref)
