"""A corpus of hostile archives: each is refused or loses exactly what is hostile, and nothing leaves its folder."""

import bz2
import contextlib
import gzip
import io
import lzma
import struct
import tarfile
import zipfile

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controlplane.adapters.content_store import ContentStore
from controlplane.adapters.intake import Intake
from controlplane.adapters.sources.bounds import Bounds
from controlplane.adapters.sources.typed import Source
from controlplane.errors import InvalidRequest

SMALL = Bounds(entries=50, total_bytes=4 << 20, swelling=50, swelling_from=1 << 20, nesting=3)


@pytest.fixture
def intake(tmp_path):
    store = ContentStore(tmp_path / "home" / "store")
    return Intake(tmp_path / "home" / "brought", store, bounds=SMALL)


def bring(intake, path):
    return intake.bring(Source(address=str(path)))


def files_of(placed):
    return {
        str(path.relative_to(placed.place)): path.read_bytes()
        for path in sorted(placed.place.rglob("*"))
        if path.is_file()
    }


def tar_of(members, *, mode="w"):
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode=mode) as archive:
        for given, content in members:
            info = tarfile.TarInfo(given) if isinstance(given, str) else given
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return body.getvalue()


def zip_of(members):
    body = io.BytesIO()
    with zipfile.ZipFile(body, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return body.getvalue()


GOOD = [("docs/a.txt", b"one\n"), ("docs/deep/b.txt", b"two\n"), ("c.txt", b"one\n")]
PACK = {
    "tar": lambda body: body,
    "tar.gz": gzip.compress,
    "tgz": gzip.compress,
    "tar.bz2": bz2.compress,
    "tar.xz": lzma.compress,
    "tar.zst": lambda body: zstandard.ZstdCompressor().compress(body),
}


@pytest.mark.parametrize("suffix", [*PACK, "zip"])
def test_an_archive_becomes_a_tree_of_its_files(intake, tmp_path, suffix):
    path = tmp_path / f"x.{suffix}"
    path.write_bytes(zip_of(GOOD) if suffix == "zip" else PACK[suffix](tar_of(GOOD)))

    placed = bring(intake, path)

    assert files_of(placed) == dict(GOOD)
    assert placed.name == f"x.{suffix}"
    assert placed.place.stat().st_mode & 0o777 == 0o755
    assert (placed.place / "c.txt").stat().st_mode & 0o777 == 0o444
    assert (placed.place / "c.txt").samefile(placed.place / "docs" / "a.txt"), "the same content is kept once"
    assert (tmp_path / "home" / "store").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("suffix", "pack"),
    [
        ("gz", gzip.compress),
        ("bz2", bz2.compress),
        ("xz", lambda body: lzma.compress(body[:3]) + lzma.compress(body[3:])),
        ("zst", lambda body: zstandard.ZstdCompressor().compress(body)),
    ],
)
def test_a_compressed_file_becomes_the_file(intake, tmp_path, suffix, pack):
    path = tmp_path / f"app.log.{suffix}"
    path.write_bytes(pack(b"one\ntwo\n"))

    placed = bring(intake, path)

    assert (placed.name, placed.place.read_bytes()) == ("app.log", b"one\ntwo\n")


def test_the_same_archive_is_unpacked_once(intake, tmp_path, monkeypatch):
    path = tmp_path / "x.zip"
    path.write_bytes(zip_of(GOOD))
    first = bring(intake, path)
    monkeypatch.setattr("controlplane.adapters.intake.Unpacker", None)

    assert bring(intake, path) == first


def test_another_archive_with_the_same_files_is_the_same_tree(intake, tmp_path):
    (tmp_path / "x.zip").write_bytes(zip_of(GOOD))
    (tmp_path / "y.tar").write_bytes(tar_of(reversed(GOOD)))

    assert bring(intake, tmp_path / "x.zip").place == bring(intake, tmp_path / "y.tar").place


def test_a_plain_archive_stays_a_file(intake, tmp_path):
    (tmp_path / "x.zip").write_bytes(zip_of(GOOD))

    placed = intake.bring(Source(address=str(tmp_path / "x.zip"), is_plain=True))

    assert placed.place == tmp_path / "x.zip"


def link(name, target, kind=tarfile.SYMTYPE):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info, b""


def device(name, kind):
    info = tarfile.TarInfo(name)
    info.type = kind
    return info, b""


OUTSIDE = ["../evil.txt", "/tmp/evil.txt", "docs/../../evil.txt", "..\\evil.txt", "C:\\evil.txt", "a\nb"]


@pytest.mark.parametrize("name", OUTSIDE)
@pytest.mark.parametrize("suffix", ["tar", "zip"])
def test_a_path_out_of_the_archive_is_left_out(intake, tmp_path, name, suffix):
    path = tmp_path / f"x.{suffix}"
    members = [(name, b"evil"), ("good.txt", b"good")]
    path.write_bytes(zip_of(members) if suffix == "zip" else tar_of(members))

    placed = bring(intake, path)

    assert files_of(placed) == {"good.txt": b"good"}
    assert "leads out of the archive" in placed.notes[0]
    assert not list(tmp_path.rglob("evil.txt"))


