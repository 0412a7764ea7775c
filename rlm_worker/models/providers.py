"""Every provider pydantic-ai knows, behind our port: `pydantic_ai.direct`, one request a call, the SDKs' own retries off.

The one module that imports pydantic_ai; it is heavy, so nothing imports this module before a provider is named.
"""

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from decimal import Decimal
from typing import Literal

from pydantic import JsonValue
from pydantic_ai import exceptions as failed
from pydantic_ai.direct import model_request
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    UserContent,
    UserPromptPart,
)
from pydantic_ai.models import Model as ProviderModel
from pydantic_ai.models import ModelRequestParameters, infer_model
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIChatModelSettings, OpenAIResponsesModel
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider
from pydantic_core import to_json, to_jsonable_python

from rlm_worker.models.answers import Choice, closed_choice, label_probability, parse_json, tokens_of_logprobs
from rlm_worker.models.errors import (
    Malformed,
    ModelError,
    NotAuthorised,
    Overloaded,
    RateLimited,
    Refused,
    UnknownModel,
    Unreachable,
)
from rlm_worker.models.failures import error_for_status, excerpt
from rlm_worker.models.openai_wire import TOP_LOGPROBS, parse_endpoint
from rlm_worker.models.port import (
    AS_IT_IS,
    Completion,
    Estimate,
    JsonObject,
    Message,
    PriceRow,
    Sampling,
    TokenUsage,
)
from rlm_worker.models.prices import Listed, Price, SetByHand, estimate
from rlm_worker.models.settings import ModelSettings

# Extras of the custody distribution, by provider; the others come with pydantic-ai's own extras.
_EXTRAS = {
    "anthropic": "anthropic",
    "google": "google",
    "bedrock": "bedrock",
    "mistral": "mistral",
    "groq": "groq",
}
_RENAMED = {"google-gla": "google", "google-vertex": "google-cloud"}


def open_provider(name: str, *, settings: ModelSettings) -> "DirectModel":
    """A model by its provider's name, for example openai:gpt-5.5."""
    provider, _, model_name = name.partition(":")
    provider = _RENAMED.get(provider, provider)
    if provider == "bedrock":
        # The one client that takes no number of retries with a request: it reads it when it is made.
        os.environ["AWS_MAX_ATTEMPTS"] = "1"
    try:
        model = infer_model(f"{provider}:{model_name}")
    except ImportError as error:
        extra = _EXTRAS.get(provider)
        what = f"custody[{extra}]" if extra else f"pydantic-ai-slim[{provider}]"
        raise UnknownModel(
            name, f"the client of {provider} is not installed; run: pip install '{what}'"
        ) from error
    except failed.UserError as error:
        if "environment variable" in str(error):
            wanted = str(error).split(" or pass", 1)[0].replace("`", "")
            raise NotAuthorised(name, f"{provider} is not set up. {wanted}") from error
        raise UnknownModel(name, f"{provider} has no such model ({excerpt(str(error))})") from error
    if "max_retries" in model.unsupported_settings and provider != "bedrock":
        raise UnknownModel(
            name,
            f"the client of {provider} sends requests again by itself, which nobody here could count; "
            "name the model by the provider's OpenAI-compatible URL: https://host/v1#model",
        )
    listed = Listed(model_name, provider_url=model.base_url, provider_id=model.system)
    price = SetByHand(settings.price) if settings.price else listed
    return DirectModel(name, model=model, price=price, temperature=settings.temperature)


def open_compatible_url(
    name: str, *, settings: ModelSettings, price: Price, api_key: str | None
) -> "DirectModel":
    """A model at an OpenAI-compatible URL through the SDK: for networks where only a proxy leads out."""
    endpoint = parse_endpoint(name)
    provider = OpenAICompatibleProvider("compatible", base_url=endpoint.base_url, api_key=api_key)
    model = OpenAIChatModel(endpoint.model, provider=provider)
    return DirectModel(name, model=model, price=price, temperature=settings.temperature)


