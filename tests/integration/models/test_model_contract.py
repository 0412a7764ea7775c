"""One contract, two clients: our own on the wire and pydantic_ai.direct, against a scripted server on loopback."""

import asyncio
import base64
import os
import socket
from collections.abc import Awaitable, Callable
from decimal import Decimal

import pytest
from pydantic import SecretStr
from pydantic_ai.models.openai import OpenAIChatModel

from rlm_worker.models import Message, Model, ModelSettings, TokenUsage, connect
from rlm_worker.models.errors import (
    ContextTooLong,
    Malformed,
    ModelError,
    NotAuthorised,
    Overloaded,
    RateLimited,
    Refused,
    UnknownModel,
    Unreachable,
)
from rlm_worker.models.port import Media, Sampling
from rlm_worker.models.prices import Free, SetByHand
from rlm_worker.models.providers import open_compatible_url
from rlm_worker.models.settings import PricePerMillion
from tests.scripted_model import (
    Answer,
    Cut,
    Fault,
    Hang,
    Raw,
    ScriptedModel,
    always,
    echo_schema,
    hashed_schema,
    in_turn,
    usage_of,
)

KEY = "sk-test-very-secret-0123456789"
LEVELS = {
    "type": "object",
    "properties": {"level": {"type": "string", "enum": ["low", "high"]}},
    "required": ["level"],
    "additionalProperties": False,
}
ASK = (Message(role="system", content="Judge the line."), Message(role="user", content="disk failed"))

Open = Callable[[ScriptedModel], Model]


def _wire(server: ScriptedModel) -> Model:
    return connect(server.url, settings=ModelSettings(api_key=SecretStr(KEY)))


def _direct(server: ScriptedModel) -> Model:
    return open_compatible_url(server.url, settings=ModelSettings(), price=Free(), api_key=KEY)


@pytest.fixture(params=[_wire, _direct], ids=["wire", "direct"])
def open_model(request: pytest.FixtureRequest) -> Open:
    return request.param


def use(model: Model, work: Callable[[Model], Awaitable[object]]) -> object:
    async def run() -> object:
        try:
            return await work(model)
        finally:
            await model.close()

    return asyncio.run(run())


def ask(model: Model, *, messages=ASK, schema=None, timeout_seconds: float = 10):
    return use(
        model,
        lambda m: m.complete(messages, schema=schema, max_output_tokens=40, timeout_seconds=timeout_seconds),
    )


def test_an_answer_is_text_with_the_usage_the_server_reported(open_model: Open) -> None:
    with ScriptedModel(always("fine")) as server:
        answer = ask(open_model(server))
        told = usage_of(server.requests[0], "fine")
    assert (answer.text, answer.value, answer.probability) == ("fine", None, None)
    assert answer.usage == TokenUsage(
        input_tokens=told["prompt_tokens"], output_tokens=told["completion_tokens"], cached_input_tokens=0
    )
    assert (answer.cost_usd, answer.finish_reason, answer.model) == (Decimal(0), "stop", "scripted")


def test_roles_and_contents_arrive_as_they_were_said(open_model: Open) -> None:
    said = (
        *ASK,
        Message(role="assistant", content="low?"),
        Message(role="user", content="Sure? 日本 \u2028 \x00"),
    )
    with ScriptedModel(always("yes")) as server:
        ask(open_model(server), messages=said)
        heard = [(m["role"], m["content"]) for m in server.requests[0]["messages"]]
    assert heard == [(m.role, m.content) for m in said]


def test_how_an_answer_is_drawn_is_sent_only_when_it_is_said(open_model: Open) -> None:
    drawn = Sampling(temperature=0.0, top_p=0.9)
    with ScriptedModel(always("fine")) as server:
        for sampling in (Sampling(), drawn):
            use(
                open_model(server),
                lambda m, said=sampling: m.complete(
                    ASK, max_output_tokens=40, timeout_seconds=10, sampling=said
                ),
            )
        sent = [(r.get("temperature"), r.get("top_p")) for r in server.requests]
    assert sent == [(None, None), (0.0, 0.9)]


def test_a_server_that_takes_no_sampling_is_asked_without() -> None:
    def script(request, n):
        if "top_p" in request:
            return Fault(400, {"error": {"message": "top_p is not supported with this model"}})
        return "fine"

    with ScriptedModel(script) as server:
        answer = use(
            _wire(server),
            lambda m: m.complete(ASK, max_output_tokens=40, timeout_seconds=10, sampling=Sampling(top_p=0.9)),
        )
        assert (answer.text, server.calls) == ("fine", 2)


