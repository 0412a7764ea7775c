"""Every kind of source, brought in once and kept by content; and what is known of it afterwards."""

import functools
import gzip
import http.server
import io
import os
import subprocess
import threading
from pathlib import Path

import fsspec
import pytest

from controlplane.adapters.content_store import ContentStore
from controlplane.adapters.evidence import EvidenceRoom
from controlplane.adapters.intake import Intake
from controlplane.adapters.readings import TextForm
from controlplane.adapters.sources.bounds import Bounds
from controlplane.adapters.sources.typed import Source, sources_of
from controlplane.errors import InvalidRequest
from rlm_worker.contracts.reading import FileFacts


@pytest.fixture
def room(tmp_path):
    return EvidenceRoom(tmp_path / "home")


def stage(room, text, **how):
    return room.stage(sources_of(text), **how)[0].ref


def files_of(ref):
    top = Path(ref.location)
    return {str(path.relative_to(top)): path.read_text() for path in sorted(top.rglob("*")) if path.is_file()}


def git(folder, *words, **env):
    identity = {
        "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a@b",
        "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@b",
    }
    done = subprocess.run(
        ["git", "-C", str(folder), *words], check=True, capture_output=True, env=os.environ | identity | env
    )
    return done.stdout.decode().strip()


@pytest.fixture
def repository(tmp_path):
    folder = tmp_path / "repo"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    (folder / "src").mkdir()
    (folder / "src" / "a.py").write_text("print('one')\r\n")
    (folder / "link").symlink_to("/etc/passwd")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "one")
    git(folder, "tag", "v1")
    (folder / "src" / "a.py").write_text("print('two')\n")
    git(folder, "commit", "-qam", "two")
    (folder / "src" / "a.py").write_text("not committed\n")
    return folder


def test_a_repository_is_its_tree_at_that_commit(room, repository):
    ref = stage(room, f"{repository}@v1")

    assert list(files_of(ref)) == ["src/a.py"]
    assert Path(ref.location, "src/a.py").read_bytes() == b"print('one')\r\n"
    assert ref.name == "repo"
    assert ref.origin == f"git {repository} at {git(repository, 'rev-parse', 'v1')}"
    assert "link: left out" in room.notes(ref)[0]
    assert files_of(stage(room, f"git:{repository}@HEAD")) == {"src/a.py": "print('two')\n"}


@pytest.mark.parametrize("trap", ["filter", "hook", "pager", "fsmonitor", "replace", "include"])
def test_no_setting_of_the_repository_takes_effect(room, repository, tmp_path, trap):
    sprung = tmp_path / "sprung"
    command = f"touch {sprung}; cat"
    match trap:
        case "filter":
            git(repository, "config", "filter.evil.smudge", command)
            git(repository, "config", "filter.evil.clean", command)
            (repository / ".git" / "info" / "attributes").write_text(
                "* filter=evil diff=evil text eol=crlf\n"
            )
            git(repository, "config", "diff.evil.textconv", command)
        case "hook":
            for name in ("post-checkout", "reference-transaction", "post-index-change"):
                hook = repository / ".git" / "hooks" / name
                hook.parent.mkdir(exist_ok=True)
                hook.write_text(f"#!/bin/sh\ntouch {sprung}\n")
                hook.chmod(0o755)
        case "pager":
            git(repository, "config", "core.pager", command)
            git(repository, "config", "alias.cat-file", f"!{command}")
        case "fsmonitor":
            git(repository, "config", "core.fsmonitor", command)
            git(repository, "config", "core.sshCommand", command)
        case "replace":
            one, two = (git(repository, "rev-parse", f"{name}:src/a.py") for name in ("v1", "HEAD"))
            git(repository, "replace", one, two)
        case "include":
            (tmp_path / "more").write_text(f"[core]\n\tpager = {command}\n\tgitProxy = {command}\n")
            git(repository, "config", "include.path", str(tmp_path / "more"))
    sprung.unlink(missing_ok=True)

    ref = stage(room, f"git:{repository}@v1")

    assert Path(ref.location, "src/a.py").read_bytes() == b"print('one')\r\n"
    assert not sprung.exists()