@pytest.mark.parametrize(
    "hostile",
    [
        link("passwd", "/etc/passwd"),
        link("up", "../.."),
        link("hard", "/etc/passwd", tarfile.LNKTYPE),
        device("pipe", tarfile.FIFOTYPE),
        device("null", tarfile.CHRTYPE),
        device("disk", tarfile.BLKTYPE),
    ],
    ids=lambda member: member[0].name,
)
def test_links_and_devices_of_a_tar_are_left_out(intake, tmp_path, hostile):
    path = tmp_path / "x.tar"
    path.write_bytes(tar_of([hostile, ("good.txt", b"good")]))

    placed = bring(intake, path)

    assert files_of(placed) == {"good.txt": b"good"}
    assert "link, a device" in placed.notes[0]


def test_a_file_through_a_link_of_the_same_archive_stays_below_it(intake, tmp_path):
    path = tmp_path / "x.tar"
    path.write_bytes(tar_of([link("out", str(tmp_path)), ("out/evil.txt", b"evil")]))

    placed = bring(intake, path)

    assert files_of(placed) == {"out/evil.txt": b"evil"}
    assert not (tmp_path / "evil.txt").exists()


def test_links_of_a_zip_are_left_out(intake, tmp_path):
    info = zipfile.ZipInfo("link")
    info.external_attr = 0o120777 << 16
    path = tmp_path / "x.zip"
    path.write_bytes(zip_of([(info, "/etc/passwd"), ("good.txt", b"good")]))

    assert files_of(bring(intake, path)) == {"good.txt": b"good"}


@pytest.mark.parametrize(
    "members",
    [
        [("a", b"1"), ("a", b"2")],
        [("a", b"1"), ("a/b", b"2")],
        [("a/b", b"1"), ("a", b"2")],
        [("a", b"1"), ("./a", b"2")],
    ],
)
def test_of_two_members_at_one_place_the_first_is_kept(intake, tmp_path, members):
    path = tmp_path / "x.tar"
    path.write_bytes(tar_of(members))

    placed = bring(intake, path)

    assert list(files_of(placed).values()) == [b"1"]
    assert "another member has its place" in placed.notes[0]


ZEROS = b"\0" * (3 << 20)
BOMBS = {
    "bomb.gz": (gzip.compress(ZEROS), "decompression bomb"),
    "bomb.bz2": (bz2.compress(ZEROS), "decompression bomb"),
    "bomb.xz": (lzma.compress(ZEROS), "decompression bomb"),
    "bomb.zst": (zstandard.ZstdCompressor().compress(ZEROS), "decompression bomb"),
    "bomb.zip": (zip_of([("zeros", ZEROS)]), "decompression bomb"),
    "bomb.tar.gz": (gzip.compress(tar_of([("zeros", ZEROS)])), "decompression bomb"),
    "large.tar": (tar_of([(f"{n}", ZEROS) for n in range(2)]), "more than 4,194,304 bytes"),
    "many.tar": (tar_of([(f"{n}", b"") for n in range(60)]), "more than 50 files"),
    "many.zip": (zip_of([(f"{n}", b"") for n in range(60)]), "more than 50 files"),
    "nested.zip": (zip_of([("inner.zip", zip_of([("zeros", ZEROS)]))]), "decompression bomb"),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_and_leaves_no_draft(intake, tmp_path, name):
    body, says = BOMBS[name]
    (tmp_path / name).write_bytes(body)

    with pytest.raises(InvalidRequest, match=says):
        bring(intake, tmp_path / name)
    assert not list((tmp_path / "home" / "store").glob(".draft*"))
    assert not (tmp_path / "home" / "store" / "trees").exists()


def test_members_of_a_zip_that_share_their_bytes_are_counted_each(intake, tmp_path):
    """The overlap bomb: one packed body, listed many times."""
    body = zip_of([("a", b"\1" * (1 << 20))])
    start, end = body.index(b"PK\x01\x02"), body.index(b"PK\x05\x06")
    record, tail = body[start:end], body[end:]
    listed = b"".join(record[:46] + bytes([97 + n]) for n in range(20))
    whole = body[:start] + listed + tail[:8] + struct.pack("<HHII", 20, 20, len(listed), start) + tail[20:]
    (tmp_path / "overlap.zip").write_bytes(whole)

    with pytest.raises(InvalidRequest):
        bring(intake, tmp_path / "overlap.zip")


def test_a_zip_whose_directory_is_larger_than_memory_is_not_even_opened(intake, tmp_path):
    end = struct.pack("<4sHHHHIIH", b"PK\x05\x06", 0, 0, 65535, 65535, 0x7FFFFFFF, 0, 0)
    (tmp_path / "x.zip").write_bytes(b"PK\x03\x04" + end)

    with pytest.raises(InvalidRequest, match="lists more members than can be read"):
        bring(intake, tmp_path / "x.zip")


def test_a_tar_header_larger_than_memory_is_not_read(intake, tmp_path):
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.XHDTYPE, 7 << 30
    (tmp_path / "x.tar").write_bytes(info.tobuf() + b"\0" * 10_240)

    with pytest.raises(InvalidRequest, match="cannot be read"):
        bring(intake, tmp_path / "x.tar")


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("cut.zip", zip_of(GOOD)[:-30]),
        ("cut.tar.gz", gzip.compress(tar_of(GOOD))[:-20]),
        ("cut.log.gz", gzip.compress(b"x" * 10_000)[:-9]),
        ("cut.log.xz", lzma.compress(b"x" * 10_000)[:-9]),
        ("cut.log.zst", zstandard.ZstdCompressor().compress(bytes(range(256)) * 900)[:-9]),
        ("noise.tar", b"no tar at all" * 100),
        ("empty.tar", tar_of([])),
        ("flipped.zip", zip_of([("a", b"content " * 50)]).replace(b"PK\x01\x02", b"PK\x01\x03")),
    ],
)
def test_a_broken_archive_is_refused_with_its_name(intake, tmp_path, name, body):
    (tmp_path / name).write_bytes(body)

    with pytest.raises(InvalidRequest) as refused:
        bring(intake, tmp_path / name)
    assert name in str(refused.value) or "holds no files" in str(refused.value)


