"""Whole jobs through a real `custody-worker` over HTTP: it has a key, a home of its own, and nothing of the server's."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from controlplane.bootstrap import App, open_app
from controlplane.config import Settings
from controlplane.domain.commands import JobRequest
from controlplane.runtime import EmbeddedRuntime
from controlplane.views import JobView
from controlplane.watchdogs import lease_reaper
from controlplane.watchdogs.loop import Loop
from rlm_worker.contracts import Budget
from rlm_worker.contracts.gateway import JOBS_QUEUE, RUN_JOB
from rlm_worker.contracts.job import ArtifactPolicy, ModelDriver, PlaybookDriver
from rlm_worker.contracts.remote import HelloRequest
from rlm_worker.contracts.signature import fields_schema
from tests.gateway_server import GatewayServer, a_key
from tests.remote_worker import RemoteWorker
from tests.scripted_model import ScriptedModel, cells

ROOT = Path(__file__).parents[3]
LOOK = """# %% look
import hashlib
found = {name: evidence[name].text for name in evidence}
SUBMIT(answer=' '.join(sorted(found)) + ' ' + hashlib.sha256(''.join(found[p] for p in sorted(found)).encode()).hexdigest())
"""


@pytest.fixture
def app(tmp_path):
    opened = open_app(Settings(home=tmp_path / "server", lease_seconds=4.0, lease_margin_seconds=1.0))
    yield opened
    opened.close()


@pytest.fixture
def server(app):
    with GatewayServer(app) as serving:
        yield serving


@pytest.fixture
def start(app, server, tmp_path):
    """Starts workers to which the server's home and the evidence are hidden."""
    started: list[RemoteWorker] = []

    def start_one(*options: str, key: str = "", **env: str) -> RemoteWorker:
        hidden = tuple(path for path in (tmp_path / "server", tmp_path / "evidence") if path.exists())
        home = tmp_path / f"worker-{len(started)}"
        started.append(RemoteWorker(server.url, key or a_key(app), home, *options, hidden=hidden, **env))
        return started[-1]

    yield start_one
    for worker in started:
        if worker.process.poll() is None:
            worker.kill()


def a_request(
    *, playbook: str | None = None, model: str = "http://127.0.0.1:9/v1#nobody", **fields
) -> JobRequest:
    driver = PlaybookDriver(name="test", source=playbook) if playbook else ModelDriver(model=model)
    given = {
        "task": "What is in the evidence?",
        "output_schema": fields_schema("answer: str"),
        "budget": Budget(max_subcalls=2_000),
        "driver": driver,
        "sub_model": model,
    }
    return JobRequest(**{**given, **fields})


def wait(
    app: App, job_id: str, until: Callable[[JobView], bool] = lambda job: job.is_terminal, *, seconds=60
) -> JobView:
    deadline = time.monotonic() + seconds
    with app.store.watch() as watch:
        while True:
            watch.read(job_id, steer_seen=0)
            view = app.job(job_id)
            if until(view):
                return view
            assert time.monotonic() < deadline, f"the job is {view.state}"
            watch.wait(timeout=1)


def run_here(app: App, request: JobRequest) -> JobView:
    with EmbeddedRuntime(app):
        return wait(app, app.submit(request).job_id)


def evidence_in(folder: Path) -> Path:
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "a.txt").write_text("one\n")
    (folder / "empty.txt").write_text("")
    (folder / "deep" / "b.md").write_text("# two\n" * 1_000)
    (folder / "deep" / "er" / "c d.html").write_text("<html><body><p>three</p></body></html>")
    (folder / "large.log").write_text("four " * 600_000)
    return folder


def test_a_job_over_http_gives_the_result_of_one_in_process_and_a_trace_that_verifies(app, start, tmp_path):
    refs = app.stage([evidence_in(tmp_path / "evidence")])
    request = a_request(playbook=LOOK, input_artifacts=refs)
    here = run_here(app, request)
    assert here.state == "succeeded", here.result.message
    start()

    there = wait(app, app.submit(request).job_id)

    assert there.state == "succeeded", there.result.message
    assert there.result.structured_output == here.result.structured_output
    assert app.verify_trace(there.job_id) > 3
    sealed = {
        job.job_id: [r.event["content_digest"] for r in app.trace(job.job_id) if r.kind == "evidence_sealed"]
        for job in (here, there)
    }
    assert sealed[here.job_id] == sealed[there.job_id] != []


