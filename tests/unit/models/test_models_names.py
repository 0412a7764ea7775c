"""Names of models: what each form resolves to, what a missing piece says, where keys go, what calls cost."""

import subprocess
import sys
from decimal import Decimal
from typing import get_args

import pytest
from pydantic import SecretStr

from rlm_worker.models import (
    _BY_KEY,
    ModelSettings,
    TokenUsage,
    _connect_url,
    connect,
    default_root,
    default_sub,
)
from rlm_worker.models.errors import ModelError, ModelUnavailable, NotAuthorised, UnknownModel
from rlm_worker.models.failures import error_for_status, excerpt
from rlm_worker.models.openai_wire import parse_endpoint
from rlm_worker.models.prices import Free, Listed
from rlm_worker.models.resets import seconds_until_reset

NONE = ModelSettings()


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        *_BY_KEY,
        "CUSTODY_API_KEY",
        "OPENAI_BASE_URL",
        "HTTPS_PROXY",
        "https_proxy",
        "ALL_PROXY",
        "all_proxy",
    ):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("name", ["gpt-5", "", "nonsense", "openai"])
def test_an_unknown_name_lists_what_could_be_used(name: str) -> None:
    with pytest.raises(UnknownModel, match=r"(?s)openai:.*http://.*embedded"):
        connect(name, settings=NONE)


def test_an_unknown_provider_is_said() -> None:
    with pytest.raises(UnknownModel, match="nosuch"):
        connect("nosuch:thing", settings=NONE)


def test_a_missing_key_names_the_variable_to_set() -> None:
    with pytest.raises(NotAuthorised, match="OPENAI_API_KEY"):
        connect("openai:gpt-5.5", settings=NONE)


def test_a_missing_client_names_the_extra_to_install() -> None:
    pytest.importorskip("pydantic_ai")
    try:
        import anthropic  # noqa: F401
    except ImportError:
        with pytest.raises(UnknownModel, match=r"pip install 'custody\[anthropic\]'"):
            connect("anthropic:claude-haiku-5-5", settings=NONE)
    else:
        pytest.skip("the anthropic client is installed here")


@pytest.mark.parametrize(
    "name", ["http://host/v1", "http:///v1#m", "https://u:p@host/v1#m", "http://host:x/v1#m"]
)
def test_a_url_that_cannot_be_one_says_how_it_is_written(name: str) -> None:
    with pytest.raises(UnknownModel) as raised:
        connect(name, settings=NONE)
    assert ":p@" not in str(raised.value)


def test_a_url_is_taken_apart() -> None:
    endpoint = parse_endpoint("https://llm.example:8443/api/v1/#org/model:tag")
    assert (endpoint.origin.host, endpoint.origin.port, endpoint.origin.is_tls) == ("llm.example", 8443, True)
    assert (endpoint.path, endpoint.model) == ("/api/v1/chat/completions", "org/model:tag")


def test_a_model_that_was_not_pulled_says_how_to_get_it(tmp_path) -> None:
    with pytest.raises(
        ModelUnavailable, match=r"custody models pull qwen2\.5-coder-1\.5b.*qwen2\.5-coder-0\.5b"
    ):
        connect("embedded", settings=ModelSettings(models_dir=tmp_path))
    with pytest.raises(UnknownModel, match="smollm2-135m"):
        connect("embedded:nosuch", settings=ModelSettings(models_dir=tmp_path))
    with pytest.raises(ModelUnavailable, match="there is no file"):
        connect(f"embedded:{tmp_path}/none.gguf", settings=ModelSettings(models_dir=tmp_path))


class TestDefaults:
    def test_without_any_key_there_is_no_root_and_the_embedded_model_answers(self) -> None:
        assert (default_root({}), default_sub({})) == (None, "embedded")

    def test_what_is_set_wins_over_keys(self) -> None:
        env = {"CUSTODY_MODEL": "a:b", "CUSTODY_SUB_MODEL": "embedded", "OPENAI_API_KEY": "k"}
        assert (default_root(env), default_sub(env)) == ("a:b", "embedded")

    def test_a_server_of_ones_own_answers_both(self) -> None:
        env = {"CUSTODY_MODEL": "http://127.0.0.1:8000/v1#m"}
        assert default_sub(env) == default_root(env) == env["CUSTODY_MODEL"]

    def test_a_key_chooses_its_provider(self) -> None:
        assert default_root({"OPENAI_API_KEY": "k"}).startswith("openai:")
        assert default_sub({"GROQ_API_KEY": "k"}).startswith("groq:")

    def test_the_models_chosen_exist_and_have_a_price(self) -> None:
        from pydantic_ai.models import KnownModelName

        known = get_args(KnownModelName.__value__)
        chosen = {name for pair in _BY_KEY.values() for name in pair}
        assert chosen <= set(known)
        for name in chosen:
            provider, _, model = name.partition(":")
            assert Listed(model, provider_id=provider).is_known(), name