def test_an_encrypted_member_is_left_out(intake, tmp_path):
    body = bytearray(zip_of([("a", b"x"), ("b", b"y")]))
    at = body.index(b"PK\x01\x02")
    body[at + 8] |= 1
    (tmp_path / "x.zip").write_bytes(bytes(body))

    placed = bring(intake, tmp_path / "x.zip")

    assert files_of(placed) == {"b": b"y"}
    assert "encrypted" in placed.notes[0]


def test_archives_within_archives_are_opened_as_far_as_the_bounds_go(intake, tmp_path):
    body = zip_of([("deep.txt", b"deep")])
    for name in ("c.zip", "b.zip", "a.zip"):
        body = zip_of([(name, body), ("log.txt.gz", gzip.compress(b"log"))])
    (tmp_path / "x.zip").write_bytes(body)

    found = files_of(bring(intake, tmp_path / "x.zip"))

    assert found["log.txt"] == b"log"
    assert found["a.zip/b.zip/log.txt"] == b"log"
    assert "a.zip/b.zip/c.zip" in found, "below that they stay packed"


def test_a_broken_archive_within_an_archive_is_kept_as_it_is(intake, tmp_path):
    (tmp_path / "x.zip").write_bytes(zip_of([("inner.zip", b"PK broken"), ("bad.gz", b"\x1f\x8bbroken")]))

    placed = bring(intake, tmp_path / "x.zip")

    assert files_of(placed) == {"inner.zip": b"PK broken", "bad.gz": b"\x1f\x8bbroken"}
    assert len(placed.notes) == 2


def test_a_member_of_a_zip_without_a_name_is_left_out(intake, tmp_path):
    body = zip_of([("a", b"x"), ("b", b"y")])
    at = body.index(b"PK\x01\x02")
    nameless = body[: at + 28] + b"\0\0" + body[at + 30 : at + 46] + body[at + 47 :]
    end = nameless.index(b"PK\x05\x06")
    size = struct.unpack_from("<I", nameless, end + 12)[0] - 1
    (tmp_path / "x.zip").write_bytes(nameless[: end + 12] + struct.pack("<I", size) + nameless[end + 16 :])

    placed = bring(intake, tmp_path / "x.zip")

    assert files_of(placed) == {"b": b"y"}
    assert "no path" in placed.notes[0]


HOSTILE = st.lists(
    st.sampled_from(["..", ".", "", "a", "b", "/", "\\", "C:", "a.zip", "~", "-x"]), min_size=1, max_size=5
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(HOSTILE.map("/".join).filter(bool), min_size=1, max_size=6, unique=True), st.booleans())
def test_whatever_its_members_are_called_an_archive_stays_in_its_folder(tmp_path_factory, names, is_zip):
    folder = tmp_path_factory.mktemp("archive")
    intake = Intake(folder / "brought", ContentStore(folder / "store"), bounds=SMALL)
    members = [(name, str(number).encode()) for number, name in enumerate(names)]
    path = folder / ("x.zip" if is_zip else "x.tar")
    path.write_bytes(zip_of(members) if is_zip else tar_of(members))

    kept = {}
    with contextlib.suppress(InvalidRequest):  # an archive that holds no safe file at all
        kept = files_of(bring(intake, path))

    assert {item.name for item in folder.iterdir()} <= {"brought", "store", path.name}
    assert set(kept.values()) <= {content for _, content in members}