@pytest.mark.parametrize(
    ("media_type", "kind"), [("image/png", "image_url"), ("application/pdf", "file")], ids=["image", "pdf"]
)
def test_an_image_or_a_pdf_arrives_whole_behind_the_text_and_is_charged_as_reported(
    open_model: Open, media_type: str, kind: str
) -> None:
    data = b"%PDF-1.7 \x00\xff bytes" if kind == "file" else b"\x89PNG\r\n\x1a\n\x00\xff"
    said = Message(role="user", content="What is this?", media=(Media(media_type=media_type, data=data),))
    told = {"prompt_tokens": 1_234, "completion_tokens": 5, "total_tokens": 1_239}
    with ScriptedModel(always(Answer("a page", usage=told))) as server:
        answer = ask(open_model(server), messages=(ASK[0], said))
        text, part = server.requests[0]["messages"][-1]["content"]

    assert text == {"type": "text", "text": "What is this?"}
    assert part["type"] == kind
    url = part["image_url"]["url"] if kind == "image_url" else part["file"]["file_data"]
    assert url == f"data:{media_type};base64,{base64.b64encode(data).decode()}"
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (1_234, 5)


def test_a_schema_is_sent_natively_and_the_value_parsed(open_model: Open) -> None:
    with ScriptedModel(echo_schema) as server:
        answer = ask(open_model(server), schema=LEVELS)
        sent = server.requests[0]["response_format"]
    assert answer.value == {"level": "low"}
    assert sent["type"] == "json_schema"
    assert sent["json_schema"]["schema"]["properties"]["level"]["enum"] == ["low", "high"]


@pytest.mark.parametrize(
    ("written", "value"), [("no json", None), ('```json\n{"level": "low"}\n```', {"level": "low"})]
)
def test_what_does_not_parse_is_no_value_and_is_not_asked_again(
    open_model: Open, written: str, value: object
) -> None:
    with ScriptedModel(always(written)) as server:
        answer = ask(open_model(server), schema=LEVELS)
        assert server.calls == 1
    assert (answer.text, answer.value) == (written, value)


def test_a_choice_comes_with_the_probability_of_the_label(open_model: Open) -> None:
    sure = Answer({"level": "high"}, alternatives={"high": 0.6, "low": 0.2, "medium": 0.2})
    with ScriptedModel(always(sure)) as server:
        answer = ask(open_model(server), schema=LEVELS)
    assert answer.probability == pytest.approx(0.75)  # "medium" is no label
    assert "logprobs" not in str(answer.raw)


def test_cached_input_is_reported(open_model: Open) -> None:
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": 5,
        "total_tokens": 105,
        "prompt_tokens_details": {"cached_tokens": 64},
    }
    with ScriptedModel(always(Answer("x", usage=usage))) as server:
        answer = ask(open_model(server))
    assert answer.usage == TokenUsage(input_tokens=100, output_tokens=5, cached_input_tokens=64)


def test_the_finish_reason_tells_a_cut_answer(open_model: Open) -> None:
    with ScriptedModel(always(Answer("half an ans", finish_reason="length"))) as server:
        assert ask(open_model(server)).finish_reason == "length"


