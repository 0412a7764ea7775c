"""Log records go into the home and nowhere else."""

import logging
import os
import stat
import subprocess
import sys
import threading
import warnings

import pytest

from controlplane.cli.logs import log_with_errors, logging_into


@pytest.fixture(autouse=True)
def _as_it_was():
    before = threading.excepthook
    yield
    threading.excepthook = before
    logging.captureWarnings(False)


def fail() -> None:
    raise RuntimeError("a thread's end")


@pytest.mark.filterwarnings("default")
def test_records_warnings_and_deaths_of_threads_are_in_one_private_file(tmp_path):
    before = os.umask(0)
    try:
        with logging_into(tmp_path):
            logging.getLogger("rlm_worker.actor").info("not_claimed", extra={"job_id": "j1"})
            logging.getLogger("httpx").info("GET https://host/?key=secret")
            warnings.warn("old", stacklevel=1)
            assert log_with_errors() is None
            thread = threading.Thread(target=fail)
            thread.start()
            thread.join()
            assert log_with_errors() == tmp_path / "log" / "custody.log"
    finally:
        os.umask(before)
    assert log_with_errors() is None

    log = tmp_path / "log" / "custody.log"
    text = log.read_text()
    assert "rlm_worker.actor not_claimed job_id='j1'" in text
    assert "a thread's end" in text
    assert "Traceback" in text
    assert "UserWarning: old" in text
    assert "secret" not in text
    assert [stat.S_IMODE(path.stat().st_mode) for path in (log, log.parent)] == [0o600, 0o700]


def test_a_log_stays_small(tmp_path):
    with logging_into(tmp_path):
        for _ in range(40):
            logging.getLogger("controlplane").info("x" * 100_000)

    sizes = [path.stat().st_size for path in (tmp_path / "log").iterdir()]
    assert len(sizes) == 3
    assert max(sizes) <= 1_000_000


def test_a_log_that_cannot_be_written_disturbs_nobody(tmp_path, capfd):
    (tmp_path / "log").write_text("a file where the folder should be")

    with logging_into(tmp_path):
        logging.getLogger("controlplane").error("problem")

    assert capfd.readouterr().err == ""


def test_a_command_prints_no_record_even_without_a_home():
    code = (
        "import logging\n"
        "from controlplane.cli.main import cli\n"
        "assert cli.get_command(None, 'playbooks')\n"
        "logging.getLogger('rlm_worker').error('attempt_lost')"
    )

    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)

    assert done.stderr == ""
