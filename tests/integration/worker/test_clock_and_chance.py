"""Time and randomness given to cells: true when a job runs, the same again when it is repeated."""

import asyncio
import time

import pytest

from rlm_worker.replay import verify_replay
from tests.builders import a_spec
from tests.engine import Ran, attempt, run_job
from tests.memory_gateway import MemoryGateway
from tests.scripted_model import ScriptedModel

EVERY_SOURCE = """# %%
import datetime, os, random, secrets, tempfile, time, uuid
print(time.time(), time.time_ns(), time.monotonic(), time.perf_counter_ns(), time.ctime(), time.strftime("%X"))
print(datetime.datetime.now(), datetime.datetime.utcnow(), datetime.datetime.today(), datetime.date.today())
print(datetime.datetime.now(datetime.UTC), time.localtime(), time.gmtime())
print(uuid.uuid1(), uuid.uuid4(), secrets.token_hex(), os.urandom(8), random.random())
print(random.Random().random(), random.SystemRandom().random(), tempfile.mktemp(), {"a", "b", "c"})
# %%
began, turns = time.perf_counter(), 0
while time.perf_counter() - began < 0.05:
    turns += 1
print(turns, time.perf_counter() - began)
async def nap():
    import asyncio
    await asyncio.sleep(0.01)
    return time.time()
print(await nap())
# %%
SUBMIT(answer=f"{datetime.datetime.now()} {uuid.uuid4()}")
"""


def replay(gateway: MemoryGateway):
    return asyncio.run(verify_replay(gateway.spec, gateway.records))


@pytest.mark.requirement("CARD-21", "S3-FIVE-5")
@pytest.mark.parametrize("language", ["open", "strict"])
def test_a_job_that_prints_times_and_random_ids_replays_to_the_same(language):
    source = EVERY_SOURCE
    if language == "strict":
        source = "# %%\nimport datetime, time, uuid, secrets, random\nprint(datetime.datetime.now(), time.time(), uuid.uuid4())\nSUBMIT(answer=secrets.token_hex() + str(random.random()))\n"
    ran = run_job(a_spec(playbook=source, sandbox_policy={"language": language}))

    report = replay(ran.gateway)

    assert ran.result.status == "succeeded", ran.result.message
    assert report.divergence is None
    assert report.verified


def test_a_cell_reads_true_time_and_true_elapsed_time():
    before = time.time()
    ran = run_job(
        a_spec(
            playbook="# %%\nimport time\nt = time.monotonic()\ntime.sleep(0.2)\n"
            "SUBMIT(now=time.time(), took=time.monotonic() - t)\n",
            output="now: float, took: float",
        )
    )
    after = time.time()

    assert before <= ran.output["now"] <= after
    assert 0.2 <= ran.output["took"] <= after - before


def test_later_cells_never_read_an_earlier_time():
    ran = run_job(
        a_spec(
            playbook="# %%\nimport time\na = [time.time_ns() for _ in range(5000)]\n"
            "# %%\na += [time.time_ns() for _ in range(5000)]\n"
            "SUBMIT(rises=all(x < y for x, y in zip(a, a[1:])))\n",
            output="rises: bool",
        )
    )

    assert ran.output == {"rises": True}


def test_a_cell_that_looks_at_the_clock_a_million_times_leaves_a_short_record():
    ran = run_job(
        a_spec(playbook="# %%\nimport time\nfor _ in range(1_000_000): time.time()\nSUBMIT(answer='x')\n")
    )

    read = [number for event in ran.of("clock_read") for number in event.read]
    assert sum(read[1::2]) == 1_000_000
    assert len(read) < 50_000
    assert replay(ran.gateway).verified


def test_a_time_that_a_question_holds_is_recorded_before_the_question_is_answered():
    """A worker that dies in the cell: the next attempt asks the same question, and finds it answered."""
    playbook = (
        "# %%\nimport datetime\n"
        'label = predict(\'at: str -> label: Literal["x","y"]\', at=str(datetime.datetime.now())).label\n'
        "SUBMIT(answer=label)\n"
    )
    with ScriptedModel() as model:
        first = run_job(a_spec(playbook=playbook, model=model.url)).gateway
        kinds = [record.kind for record in first.records]
        assert kinds.index("clock_read") < kinds.index("subcall_finished")
        again = MemoryGateway(first.spec)
        again.records = first.records[: kinds.index("subcall_finished") + 1]
        attempt(again)
        asked = model.calls

    assert Ran(again).result.status == "succeeded"
    assert asked == 1
    assert replay(again).verified


def test_a_variable_that_comes_out_otherwise_is_named_with_its_cell():
    """What a job reads from outside its record, here the kernel's own random numbers, is a finding."""
    ran = run_job(
        a_spec(
            playbook="# %%\nfixed = 1\n# %%\nseen = {'k': [open('/dev/urandom', 'rb').read(8)]}\n# %%\nSUBMIT(answer='x')\n"
        )
    )

    report = replay(ran.gateway)

    assert report.divergence is not None
    assert (report.divergence.iteration, report.divergence.what) == (2, "variable seen")
    assert not report.verified


def test_a_resumed_job_records_which_variable_diverged():
    spec = a_spec(playbook="# %%\nseen = open('/dev/urandom', 'rb').read(8)\n# %%\nSUBMIT(answer='x')\n")
    first = run_job(spec).gateway
    cut = next(record.seq for record in first.records if record.kind == "cell_finished") + 1
    again = MemoryGateway(spec)
    again.records = first.records[:cut]

    attempt(again)

    diverged = Ran(again).of("diverged")
    assert [event.iteration for event in diverged] == [1]
    assert "variable seen" in diverged[0].detail


def test_what_hangs_on_an_address_is_no_difference():
    ran = run_job(
        a_spec(
            playbook="# %%\nclass Thing:\n    def __init__(self): self.n = 1\nthing, gen, other = Thing(), (i for i in 'ab'), object()\n"
            "import threading\nlock = threading.Lock()\nkinds = {Thing, int}\n# %%\nSUBMIT(answer='x')\n"
        )
    )

    assert replay(ran.gateway).verified