class TestKeys:
    def key_for(self, url: str, settings: ModelSettings) -> str | None:
        return _connect_url(url, settings=settings)._secret

    def test_openais_key_goes_to_openai_and_to_the_base_url_set_for_it_only(self) -> None:
        settings = ModelSettings(openai_key=SecretStr("k"), openai_base_url="https://proxy.example/v1/")
        assert self.key_for("https://api.openai.com/v1#m", settings) == "k"
        assert self.key_for("https://proxy.example/v1#m", settings) == "k"
        assert self.key_for("https://evil.example/v1#m", settings) is None
        assert self.key_for("http://api.openai.com/v1#m", settings) is None

    def test_the_key_set_for_urls_goes_to_the_url_named(self) -> None:
        settings = ModelSettings(api_key=SecretStr("mine"), openai_key=SecretStr("k"))
        assert self.key_for("https://llm.example/v1#m", settings) == "mine"

    def test_a_key_that_would_break_the_header_is_refused_without_being_shown(self) -> None:
        with pytest.raises(ModelError) as raised:
            connect("http://127.0.0.1:1/v1#m", settings=ModelSettings(api_key=SecretStr("abc\r\nX: y")))
        assert "abc" not in str(raised.value)

    def test_settings_do_not_show_keys(self) -> None:
        settings = ModelSettings.from_env({"CUSTODY_API_KEY": "hush", "OPENAI_API_KEY": "hush"})
        assert "hush" not in repr(settings)

    @pytest.mark.parametrize(
        "body", ["Incorrect API key: sk-abcdef123456", '{"message": "Bearer abc.def.ghi is wrong"}']
    )
    def test_what_looks_like_a_key_is_cut_from_messages(self, body: str) -> None:
        error = error_for_status("m", 401, body, headers={})
        assert "abc" not in str(error)


class TestPrices:
    def test_loopback_is_free_and_an_unlisted_server_has_no_price(self) -> None:
        local = connect("http://127.0.0.1:1/v1#anything", settings=NONE)
        remote = connect("https://llm.example/v1#gpt-4o-mini", settings=NONE)
        assert (local.price_known(), local.estimate((), max_output_tokens=5).cost_usd) == (True, 0)
        assert (remote.price_known(), remote.estimate((), max_output_tokens=5).cost_usd) == (False, None)

    def test_a_listed_model_is_charged_by_the_list(self) -> None:
        listed = connect("https://api.openai.com/v1#gpt-4o-mini", settings=NONE)
        assert listed.price_known()
        price = Listed("gpt-4o-mini", provider_id="openai")
        whole = price.cost(TokenUsage(input_tokens=1_000_000, output_tokens=0))
        cached = price.cost(
            TokenUsage(input_tokens=1_000_000, output_tokens=0, cached_input_tokens=1_000_000)
        )
        assert whole == Decimal("0.15")
        assert cached < whole
        assert Free().cost(TokenUsage(input_tokens=9, output_tokens=9)) == 0

    def test_a_price_is_read_from_the_environment(self) -> None:
        price = ModelSettings.from_env({"CUSTODY_MODEL_PRICE": "0.15/0.60"}).price
        assert (price.input_usd, price.output_usd) == (Decimal("0.15"), Decimal("0.60"))


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "3"}, 3),
        ({"retry-after-ms": "250"}, 0.25),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0),
        ({"retry-after": "soon"}, None),
        ({}, None),
    ],
)
def test_the_wait_a_server_asks_for_is_read_in_every_form(
    headers: dict[str, str], seconds: float | None
) -> None:
    assert seconds_until_reset(headers) == seconds


def test_an_excerpt_is_one_short_line() -> None:
    assert excerpt("a\x1b[31m\nb" * 200).isprintable()
    assert len(excerpt("x" * 5000)) == 300
    assert excerpt("") == "no reason given"


def test_importing_the_port_imports_no_client() -> None:
    code = "import sys, rlm_worker.models.port; print([m for m in ('pydantic_ai','openai','genai_prices','xllamacpp') if m in sys.modules])"
    seen = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert seen.stdout.strip() == "[]"
