"""The embedded model with real tokens: SmolLM2-135M, which proves the machinery and nothing about quality."""

import asyncio
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import jsonschema_rs
import pytest

from rlm_worker.models import Message, ModelSettings, connect
from rlm_worker.models.embedded import EmbeddedModel, embedded_model
from rlm_worker.models.errors import ContextTooLong, ModelUnavailable, Unreachable

NAME = "smollm2-135m"
SCHEMA = {
    "type": "object",
    "properties": {
        "severity": {"type": "string", "enum": ["low", "high"]},
        "count": {"type": "integer"},
        "words": {"type": "array", "items": {"type": "string", "maxLength": 12}, "maxItems": 2},
    },
    "required": ["severity", "count", "words"],
    "additionalProperties": False,
}
ASK = (Message(role="system", content="Answer with JSON."), Message(role="user", content="3 disks failed."))


@pytest.fixture
def settings(settings_with: Callable[[str], ModelSettings]) -> ModelSettings:
    return settings_with(NAME)


def use(settings: ModelSettings, work: Callable[[EmbeddedModel], Awaitable[object]]) -> object:
    async def run() -> object:
        model = await embedded_model(NAME, settings=settings)
        try:
            return await work(model)
        finally:
            await model.close()

    return asyncio.run(run())


def wait_for_end(pid: int, seconds: float = 20) -> bool:
    """Whether the process ends in time, told by the kernel."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], seconds)[0])
    finally:
        os.close(handle)


USER = """
import asyncio, pathlib, sys
from rlm_worker.models import Message, ModelSettings
from rlm_worker.models.embedded import embedded_model
async def main():
    settings = ModelSettings(models_dir=pathlib.Path(sys.argv[1]), linger_seconds=0.5)
    model = await embedded_model(sys.argv[2], settings=settings)
    answer = await model.complete([Message(role="user", content="Hi")], max_output_tokens=3, timeout_seconds=60)
    print(model.server_pid, answer.usage.output_tokens, flush=True)
    sys.stdin.read()
    await model.close()
asyncio.run(main())
"""


def worker(settings: ModelSettings) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", USER, str(settings.models_dir), NAME]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def server_of(user: subprocess.Popen[str]) -> int:
    pid, tokens = user.stdout.readline().split()
    assert int(tokens) > 0
    return int(pid)


def test_a_typed_answer_follows_its_schema_and_tells_its_usage(settings: ModelSettings) -> None:
    answer = use(
        settings, lambda m: m.complete(ASK, schema=SCHEMA, max_output_tokens=120, timeout_seconds=60)
    )
    jsonschema_rs.validate(SCHEMA, answer.value)
    assert answer.usage.input_tokens > 10
    assert answer.usage.output_tokens > 5
    assert (answer.cost_usd, answer.model) == (0, NAME)
    assert str(settings.models_dir) not in json.dumps(answer.raw)


def test_connect_finds_it_by_name_and_starts_it_with_the_first_call(settings: ModelSettings) -> None:
    async def run() -> tuple[str, str]:
        model = connect(f"embedded:{NAME}", settings=settings)
        assert model.server_pid is None
        answer = await model.complete(ASK, max_output_tokens=4, timeout_seconds=60)
        await model.close()
        return model.name, answer.text

    name, text = asyncio.run(run())
    assert (name, bool(text)) == (f"embedded:{NAME}", True)


def test_more_calls_than_slots_wait_in_the_server(settings: ModelSettings) -> None:
    async def work(model: EmbeddedModel):
        calls = [model.complete(ASK, max_output_tokens=4 + i, timeout_seconds=90) for i in range(6)]
        return await asyncio.gather(*calls)

    answers = use(settings, work)
    assert all(answer.usage.output_tokens <= 4 + i for i, answer in enumerate(answers))


def test_what_does_not_fit_the_context_is_said(settings: ModelSettings) -> None:
    long = (Message(role="user", content="word " * 12_000),)
    with pytest.raises(ContextTooLong):
        use(settings, lambda m: m.complete(long, max_output_tokens=4, timeout_seconds=60))


def test_two_workers_share_one_server_which_ends_with_the_last(settings: ModelSettings) -> None:
    users = [worker(settings), worker(settings)]
    first, second = (server_of(user) for user in users)
    assert first == second
    users[0].communicate()
    assert not wait_for_end(first, seconds=2), "one user is left"
    users[1].communicate()
    assert wait_for_end(first)
    assert not list(settings.models_dir.glob(".*.server.json"))


def test_a_user_killed_outright_is_noticed(settings: ModelSettings) -> None:
    user = worker(settings)
    server = server_of(user)
    user.send_signal(signal.SIGKILL)
    user.communicate()
    assert wait_for_end(server)


def test_the_server_outlives_the_worker_that_started_it(settings: ModelSettings) -> None:
    starter = worker(settings)
    server = server_of(starter)
    other = worker(settings)
    assert server_of(other) == server
    starter.kill()
    starter.communicate()
    assert not wait_for_end(server, seconds=1.5)
    other.communicate()
    assert wait_for_end(server)


def test_a_server_that_dies_is_replaced_by_the_next_call(settings: ModelSettings) -> None:
    async def work(model: EmbeddedModel) -> tuple[int, int]:
        first = model.server_pid
        os.kill(first, signal.SIGKILL)
        assert wait_for_end(first)
        with pytest.raises(Unreachable):
            await model.complete(ASK, max_output_tokens=4, timeout_seconds=20)
        await model.complete(ASK, max_output_tokens=4, timeout_seconds=60)
        return first, model.server_pid

    first, second = use(settings, work)
    assert first != second


def test_only_the_owner_can_read_the_key_and_the_server_wants_it(settings: ModelSettings) -> None:
    async def work(model: EmbeddedModel) -> str:
        (state,) = settings.models_dir.glob(".*.server.json")
        assert state.stat().st_mode & 0o077 == 0
        told = json.loads(state.read_text())
        stranger = connect(f"{told['url']}/v1#{NAME}", settings=ModelSettings())
        try:
            await stranger.complete(ASK, max_output_tokens=4, timeout_seconds=20)
        except Exception as error:  # noqa: BLE001
            return type(error).__name__
        return "answered"

    assert use(settings, work) == "NotAuthorised"


def test_the_server_sees_no_key_of_the_worker(
    settings: ModelSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-worker-secret")

    async def work(model: EmbeddedModel) -> bytes:
        return await asyncio.to_thread(Path(f"/proc/{model.server_pid}/environ").read_bytes)

    assert b"sk-worker-secret" not in use(settings, work)


def test_a_file_that_is_no_model_is_said(tmp_path: Path) -> None:
    (tmp_path / "bad.gguf").write_bytes(b"not a model")
    model = connect(f"embedded:{tmp_path}/bad.gguf", settings=ModelSettings(models_dir=tmp_path))
    with pytest.raises(ModelUnavailable, match="ended at once"):
        asyncio.run(model.complete(ASK, max_output_tokens=4, timeout_seconds=20))


def test_cancelling_while_it_loads_lets_go_of_the_server(settings: ModelSettings) -> None:
    async def run() -> None:
        model = EmbeddedModel(NAME, settings=settings)
        call = asyncio.ensure_future(model.complete(ASK, max_output_tokens=4, timeout_seconds=60))
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await model.close()

    asyncio.run(run())
    other = worker(settings)
    server = server_of(other)
    other.communicate()
    assert wait_for_end(server), "no hold was left behind in this process"