@pytest.mark.parametrize("revision", ["nothing", "--help", "v1:src/a.py", "$(id)"])
def test_a_commit_that_is_not_there_is_refused(room, repository, revision):
    with pytest.raises(InvalidRequest, match="has no commit"):
        stage(room, f"git:{repository}@{revision}")


def test_what_is_no_repository_is_refused(room, tmp_path):
    (tmp_path / "plain").mkdir()

    with pytest.raises(InvalidRequest, match="has no commit"):
        stage(room, f"git:{tmp_path / 'plain'}@HEAD")


def test_a_repository_larger_than_the_bounds_is_refused(repository, tmp_path):
    intake = Intake(tmp_path / "b", ContentStore(tmp_path / "s"), bounds=Bounds(total_bytes=5))

    with pytest.raises(InvalidRequest, match="more than 5 bytes"):
        intake.bring(Source(kind="git", address=str(repository), part="v1"))


def test_standard_input_is_kept_by_content(tmp_path):
    store = ContentStore(tmp_path / "store")
    intake = Intake(tmp_path / "brought", store, stdin=io.BytesIO(b"one\ntwo\n"))

    placed = intake.bring(Source(kind="stdin", name="app.log"))

    assert (placed.name, placed.place.read_bytes()) == ("app.log", b"one\ntwo\n")
    assert placed.place == store.keep([b"one\n", b"two\n"]).path


def test_a_url_of_fsspec_is_a_file_or_a_folder(room, tmp_path):
    memory = fsspec.filesystem("memory")
    memory.pipe({"/ev/a.txt": b"one", "/ev/deep/b.txt": b"two", "/one.csv": b"x,y\n1,2\n"})
    (tmp_path / "local.txt").write_text("here")

    assert files_of(stage(room, "memory://ev")) == {"a.txt": "one", "deep/b.txt": "two"}
    one = stage(room, "memory://one.csv")
    assert (one.name, one.kind, one.origin, Path(one.location).read_text()) == (
        *("one.csv", "file", "memory://one.csv"),
        "x,y\n1,2\n",
    )
    assert Path(stage(room, f"file://{tmp_path}/local.txt").location).read_text() == "here"


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("memory://nothing/here", "there is nothing at"),
        ("nosuch://x", "cannot be read"),
        ("http://127.0.0.1:9/x", "cannot be read"),
    ],
)
def test_a_url_that_cannot_be_read_is_refused(room, url, says):
    with pytest.raises(InvalidRequest, match=says):
        stage(room, url)


def test_a_url_whose_library_is_missing_says_which_to_install(room, monkeypatch):
    def missing(url):
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr(fsspec.core, "url_to_fs", missing)

    with pytest.raises(InvalidRequest, match=r"custody\[s3\]"):
        stage(room, "s3://bucket/key")


class Quiet(http.server.SimpleHTTPRequestHandler):
    def do_GET(self):
        if self.path.startswith("/short"):
            self.send_response(200)
            self.send_header("Content-Length", "100")
            self.end_headers()
            self.wfile.write(b"few")
            return
        super().do_GET()

    def log_message(self, *_):
        pass


@pytest.fixture
def served(tmp_path):
    folder = tmp_path / "served"
    folder.mkdir()
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder))
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield folder, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_what_is_behind_http_is_fetched_and_unpacked(room, served):
    folder, url = served
    (folder / "app.log.gz").write_bytes(gzip.compress(b"from afar\n"))

    ref = stage(room, f"{url}/app.log.gz?token=secret")

    assert (ref.name, Path(ref.location).read_text()) == ("app.log", "from afar\n")
    assert "secret" not in ref.model_dump_json()


def test_what_comes_incomplete_is_refused(room, served):
    with pytest.raises(InvalidRequest, match=r"incomplete|IncompleteRead|cannot be read"):
        stage(room, f"{served[1]}/short")