class DirectModel:
    """A Model that asks through pydantic_ai.direct."""

    def __init__(
        self, name: str, *, model: ProviderModel, price: Price, temperature: float | None = None
    ) -> None:
        self._name = name
        self._model = model
        self._price = price
        self._temperature = temperature
        self._open = AsyncExitStack()
        self._is_open = False

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
        if not self._is_open:
            self._is_open = True
            await self._open.enter_async_context(self._model)
        choice = closed_choice(schema)
        wanted = self._settings(
            choice, max_output_tokens=max_output_tokens, timeout_seconds=timeout_seconds, sampling=sampling
        )
        try:
            async with asyncio.timeout(timeout_seconds):
                response = await model_request(
                    self._model,
                    _history(messages),
                    model_settings=wanted,
                    model_request_parameters=self._output(schema),
                )
        except TimeoutError:
            raise self._too_late(timeout_seconds) from None
        except failed.ModelTimeoutError as error:
            raise self._too_late(timeout_seconds) from error
        except (failed.AgentRunError, failed.UserError) as error:
            raise _translated(self._name, error) from error
        return self._completion(response, is_typed=schema is not None, choice=choice)

    async def close(self) -> None:
        await self._open.aclose()
        self._is_open = False

    def _too_late(self, timeout_seconds: float) -> Unreachable:
        what = f"no answer within {timeout_seconds:g} s; ask again or allow more time"
        return Unreachable(self._name, what, may_have_spent=True)

    def _settings(
        self, choice: Choice | None, *, max_output_tokens: int, timeout_seconds: float, sampling: Sampling
    ) -> OpenAIChatModelSettings:
        """Only what the model takes: pydantic-ai warns on every call about a setting it must leave out."""
        wanted = OpenAIChatModelSettings(max_tokens=max_output_tokens, timeout=timeout_seconds, max_retries=0)
        temperature = self._temperature if sampling.temperature is None else sampling.temperature
        if temperature is not None:
            wanted["temperature"] = temperature
        if sampling.top_p is not None:
            wanted["top_p"] = sampling.top_p
        if choice is not None and _tells_logprobs(self._model):
            wanted["openai_logprobs"] = True
            wanted["openai_top_logprobs"] = TOP_LOGPROBS
        for left_out in self._model.unsupported_settings:
            wanted.pop(left_out, None)
        return wanted

    def _output(self, schema: JsonObject | None) -> ModelRequestParameters:
        if schema is None:
            return ModelRequestParameters()
        is_native = self._model.profile.get("supports_json_schema_output", False)
        mode: Literal["native", "prompted"] = "native" if is_native else "prompted"
        shape = OutputObjectDefinition(json_schema=schema, name="answer")
        return ModelRequestParameters(output_mode=mode, output_object=shape, allow_text_output=True)

    def _completion(self, response: ModelResponse, *, is_typed: bool, choice: Choice | None) -> Completion:
        text = "".join(part.content for part in response.parts if isinstance(part, TextPart))
        details = response.provider_details or {}
        if "refusal" in details or (response.finish_reason == "content_filter" and not text):
            said = excerpt(str(details.get("refusal", "content filter")))
            raise Refused(self._name, f"the model declined ({said})", may_have_spent=True)
        usage = TokenUsage(
            input_tokens=response.usage.input_tokens,
            output_tokens=response.usage.output_tokens,
            cached_input_tokens=response.usage.cache_read_tokens,
        )
        tokens = tokens_of_logprobs({"content": to_jsonable_python(_logprobs(response))}) if choice else []
        for place in (details, *(part.provider_details or {} for part in response.parts)):
            place.pop("logprobs", None)  # kilobytes a call, and the probability already tells what they say
        raw: JsonValue = to_jsonable_python(response, fallback=str)
        return Completion(
            text=text,
            value=parse_json(text) if is_typed else None,
            probability=label_probability(choice, tokens) if choice and tokens else None,
            usage=usage,
            cost_usd=self._cost(response, usage),
            model=response.model_name or self._model.model_name,
            finish_reason=response.finish_reason or "stop",
            raw=raw,
        )

    def _cost(self, response: ModelResponse, usage: TokenUsage) -> Decimal | None:
        """By the response's own price context where it comes from the list, else by the price set."""
        if not isinstance(self._price, Listed):
            return self._price.cost(usage)
        try:
            return response.cost().total_price
        except (LookupError, ValueError, AssertionError):
            return self._price.cost(usage)


def _history(messages: Sequence[Message]) -> list[ModelMessage]:
    history: list[ModelMessage] = []
    waiting: list[ModelRequestPart] = []
    for message in messages:
        if message.role == "assistant":
            if waiting:
                history.append(ModelRequest(parts=waiting))
                waiting = []
            history.append(ModelResponse(parts=[TextPart(content=message.content)]))
        elif message.role == "system":
            waiting.append(SystemPromptPart(content=message.content))
        else:
            waiting.append(UserPromptPart(content=_content(message)))
    if waiting:
        history.append(ModelRequest(parts=waiting))
    return history


def _content(message: Message) -> str | list[UserContent]:
    if not message.media:
        return message.content
    return [
        message.content,
        *(BinaryContent(data=media.data, media_type=media.media_type) for media in message.media),
    ]


def _tells_logprobs(model: ProviderModel) -> bool:
    speaks_openai = isinstance(model, OpenAIChatModel | OpenAIResponsesModel)
    profile: Mapping[str, object] = {**model.profile}
    return speaks_openai and not profile.get("openai_supports_reasoning", False)


def _logprobs(response: ModelResponse) -> object:
    if response.provider_details and "logprobs" in response.provider_details:
        return response.provider_details["logprobs"]
    for part in response.parts:
        if isinstance(part, TextPart) and part.provider_details and "logprobs" in part.provider_details:
            return part.provider_details["logprobs"]
    return []


def _translated(name: str, error: Exception) -> ModelError:  # noqa: PLR0911  # a table: one line a category
    """Our error for one of pydantic-ai's, by its category; by the HTTP status where there is one."""
    said = excerpt(str(error))
    match error:
        case failed.ModelHTTPError():
            body = error.body if isinstance(error.body, str) else to_json(error.body, fallback=str).decode()
            headers = {key.lower(): value for key, value in (error.headers or {}).items()}
            return error_for_status(name, error.status_code, body, headers=headers)
        case failed.ModelConnectionError():
            sent = (
                "connect" not in type(error.__cause__.__cause__ if error.__cause__ else None).__name__.lower()
            )
            return Unreachable(
                name, f"{said}; check that the server can be reached, then ask again", may_have_spent=sent
            )
        case failed.ModelRateLimitError():
            return RateLimited(name, f"too many requests ({said})", retry_after_seconds=error.retry_after)
        case failed.ModelAuthenticationError() | failed.ModelQuotaExceededError():
            return NotAuthorised(name, f"the provider refused the key or the account ({said})")
        case failed.ModelNotFoundError():
            return UnknownModel(name, f"the provider has no such model ({said})")
        case failed.ModelUnavailableError() | failed.ModelServerError():
            return Overloaded(
                name, f"the provider cannot answer now ({said}); ask again later", may_have_spent=True
            )
        case failed.ContentFilterError():
            return Refused(name, f"a content filter declined ({said})", may_have_spent=True)
    return Malformed(name, f"request or answer is not understood ({said})", may_have_spent=True)
