"""Orders beside the database: durable, read by every process, entered once, and never torn."""

import json
import os
import threading

import pytest

from controlplane.adapters.control_file import ControlFile


@pytest.fixture
def path(tmp_path):
    return tmp_path / "control.orders"


def test_an_order_is_seen_by_another_opener_until_it_is_entered(path):
    one, other = ControlFile(path), ControlFile(path)

    made = one.put(order="stop", by="ada", reason="enough", jobs=["a", "b"])

    assert other.pending() == [made]
    assert (other.of("b"), other.of("c")) == (made, None)
    other.entered([made.mark])
    assert one.pending() == []
    assert ControlFile(path).pending() == []


def test_the_strongest_order_for_a_job_counts(path):
    orders = ControlFile(path)
    for order in ("pause", "kill", "stop"):
        orders.put(order=order, by="ada", reason=order, jobs=["a"])

    assert orders.of("a").reason == "kill"


def test_a_torn_line_spoils_only_itself(path):
    orders = ControlFile(path)
    with path.open("ab") as torn:
        torn.write(b'\n{"mark": "x", "order": "kil')
    made = orders.put(order="stop", by="ada", reason="r", jobs=["a"])
    with path.open("ab") as torn:
        torn.write(b'\n{"mark": "y"}\nnonsense\n')

    assert [each.mark for each in orders.pending()] == [made.mark]
    assert [each.mark for each in ControlFile(path).pending()] == [made.mark]


def test_a_listener_is_told_of_what_another_process_writes(path):
    orders, told = ControlFile(path), threading.Event()
    orders.listen(told.set)
    orders.listen(told.set)
    told.wait(5)
    told.clear()

    pid = os.fork()
    if pid == 0:
        ControlFile(path).put(order="kill", by="ada", reason="r", jobs=["a"])
        os._exit(0)
    os.waitpid(pid, 0)

    assert told.wait(5)
    assert orders.of("a") is not None
    orders.close()


def test_a_long_file_is_shortened_when_nothing_waits(path):
    orders = ControlFile(path)
    for _ in range(3):
        made = orders.put(order="stop", by="ada", reason="x" * 500_000, jobs=["a"])
        orders.entered([made.mark])
    waiting = orders.put(order="stop", by="ada", reason="r", jobs=["b"])

    assert path.stat().st_size > 1_000_000
    assert [each.mark for each in ControlFile(path).pending()] == [waiting.mark]
    orders.entered([waiting.mark])
    fresh = ControlFile(path)
    assert path.stat().st_size == 0
    again = fresh.put(order="stop", by="ada", reason="r", jobs=["c"])
    assert orders.pending() == fresh.pending() == [again]


def test_it_is_for_its_owner_alone_and_one_line_is_one_json_object(path):
    ControlFile(path).put(order="stop", by="ada", reason="r", jobs=["a"])

    assert path.stat().st_mode & 0o077 == 0
    lines = [line for line in path.read_bytes().split(b"\n") if line]
    assert [json.loads(line)["jobs"] for line in lines] == [["a"]]