def test_artifacts_of_a_job_are_a_tree_or_one_file(room, tmp_path):
    store = ContentStore(tmp_path / "artifacts")
    kept = {path: store.keep([text]) for path, text in {"out/a.csv": b"1,2\n", "out/b.txt": b"b"}.items()}

    def artifacts_of(job_id):
        assert job_id == "job_1"
        return {path: (blob.path, blob.digest) for path, blob in kept.items()}

    whole = stage(room, "job:job_1", artifacts_of=artifacts_of)
    assert files_of(whole) == {"out/a.csv": "1,2\n", "out/b.txt": "b"}
    assert (whole.name, whole.origin) == ("job_1", "job job_1")
    one = stage(room, "job:job_1/out/a.csv", artifacts_of=artifacts_of)
    assert (one.name, Path(one.location).read_text()) == ("a.csv", "1,2\n")
    with pytest.raises(InvalidRequest, match="no artifact 'other'"):
        stage(room, "job:job_1/other", artifacts_of=artifacts_of)


def test_an_artifact_that_is_not_what_the_job_made_is_refused(room, tmp_path):
    (tmp_path / "kept").write_text("changed")

    with pytest.raises(InvalidRequest, match="not what the job made"):
        stage(room, "job:j", artifacts_of=lambda _: {"a": (tmp_path / "kept", "0" * 64)})
    with pytest.raises(InvalidRequest, match="no walk gives"):
        stage(room, "job:j", artifacts_of=lambda _: {"../a": (tmp_path / "kept", "0" * 64)})


def test_local_evidence_stays_where_it_is_unless_a_snapshot_is_asked_for(room, tmp_path):
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "a.txt").write_text("before")

    in_place, copy = stage(room, str(tree)), stage(room, str(tree), snapshot=True)
    (tree / "a.txt").write_text("after the job began")

    assert in_place.location == str(tree)
    assert room.changed(in_place)
    assert files_of(copy) == {"a.txt": "before"}
    assert not room.changed(copy)
    assert copy.origin == f"copy of {tree}"


def test_a_snapshot_of_the_same_content_is_the_same_place(room, tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).write_text("same")

    refs = [staged.ref for staged in room.stage([tmp_path / "one", tmp_path / "two"], snapshot=True)]

    assert refs[0].location == refs[1].location
    assert [ref.name for ref in refs] == ["one", "two"]
    assert refs[0].manifest_digest == refs[1].manifest_digest


def manifest_of(room, ref):
    return {entry.path: entry for entry in room.manifest(ref)}


def test_the_manifest_says_type_encoding_rows_and_after_the_seal_the_hash(room, tmp_path):
    tree = tmp_path / "t"
    tree.mkdir()
    (tree / "old.txt").write_bytes(b"caf\xe9\n")
    (tree / "odd.txt").write_bytes(b"\x81\xe9\n")
    (tree / "semi.csv").write_text("a;b\n1;2\n3;4\n")
    (tree / "bom.txt").write_bytes(b"\xef\xbb\xbfx")
    (tree / "noext").write_text("plain\n")
    (tree / "liar.txt").write_bytes(b"\x89PNG\0\0")
    (tree / "page").write_text("<!DOCTYPE html><p>x")
    ref = stage(room, str(tree))

    found = manifest_of(room, ref)

    assert found["t/old.txt"].encoding == "cp1252"
    assert found["t/odd.txt"].encoding == "latin-1"
    assert (found["t/semi.csv"].kind, found["t/semi.csv"].rows) == ("text/csv", 2)
    assert found["t/bom.txt"].encoding == "utf-8-sig"
    assert found["t/noext"].kind == "text/plain"
    assert (found["t/liar.txt"].kind, found["t/liar.txt"].encoding) == ("image/png", None)
    assert (found["t/page"].kind, found["t/page"].note) == (
        "text/html",
        "not converted: there is no sandbox here in which it could be",
    )
    assert found["t/noext"].digest is None
    room.seal(ref, threading.Event())
    assert manifest_of(room, ref)["t/noext"].digest == ContentStore(tmp_path).digest_of(tree / "noext")


def test_a_large_file_is_told_by_a_few_of_its_bytes(room, tmp_path, monkeypatch):
    big = tmp_path / "big.log"
    with big.open("wb") as opened:
        opened.write(b"ascii\n" * 10_000)
        opened.seek(1 << 30)
        opened.write(b"end\n")
    read = []
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda *args: read.append(args[1]) or pread(*args))

    stage(room, str(big))

    assert 0 < sum(read) <= 64 << 10