def test_files_that_a_job_made_are_on_the_server_before_the_trace_names_them(app, start, tmp_path):
    large = "x" * 20_000_000  # three pieces
    book = f"""# %% write
(workspace / 'out').mkdir()
(workspace / 'out' / 'a.txt').write_text('made')
(workspace / 'out' / 'large.bin').write_text('x' * {len(large)})
(workspace / 'out' / 'empty').write_text('')
SUBMIT(answer='done')
"""
    worker = start()
    policy = ArtifactPolicy(collect=("out/**",))

    done = wait(app, app.submit(a_request(playbook=book, artifact_policy=policy)).job_id)

    assert done.state == "succeeded", done.result.message
    kept = {ref.path: app.settings.artifacts / ref.digest for ref in done.result.artifact_refs}
    assert {path: file.read_text() for path, file in kept.items()} == {
        "out/a.txt": "made",
        "out/large.bin": large,
        "out/empty": "",
    }
    assert sorted(path.name for path in app.settings.artifacts.iterdir()) == sorted(
        path.name for path in kept.values()
    )
    worker.terminate()
    assert worker.ended() == 0
    assert list((tmp_path / "worker-0" / "worker" / "made").iterdir()) == []


def test_evidence_that_changed_since_it_was_staged_is_refused_in_words(app, start, tmp_path):
    evidence = evidence_in(tmp_path / "evidence")
    refs = app.stage([evidence])
    (evidence / "a.txt").write_text("another")
    start()

    done = wait(app, app.submit(a_request(playbook=LOOK, input_artifacts=refs)).job_id)

    assert (done.state, done.result.failure_class) == ("failed", "invalid_request")
    assert "changed since it was staged" in done.result.message


def test_a_model_driven_job_is_stopped_at_once_and_verified(app, start):
    with ScriptedModel(cells("import time\ntime.sleep(600)")) as model:
        start()
        job = app.submit(a_request(model=model.url))
        wait(app, job.job_id, lambda view: view.state == "running")
        app.stop(job.job_id, order="kill", by="ada")
        done = wait(app, job.job_id)

    assert (done.state, done.stop.survivors) == ("stopped", ())
    assert app.verify_trace(job.job_id) > 0


TALKS = (
    "first = predict('t -> label: Literal[\"x\",\"y\"]', t='one').label\nprint(first)",
    "rest = [r.label for r in predict_batch('t -> label: Literal[\"x\",\"y\"]', [{'t': str(i)} for i in range(5)])]\nprint(rest)",
    "SUBMIT(answer=first + ''.join(rest))",
)


@pytest.mark.requirement("LESSON-6")
@pytest.mark.slow
def test_a_worker_that_is_killed_is_followed_by_another_that_pays_nothing_twice(app, start):
    with ScriptedModel(cells(*TALKS)) as model:
        first = start(CUSTODY_CRASH_AT="journal.after.cell_finished")
        job = app.submit(a_request(model=model.url))
        first.ended(seconds=60)
        asked = model.calls
        with EmbeddedRuntimeWithoutWork(app):
            # Its lease runs out; nobody can know that the process is gone.
            start()
            done = wait(app, job.job_id, seconds=60)

    assert done.state == "succeeded", done.result.message
    assert (done.attempts, done.result.structured_output) == (2, {"answer": "x" * 6})
    assert asked > 0
    # Three turns, six questions: none is asked a second time.
    assert model.calls == 3 + 6
    assert app.verify_trace(job.job_id) > 0


@pytest.mark.slow
def test_a_server_that_is_restarted_is_waited_for_and_nothing_is_spent_twice(tmp_path):
    settings = Settings(home=tmp_path / "server", lease_seconds=10.0)
    app = open_app(settings)
    with ScriptedModel(cells(*TALKS), latency_seconds=0.3) as model:
        with GatewayServer(app) as server:
            worker = RemoteWorker(server.url, a_key(app), tmp_path / "worker")
            job = app.submit(a_request(model=model.url))
            wait(app, job.job_id, lambda view: view.state == "running")
            port = server.port
        app.close()
        time.sleep(1.0)  # how long it is away
        app = open_app(settings)
        with GatewayServer(app, port=port):
            done = wait(app, job.job_id)
            worker.terminate()
            assert worker.ended() == 0
    try:
        assert done.state == "succeeded", done.result.message
        assert (done.attempts, model.calls) == (1, 3 + 6)
        assert app.verify_trace(job.job_id) > 0
    finally:
        app.close()


@pytest.mark.requirement("LESSON-3")
@pytest.mark.slow
def test_a_worker_whose_server_is_gone_past_the_lease_kills_its_sandbox_by_itself(tmp_path):
    app = open_app(Settings(home=tmp_path / "server", lease_seconds=3.0))
    with ScriptedModel(cells("import time\ntime.sleep(600)")) as model:
        with GatewayServer(app) as server:
            worker = RemoteWorker(server.url, a_key(app), tmp_path / "worker")
            job = app.submit(a_request(model=model.url))
            wait(app, job.job_id, lambda view: view.state == "running")
            sleeping = await_cells(worker.process.pid)
        gone_at = time.monotonic()
        while sleeping & descendants(worker.process.pid) and time.monotonic() < gone_at + 10:
            time.sleep(0.02)
        fenced = time.monotonic() - gone_at
        worker.await_line("attempt_lost", seconds=20)
    worker.kill()
    app.close()

    # The last renewal was sent before the server was gone.
    assert fenced < 3.0, "before the lease could be granted to somebody else"


