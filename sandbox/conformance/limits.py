"""Cases: every limit of a policy, asked for in full and a little more."""

import asyncio
import time

from sandbox.conformance.case import Stand, case, cases_of, told
from sandbox.policy import Limits

_MIB = 1 << 20
#: A limit is kept when no more than this is had above it: pages, stacks and buffers count too.
_SLACK = 80 * _MIB


@case(
    "One process that asks for more memory than its limit gets a MemoryError or its death, and the host is unharmed.",
    needs="rlimits",
)
async def memory_of_one_process(stand: Stand) -> None:
    async with stand.open(limits=Limits(memory_bytes=200 * _MIB)) as trial:
        finished = await trial.raw("x = bytearray(400 << 20)\nreport(len(x))")
        failed = finished.error is not None and finished.error.type == "MemoryError"
        assert failed or finished.limit == "memory", f"400 MiB of 200 were had: {told(finished)}"
        if failed:
            await trial.expect_alive()


@case("Many processes together get no more memory than one.", needs="cgroup fork")
async def memory_of_many_processes(stand: Stand) -> None:
    async with stand.open(limits=Limits(memory_bytes=200 * _MIB, processes=16)) as trial:
        finished = await trial.raw("""
children = []
for _ in range(8):
    child = os.fork()
    if child == 0:
        x = b'x' * (60 << 20)
        time.sleep(30)
        os._exit(0)
    children.append(child)
    time.sleep(0.15)
alive = [c for c in children if os.waitpid(c, os.WNOHANG) == (0, 0)]
report(len(alive))
""")
        alive = int(finished.stdout.rpartition(" ")[2]) if finished.outcome == "ok" else 0
        assert finished.state_lost or alive * 60 * _MIB <= 200 * _MIB + _SLACK, (
            f"{alive} processes hold 60 MiB each, of 200 in all: {told(finished)}"
        )


@case(
    "Memory that no process owns (shared mappings, anonymous files) is bounded as well.", needs="memory-total"
)
async def memory_that_is_shared(stand: Stand) -> None:
    async with stand.open(limits=Limits(memory_bytes=200 * _MIB, workspace_bytes=64 * _MIB)) as trial:
        finished = await trial.raw("""
import mmap
held, total, block = [], 0, b'x' * (1 << 20)
def map_shared():
    held.append(mmap.mmap(-1, 32 << 20))
    for _ in range(32): held[-1].write(block)
def fill_memfd():
    held.append(os.memfd_create('x'))
    for _ in range(32): os.write(held[-1], block)
def read_zeros():
    fd = os.open('/dev/zero', os.O_RDONLY)
    held.append(mmap.mmap(fd, 32 << 20, mmap.MAP_SHARED, mmap.PROT_READ))
    sum(held[-1][i] for i in range(0, 32 << 20, 4096))
for way in (map_shared, fill_memfd, read_zeros):
    for _ in range(6):
        if isinstance(tried(way), str): break
        total += 32
        print('had', total, flush=True)
report(total)
""")
        had = max(
            [int(line.split()[1]) for line in finished.stdout.splitlines() if line.startswith("had")],
            default=0,
        )
        # A kernel of its own lives in the same group, and gets room for it.
        slack = _SLACK if "shared-kernel" in stand.claims else 3 * _SLACK
        assert had * _MIB <= 200 * _MIB + slack, f"{had} MiB of 200 were had: {told(finished)}"


@case(
    "The workspace and the temporary directory hold what the policy gives them, in bytes.", needs="mount-ns"
)
async def disk_bytes(stand: Stand) -> None:
    async with stand.open(limits=Limits(workspace_bytes=16 * _MIB, tmp_bytes=8 * _MIB)) as trial:
        written = await trial.seen("""
def fill(directory):
    total = 0
    try:
        for number in range(64):
            with open(f'{directory}/{number}', 'wb', buffering=0) as file:
                for _ in range(4):
                    total += file.write(b'x' * (1 << 18))
    except OSError as error:
        return [total, errno.errorcode[error.errno]]
    return [total, 'no end']
report({place: fill(place) for place in ('/workspace', '/tmp')})
""")
        for place, most in (("/workspace", 16 * _MIB), ("/tmp", 8 * _MIB)):  # noqa: S108 - the sandbox's own
            total, end = written[place]
            assert total <= most, f"{total} bytes were written to {place}, {most} are given ({end})"
            assert end in {"ENOSPC", "EDQUOT"}, f"{place} ended with {end}"
        await trial.expect_alive()


@case("A file that claims to be larger than the disk cannot be made.")
async def sparse_files(stand: Stand) -> None:
    async with stand.open(limits=Limits(workspace_bytes=16 * _MIB)) as trial:
        result = await trial.seen("""
def grow():
    with open('big', 'wb') as file:
        file.truncate(1 << 40)
    return os.path.getsize('big')
report(tried(grow))
""")
        assert isinstance(result, str) or result <= 16 * _MIB, f"a file of {result} bytes was made"


