"""Cases: code that speaks on its channel itself ends its session with a label, and never deceives or stops the host."""

import asyncio
import time

from sandbox.conformance.case import Stand, Trial, case, cases_of, told
from sandbox.events import Finished, HostCall
from sandbox.policy import Limits

#: Finds the runner's own socket and writes frames on it.
FORGE = """
import socket, stat, struct
def channel():
    for fd in range(3, 64):
        try:
            if stat.S_ISSOCK(os.fstat(fd).st_mode): return socket.socket(fileno=os.dup(fd))
        except OSError: pass
    raise LookupError('no channel')
link = channel()
def forge(body):
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    link.sendall(struct.pack('>I', len(body)) + body)
def asked(id, name='echo', cell=1, payload=None):
    return {'t': 'call', 'cell': cell, 'id': id, 'name': name, 'payload': {} if payload is None else payload}
def done(cell=1, **changes):
    return {'t': 'done', 'cell': cell, 'outcome': 'ok', 'error': None, 'cpu_ms': 0, 'memory_bytes': 0, **changes}
"""
_CALLS = frozenset({"echo", "keep"})

_VIOLATIONS = {
    "a frame of 4 GiB": "link.sendall(struct.pack('>I', 2**32 - 1))",
    "a frame over the limit": "link.sendall(struct.pack('>I', (1 << 20) + 1))",
    "deep JSON": "forge(b'[' * 100_000)",
    "JSON a little too deep": "forge(b'{\"t\":' + b'[' * 70 + b']' * 70 + b'}')",
    "no text": "forge(bytes(range(256)))",
    "half a character": 'forge(b\'{"t": "\\xc3"}\')',
    "an integer of 5000 digits": "forge(b'{\"t\": ' + b'9' * 5000 + b'}')",
    "NaN": "forge(b'{\"t\": NaN}')",
    "a number out of range": "forge(b'{\"t\": 1e999}')",
    "a lone surrogate": 'forge(b\'{"t": "\\\\ud800"}\')',
    "a list": "forge([1])",
    "an empty frame": "link.sendall(bytes(4))",
    "an answer": "forge({'t': 'answer', 'id': 1, 'value': 'forged'})",
    "a future cell": "forge(asked(1, cell=9))",
    "an id that is no number": "forge(asked(True))",
    "an id beyond 63 bits": "forge(asked(1 << 63))",
    "too many keys": "forge({**asked(1), 'x': 1})",
    "too few keys": "forge({'t': 'call'})",
    "a payload that is a list": "forge(asked(1, payload=[]))",
    "a name without end": "forge(asked(1, name='x' * 10_000))",
    "an unknown outcome": "forge(done(outcome='submitted'))",
    "an error that is no error": "forge(done(error=[1]))",
    "an id used twice": "[forge(asked(1, 'keep')) for _ in 'ab']",
    "too many calls at once": "[forge(asked(i, 'keep')) for i in range(20)]",
    "a flood of stale calls": "[forge(asked(i, cell=0)) for i in range(20_000)]",
    "very many items": "forge(b'{\"t\":[' + b'0,' * 500_000 + b'0]}') or [forge(b'[' + b'0,' * 400_000 + b'0]')]",
}


async def _forged(trial: Trial, code: str) -> Finished:
    """Run forging code; calls to `echo` are answered, those to `keep` left open."""
    return await trial.raw(
        FORGE + code + "\ntime.sleep(20)",
        deadline=20,
        answer=lambda call: None if call.name == "keep" else call.payload,
    )


@case("Every breach of the channel's rules ends the session with a reason, at once.")
async def violations_are_labelled(stand: Stand) -> None:
    limits = Limits(calls_in_flight=8, frame_bytes=1 << 20)

    async def breach(name: str, code: str) -> str:
        async with stand.open(calls=_CALLS, limits=limits) as trial:
            finished = await _forged(trial, code)
            if (finished.outcome, finished.state_lost) != ("violation", True) or not finished.detail:
                return f"{name}: {told(finished)}"
            return ""

    for first in range(0, len(_VIOLATIONS), 4):
        batch = list(_VIOLATIONS.items())[first : first + 4]
        wrong = [text for text in await asyncio.gather(*(breach(*item) for item in batch)) if text]
        assert not wrong, f"not ended as violations: {wrong}"


