"""What a cell can do and what the host learns of it, in real sandboxes."""

import asyncio
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import sandbox
from sandbox import HostCall, Limits, SessionBusy, SessionEnded, UnsendableAnswer


def test_variables_persist_and_survive_a_failed_cell(in_box):
    async def story(box):
        await box.run("x = [1, 2]")
        failed = await box.run("y = 3\nx.append(y)\n1 / 0")

        assert failed.outcome == "error"
        assert not failed.state_lost
        assert await box.value("x, y") == "([1, 2, 3], 3)"

    in_box(story)


def test_the_last_expression_is_shown_and_bounded(in_box):
    async def story(box):
        assert await box.value("'a' + 'b'") == "'ab'"
        assert await box.value("None") == ""
        assert len(await box.value("'a' * 10**6")) < 30_000
        assert len(await box.value("list(range(10**5))")) < 30_000

    in_box(story)


def test_an_error_names_type_message_line_and_shows_only_the_cells_frames(in_box):
    async def story(box):
        await box.run("import json\ndef parse(text):\n    return json.loads(text)")

        error = (await box.run("a = 1\nparse('{')")).error

        assert error.type == "JSONDecodeError"
        assert error.line == 3
        assert "parse('{')" in error.traceback
        assert "return json.loads(text)" in error.traceback
        assert "decoder.py" not in error.traceback

    in_box(story)


def test_a_mistake_of_syntax_is_an_error_with_its_line(in_box):
    async def story(box):
        error = (await box.run("a = 1\nfor in b:\n    pass")).error

        assert (error.type, error.line) == ("SyntaxError", 2)

    in_box(story)


