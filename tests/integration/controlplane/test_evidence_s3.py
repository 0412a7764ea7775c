"""Evidence from S3 and other fsspec URLs: over a real client and a server on the loopback."""

import json
from pathlib import Path

import fsspec
import pytest

from controlplane.adapters.content_store import ContentStore
from controlplane.adapters.evidence import EvidenceRoom
from controlplane.adapters.intake import Intake
from controlplane.adapters.sources.bounds import Bounds
from controlplane.adapters.sources.remote import shown_url
from controlplane.adapters.sources.typed import Source, sources_of
from controlplane.errors import InvalidRequest
from tests.integration.controlplane.test_evidence_sources import files_of, stage
from tests.s3_server import KEY_ID, SECRET, S3Server

#: More than one request: the client reads in blocks of 50 MB.
LARGE = b"0123456789abcdef" * (60 << 16)
OBJECTS = {
    "case/logs/a.log": b"one\n",
    "case/logs/b.log": b"two\n",
    "case/logs/deep/c.log": b"three\n",
    "case/logs/deep/d.log": b"four\n",
    "case/logs/deep/e.log": b"five\n",
    "case/other.txt": b"not asked for\n",
}


@pytest.fixture
def room(tmp_path):
    return EvidenceRoom(tmp_path / "home")


@pytest.fixture
def s3(monkeypatch):
    client = pytest.importorskip("s3fs", reason="an extra: make test brings it, or pip install 'custody[s3]'")
    client.S3FileSystem.clear_instance_cache()
    with S3Server(OBJECTS) as server:
        for name, value in {
            "AWS_ENDPOINT_URL": server.url,
            "AWS_ACCESS_KEY_ID": KEY_ID,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_MAX_ATTEMPTS": "1",
        }.items():
            monkeypatch.setenv(name, value)
        yield server
    client.S3FileSystem.clear_instance_cache()


def everything_in(home) -> bytes:
    return b"".join(path.read_bytes() for path in home.rglob("*") if path.is_file())


def test_an_object_is_staged_by_content(room, s3):
    ref = stage(room, "s3://case/logs/a.log")

    assert (ref.name, ref.kind, ref.origin) == ("a.log", "file", "s3://case/logs/a.log")
    assert Path(ref.location).read_bytes() == b"one\n"


def test_a_prefix_is_a_folder_with_all_pages_of_its_list(room, s3):
    ref = stage(room, "s3://case/logs")

    assert files_of(ref) == {
        "a.log": "one\n",
        "b.log": "two\n",
        "deep/c.log": "three\n",
        "deep/d.log": "four\n",
        "deep/e.log": "five\n",
    }


def test_neither_manifest_nor_reference_nor_trace_holds_what_the_client_signs_with(room, s3, tmp_path):
    ref = stage(room, "s3://case/logs")

    said = json.dumps(ref.model_dump(mode="json")).encode() + everything_in(tmp_path / "home")
    assert SECRET.encode() not in said
    assert KEY_ID.encode() not in said


def test_a_key_that_the_server_does_not_know_is_refused_without_naming_it(room, s3, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDSOMEBODYELSE0001")

    with pytest.raises(InvalidRequest, match="cannot be read") as refused:
        stage(room, "s3://case/logs/a.log")
    assert SECRET not in str(refused.value)
    assert "AKIDSOMEBODYELSE0001" not in str(refused.value)


@pytest.mark.parametrize("url", ["s3://case/nothing", "s3://nowhere/at/all"])
def test_what_is_not_there_says_so(room, s3, url):
    with pytest.raises(InvalidRequest, match="there is nothing at"):
        stage(room, url)


@pytest.mark.parametrize(
    ("bounds", "says"),
    [(Bounds(total_bytes=10), "more than 10 bytes"), (Bounds(entries=3), "more than 3 files")],
)
def test_bounds_hold_over_all_objects_together(s3, tmp_path, bounds, says):
    intake = Intake(tmp_path / "brought", ContentStore(tmp_path / "store"), bounds=bounds)

    with pytest.raises(InvalidRequest, match=says):
        intake.bring(Source(kind="url", address="s3://case/logs"))


def test_a_large_object_comes_in_many_requests_and_is_whole(room, s3):
    s3.objects["case/large.bin"] = LARGE

    ref = stage(room, "s3://case/large.bin")

    assert len([path for path, _ in s3.gets if path == "case/large.bin"]) > 1
    assert Path(ref.location).read_bytes() == LARGE


def test_an_object_that_changes_between_two_requests_is_refused(room, s3, tmp_path):
    s3.objects["case/large.bin"] = LARGE
    changed = bytes(reversed(LARGE))
    s3.on_get = lambda path: s3.objects.update({path: changed})

    with pytest.raises(InvalidRequest):
        stage(room, "s3://case/large.bin")
    assert not list((tmp_path / "home" / "evidence").glob("*.json"))


def test_an_object_that_changes_while_its_only_request_is_answered_is_refused(room, s3):
    s3.on_get = lambda path: s3.objects.update({path: b"ONE\n"})

    with pytest.raises(InvalidRequest, match="was changed while it was read"):
        stage(room, "s3://case/logs/a.log")


def test_a_file_of_any_file_system_that_changes_while_it_is_read_is_refused(room, monkeypatch):
    memory = fsspec.filesystem("memory")
    memory.pipe({"/moving.txt": b"before"})
    real = type(memory).open

    def opened(self, path, *given, **named):
        found = real(self, path, *given, **named)
        monkeypatch.undo()
        memory.pipe({"/moving.txt": b"after!"})
        return found

    monkeypatch.setattr(type(memory), "open", opened)

    with pytest.raises(InvalidRequest, match="was changed while it was read"):
        stage(room, "memory://moving.txt")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("ftp://ada:pa55@host/x?token=t#f", "ftp://host/x"),
        ("zip://a.csv::ftp://ada:pa55@host/x.zip?token=t", "zip://a.csv::ftp://host/x.zip"),
        ("filecache::s3://bucket/key", "filecache::s3://bucket/key"),
    ],
)
def test_a_chain_of_urls_is_shown_without_what_may_be_secret(url, shown):
    assert shown_url(url) == shown


def test_an_error_of_a_client_does_not_tell_the_password_of_its_url(room, monkeypatch):
    def failing(url):
        raise RuntimeError(f"login of ada with pa55word to {url} failed")

    monkeypatch.setattr(fsspec.core, "url_to_fs", failing)

    with pytest.raises(InvalidRequest, match="login of") as refused:
        room.stage(sources_of("ftp://ada:pa55word@host/x?token=t0ken"))
    assert not [secret for secret in ("pa55word", "t0ken") if secret in str(refused.value)]
    assert refused.value.__cause__ is None