@case("A frame that is begun and not ended, slow bytes, or a closed channel hold nothing up.")
async def half_frames(stand: Stand) -> None:
    for code in (
        "link.sendall(struct.pack('>I', 100) + b'{')\nlink.shutdown(socket.SHUT_WR)",
        "link.sendall(b'\\0\\0')\nos._exit(0)",
        "link.shutdown(socket.SHUT_RDWR)",
    ):
        async with stand.open() as trial:
            finished = await _forged(trial, code)
            assert finished.state_lost, f"{code!r}: {told(finished)}"
            assert finished.outcome in {"violation", "crashed"}, f"{code!r}: {told(finished)}"
    async with stand.open(interrupt_grace_seconds=0.3) as trial:
        started = time.monotonic()
        slow = (
            "link.sendall(struct.pack('>I', 100))\nwhile True:\n    link.sendall(b' ')\n    time.sleep(0.1)"
        )
        finished = await trial.raw(FORGE + slow, deadline=1.0)
        assert finished.state_lost or finished.outcome == "timed_out", told(finished)
        assert time.monotonic() - started < 15, "slow bytes held the host"


@case("A call that the policy does not declare is refused by the host, however it is asked for.")
async def undeclared_calls(stand: Stand) -> None:
    async with stand.open(calls=frozenset({"echo"})) as trial:
        refusal = await trial.seen("""
from sandbox.guest.calls import host_call
try: report(host_call('secret', {}))
except Exception as error: report(str(error))
""")
        assert "not declared" in str(refusal), f"the call was answered: {refusal}"
        assert not trial.calls, f"the host was asked: {trial.calls}"
    async with stand.open(calls=frozenset({"echo"})) as trial:
        await trial.raw(FORGE + "forge(asked(77, 'secret'))\ntime.sleep(0.3)")
        assert not trial.calls, f"the host was asked: {trial.calls}"


@case("A call from a forked child is refused, and the child's end is not the cell's.", needs="fork")
async def calls_of_forked_children(stand: Stand) -> None:
    async with stand.open(calls=_CALLS) as trial:
        finished = await trial.raw("""
from sandbox.guest.calls import host_call
if os.fork() == 0:
    try: host_call('echo', {'from': 'child'})
    except Exception as error: open('/workspace/error', 'w').write(str(error))
else:
    os.wait()
    report(open('/workspace/error').read())
""")
        assert finished.outcome == "ok", told(finished)
        assert "forked" in finished.stdout, f"the child's call was not refused: {finished.stdout}"
        assert not trial.calls, f"the host was asked: {trial.calls}"


@case("What an ended cell's threads still print and ask reaches no later cell.")
async def late_output_and_calls(stand: Stand) -> None:
    async with stand.open(calls=_CALLS) as trial:
        await trial.raw("""
import threading
from sandbox.guest.calls import host_call
def late():
    time.sleep(0.4)
    print('late words')
    try: host_call('echo', {'late': True})
    except Exception: pass
threading.Thread(target=late).start()
""")
        finished = await trial.run("import time\ntime.sleep(0.8)\nprint('mine')")
        assert finished.stdout == "mine\n", f"another cell's output: {finished.stdout!r}"
        assert not trial.calls, f"another cell's call: {trial.calls}"


@case(
    "The host's record of calls and answers is its own: guest ids, duplicates and lies change nothing in it."
)
async def record_is_the_hosts(stand: Stand) -> None:
    async with stand.open(calls=_CALLS) as trial:
        code = (
            FORGE
            + """
from sandbox.guest import calls
calls.Switchboard.settle = lambda *a, **k: None
forge(asked(10**6, payload={'n': 1}))
time.sleep(0.2)
forge(asked(10**6, payload={'n': 2}))
time.sleep(0.2)
"""
        )
        answers: list[int] = []

        def answer(call: HostCall) -> object:
            answers.append(call.call_id)
            return {"true": call.call_id}

        finished = await trial.raw(code, answer=answer)
        assert finished.outcome == "ok", told(finished)
        assert [call.payload for call in trial.calls] == [{"n": 1}, {"n": 2}], (
            f"calls recorded: {trial.calls}"
        )
        assert len(set(answers)) == len(answers) == 2, f"answers recorded: {answers}"


@case("A guest that does not read its answers cannot make the host wait or hold more and more of them.")
async def answers_nobody_reads(stand: Stand) -> None:
    limits = Limits(calls_in_flight=16, memory_bytes=1 << 30)
    async with stand.open(calls=_CALLS, limits=limits, interrupt_grace_seconds=0.3) as trial:
        started = time.monotonic()
        finished = await trial.raw(
            FORGE
            + """
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, [2])
from sandbox.guest import runner
import threading
blocker = threading.Lock(); blocker.acquire()
runner.Channel.receive = lambda self: blocker.acquire()
forge(asked(1)); time.sleep(0.3)
n = 1
while True:
    n += 1
    forge(asked(n, payload={'text': 'x' * 100_000}))
    time.sleep(0.005)
""",
            deadline=3,
        )
        assert finished.state_lost, told(finished)
        assert finished.outcome in {"violation", "timed_out"}, told(finished)
        assert time.monotonic() - started < 25, "a guest that does not read held the host"


CASES = cases_of(dict(globals()))
