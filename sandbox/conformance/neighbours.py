"""Cases: two sessions at once, neither of which can see, reach or change the other; and one after the other."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from sandbox.conformance.case import Stand, Trial, case, cases_of


@asynccontextmanager
async def _two(stand: Stand) -> AsyncIterator[tuple[Trial, Trial]]:
    async with stand.open() as one, stand.open() as other:
        yield one, other


@case("Files of one session are not in the other.")
async def files_are_apart(stand: Stand) -> None:
    async with _two(stand) as (one, other):
        wrote = await one.seen("""
wrote = []
for place in (os.getcwd(), os.environ.get('TMPDIR', '/tmp'), '/tmp', '/dev/shm', '/var/tmp', '/run'):
    if tried(lambda: open(place + '/of-another-session', 'w').write('x')) == 1: wrote.append(place)
report(wrote)
""")
        seen = await other.seen(f"""
report([place for place in {wrote!r} + [os.getcwd(), '/tmp', '/dev/shm'] if os.path.exists(place + '/of-another-session')])
""")
        assert wrote, "the code can write nowhere"
        assert not seen, f"seen by the other session in {seen}"


@case("One session's processes can get no signal from the other.")
async def signals_are_apart(stand: Stand) -> None:
    async with _two(stand) as (one, other):
        pid = await one.seen("report(os.getpid())")
        hit = (
            await other.seen(f"""
hit = []
for pid in ({pid}, {one.session.pid}, {other.session.pid}):
    if pid > 1 and pid != os.getpid():
        result = tried(lambda: os.kill(pid, 9))
        if result is None: hit.append(pid)
report(hit)
""")
            if pid != 1
            else []
        )
        await one.expect_alive()
        await other.expect_alive()
        assert not hit, f"signals went to {hit}"


@case("Sessions that are open at once have different users where the host can give them.", needs="uid-each")
async def users_are_apart(stand: Stand) -> None:
    async with _two(stand) as (one, other):
        ids = [await trial.seen("report(os.getuid())") for trial in (one, other)]
        assert ids[0] != ids[1], f"both run as uid {ids[0]}"


@case(
    "Sessions share no namespace, neither with each other nor with the host.",
    needs="pid-ns shared-kernel root-looks",
)
async def namespaces_are_apart(stand: Stand) -> None:
    async with _two(stand) as (one, other):
        for kind in ("pid", "mnt", "net", "ipc", "uts"):
            owners = [
                str(Path(f"/proc/{pid}/ns/{kind}").readlink())
                for pid in (one.session.pid, other.session.pid, "self")
            ]
            assert len(set(owners)) == 3, f"the {kind} namespace is shared: {owners}"


@case(
    "Abstract sockets, System V objects and message queues are no way from one session to the other.",
    needs="seccomp x86_64",
)
async def ipc_is_apart(stand: Stand) -> None:
    async with _two(stand) as (one, other):
        made = await one.seen("""
import socket
held = []
def listen():
    held.append(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
    held[0].bind('\\0between')
report({'abstract': tried(listen), 'shm': call(29, 4711, 4096, 0o1666), 'queue': call(68, 4711, 0o1666),
        'key': call(248, b'user', b'between', b'x', 1, -4)})
""")
        found = await other.seen("""
import socket
report({'abstract': tried(lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b'x', '\\0between')),
        'shm': call(29, 4711, 4096, 0o666), 'queue': call(68, 4711, 0o666), 'key': call(249, b'user', b'between', None, -3)})
""")
        through = {name: result for name, result in found.items() if not isinstance(result, str)}
        assert not through, f"reached from the other session: {through} (made: {made})"


@case(
    "Locks and leases on files that sessions share (libraries, evidence) pass no word between them.",
    needs="seccomp x86_64",
)
async def locks_are_apart(stand: Stand) -> None:
    async with _two(stand) as (one, other):
        code = """
import fcntl
fd = os.open(os.__file__, os.O_RDONLY)
report({'flock': tried(lambda: fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)),
        'lease': tried(lambda: fcntl.fcntl(fd, 1024, 0)),
        'notify': tried(lambda: fcntl.fcntl(os.open(os.path.dirname(os.__file__), os.O_RDONLY), 1026, 1))})
"""
        first, second = await one.seen(code), await other.seen(code)
        taken = {
            name
            for results in (first, second)
            for name, result in results.items()
            if not isinstance(result, str)
        }
        assert not taken, f"taken on a shared file: {sorted(taken)}"


@case("What one session does to the interpreter is not in the next one.")
async def sessions_start_clean(stand: Stand) -> None:
    async with stand.open() as one:
        await one.raw("""
import builtins, sandbox.guest.calls
builtins.poisoned = sys.poisoned = sandbox.guest.calls.poisoned = True
sandbox.guest.calls.host_call = lambda *a: 'forged'
os.environ['POISONED'] = '1'
tried(lambda: open('/tmp/poisoned', 'w').close())
tried(lambda: open('/workspace/json.py', 'w').write('poisoned = True'))
import gc; gc.freeze()
""")
    for _ in range(2):
        async with stand.open() as later:
            found = await later.seen("""
import builtins, sandbox.guest.calls
report([hasattr(builtins, 'poisoned'), hasattr(sys, 'poisoned'), hasattr(sandbox.guest.calls, 'poisoned'),
        'POISONED' in os.environ, os.path.exists('/tmp/poisoned'), os.path.exists('/workspace/json.py')])
""")
            assert not any(found), f"of an earlier session: {found}"


@case("A session that dies takes no other with it.")
async def deaths_are_apart(stand: Stand) -> None:
    async with _two(stand) as (one, other):
        await other.seen("kept = 1\nreport(1)")
        finished = await one.raw("os.kill(os.getpid(), 9)")
        assert finished.state_lost, "the session did not die"
        await other.expect_alive()


CASES = cases_of(dict(globals()))
