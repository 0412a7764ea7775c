"""Models by name: `connect` gives one behind the port. Heavy clients are imported only when a name needs them."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rlm_worker.models.errors import ModelError, UnknownModel
from rlm_worker.models.port import Completion, Estimate, JsonObject, Message, Model, TokenUsage
from rlm_worker.models.settings import ModelSettings

if TYPE_CHECKING:
    from rlm_worker.models.openai_wire import Endpoint
    from rlm_worker.models.prices import Price

__all__ = [
    "Completion",
    "Estimate",
    "JsonObject",
    "Message",
    "Model",
    "ModelError",
    "ModelSettings",
    "TokenUsage",
    "connect",
    "default_root",
    "default_sub",
    "is_priced",
]

EMBEDDED = "embedded"
_URL = ("http://", "https://")

# By the variable that holds the key: the model that writes the cells, and the one that fills the types.
_BY_KEY = {
    "OPENAI_API_KEY": ("openai:gpt-5.5", "openai:gpt-5.4-mini"),
    "ANTHROPIC_API_KEY": ("anthropic:claude-sonnet-5-5", "anthropic:claude-haiku-5-5"),
    "GOOGLE_API_KEY": ("google:gemini-3.1-pro-preview", "google:gemini-3.8-flash"),
    "GEMINI_API_KEY": ("google:gemini-3.1-pro-preview", "google:gemini-3.8-flash"),
    "MISTRAL_API_KEY": ("mistral:mistral-large-latest", "mistral:mistral-small-latest"),
    "GROQ_API_KEY": ("groq:openai/gpt-oss-120b", "groq:openai/gpt-oss-20b"),
}


def default_root(env: Mapping[str, str]) -> str | None:
    """The model that writes the cells: the one set, or that of the first provider with a key; None without either."""
    return env.get("CUSTODY_MODEL") or next(
        (root for key, (root, _) in _BY_KEY.items() if env.get(key)), None
    )


def default_sub(env: Mapping[str, str]) -> str:
    """The model that answers predict(): the one set, or that of the first provider with a key, or the embedded one.

    A server of one's own that was set for the root answers these too.
    """
    if chosen := env.get("CUSTODY_SUB_MODEL"):
        return chosen
    if (root := env.get("CUSTODY_MODEL", "")).startswith(_URL):
        return root
    return next((sub for key, (_, sub) in _BY_KEY.items() if env.get(key)), EMBEDDED)


def connect(name: str, *, settings: ModelSettings) -> Model:
    """The model of this name. Raises UnknownModel, NotAuthorised or ModelUnavailable, each saying what to do next.

    Connections, and the embedded model's process, begin with the first call.

    A name that is a URL may come with a key: names must come from people or policy, never from a cell.
    """
    if name == EMBEDDED or name.startswith(f"{EMBEDDED}:"):
        from rlm_worker.models.embedded import EmbeddedModel  # noqa: PLC0415  # lazy, see above

        return EmbeddedModel(name.partition(":")[2] or None, settings=settings)
    if name.startswith(_URL):
        return _connect_url(name, settings=settings)
    if ":" in name:
        from rlm_worker.models.providers import open_provider  # noqa: PLC0415  # lazy, see above

        return open_provider(name, settings=settings)
    raise UnknownModel(
        name,
        "no model goes by this name. Use a provider's model (openai:gpt-5.5, anthropic:claude-sonnet-5-5, …), "
        "a server of yours (http://host:port/v1#model-name), or the embedded one (embedded, embedded:NAME; "
        "`custody models list` names them)",
    )


def is_priced(name: str, *, settings: ModelSettings) -> bool:
    """Whether a call to this model has a known price, asked without a key: the list is looked up by provider and name."""
    try:
        return connect(name, settings=settings).price_known()
    except ModelError:
        from rlm_worker.models.prices import Listed  # noqa: PLC0415  # lazy, see above

    provider, _, model = name.partition(":")
    if not model or name.startswith(_URL):
        return False
    return settings.price is not None or Listed(model, provider_id=provider.removesuffix("-chat")).is_known()


def _connect_url(name: str, *, settings: ModelSettings) -> Model:
    from rlm_worker.models.openai_wire import WireModel, parse_endpoint  # noqa: PLC0415  # lazy, see above

    endpoint = parse_endpoint(name)
    price = _price_of(endpoint, settings)
    key = settings.openai_key if _is_openai(endpoint, settings) else settings.api_key
    if _needs_proxy(endpoint):
        from rlm_worker.models.providers import open_compatible_url  # noqa: PLC0415  # lazy, see above

        secret = key.get_secret_value() if key else None
        return open_compatible_url(name, settings=settings, price=price, api_key=secret)
    return WireModel(
        name,
        endpoint=endpoint,
        price=price,
        api_key=key,
        temperature=settings.temperature,
        max_connections=settings.max_connections,
    )


def _price_of(endpoint: "Endpoint", settings: ModelSettings) -> "Price":
    from rlm_worker.models.prices import Free, Listed, SetByHand  # noqa: PLC0415  # lazy, see above

    if settings.price is not None:
        return SetByHand(settings.price)
    if _is_loopback(endpoint.origin.host):
        return Free()
    return Listed(endpoint.model, provider_url=endpoint.base_url)


def _is_loopback(host: str) -> bool:
    return host in {"localhost", "::1"} or host.startswith("127.")


def _is_openai(endpoint: "Endpoint", settings: ModelSettings) -> bool:
    """OpenAI's key goes to OpenAI, or where OPENAI_BASE_URL already sends it, and nowhere else."""
    if settings.openai_key is None or settings.api_key is not None:
        return False
    if settings.openai_base_url and endpoint.base_url == settings.openai_base_url.rstrip("/"):
        return True
    return endpoint.origin.is_tls and endpoint.origin.host == "api.openai.com"


def _needs_proxy(endpoint: "Endpoint") -> bool:
    from urllib.request import getproxies, proxy_bypass  # noqa: PLC0415  # lazy, see above

    host = endpoint.origin.host
    if _is_loopback(host) or proxy_bypass(host):
        return False
    proxies = getproxies()
    return bool(proxies.get("https" if endpoint.origin.is_tls else "http") or proxies.get("all"))
