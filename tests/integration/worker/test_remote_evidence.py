"""Evidence of a remote worker: fetched by content under its lease, checked, resumed, kept within bounds, shared by processes."""

import fcntl
import os
import threading
from pathlib import Path

import pytest

from controlplane.adapters import lending
from controlplane.bootstrap import open_app
from controlplane.config import Settings
from controlplane.domain.commands import JobRequest
from rlm_worker.contracts import Budget
from rlm_worker.contracts.gateway import Claimed, ClaimRequest, GatewayDown
from rlm_worker.contracts.job import PlaybookDriver
from rlm_worker.contracts.remote import EvidenceFile
from rlm_worker.contracts.signature import fields_schema
from rlm_worker.remote.cache import EvidenceCache
from rlm_worker.remote.evidence import Abandoned, Fetcher
from rlm_worker.remote.gateway import EvidenceRefused, HttpGateway
from rlm_worker.remote.link import Server
from rlm_worker.remote.place import RemotePlace
from tests.gateway_server import GatewayServer, a_key

LARGE = os.urandom(1 << 16) * 320  # 20 MiB: three parts
NEVER = threading.Event()


class Counting(HttpGateway):
    """Counts what is fetched, and spoils or breaks it on the way."""

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self.fetched: list[tuple[tuple[int, ...], int]] = []
        self.spoil = lambda _count, body: body

    def files(self, digest, request):
        self.fetched.append((request.numbers, request.offset))
        return self.spoil(len(self.fetched), super().files(digest, request))


@pytest.fixture
def app(tmp_path):
    opened = open_app(Settings(home=tmp_path / "home"))
    yield opened
    opened.close()


@pytest.fixture
def gateway(app):
    with GatewayServer(app) as server:
        made = Counting(Server(url=server.url, key=a_key(app)))
        yield made
        made.close()


@pytest.fixture
def cache(tmp_path):
    return EvidenceCache(tmp_path / "cache", most_bytes=1 << 30)


@pytest.fixture
def tree(tmp_path) -> Path:
    top = tmp_path / "src"
    for number in range(40):
        folder = top / f"d{number % 4}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number}.txt").write_text(f"text {number}\n" * number)
    (top / "page.html").write_text("<html><body><p>hello</p></body></html>")
    (top / "large.bin").write_bytes(LARGE)
    os.utime(top / "page.html", ns=(1_600_000_000_123_456_789, 1_600_000_000_123_456_789))
    return top


def claimed(app, gateway, *sources: Path) -> Claimed:
    refs = app.stage(list(sources))
    request = JobRequest(
        task="Anything?",
        output_schema=fields_schema("answer: str"),
        budget=Budget(),
        driver=PlaybookDriver(name="test", source="SUBMIT(answer='x')"),
        sub_model="nobody",
        input_artifacts=refs,
    )
    job = app.submit(request)
    found = gateway.claim(ClaimRequest(worker_id="w", job_id=job.job_id, generation=job.generation))
    assert isinstance(found, Claimed)
    return found


def fetch(app, gateway, cache, *sources: Path):
    found = claimed(app, gateway, *sources)
    fetcher = Fetcher(gateway, cache, found.lease, NEVER)
    return [fetcher.fetch(ref) for ref in found.spec.input_artifacts]


def contents(top: Path) -> dict[str, bytes]:
    return {str(path.relative_to(top)): path.read_bytes() for path in top.rglob("*") if path.is_file()}


def blobs(cache: EvidenceCache) -> list[Path]:
    return [path for path in cache._blobs.rglob("*") if path.is_file()]


def test_what_arrives_is_what_was_staged_with_its_times_and_its_reading(app, gateway, cache, tree):
    (piece,) = fetch(app, gateway, cache, tree)

    there = Path(piece.ref.location)
    assert contents(there) == contents(tree)
    assert (there / "page.html").stat().st_mtime_ns == 1_600_000_000_123_456_789
    assert contents(Path(piece.ref.reading.location)) == contents(Path(app.stage([tree])[0].reading.location))


