"""What a job was charged by stands in its trace, and a limit in money needs a price before the job exists."""

from decimal import Decimal
from importlib.metadata import version

import pytest

from controlplane.bootstrap import open_app
from controlplane.config import Settings
from controlplane.errors import InvalidRequest
from rlm_worker.config import WorkerSettings
from rlm_worker.contracts import Budget
from rlm_worker.contracts.job import ModelDriver
from rlm_worker.models import is_priced
from rlm_worker.models.prices import Listed
from rlm_worker.models.settings import ModelSettings, PricePerMillion
from tests.builders import a_spec
from tests.engine import Ran, attempt, run_job
from tests.integration.controlplane.hands import a_request
from tests.memory_gateway import MemoryGateway
from tests.scripted_model import ScriptedModel, cells

UNPRICED = "http://model.invalid:1/v1#nobody-prices-this"
HAND = ModelSettings(price=PricePerMillion(input_usd=Decimal("0.5"), output_usd=Decimal(2)))
ASK = "labels = predict_batch('n: int -> label: Literal[\"x\"]', [{'n': i} for i in range(5)])"


def test_the_price_of_each_model_is_recorded_once_before_its_first_hold():
    with ScriptedModel(cells(ASK, "SUBMIT(answer='done')")) as root, ScriptedModel() as sub:
        spec = a_spec(model=root.url, sub_model=sub.url)
        ran = run_job(spec, settings=WorkerSettings(models=HAND))

    kinds = [event.kind for event in ran.events]
    priced = ran.of("model_priced")
    assert [event.model for event in priced] == [root.url, sub.url]
    assert {(event.source, event.input_usd, event.output_usd) for event in priced} == {
        ("set_by_hand", Decimal("0.5"), Decimal(2))
    }
    assert kinds.index("model_priced") < kinds.index("model_asked")
    assert len(kinds) - 1 - kinds[::-1].index("model_priced") < kinds.index("subcall_started")
    spent = [event.spend for event in ran.of("model_answered") + ran.of("subcall_finished")]
    by_hand = sum((s.input_tokens * Decimal("0.5") + s.output_tokens * 2) / 1_000_000 for s in spent)
    assert ran.result.usage.cost_usd == by_hand


def test_a_later_attempt_records_what_it_is_charged_by_itself():
    with ScriptedModel(cells("x = 1", "SUBMIT(answer='done')")) as model:
        first = run_job(a_spec(model=model.url))
        at = next(i for i, record in enumerate(first.gateway.records) if record.kind == "cell_finished")
        again = MemoryGateway(first.gateway.spec)
        again.records = first.gateway.records[: at + 1]
        attempt(again)

    assert len(Ran(again).of("model_priced")) == 2


def test_a_listed_price_names_its_row_and_the_version_of_the_list():
    row = Listed("gpt-4o-mini", provider_id="openai").row()

    assert (row.source, row.provider, row.model) == ("genai-prices", "openai", "gpt-4o-mini")
    assert row.version.startswith(version("genai-prices"))
    assert (row.input_usd, row.output_usd) == (Decimal("0.15"), Decimal("0.6"))
    assert row.cached_input_usd == Decimal("0.075")


def test_a_price_with_tiers_names_its_base_and_keeps_the_whole_row():
    row = Listed("gemini-2.5-pro", provider_id="google").row()

    assert row.input_usd == Decimal("1.25")
    assert "tiers" in row.text


def test_an_unlisted_model_has_no_price():
    assert Listed("nobody-prices-this", provider_id="openai").row().source == "unknown"


@pytest.mark.parametrize(
    ("name", "settings", "is_known"),
    [
        ("embedded", ModelSettings(), True),
        ("http://127.0.0.1:9/v1#m", ModelSettings(), True),
        (UNPRICED, ModelSettings(), False),
        (UNPRICED, HAND, True),
        ("openai:gpt-4o-mini", ModelSettings(), True),
        ("openai:nobody-prices-this", ModelSettings(), False),
        ("nobody", ModelSettings(), False),
    ],
)
def test_whether_a_price_is_known_needs_no_key(monkeypatch, name, settings, is_known):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    assert is_priced(name, settings=settings) is is_known


@pytest.mark.parametrize("role", ["root", "predict"])
def test_a_limit_in_money_on_an_unpriced_model_is_refused_before_the_job_exists(tmp_path, role):
    free = "http://127.0.0.1:9/v1#m"
    root, sub = (UNPRICED, free) if role == "root" else (free, UNPRICED)
    app = open_app(Settings(home=tmp_path / "home"))

    with pytest.raises(InvalidRequest, match="price of model") as refused:
        app.submit(a_request(budget=Budget(max_cost_usd=1), driver=ModelDriver(model=root), sub_model=sub))
    assert UNPRICED in str(refused.value)
    assert app.jobs() == []

    by_tokens = app.submit(
        a_request(budget=Budget(max_tokens=1_000), driver=ModelDriver(model=root), sub_model=sub)
    )
    assert by_tokens.state == "queued"
    app.close()
