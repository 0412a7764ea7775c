"""A trace of a hundred thousand events is written, verified, imported, read and exported a page at a time."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.controlplane.long_traces import EVERY

EVENTS = 100_000


@pytest.mark.timeout(400)
@pytest.mark.requirement("S3-FIVE-5")
def test_a_hundred_thousand_events_stream_through_every_command_in_bounded_memory(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-m", "tests.integration.controlplane.long_traces", str(tmp_path), str(EVENTS)],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=390,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-2000:]
    grown = json.loads(done.stdout)["grown"]
    held = grown.pop("a quarter held at once") * 4
    # Less than a tenth of what the records take when they are held at once, for everything together.
    assert sum(grown.values()) * 10 < held * 4, grown
    assert all(more * 10 < held for more in grown.values()), (grown, held)
    assert (tmp_path / "again.jsonl").read_bytes() == (tmp_path / "job.jsonl").read_bytes()
    with (tmp_path / "job.jsonl").open("rb") as lines:
        assert sum(line.startswith(b'{"blob"') for line in lines) == 1
    assert EVENTS // EVERY == 1_000  # as often the long text was answered


@pytest.mark.timeout(400)
@pytest.mark.requirement("S3-FIVE-5")
def test_a_trace_in_which_every_event_has_a_long_text_of_its_own_streams_in_bounded_memory(tmp_path: Path):
    kind = json.dumps({"every": 1, "own": True})
    done = subprocess.run(
        [sys.executable, "-m", "tests.integration.controlplane.long_traces", str(tmp_path), "6000", kind],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=390,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-2000:]
    grown = json.loads(done.stdout)["grown"]
    whole = (tmp_path / "job.jsonl").stat().st_size
    # A page is 500 of the 6,000 events at most, with each text as bytes and as text.
    assert all(more * 3 < whole for more in grown.values()), (grown, whole)
    assert sum(grown.values()) * 2 < whole, (grown, whole)
    assert (tmp_path / "again.jsonl").read_bytes() == (tmp_path / "job.jsonl").read_bytes()