FAULTS = [
    (Fault(429, {"error": {"message": "slow down"}}, {"Retry-After": "7"}), RateLimited),
    (Fault(429, {"error": {"message": "no", "code": "insufficient_quota"}}), NotAuthorised),
    (Fault(503, {"error": {"message": "loading model"}}), Overloaded),
    (Fault(500, "oops"), Overloaded),
    (Fault(401, {"error": {"message": f"Incorrect API key provided: {KEY}"}}), NotAuthorised),
    (Fault(403, {"error": {"message": "not yours"}}), NotAuthorised),
    (Fault(404, {"error": {"message": "The model `x` does not exist"}}), UnknownModel),
    (
        Fault(400, {"error": {"message": "maximum context length is 10", "code": "context_length_exceeded"}}),
        ContextTooLong,
    ),
    (
        Fault(400, {"error": {"message": "request exceeds the available context size (2048 tokens)"}}),
        ContextTooLong,
    ),
    (Fault(400, {"error": {"message": "bad field"}}), Malformed),
    (Fault(400, {"error": {"message": "filtered", "code": "content_filter"}}), Refused),
    (Answer("", refusal="I cannot help with that"), Refused),
    (Raw(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"), Malformed),
]


@pytest.mark.requirement("LESSON-14", "N3-FAIL-11")
@pytest.mark.parametrize(("fault", "error"), FAULTS)
def test_each_failure_says_what_must_happen_next(open_model: Open, fault, error: type[ModelError]) -> None:
    with ScriptedModel(always(fault)) as server:
        with pytest.raises(error) as raised:
            ask(open_model(server))
        assert server.calls == 1, "retries belong to the caller"
    assert server.url in str(raised.value)
    assert KEY not in str(raised.value)


def test_a_rate_limit_carries_the_wait_the_server_asks_for(open_model: Open) -> None:
    with (
        ScriptedModel(always(Fault(429, "{}", {"Retry-After": "7"}))) as server,
        pytest.raises(RateLimited) as raised,
    ):
        ask(open_model(server))
    assert raised.value.retry_after_seconds == 7


def test_a_server_that_is_not_there_is_unreachable_and_nothing_was_spent(open_model: Open) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        server = ScriptedModel(port=taken.getsockname()[1])
        with pytest.raises(Unreachable) as raised:
            ask(open_model(server))
    assert raised.value.may_retry
    assert not raised.value.may_have_spent


@pytest.mark.parametrize("cut", [Cut(0), Cut(40), Cut(150)])
def test_a_broken_connection_may_have_spent(open_model: Open, cut: Cut) -> None:
    with ScriptedModel(always(cut)) as server, pytest.raises(Unreachable) as raised:
        ask(open_model(server))
    assert raised.value.may_have_spent


def test_no_answer_in_time_is_unreachable_and_hangs_up(open_model: Open) -> None:
    with ScriptedModel(always(Hang())) as server:
        with pytest.raises(Unreachable) as raised:
            ask(open_model(server), timeout_seconds=0.3)
        assert server.wait_until(lambda s: s.abandoned == 1)
    assert raised.value.may_have_spent
    assert "0.3 s" in str(raised.value)


def test_cancelling_closes_the_connection_and_the_model_goes_on(open_model: Open) -> None:
    async def work(model: Model) -> str:
        call = asyncio.ensure_future(model.complete(ASK, max_output_tokens=9, timeout_seconds=30))
        await asyncio.to_thread(server.wait_until, lambda s: s.in_flight == 1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert await asyncio.to_thread(server.wait_until, lambda s: s.abandoned == 1)
        return (await model.complete(ASK, max_output_tokens=9, timeout_seconds=30)).text

    with ScriptedModel(in_turn(Hang(), "again")) as server:
        assert use(open_model(server), work) == "again"


@pytest.mark.requirement("S3-RLM-10")
def test_sixty_four_at_once_each_get_their_own_answer_and_usage(open_model: Open) -> None:
    async def work(model: Model):
        asked = [(Message(role="user", content="x" * 40 * i),) for i in range(64)]
        calls = [model.complete(m, schema=LEVELS, max_output_tokens=9, timeout_seconds=60) for m in asked]
        return asked, await asyncio.gather(*calls)

    with ScriptedModel(hashed_schema, latency_seconds=0.2) as server:
        asked, answers = use(open_model(server), work)
        assert server.peak_in_flight == 64
    for (message,), answer in zip(asked, answers, strict=True):
        request = {
            "messages": [{"role": "user", "content": message.content}],
            "response_format": {"json_schema": {"schema": LEVELS}},
        }
        assert answer.value == hashed_schema(request, 0)
        assert answer.usage.input_tokens == usage_of(request, "")["prompt_tokens"]


def test_connections_are_kept_alive(open_model: Open) -> None:
    async def work(model: Model) -> None:
        for _ in range(5):
            await model.complete(ASK, max_output_tokens=9, timeout_seconds=10)

    with ScriptedModel() as server:
        use(open_model(server), work)
        assert (server.calls, server.connections_made) == (5, 1)
        assert server.wait_until(lambda s: s.connections == 0), "close() closes them"


def test_the_key_travels_in_the_header_only(open_model: Open) -> None:
    with ScriptedModel() as server:
        ask(open_model(server))
        assert server.headers[0]["authorization"] == f"Bearer {KEY}"
        assert KEY not in str(server.requests)


def test_the_estimate_is_above_what_is_used(open_model: Open) -> None:
    with ScriptedModel(echo_schema) as server:
        guess = open_model(server).estimate(ASK, max_output_tokens=40, schema=LEVELS)
        answer = ask(open_model(server), schema=LEVELS)
    assert guess.input_tokens >= answer.usage.input_tokens
    assert (guess.output_tokens, guess.cost_usd) == (40, 0)


def test_a_price_set_by_hand_is_charged() -> None:
    price = PricePerMillion(input_usd=Decimal(2), output_usd=Decimal(10))
    usage = {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100}
    with ScriptedModel(always(Answer("x", usage=usage))) as server:
        by_wire = connect(server.url, settings=ModelSettings(price=price))
        by_sdk = open_compatible_url(
            server.url, settings=ModelSettings(), price=SetByHand(price), api_key=None
        )
        for model in (by_wire, by_sdk):
            assert model.price_known()
            assert ask(model).cost_usd == Decimal("0.003")


def test_a_named_provider_is_charged_by_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    usage = {"prompt_tokens": 1_000_000, "completion_tokens": 0, "total_tokens": 1_000_000}
    with ScriptedModel(always(Answer("x", usage=usage))) as server:
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        model = connect("openai-chat:gpt-4o-mini", settings=ModelSettings())
        assert model.price_known()
        assert ask(model).cost_usd == Decimal("0.15")
        assert model.estimate(ASK, max_output_tokens=1_000_000).cost_usd > Decimal("0.60")
        assert server.headers[0]["authorization"] == f"Bearer {KEY}"


class TestWireAlone:
    def test_a_server_without_a_feature_is_asked_again_without_it(self) -> None:
        def script(request, n):
            for feature in ("logprobs", "response_format"):
                if feature in request:
                    return Fault(400, {"error": {"message": f"{feature} is not supported"}})
            return '{"level": "high"}'

        async def work(model: Model):
            first = await model.complete(ASK, schema=LEVELS, max_output_tokens=9, timeout_seconds=10)
            await model.complete(ASK, schema=LEVELS, max_output_tokens=9, timeout_seconds=10)
            return first

        with ScriptedModel(script) as server:
            answer = use(_wire(server), work)
            assert server.calls == 4, "learnt once, kept for the second call"
            assert "JSON Schema" in server.requests[-1]["messages"][0]["content"]
        assert answer.value == {"level": "high"}

    def test_an_answer_without_usage_is_charged_the_upper_guess(self) -> None:
        body = b'{"choices": [{"message": {"content": "hello"}}]}'
        raw = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
        with ScriptedModel(always(Raw(raw))) as server:
            model = _wire(server)
            answer = ask(model)
        assert answer.usage.input_tokens == model.estimate(ASK, max_output_tokens=1).input_tokens
        assert answer.usage.output_tokens >= 1

    @pytest.mark.parametrize(
        "raw",
        [
            b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nnot json!",
            b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnull",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000,
            b"HTTP/1.1 302 Found\r\nLocation: /login\r\nContent-Length: 0\r\n\r\n",
        ],
    )
    def test_a_peer_that_does_not_speak_the_protocol_is_malformed(self, raw: bytes) -> None:
        with ScriptedModel(always(Raw(raw))) as server, pytest.raises(Malformed):
            ask(_wire(server))

    def test_a_chunked_answer_is_read(self) -> None:
        body = b'{"choices": [{"message": {"content": "hello"}}]}'
        chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:7], body[7:]))
        raw = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"
        with ScriptedModel(always(Raw(raw))) as server:
            assert ask(_wire(server)).text == "hello"

    def test_a_thousand_rows_at_64_in_flight_stay_near_the_ideal(self) -> None:
        async def work(model: Model) -> float:
            gate = asyncio.Semaphore(64)

            async def one() -> None:
                async with gate:
                    await model.complete(ASK, schema=LEVELS, max_output_tokens=9, timeout_seconds=30)

            await asyncio.gather(*(one() for _ in range(64)))
            start = asyncio.get_running_loop().time()
            await asyncio.gather(*(one() for _ in range(1000)))
            return asyncio.get_running_loop().time() - start

        with ScriptedModel(latency_seconds=0.02, keep_requests=False) as server:
            took = use(_wire(server), work)
        ideal = 1000 / 64 * 0.02
        assert took < ideal * 8, (
            f"{took:.2f} s; the bench asks for 1.3 with the server in a process of its own"
        )