@case("The number of files is bounded.", needs="mount-ns inodes")
async def inodes(stand: Stand) -> None:
    async with stand.open(limits=Limits(workspace_inodes=500)) as trial:
        count = await trial.seen("""
count = 0
try:
    for count in range(2000): open(f'/workspace/{count}', 'w').close()
except OSError as error:
    pass
report(count)
""")
        assert count <= 500, f"{count} files were made, 500 are given"


@case("Open descriptors are bounded.", needs="rlimits")
async def descriptors(stand: Stand) -> None:
    async with stand.open(limits=Limits(open_files=100)) as trial:
        count = await trial.seen("""
held = []
try:
    for _ in range(500): held.append(os.open('/dev/null', os.O_RDONLY))
except OSError as error:
    pass
count = len(held)
for fd in held: os.close(fd)
report(count)
""")
        assert count <= 100, f"{count} descriptors were opened, 100 are given"
        await trial.expect_alive()


@case("Processes and threads are bounded, and what was started dies with the session.", needs="rlimits")
async def processes_and_threads(stand: Stand) -> None:
    async with stand.open(limits=Limits(processes=20)) as trial:
        forks, threads = await trial.seen("""
import threading
def count(start, most=200):
    for number in range(most):
        try: start()
        except (OSError, RuntimeError): return number
    return most
def fork():
    if os.fork() == 0:
        time.sleep(30)
        os._exit(0)
forks = count(fork)
threads = count(lambda: threading.Thread(target=time.sleep, args=(30,), daemon=True).start())
report([forks, threads])
""")
        assert forks + threads <= 24, f"{forks} processes and {threads} threads, 20 are given"
        report = await trial.session.kill()
        assert not report.survivors, f"left alive: {report.survivors}"


@case("Output is kept up to its limit, counted beyond it, and costs the host no more than that.")
async def output_is_capped(stand: Stand) -> None:
    async with stand.open(limits=Limits(output_bytes=10_000)) as trial:
        finished = await trial.raw(
            "for _ in range(200): os.write(1, b'x' * 50_000)\nfor _ in range(50): os.write(2, b'\\x00\\xff' * 5_000)"
        )
        assert finished.outcome == "ok", told(finished)
        assert len(finished.stdout) <= 10_000, f"{len(finished.stdout)} characters were kept of 10000"
        assert len(finished.stderr) <= 4 * 10_000, f"{len(finished.stderr)} characters were kept of 10000"
        assert finished.stdout_bytes == 10_000_000, f"{finished.stdout_bytes} bytes were counted of 10000000"
        await trial.expect_alive()


@case("Processor time is bounded, also for code that ignores the signal.", needs="rlimits")
async def processor_time(stand: Stand) -> None:
    async with stand.open(limits=Limits(cpu_seconds=1)) as trial:
        started = time.monotonic()
        finished = await trial.raw(
            "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nsum(range(10**12))", deadline=60
        )
        assert finished.outcome == "crashed", f"the code ran on: {told(finished)}"
        assert time.monotonic() - started < 30, "the limit of one second took half a minute"


@case("Code that is at its deadline is interrupted and keeps its variables.")
async def deadline_interrupts(stand: Stand) -> None:
    async with stand.open() as trial:
        await trial.run("kept = 41")
        finished = await trial.run("while True:\n    pass", deadline=0.3)
        assert (finished.outcome, finished.state_lost) == ("timed_out", False), told(finished)
        finished = await trial.run("print(kept + 1)")
        assert finished.stdout.strip() == "42", f"the variables are gone: {told(finished)}"


@case("Code that does not react to the interrupt at its deadline is killed, and the loss is said.")
async def deadline_kills(stand: Stand) -> None:
    async with stand.open(interrupt_grace_seconds=0.3) as trial:
        started = time.monotonic()
        finished = await trial.run("sum(range(10**12))", deadline=0.3)
        assert (finished.outcome, finished.state_lost) == ("timed_out", True), told(finished)
        assert time.monotonic() - started < 10, "the kill took more than ten seconds"
        assert not trial.session.alive, "the session is said to be alive"


@case("A signal handler, a mask or a stopped process does not hold up the deadline.")
async def deadline_cannot_be_dodged(stand: Stand) -> None:
    dodges = (
        "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass",
        "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())\nwhile True: pass",
        "import signal\nos.kill(os.getpid(), signal.SIGSTOP)",
    )

    async def dodge(code: str) -> None:
        async with stand.open(interrupt_grace_seconds=0.3) as trial:
            finished = await trial.raw(code, deadline=0.3)
            assert finished.outcome == "timed_out", told(finished)

    await asyncio.gather(*(dodge(code) for code in dodges))


CASES = cases_of(dict(globals()))
