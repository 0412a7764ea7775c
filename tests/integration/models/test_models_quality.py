"""The 1.5B model fills types well enough to be the default of predict(): at least 50 of 60 labels."""

import asyncio
import json
import time
from collections.abc import Callable

import pytest

from rlm_worker.models import Message, ModelSettings
from rlm_worker.models.embedded import embedded_model
from rlm_worker.models.port import Completion, Model
from tests.integration.models.labelled import LOG_LABELS, LOG_LINES, REVIEW_LABELS, REVIEWS

TASKS = (
    (
        "component",
        "Which part of the system does this log line complain about?",
        LOG_LABELS,
        "line",
        LOG_LINES,
    ),
    (
        "tone",
        "What is the tone of this review? A plain statement of fact is neutral.",
        REVIEW_LABELS,
        "review",
        REVIEWS,
    ),
)


async def label(
    model: Model, field: str, question: str, labels: tuple[str, ...], about: dict[str, str]
) -> Completion:
    schema = {
        "type": "object",
        "properties": {field: {"type": "string", "enum": list(labels)}},
        "required": [field],
        "additionalProperties": False,
    }
    rule = f"{question} Answer with a JSON object with the key {field!r}, one of {json.dumps(list(labels))}."
    messages = (Message(role="system", content=rule), Message(role="user", content=json.dumps(about)))
    return await model.complete(messages, schema=schema, max_output_tokens=40, timeout_seconds=300)


@pytest.mark.model
@pytest.mark.timeout(1200)
def test_the_default_model_gives_at_least_50_of_60_labels(
    settings_with: Callable[[str], ModelSettings],
) -> None:
    async def run(settings: ModelSettings) -> tuple[int, list[float], list[float]]:
        model = await embedded_model("qwen2.5-coder-1.5b", settings=settings)
        right, sure_and_right, sure_and_wrong = 0, [], []
        for field, question, labels, key, items in TASKS:
            answers = await asyncio.gather(
                *(label(model, field, question, labels, {key: text}) for text, _ in items)
            )
            for (text, expected), answer in zip(items, answers, strict=True):
                is_right = answer.value == {field: expected}
                right += is_right
                (sure_and_right if is_right else sure_and_wrong).append(answer.probability)
                if not is_right:
                    print(f"{text!r}: {answer.text} (p {answer.probability}), expected {expected}")
        await model.close()
        return right, sure_and_right, sure_and_wrong

    start = time.monotonic()
    right, sure_and_right, sure_and_wrong = asyncio.run(run(settings_with("qwen2.5-coder-1.5b")))
    print(f"{right} of 60 in {time.monotonic() - start:.0f} s")
    assert right >= 50
    told = [p for p in sure_and_right if p is not None]
    assert len(told) >= 0.9 * len(sure_and_right), "a choice comes with its probability"
    wrong = [p for p in sure_and_wrong if p is not None]
    print(
        f"mean probability {sum(told) / len(told):.2f} where right, {sum(wrong) / max(1, len(wrong)):.2f} where wrong"
    )
