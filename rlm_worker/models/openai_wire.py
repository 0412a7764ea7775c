"""A lean client of our own for OpenAI-compatible URLs: one POST to chat/completions a call, no SDK between.

Used for the embedded model and for names of the form http(s)://host:port/v1#model, where many short calls are made at once.
"""

import asyncio
from base64 import b64encode
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from pydantic import JsonValue, SecretStr
from pydantic_core import to_json

from rlm_worker.models.answers import (
    Choice,
    closed_choice,
    label_probability,
    parse_json,
    read_body,
    tokens_of_logprobs,
)
from rlm_worker.models.errors import Malformed, ModelError, Refused, UnknownModel, Unreachable
from rlm_worker.models.failures import error_for_status, excerpt
from rlm_worker.models.http1 import CannotConnect, ConnectionBroke, HttpError, Origin, Pool, Response
from rlm_worker.models.lately import Lately
from rlm_worker.models.port import (
    AS_IT_IS,
    Completion,
    Estimate,
    JsonObject,
    Media,
    Message,
    PriceRow,
    Sampling,
    TokenUsage,
    input_token_bound,
)
from rlm_worker.models.prices import Price, estimate
from rlm_worker.models.strict import is_strict

TOP_LOGPROBS = 20  # the most that servers in use give


@dataclass(frozen=True, kw_only=True, slots=True)
class Endpoint:
    """Where the model is: the parsed form of http(s)://host:port/base#model."""

    origin: Origin
    path: str
    base_url: str
    model: str


def parse_endpoint(name: str) -> Endpoint:
    try:
        url = urlsplit(name)
        port = url.port
    except ValueError as error:
        raise UnknownModel(name, f"not a URL ({error}); write http://host:port/v1#model-name") from error
    if url.scheme not in {"http", "https"} or not url.hostname or not url.fragment:
        raise UnknownModel(name, "a model by URL is written http(s)://host:port/v1#model-name")
    if url.username or url.password or url.query:
        raise UnknownModel(
            url.hostname, "a model's URL holds no password and no query; set CUSTODY_API_KEY instead"
        )
    is_tls = url.scheme == "https"
    base = url.path.rstrip("/")
    origin = Origin(url.hostname, port or (443 if is_tls else 80), is_tls)
    base_url = f"{url.scheme}://{url.netloc}{base}"
    return Endpoint(origin=origin, path=f"{base}/chat/completions", base_url=base_url, model=url.fragment)


async def _nothing_to_release() -> None:
    return