class Converting:
    """A verified stand-in for the sandbox: says what it was asked, gives text."""

    def __init__(self, note=""):
        self.asked = []
        self.note = note

    def __call__(self, documents, into, on_done):
        forms = []
        for number, document in enumerate(documents):
            self.asked.append((document.path.name, document.how))
            file = into / f"{len(self.asked)}"
            file.write_text(f"text of {document.path.name}\n")
            forms.append(
                TextForm(
                    file=None if self.note else file,
                    facts=FileFacts(pages=() if self.note else (1,), note=self.note),
                )
            )
            on_done(number)
        return forms


@pytest.fixture
def papers(tmp_path):
    tree = tmp_path / "papers"
    tree.mkdir()
    for name in ("a.pdf", "b.pdf"):
        (tree / name).write_bytes(b"%PDF-1.4 " + name.encode())
    (tree / "c.txt").write_text("plain")
    return tree


def test_documents_are_converted_once_by_content(tmp_path, papers):
    convert = Converting()
    room = EvidenceRoom(tmp_path / "home", convert=convert)

    ref = stage(room, str(papers))
    again = stage(room, str(papers))
    (papers / "copy.pdf").write_bytes((papers / "a.pdf").read_bytes())
    stage(room, str(papers))

    assert convert.asked == [("a.pdf", "pdf"), ("b.pdf", "pdf")]
    assert again == ref
    assert manifest_of(room, ref)["papers/a.pdf"].is_converted
    assert manifest_of(room, ref)["papers/a.pdf"].pages == 1
    assert Path(ref.reading.location, "0.txt").read_text() == "text of a.pdf\n"


def test_a_document_that_cannot_be_converted_says_so_and_is_tried_again(tmp_path, papers):
    convert = Converting(note="not converted: broken")
    room = EvidenceRoom(tmp_path / "home", convert=convert)

    ref = stage(room, str(papers))
    stage(room, str(papers))

    assert manifest_of(room, ref)["papers/a.pdf"].note == "not converted: broken"
    assert not manifest_of(room, ref)["papers/a.pdf"].is_converted
    assert len(convert.asked) == 4


def test_plain_evidence_is_not_converted(tmp_path, papers):
    convert = Converting()

    EvidenceRoom(tmp_path / "home", convert=convert).stage(sources_of(f"plain:{papers}"))

    assert convert.asked == []


def test_a_text_form_that_was_changed_breaks_the_seal(tmp_path, papers):
    room = EvidenceRoom(tmp_path / "home", convert=Converting())
    ref = stage(room, str(papers))
    sealed = room.seal(ref, threading.Event())
    assert room.seal(ref, threading.Event()) == sealed

    text = Path(ref.reading.location, "0.txt")
    text.chmod(0o644)
    text.write_text("forged\n")

    assert room.seal(ref, threading.Event()) != sealed


def test_a_document_that_changes_while_it_is_converted_is_not_remembered(tmp_path, papers):
    class Late(Converting):
        def __call__(self, documents, into, on_done):
            (papers / "a.pdf").write_bytes(b"%PDF-1.4 another")
            return super().__call__(documents, into, on_done)

    home = tmp_path / "home"
    EvidenceRoom(home, convert=Late()).stage([papers])

    records = list((home / "evidence" / "readings" / "conversions").iterdir())
    assert [record.name[:64] for record in records] == [ContentStore(home).digest_of(papers / "b.pdf")]


def test_a_document_that_nobody_may_read_says_so(tmp_path, papers, monkeypatch):
    def closed(self, path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(ContentStore, "digest_of", closed)
    room = EvidenceRoom(tmp_path / "home", convert=Converting())

    ref = stage(room, str(papers))

    assert "cannot be read, Permission denied" in manifest_of(room, ref)["papers/a.pdf"].note


def test_each_document_is_told_as_it_is_converted_and_none_that_was_before(tmp_path, papers):
    room = EvidenceRoom(tmp_path / "home", convert=Converting())
    told = []

    room.stage([papers], on_converted=lambda *said: told.append(said))
    room.stage([papers], on_converted=lambda *said: told.append(said))
    (papers / "d.pdf").write_bytes(b"%PDF-1.4 fourth")
    room.stage([papers], on_converted=lambda *said: told.append(said))

    assert told == [(1, 2, "a.pdf"), (2, 2, "b.pdf"), (1, 1, "d.pdf")]
