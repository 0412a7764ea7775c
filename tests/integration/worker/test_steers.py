"""An operator's instruction reaches the next turn, stays in the conversation, and is heard once, also after a crash."""

import asyncio
from itertools import pairwise

from rlm_worker.contracts.gateway import Claimed, ClaimRequest, RenewAnswer, Steer
from rlm_worker.job import Attempt, Orders, Parts
from tests.builders import a_spec
from tests.engine import QUICK, Ran
from tests.memory_gateway import MemoryGateway
from tests.scripted_model import ScriptedModel, cells

ASKED = Steer(steer_id=1, text="only 2024")


def attempt_with(gateway: MemoryGateway, *steers: Steer) -> None:
    """One attempt that has heard these steers before its first turn."""
    claimed = gateway.claim(ClaimRequest(worker_id="w", job_id=gateway.spec.job_id, generation=0))
    assert isinstance(claimed, Claimed)

    async def run() -> None:
        orders = Orders()
        orders.hear(RenewAnswer(desired="run", steers=steers, ttl_ms=1_000))
        await Attempt(claimed, Parts(gateway=gateway, worker_id="w", settings=QUICK), orders).run()

    asyncio.run(run())


def prompts(model: ScriptedModel) -> list[list[str]]:
    return [[message["content"] for message in request["messages"]] for request in model.requests]


def test_every_prompt_begins_with_the_one_before_it_steers_included():
    with ScriptedModel(cells("print(1)", "1/0", "SUBMIT(answer='done')")) as model:
        gateway = MemoryGateway(a_spec(model=model.url))
        attempt_with(gateway, ASKED)

    sent = prompts(model)
    assert len(sent) == 3
    assert all(now[: len(before)] == before for before, now in pairwise(sent))
    assert all(sum("only 2024" in message for message in prompt) == 1 for prompt in sent)
    assert len(Ran(gateway).of("steer_observed")) == 1


def test_a_later_attempt_remembers_the_steer_and_does_not_take_it_up_again():
    with ScriptedModel(cells("x = 1", "SUBMIT(answer='done')")) as model:
        first = MemoryGateway(a_spec(model=model.url))
        attempt_with(first, ASKED)
        model.requests.clear()
        kinds = [record.kind for record in first.records]
        gateway = MemoryGateway(first.spec)
        gateway.records = first.records[: kinds.index("cell_finished") + 1]
        attempt_with(gateway, ASKED)

    assert len(Ran(gateway).of("steer_observed")) == 1
    assert [sum("only 2024" in message for message in prompt) for prompt in prompts(model)] == [1]


def test_what_a_model_said_is_shown_to_it_in_its_own_words_before_and_after_a_crash():
    with ScriptedModel(cells("x = 1", "SUBMIT(answer='done')", reasoning="First, I look.")) as model:
        first = MemoryGateway(a_spec(model=model.url))
        attempt_with(first)
        live = prompts(model)[-1][2]
        model.requests.clear()
        kinds = [record.kind for record in first.records]
        gateway = MemoryGateway(first.spec)
        gateway.records = first.records[: kinds.index("cell_finished") + 1]
        attempt_with(gateway)
        resumed = prompts(model)[-1][2]

    said = Ran(first).of("model_answered")[0].text
    assert live == resumed == said