def test_small_files_travel_together_and_what_is_here_does_not_travel_again(app, gateway, cache, tree):
    fetch(app, gateway, cache, tree)
    first = len(gateway.fetched)
    # One bundle, three parts of the large one, one of the reading.
    assert first <= 6

    fetch(app, gateway, cache, tree)
    assert len(gateway.fetched) == first

    (tree / "d0" / "0.txt").write_text("another text\n")
    (piece,) = fetch(app, gateway, cache, tree)
    assert contents(Path(piece.ref.location)) == contents(tree)
    assert len(gateway.fetched) <= first + 2


def test_a_file_that_is_given_alone_is_a_file(app, gateway, cache, tree):
    (piece,) = fetch(app, gateway, cache, tree / "large.bin")

    assert Path(piece.ref.location).read_bytes() == LARGE


def test_an_interrupted_transfer_goes_on_where_it_ended(app, gateway, cache, tree):
    def break_off(count, body):
        if count == 2:
            enough.set()
            raise GatewayDown("cut")
        return body

    enough = threading.Event()
    gateway.spoil = break_off
    found = claimed(app, gateway, tree / "large.bin")
    with pytest.raises(Abandoned):
        Fetcher(gateway, cache, found.lease, enough).fetch(found.spec.input_artifacts[0])

    gateway.spoil = lambda _count, body: body
    gateway.fetched.clear()
    piece = Fetcher(gateway, cache, found.lease, NEVER).fetch(found.spec.input_artifacts[0])

    assert Path(piece.ref.location).read_bytes() == LARGE
    assert [offset for _, offset in gateway.fetched][:1] == [8 << 20]


def test_what_arrives_spoiled_is_fetched_anew(app, gateway, cache, tree):
    gateway.spoil = lambda count, body: b"\0" + body[1:] if count in (1, 2) else body

    (piece,) = fetch(app, gateway, cache, tree)

    assert contents(Path(piece.ref.location)) == contents(tree)


def test_what_arrives_spoiled_every_time_is_refused_and_not_kept(app, gateway, cache, tree):
    gateway.spoil = lambda _count, body: b"\0" + body[1:]

    with pytest.raises(EvidenceRefused, match="another content"):
        fetch(app, gateway, cache, tree / "large.bin")

    assert blobs(cache) == []
    assert list(cache._entries.iterdir()) == []


def test_a_file_that_changes_while_it_is_lent_is_refused(app, gateway, cache, tree):
    def change(count, body):
        if count == 1:
            (tree / "large.bin").write_bytes(LARGE[:-1] + b"!")
        return body

    gateway.spoil = change
    with pytest.raises(EvidenceRefused, match="changed since it was staged"):
        fetch(app, gateway, cache, tree / "large.bin")


@pytest.mark.parametrize("path", ["../out", "/etc/passwd", "a/../../b", "a//b", "."])
def test_a_server_that_names_a_path_outside_is_not_followed(app, gateway, cache, tree, monkeypatch, path):
    found = claimed(app, gateway, tree)
    ref = found.spec.input_artifacts[0]
    whole = HttpGateway.evidence

    def lie(self, digest, request):
        answer = whole(self, digest, request)
        if request.part == "content":
            return answer
        file = EvidenceFile(path=path, size_bytes=1, changed_ns=0, digest="a" * 64)
        return answer.model_copy(update={"files": (file,)})

    monkeypatch.setattr(HttpGateway, "evidence", lie)
    with pytest.raises(EvidenceRefused, match="no path below it"):
        Fetcher(gateway, cache, found.lease, NEVER).fetch(ref)


def test_a_server_with_another_manifest_or_reading_is_refused(app, gateway, cache, tree):
    found = claimed(app, gateway, tree)
    ref = found.spec.input_artifacts[0]
    fetcher = Fetcher(gateway, cache, found.lease, NEVER)

    with pytest.raises(EvidenceRefused, match="manifest"):
        fetcher.fetch(ref.model_copy(update={"manifest_digest": "b" * 64}))
    other = ref.reading.model_copy(update={"digest": "c" * 64})
    with pytest.raises(EvidenceRefused, match="reading"):
        fetcher.fetch(ref.model_copy(update={"reading": other}))


