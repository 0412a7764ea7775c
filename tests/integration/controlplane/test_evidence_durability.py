"""What a job refers to is on the disk before the job can refer to it: bytes, names, and the folders that hold the names."""

import errno
import os
import zipfile
from pathlib import Path

import pytest

from controlplane.adapters import unsynced
from controlplane.adapters.content_store import ContentStore
from controlplane.adapters.evidence import EvidenceRoom
from controlplane.errors import Unavailable
from rlm_worker.artifacts import _keep
from rlm_worker.media import keep_media
from rlm_worker.models.port import Media
from sandbox import Artifact, Collected

LARGE = 1 << 20


class Disk:
    """Notes which files and folders were made durable, by what they are and not by what they were called, and with which size."""

    def __init__(self, monkeypatch) -> None:
        self.synced: dict[tuple[int, int], int] = {}
        self.order: list[tuple[int, int]] = []
        self.whole = 0
        self.failing = False
        self._fsync = os.fsync
        monkeypatch.setattr(os, "fsync", self.fsync)

    def fsync(self, opened) -> None:
        if self.failing:
            raise OSError(errno.EIO, "Input/output error")
        self._fsync(opened)
        found = os.fstat(opened)
        self.synced[found.st_dev, found.st_ino] = found.st_size
        self.order.append((found.st_dev, found.st_ino))

    def holds(self, path: Path) -> bool:
        found = path.stat()
        size = self.synced.get((found.st_dev, found.st_ino))
        return size is not None and (path.is_dir() or size == found.st_size)


@pytest.fixture
def disk(monkeypatch):
    return Disk(monkeypatch)


@pytest.fixture
def room(tmp_path):
    return EvidenceRoom(tmp_path / "home")


def lost(disk: Disk, home: Path) -> list[str]:
    """Everything below a home that a power cut could take; a folder without a name in it has nothing to lose."""
    owed = [path for path in [home, *home.rglob("*")] if path.is_file() or any(path.iterdir())]
    return [str(path.relative_to(home)) for path in owed if not disk.holds(path)]


def test_a_snapshot_is_on_the_disk_when_it_is_staged(room, disk, tmp_path):
    folder = tmp_path / "case"
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "small.txt").write_text("small")
    (folder / "deep" / "er" / "large.bin").write_bytes(b"x" * (LARGE + 1))

    room.stage([folder], snapshot=True)

    assert lost(disk, tmp_path / "home") == []


def test_what_is_unpacked_from_an_archive_is_on_the_disk(room, disk, tmp_path):
    with zipfile.ZipFile(tmp_path / "case.zip", "w") as packed:
        for number in range(20):
            packed.writestr(f"folder{number % 3}/{number}.txt", f"text {number}")

    room.stage([tmp_path / "case.zip"])

    assert lost(disk, tmp_path / "home") == []


def test_evidence_that_stays_where_it_lies_has_a_durable_manifest(room, disk, tmp_path):
    (tmp_path / "app.log").write_text("a line\n")

    (staged,) = room.stage([tmp_path / "app.log"])

    assert disk.holds(staged.manifest)
    assert lost(disk, tmp_path / "home") == []
    assert not disk.holds(tmp_path / "app.log")


def test_a_disk_that_fails_stages_nothing(room, disk, tmp_path):
    (tmp_path / "app.log").write_text("a line\n")
    room.stage([tmp_path / "app.log"])
    (tmp_path / "other.log").write_text("another line\n")
    disk.failing = True

    with pytest.raises(Unavailable, match="the disk did not take what was to be kept"):
        room.stage([tmp_path / "other.log"], snapshot=True)


def test_what_the_disk_did_not_take_is_still_owed(disk, tmp_path):
    store = ContentStore(tmp_path / "store")
    blob = store.keep([b"content"])
    disk.failing = True
    with pytest.raises(Unavailable, match="the disk did not take"):
        store.sync()

    disk.failing = False
    store.sync()

    assert disk.holds(blob.path)
    assert disk.holds(blob.path.parent)


def test_a_large_file_is_on_the_disk_before_it_has_its_name(disk, tmp_path, monkeypatch):
    named: list[bool] = []
    replace = Path.replace

    def noted(self, target):
        named.append(disk.holds(self))
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", noted)

    ContentStore(tmp_path / "store").keep([b"x" * LARGE])

    assert named == [True]


def test_a_small_file_that_lost_its_bytes_and_kept_its_size_is_kept_anew(tmp_path):
    store = ContentStore(tmp_path / "store")
    blob = store.keep([b"content"])
    blob.path.chmod(0o644)
    blob.path.write_bytes(b"\0" * 7)

    again = store.keep([b"content"])

    assert again.path.read_bytes() == b"content"


def test_content_that_another_process_kept_and_did_not_sync_is_synced(disk, tmp_path):
    blob = ContentStore(tmp_path / "store").keep([b"content"])  # its process ends here
    mine = ContentStore(tmp_path / "store")

    mine.keep([b"content"])
    mine.sync()

    assert disk.holds(blob.path)


def test_many_files_are_made_durable_at_once(disk, tmp_path, monkeypatch):
    whole: list[str] = []
    real = unsynced.sync_file_system
    monkeypatch.setattr(unsynced, "sync_file_system", lambda path: whole.append(str(path)) or real(path))
    store = ContentStore(tmp_path / "store")
    for number in range(300):
        store.keep([str(number).encode()])
    before = len(disk.order)

    store.sync()
    store.sync()

    assert whole == [str(tmp_path / "store")]
    assert len(disk.order) == before


def test_where_a_file_system_cannot_be_synced_whole_each_file_is(disk, tmp_path, monkeypatch):
    monkeypatch.setattr(unsynced, "sync_file_system", lambda path: False)
    store = ContentStore(tmp_path / "store")
    blobs = [store.keep([str(number).encode()]) for number in range(300)]

    store.sync()

    assert all(disk.holds(blob.path) and disk.holds(blob.path.parent) for blob in blobs)


def test_artifacts_and_their_names_are_on_the_disk_before_the_trace_names_them(disk, tmp_path):
    folder = tmp_path / "artifacts"
    (folder / ".incoming").mkdir(parents=True)
    (folder / ".incoming" / "0").write_bytes(b"made")
    made = Artifact(path="out.txt", sha256="ab" * 32, size_bytes=4, file=folder / ".incoming" / "0")

    _keep(Collected(artifacts=(made,), skipped=(), skipped_total=0), folder)

    assert all(disk.holds(path) for path in (folder / ("ab" * 32), folder, tmp_path))


def test_media_and_their_names_are_on_the_disk(disk, tmp_path):
    keep_media([Media(media_type="image/png", data=b"png")], tmp_path / "kept")

    (kept,) = (tmp_path / "kept").iterdir()
    assert all(disk.holds(path) for path in (kept, tmp_path / "kept", tmp_path))
