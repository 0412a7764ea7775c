"""What a home holds is for its owner alone, also in a folder that others may read."""

import os
import stat
import threading

import pytest

from controlplane.bootstrap import open_app
from controlplane.config import Settings
from tests.integration.controlplane.hands import Hands, a_request


@pytest.fixture
def _open_umask():
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("_open_umask")
def test_everything_in_a_home_that_others_may_read_is_private(tmp_path):
    home = tmp_path / "home"
    home.mkdir(mode=0o755)
    (tmp_path / "a.log").write_text("secret")
    app = open_app(Settings(home=home))
    (ref,) = app.stage([tmp_path / "a.log"])
    app.evidence.seal(ref, threading.Event())
    Hands(gateway=app.gateway(), job_id=app.submit(a_request(input_artifacts=(ref,))).job_id).work()

    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in home.rglob("*")}
    app.close()

    assert {path.suffix for path in modes} >= {".db", ".db-wal", ".db-shm", ".json"}
    # What sandboxes of another uid get mounted can be read by whoever reaches it, and stands in a folder that lets nobody in.
    shown = [home / "evidence" / name for name in ("readings", "store")]
    mounted = {path for path in modes if any(folder in path.parents for folder in shown)}
    wrong = {
        path.name: oct(mode)
        for path, mode in modes.items()
        if (mode & 0o022 if path in mounted else mode != (0o700 if path.is_dir() else 0o600))
    }
    assert wrong == {}
    assert modes[home / "evidence"] == modes[home / "evidence" / "readings"] == 0o700
    assert stat.S_IMODE(home.stat().st_mode) == 0o755


@pytest.mark.usefixtures("_open_umask")
def test_a_home_that_was_made_is_private_with_the_folders_above_it(tmp_path):
    open_app(Settings(home=tmp_path / "above" / "home")).close()

    assert {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("above", "above/home")} == {0o700}