def test_a_tampered_reading_is_refused(app, gateway, cache, tree):
    found = claimed(app, gateway, tree)
    place = Path(found.spec.input_artifacts[0].reading.location)
    text = next(path for path in place.iterdir() if path.suffix == ".txt")
    text.unlink()
    text.write_text("HELLO\n")

    with pytest.raises(EvidenceRefused):
        Fetcher(gateway, cache, found.lease, NEVER).fetch(found.spec.input_artifacts[0])


def test_digests_that_take_long_are_waited_for(app, gateway, cache, tree, monkeypatch):
    monkeypatch.setattr(lending, "_PATIENCE_SECONDS", 0.0)

    (piece,) = fetch(app, gateway, cache, tree)

    assert contents(Path(piece.ref.location)) == contents(tree)


def test_what_was_not_used_for_longest_goes_first_and_what_is_in_use_stays(app, gateway, tmp_path, tree):
    small = EvidenceCache(tmp_path / "small", most_bytes=1_000)
    (used,) = fetch(app, gateway, small, tree / "large.bin")
    (old,) = fetch(app, gateway, small, tree / "d3" / "39.txt")
    old.entry.close()
    (tree / "d3" / "39.txt").write_text("n" * 900)
    (new,) = fetch(app, gateway, small, tree / "d3" / "39.txt")

    assert Path(used.ref.location).read_bytes() == LARGE
    assert Path(new.ref.location).read_text() == "n" * 900
    assert not old.entry.folder.exists()

    used.entry.close()
    small.trim()
    assert not used.entry.folder.exists()
    assert sum(path.stat().st_size for path in blobs(small)) <= 1_000


def test_several_processes_share_a_cache(app, gateway, tmp_path, tree):
    """Threads with caches of their own on one folder: locks of files count between them as between processes."""
    folder, found = tmp_path / "shared", claimed(app, gateway, tree)
    pieces, errors = [], []

    def fetch_one() -> None:
        try:
            cache = EvidenceCache(folder, most_bytes=1)  # nothing stays that is not held
            fetcher = Fetcher(gateway, cache, found.lease, NEVER)
            for _ in range(3):
                piece = fetcher.fetch(found.spec.input_artifacts[0])
                pieces.append(contents(Path(piece.ref.location)) == contents(tree))
                piece.entry.close()
        except Exception as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=fetch_one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert errors == []
    assert pieces == [True] * 12


def test_a_draft_of_a_process_that_died_is_cleared_away(cache):
    left = cache._entries / ".draft-left"
    left.mkdir()
    (left / "lock").touch()
    held = cache._entries / ".draft-held"
    held.mkdir()
    with (held / "lock").open("xb") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        cache.trim()
        assert (left.exists(), held.exists()) == (False, True)


def test_a_place_vouches_for_what_came_and_sees_what_was_changed_here(app, gateway, tmp_path, tree):
    place = RemotePlace(gateway, tmp_path / "worker", cache_bytes=1 << 30)
    found = claimed(app, gateway, tree)
    ground = place.bring(found, NEVER)
    here, there = ground.spec.input_artifacts[0], found.spec.input_artifacts[0]

    assert place.seal(here, NEVER) == app.evidence.seal(there, NEVER)
    assert not place.changed(here)

    victim = Path(here.location) / "page.html"
    victim.unlink()
    victim.write_text("x")
    assert place.changed(here)
    ground.close()


def test_a_file_handed_in_with_another_content_is_not_kept(app, gateway, tmp_path):
    found = claimed(app, gateway)
    lease = found.lease

    with pytest.raises(Exception, match="another content"):
        gateway.keep(lease.job_id, lease.fence, "a" * 64, b"not that", offset=0, size=8)

    assert [path for path in app.settings.artifacts.iterdir() if path.is_file()] == []