class TestOneOwnerOfRetries:
    """Our client sends a request once (see each failure above); here: the clients behind pydantic-ai do, too."""

    @pytest.mark.requirement("LESSON-14")
    @pytest.mark.parametrize(
        "fault", [Fault(500, "oops"), Fault(429, "{}", {"Retry-After": "0"}), Fault(408, "late"), Cut(0)]
    )
    def test_an_sdk_with_retries_of_its_own_sends_once(self, monkeypatch, fault) -> None:
        with ScriptedModel(always(fault)) as server:
            monkeypatch.setenv("OPENAI_API_KEY", KEY)
            monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
            with pytest.raises(ModelError):
                ask(connect("openai-chat:gpt-4o-mini", settings=ModelSettings()))
            assert server.calls == 1

    def test_the_one_client_that_reads_it_from_the_environment_is_told(self, monkeypatch) -> None:
        monkeypatch.setenv("AWS_MAX_ATTEMPTS", "5")
        with pytest.raises(ModelError):
            connect("bedrock:some-model", settings=ModelSettings())
        assert os.environ["AWS_MAX_ATTEMPTS"] == "1"

    def test_a_client_whose_retries_cannot_be_turned_off_is_refused(self, monkeypatch) -> None:
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        monkeypatch.setattr(OpenAIChatModel, "unsupported_settings", frozenset({"max_retries"}))
        with pytest.raises(UnknownModel, match="OpenAI-compatible URL"):
            connect("openai-chat:gpt-4o-mini", settings=ModelSettings())