def test_a_worker_that_is_told_to_end_hands_its_job_back_and_says_so_by_its_exit(app, start):
    with ScriptedModel(cells("import time\ntime.sleep(600)")) as model:
        worker = start("--drain-seconds", "0.1")
        job = app.submit(a_request(model=model.url))
        wait(app, job.job_id, lambda view: view.state == "running")

        worker.terminate()

        assert worker.ended() == 0
        view = app.job(job.job_id)
        assert (view.state, view.generation) == ("queued", 2)
        app.stop(job.job_id, order="kill")


def test_a_worker_that_reaches_the_queue_takes_its_wake_ups_there(app, start):
    import dramatiq
    from dramatiq.brokers.redis import RedisBroker

    from tests.servers import valkey_url

    url = valkey_url()
    broker = RedisBroker(url=url, namespace="custody", middleware=[])
    start("--redis", url)
    job = app.submit(a_request(playbook="# %% answer\nSUBMIT(answer='from the queue')"))
    broker.declare_queue(JOBS_QUEUE)
    given = {"queue_name": JOBS_QUEUE, "actor_name": RUN_JOB, "kwargs": {}, "options": {}}
    broker.enqueue(dramatiq.Message(args=(job.job_id, job.generation), **given))

    done = wait(app, job.job_id)

    assert (done.state, done.result.structured_output) == ("succeeded", {"answer": "from the queue"})


@pytest.mark.parametrize(
    ("given", "code", "said"),
    [
        ({"key": "cst_0011223344556677_" + "0" * 64}, 4, "does not accept the key"),
        ({"key": "no key\x7f"}, 2, "characters that no key has"),
    ],
)
def test_a_worker_that_is_not_let_in_says_why_in_a_paragraph(app, start, given, code, said):
    worker = start(**given)

    assert worker.ended() == code
    assert said in worker.said
    assert "Traceback" not in worker.said


def test_a_worker_of_another_protocol_says_what_to_run_instead(app, server, tmp_path, monkeypatch):
    from rlm_worker.remote import command
    from rlm_worker.remote.options import CannotStart, read_options

    monkeypatch.setattr(
        command, "HelloRequest", lambda **given: HelloRequest(**{**given, "protocols": (99,)})
    )
    monkeypatch.setenv("CUSTODY_WORKER_KEY", a_key(app))
    options = read_options(["--server", server.url, "--home", str(tmp_path)], os.environ)

    with pytest.raises(CannotStart, match="Run the release of custody that the server runs") as told:
        command.run(options)

    assert told.value.code == 4


def test_the_program_imports_nothing_of_the_control_plane(tmp_path):
    """Nor can it: only the worker and the sandbox are there, as in an image that holds nothing else."""
    for package in ("rlm_worker", "sandbox"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    program = (
        "import sys, pkgutil, importlib, rlm_worker.remote as r\n"
        "for m in pkgutil.iter_modules(r.__path__, 'rlm_worker.remote.'): importlib.import_module(m.name)\n"
        "import rlm_worker.job, rlm_worker.actor\n"
        "assert not [n for n in sys.modules if n.split('.')[0] in ('controlplane', 'sqlalchemy', 'psycopg', 'alembic')]\n"
        "from rlm_worker.remote.command import main\n"
        "sys.exit(main(['--server', 'http://127.0.0.1:9', '--patience', '0']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": str(tmp_path),
            "PYTHONSAFEPATH": "1",
            "CUSTODY_WORKER_KEY": "cst_a_b",
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 4, done.stderr
    assert "did not answer" in done.stderr


class EmbeddedRuntimeWithoutWork:
    """The watchdogs of a control plane, without a worker."""

    def __init__(self, app: App) -> None:
        self._loop = Loop("lease_reaper", lambda: reap(app), interval=0.2)

    def __enter__(self):
        self._loop.start()

    def __exit__(self, *_error):
        self._loop.stop()


def reap(app: App) -> None:
    lease_reaper.run_once(app.desk)


def await_cells(pid: int) -> set[int]:
    """Processes in which a cell sleeps, once there is one."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        found = {each for each in descendants(pid) if is_sandboxed(each, worker=pid)}
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError("no sandbox came up")


def is_sandboxed(pid: int, *, worker: int) -> bool:
    """Whether a process lives in namespaces other than its worker's."""
    try:
        return Path(f"/proc/{pid}/ns/pid").readlink() != Path(f"/proc/{worker}/ns/pid").readlink()
    except OSError:
        return False


def descendants(pid: int) -> set[int]:
    """Processes below a process."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue
    found, new = set(), {pid}
    while new:
        new = {child for child, parent in parents.items() if parent in new} - found
        found |= new
    return found