@pytest.mark.parametrize(
    ("code", "type_"),
    [
        ("import sys; sys.exit(3)", "SystemExit"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("class E(Exception):\n    def __str__(self): raise ValueError\nraise E", "E"),
        ("def f(): f()\nf()", "RecursionError"),
        (
            "class M(type):\n    __name__ = property(lambda s: 1 / 0)\nclass E(Exception, metaclass=M): pass\nraise E",
            "Exception",
        ),
        ("raise SyntaxError('x', ([], 1, 1, ''))", "SyntaxError"),
        ("class E(Exception):\n    __traceback__ = property(lambda s: exit(1))\nraise E", "E"),
        (
            "import sys\nclass S:\n    def flush(self): raise SystemExit\nsys.stderr = S()\n1 / 0",
            "ZeroDivisionError",
        ),
        ("raise ValueError('\\ud800')", "ValueError"),
        ("'\\ud800'.encode()", "UnicodeEncodeError"),
    ],
)
def test_whatever_code_raises_is_an_outcome_and_the_session_lives(in_box, code, type_):
    async def story(box):
        finished = await box.run(code)

        assert finished.outcome == "error"
        assert finished.error.type == type_
        assert await box.value("1 + 1") == "2"

    in_box(story)


def test_ordinary_analysis_code_runs(in_box):
    code = """
from dataclasses import dataclass, field
from collections import Counter
import typing
@dataclass
class Row:
    name: str
    tags: list[str] = field(default_factory=list)
counts = Counter()
counts['a'] += 1
rows = [Row('x', ['t'])]
match rows[0]:
    case Row(name=name): found = name
assert typing.get_type_hints(Row)['name'] is str
assert Row.__module__ == '__main__' and __name__ == '__main__'
open('note.txt', 'w').write('kept')
found, counts['a'], rows
"""

    async def story(box):
        assert await box.value(code) == "('x', 1, [Row(name='x', tags=['t'])])"
        assert await box.value("open('note.txt').read()") == "'kept'"

    in_box(story)


def test_await_works_at_the_top_level_and_the_loop_lasts(in_box):
    async def story(box):
        await box.run(
            "import asyncio\nloop = asyncio.get_running_loop() if False else None\nq = asyncio.Queue()\nawait q.put(5)"
        )

        assert await box.value("await q.get()") == "5"
        assert await box.value("sum(await asyncio.gather(*(asyncio.sleep(0, i) for i in range(4))))") == "6"

    in_box(story)


def test_output_is_capped_with_true_totals(in_box):
    async def story(box):
        finished = await box.run(
            "import sys\nfor _ in range(300): print('x' * 9999)\nprint('e', file=sys.stderr)"
        )

        assert finished.stdout_bytes == 3_000_000
        assert len(finished.stdout) == 10_000
        assert (finished.stderr, finished.stderr_bytes) == ("e\n", 2)
        assert "".join(o.text for o in box.outputs if o.stream == "stdout") == finished.stdout

    in_box(story, limits=Limits(output_bytes=10_000))


def test_output_is_decoded_with_replacement_and_controls_are_escaped(in_box):
    async def story(box):
        finished = await box.run(r"import os; os.write(1, b'\xff\x1b[2J\x00ok\r\n\t.'); None")

        assert finished.stdout == "\ufffd\\x1b[2J\\x00ok\\x0d\n\t."

    in_box(story)


@pytest.mark.requirement("LESSON-28")
def test_output_and_calls_of_an_earlier_cells_thread_do_not_reach_a_later_cell(in_box):
    code = """
import threading
from sandbox.guest.calls import host_call, HostCallError
go, ready, seen = threading.Event(), threading.Event(), []
def late():
    go.wait()
    print('late')
    try:
        host_call('echo', {})
    except HostCallError as error:
        seen.append(str(error))
    ready.set()
threading.Thread(target=late, daemon=True).start()
"""

    async def story(box):
        await box.run(code)
        finished = await box.run("go.set(); ready.wait(); print(seen[0])")

        assert "late" not in finished.stdout
        assert "has ended" in finished.stdout
        assert box.calls == []

    in_box(story, calls=frozenset({"echo"}))


def test_a_pool_made_in_one_cell_works_in_the_next(in_box):
    async def story(box):
        await box.run(
            "from concurrent.futures import ThreadPoolExecutor\nfrom sandbox.guest.calls import host_call\n"
            "pool = ThreadPoolExecutor(4)\nlist(pool.map(lambda n: host_call('echo', {'n': n}), range(4)))"
        )

        value = await box.value("[a['n'] for a in pool.map(lambda n: host_call('echo', {'n': n}), range(9))]")

        assert value == str(list(range(9)))

    in_box(story, calls=frozenset({"echo"}))


@pytest.mark.requirement("S3-BOUND-18")
def test_an_undeclared_host_call_is_refused_by_the_host(in_box):
    async def story(box):
        finished = await box.run(
            "from sandbox.guest.calls import host_call\nhost_call('shell', {'cmd': 'id'})"
        )

        assert finished.error.type == "HostCallError"
        assert "'shell' is not declared" in finished.error.message
        assert box.calls == []

    in_box(story, calls=frozenset({"echo"}))


@pytest.mark.parametrize("error", ["SubcallError", "BudgetExceeded", "SubmitRejected", "HostCallError"])
def test_a_refusal_is_an_exception_of_its_class_with_its_detail(in_box, error):
    async def story(box):
        code = f"from sandbox.guest import calls\ntry:\n    calls.host_call('ask', {{}})\nexcept calls.{error} as e:\n    print(e, e.detail)"
        async for event in box.session.execute(code, deadline_seconds=5):
            if isinstance(event, HostCall):
                await box.session.refuse(event.call_id, error=error, message="no", detail={"left": 0})

        assert event.stdout == "no {'left': 0}\n"

    in_box(story, calls=frozenset({"ask"}))


@pytest.mark.parametrize(
    "code",
    [
        (
            "import asyncio\nfrom sandbox.guest.calls import host_call_async as call\n"
            "await asyncio.gather(*(call('ask', {'n': n}) for n in range(6)))"
        ),
        (
            "from concurrent.futures import ThreadPoolExecutor as P\nfrom sandbox.guest.calls import host_call as call\n"
            "list(P(6).map(lambda n: call('ask', {'n': n}), range(6)))"
        ),
    ],
)
def test_calls_run_side_by_side_and_answers_find_their_callers(in_box, code):
    """The host answers only when all six wait, in reverse order."""

    async def story(box):
        waiting = []
        async for event in box.session.execute(code, deadline_seconds=10):
            if isinstance(event, HostCall):
                waiting.append(event)
                if len(waiting) == 6:
                    for call in reversed(waiting):
                        await box.session.answer(call.call_id, call.payload["n"] * 10)

        assert event.stdout.strip() == "[0, 10, 20, 30, 40, 50]"

    in_box(story, calls=frozenset({"ask"}))


def test_more_calls_than_may_be_in_flight_wait_their_turn(in_box):
    async def story(box):
        code = "import asyncio\nfrom sandbox.guest.calls import host_call_async as call\nlen(await asyncio.gather(*(call('echo', {}) for n in range(50))))"

        assert await box.value(code) == "50"

    in_box(story, calls=frozenset({"echo"}), limits=Limits(calls_in_flight=3))


def test_a_payload_that_is_not_json_fails_in_the_cell_and_the_session_lives(in_box):
    async def story(box):
        await box.run("from sandbox.guest.calls import host_call")
        for payload in ("{'a': {1}}", "{'a': float('nan')}", "{'a': 'x' * 2_000_000}"):
            finished = await box.run(f"host_call('echo', {payload})")
            assert finished.error.type == "HostCallError", finished
        assert await box.value("host_call('echo', {'ok': 'é'})") == "{'ok': 'é'}"

    in_box(story, calls=frozenset({"echo"}), limits=Limits(frame_bytes=1 << 20))


def test_an_answer_that_cannot_cross_is_an_error_of_the_host_and_can_be_refused_instead(in_box):
    async def story(box):
        code = "from sandbox.guest.calls import host_call\nhost_call('ask', {})"
        async for event in box.session.execute(code, deadline_seconds=5):
            if isinstance(event, HostCall):
                deep: list = []
                for _ in range(100):
                    deep = [deep]
                with pytest.raises(UnsendableAnswer):
                    await box.session.answer(event.call_id, deep)
                await box.session.refuse(event.call_id, error="SubcallError", message="too deep")

        assert event.error.message == "too deep"

    in_box(story, calls=frozenset({"ask"}))


def test_calls_from_forked_children_are_refused(in_box):
    code = """
import os
from sandbox.guest.calls import host_call, HostCallError
read, write = os.pipe()
if os.fork() == 0:
    try:
        host_call('echo', {})
    except HostCallError as error:
        os.write(write, str(error).encode())
    os._exit(0)
os.wait()
os.read(read, 1000).decode()
"""

    async def story(box):
        assert "forked child" in await box.value(code)
        assert box.calls == []

    in_box(story, calls=frozenset({"echo"}))


def test_a_forked_child_that_reaches_the_end_of_the_cell_does_not_end_it(in_box):
    async def story(box):
        finished = await box.run(
            "import os, time\nchild = os.fork()\nif child:\n    os.wait()\n    print('parent')"
        )

        assert finished.stdout == "parent\n"
        assert (await box.run("import sys\nif os.fork() == 0: sys.exit(3)\nos.wait()[1]")).stdout == "0\n"
        assert await box.value("1") == "1"

    in_box(story)


def test_a_cell_that_replaces_its_output_does_not_silence_the_next(in_box):
    async def story(box):
        await box.run(
            "import sys, io\nclass Bad:\n    def flush(self): raise RuntimeError\nsys.stdout = Bad()"
        )

        assert await box.value("'heard'") == "'heard'"

    in_box(story)


def test_the_standard_library_works_from_disk(in_box):
    code = """
import bz2, email, html, lzma, shutil, sqlite3, ssl, tempfile, urllib.parse, uuid, xml.etree.ElementTree, zoneinfo
base = sqlite3.connect('/workspace/x.db')
base.execute('create table t (a)')
base.commit()
shutil.copy2('/workspace/x.db', '/tmp/y.db')
shutil.copytree('/evidence/json', '/workspace/json')
tempfile.NamedTemporaryFile().write(b'x')
import datetime
datetime.datetime(2026, 1, 1, tzinfo=zoneinfo.ZoneInfo('UTC')).isoformat()
"""

    async def story(box):
        assert await box.value(code) == "'2026-01-01T00:00:00+00:00'"

    in_box(story, evidence=(sandbox.Mount(source=str(Path(json.__file__).parent), target="json"),))


def test_cell_end_ends_the_cell_quietly(in_box):
    async def story(box):
        finished = await box.run(
            "from sandbox.guest.calls import CellEnd\ntry:\n    raise CellEnd\nexcept Exception:\n    print('caught')"
        )

        assert finished.outcome == "ended"
        assert finished.error is None
        assert finished.stdout == ""

    in_box(story)


def test_one_cell_at_a_time_and_none_after_the_end(in_box):
    async def story(box):
        cell = box.session.execute("import time; time.sleep(60)", deadline_seconds=70)
        pending = asyncio.ensure_future(anext(cell))
        await asyncio.sleep(0)
        with pytest.raises(SessionBusy):
            await box.run("1")
        await box.session.kill()
        finished = await pending

        assert (finished.outcome, finished.state_lost) == ("interrupted", True)
        with pytest.raises(SessionEnded):
            await box.run("1")

    in_box(story)


def test_hashing_and_randomness_are_the_same_in_every_zygote():
    """Traces are replayed elsewhere: set order and random() must not depend on the process."""
    program = """
import asyncio, sandbox
async def main():
    session = await sandbox.open_session(sandbox.Policy(seed=7))
    async for event in session.execute("import random; hash('x'), random.random(), list({'a', 'b', 'c'})", deadline_seconds=9):
        pass
    print(event.stdout)
    await session.close()
asyncio.run(main())
"""
    seen = {
        subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout
        for _ in range(2)
    }

    assert len(seen) == 1
    assert seen != {b""}


def test_probe_names_every_layer():
    report = sandbox.probe()

    assert report.usable
    assert {layer.name for layer in report.layers} >= {"seccomp", "landlock", "cgroup", "uid"}


def test_sessions_of_several_event_loops_and_threads_share_the_zygote():
    async def story(number):
        sessions = await asyncio.gather(*(sandbox.open_session(sandbox.Policy()) for _ in range(4)))
        endings = []
        for session in sessions:
            endings += [event async for event in session.execute(f"{number} * 2", deadline_seconds=9)][-1:]
            await session.close()
        return [ending.stdout for ending in endings]

    with ThreadPoolExecutor(3) as pool:
        results = list(pool.map(lambda number: asyncio.run(story(number)), range(3)))

    assert results == [[f"{number * 2}\n"] * 4 for number in range(3)]


def test_the_names_of_a_session_are_there(in_box, tmp_path):
    (tmp_path / "log.txt").write_text("one line")
    mount = sandbox.Mount(source=str(tmp_path / "log.txt"), target="log.txt")

    async def story(box):
        assert (
            await box.value("all(callable(f) for f in (predict, predict_batch, SUBMIT, DRAFT, budget))")
            == "True"
        )
        assert await box.value("list(evidence)") == "['log.txt']"

    in_box(story, evidence=(mount,))


def test_large_calls_wait_in_the_sandbox_while_the_host_holds_enough(in_box):
    """Forty calls of 4 MB: the host reads on only as it answers, and all are answered."""

    async def story(box):
        code = (
            "import asyncio\nfrom sandbox.guest.calls import host_call_async as call\n"
            "text = 'x' * (4 << 20)\nlen(await asyncio.gather(*(call('hold', {'text': text}) for _ in range(40))))"
        )
        waiting, most = [], 0
        async for event in box.session.execute(code, deadline_seconds=30):
            if isinstance(event, HostCall):
                waiting.append(event)
                most = max(most, len(waiting))
                await asyncio.sleep(0.02)
                if box.session._cell.events.empty():
                    for call in waiting:
                        await box.session.answer(call.call_id, 1)
                    waiting.clear()

        assert event.stdout == "40\n"
        assert most <= 17

    in_box(story, calls=frozenset({"hold"}))