class WireModel:
    """A Model at an OpenAI-compatible URL."""

    def __init__(  # settings of one thing, each named
        self,
        name: str,
        *,
        endpoint: Endpoint,
        price: Price,
        api_key: SecretStr | None = None,
        temperature: float | None = None,
        max_connections: int = 128,
        on_close: Callable[[], Awaitable[None]] = _nothing_to_release,
    ) -> None:
        self._name = name
        self._endpoint = endpoint
        self._price = price
        self._secret = api_key.get_secret_value() if api_key else None
        self._temperature = temperature
        self._on_close = on_close
        self._head = _request_head(endpoint, self._secret)
        self._pool = Pool(endpoint.origin, size=max_connections)
        self._lacks: frozenset[str] = frozenset()
        self._choice = Lately(closed_choice)
        self._is_strict = Lately(is_strict)

    @property
    def name(self) -> str:
        return self._name

    def price_known(self) -> bool:
        return self._price.is_known()

    def price_row(self) -> PriceRow:
        return self._price.row()

    def estimate(
        self, messages: Sequence[Message], *, max_output_tokens: int, schema: JsonObject | None = None
    ) -> Estimate:
        return estimate(self._price, messages, max_output_tokens=max_output_tokens, schema=schema)

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        schema: JsonObject | None = None,
        max_output_tokens: int,
        timeout_seconds: float,
        sampling: Sampling = AS_IT_IS,
    ) -> Completion:
        choice = self._choice(schema)
        try:
            async with asyncio.timeout(timeout_seconds):
                response = await self._ask(
                    messages,
                    schema=schema,
                    choice=choice,
                    max_output_tokens=max_output_tokens,
                    sampling=sampling,
                )
        except TimeoutError:
            raise Unreachable(
                self._name,
                f"no answer within {timeout_seconds:g} s; ask again or allow more time",
                may_have_spent=True,
            ) from None
        return self._completion(response, messages=messages, is_typed=schema is not None, choice=choice)

    async def close(self) -> None:
        self._pool.close()
        await self._on_close()

    async def _ask(
        self,
        messages: Sequence[Message],
        *,
        schema: JsonObject | None,
        choice: Choice | None,
        max_output_tokens: int,
        sampling: Sampling,
    ) -> Response:
        """One answer; a server that says it lacks a feature is asked once more without it (nothing was spent)."""
        while True:
            lacks = self._lacks
            body = self._body(messages, schema=schema, choice=choice, max_output_tokens=max_output_tokens)
            body |= self._drawn(sampling)
            response = await self._exchange(body)
            if response.status == 200:
                return response
            text = response.body.decode(errors="replace")
            missing = _feature_missed(response.status, text, body) - lacks
            if not missing:
                raise error_for_status(
                    self._name, response.status, text, headers=response.headers, secret=self._secret
                )
            self._lacks = self._lacks | missing

    async def _exchange(self, body: JsonObject) -> Response:
        payload = to_json(body)
        try:
            return await self._pool.exchange(b"%b%d\r\n\r\n%b" % (self._head, len(payload), payload))
        except CannotConnect as error:
            raise Unreachable(self._name, f"{error}; check that the server runs, then ask again") from error
        except ConnectionBroke as error:
            raise Unreachable(self._name, f"{error}; ask again", may_have_spent=True) from error
        except HttpError as error:
            raise Malformed(self._name, f"{error}; check the URL", may_have_spent=True) from error

    def _body(
        self,
        messages: Sequence[Message],
        *,
        schema: JsonObject | None,
        choice: Choice | None,
        max_output_tokens: int,
    ) -> JsonObject:
        said: list[JsonValue] = [{"role": m.role, "content": _content(m)} for m in messages]
        limit = "max_completion_tokens" if "max_tokens" in self._lacks else "max_tokens"
        body: JsonObject = {"model": self._endpoint.model, "messages": said, limit: max_output_tokens}
        if schema is not None and "response_format" not in self._lacks:
            form: JsonObject = {"name": "answer", "schema": schema, "strict": self._is_strict(schema)}
            body["response_format"] = {"type": "json_schema", "json_schema": form}
        elif schema is not None:
            rule = f"Answer with JSON only, following this JSON Schema: {to_json(schema).decode()}"
            body["messages"] = [{"role": "system", "content": rule}, *said]
        if choice is not None and "logprobs" not in self._lacks:
            body["logprobs"] = True
            body["top_logprobs"] = TOP_LOGPROBS
        return body

    def _drawn(self, sampling: Sampling) -> JsonObject:
        """How the answer is drawn, as far as the server takes it."""
        temperature = self._temperature if sampling.temperature is None else sampling.temperature
        wanted: JsonObject = {"temperature": temperature, "top_p": sampling.top_p}
        return {
            name: value for name, value in wanted.items() if value is not None and name not in self._lacks
        }

    def _completion(
        self, response: Response, *, messages: Sequence[Message], is_typed: bool, choice: Choice | None
    ) -> Completion:
        try:
            raw = read_body(response.body)
            first = raw["choices"][0]  # type: ignore[index,call-overload]
            message = first["message"]  # type: ignore[index,call-overload]
            text = message.get("content") or ""  # type: ignore[union-attr]
            finish = first.get("finish_reason") or "stop"  # type: ignore[union-attr]
            refusal = message.get("refusal")  # type: ignore[union-attr]
        except (ValueError, LookupError, TypeError, AttributeError):
            said = excerpt(response.body[:2000].decode(errors="replace"), secret=self._secret)
            raise Malformed(
                self._name,
                f"the answer is not a chat completion ({said}); check the URL",
                may_have_spent=True,
            ) from None
        if refusal or (finish == "content_filter" and not text):
            raise Refused(
                self._name, f"the model declined ({excerpt(str(refusal or finish))})", may_have_spent=True
            )
        usage = _usage(raw, messages=messages, text=str(text))
        # Kilobytes a call, and the probability tells what they say: not kept in `raw`.
        logprobs = first.pop("logprobs", None)  # type: ignore[union-attr,call-arg,arg-type]
        sure = label_probability(choice, tokens_of_logprobs(logprobs)) if choice else None
        return Completion(
            text=str(text),
            value=parse_json(str(text)) if is_typed else None,
            probability=sure,
            usage=usage,
            cost_usd=self._price.cost(usage),
            model=str(raw.get("model") or self._endpoint.model),  # type: ignore[union-attr]
            finish_reason=str(finish),
            raw=raw,
        )


def _content(message: Message) -> JsonValue:
    """The text, or its parts where an image or a PDF comes with it."""
    if not message.media:
        return message.content
    return [{"type": "text", "text": message.content}, *map(_part, message.media)]


def _part(media: Media) -> JsonValue:
    url = f"data:{media.media_type};base64,{b64encode(media.data).decode('ascii')}"
    if media.media_type.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": "file", "file": {"filename": "input.pdf", "file_data": url}}


def _request_head(endpoint: Endpoint, secret: str | None) -> bytes:
    if secret is not None and not (secret.isascii() and secret.isprintable()):
        raise ModelError(
            endpoint.base_url, "the API key holds characters no key has; set CUSTODY_API_KEY again"
        )
    host = endpoint.base_url.split("://", 1)[1].split("/", 1)[0]
    lines = [
        f"POST {endpoint.path} HTTP/1.1",
        f"Host: {host}",
        "Content-Type: application/json",
        "Accept: application/json",
    ]
    if secret is not None:
        lines.append(f"Authorization: Bearer {secret}")
    return ("\r\n".join([*lines, "Content-Length: "])).encode("latin-1")


def _feature_missed(status: int, text: str, body: JsonObject) -> frozenset[str]:
    """Which optional part of the request the server says it does not take."""
    if status not in {400, 422, 501}:
        return frozenset()
    told = {
        "logprobs": "logprobs",
        "response_format": "response_format",
        "max_tokens": "max_completion_tokens",
    }
    told |= {"temperature": "temperature", "top_p": "top_p"}
    return frozenset(feature for feature, word in told.items() if feature in body and word in text)


def _usage(raw: JsonValue, *, messages: Sequence[Message], text: str) -> TokenUsage:
    """As the answer reports it; a server that reports nothing is charged the upper guess."""
    told = raw.get("usage") if isinstance(raw, dict) else None
    if not isinstance(told, dict) or "prompt_tokens" not in told:
        return TokenUsage(input_tokens=input_token_bound(messages), output_tokens=len(text.encode()) // 2 + 1)
    details = told.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else 0
    return TokenUsage(
        input_tokens=_count(told["prompt_tokens"]),
        output_tokens=_count(told.get("completion_tokens")),
        cached_input_tokens=_count(cached),
    )


def _count(value: JsonValue) -> int:
    return int(value) if isinstance(value, int | float) and value > 0 else 0
