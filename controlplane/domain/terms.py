"""What a job can be found by, as terms that never change: words of its question, labels, models, its task."""

import hashlib
import re
from collections.abc import Iterable

from rlm_worker.contracts import JobSpec
from rlm_worker.contracts.job import ModelDriver

_WORD = re.compile(r"\w{2,40}")
#: A question has as many words as its author likes; these are found.
MOST_WORDS = 32


def terms_of(spec: JobSpec) -> tuple[str, ...]:
    """Every term of a job: a bounded number."""
    terms = [f"w:{word}" for word in words_in(spec.task)[:MOST_WORDS]]
    terms += [label(name, value) for name, value in spec.labels.items()]
    models = [spec.sub_model, *([spec.driver.model] if isinstance(spec.driver, ModelDriver) else [])]
    return tuple(dict.fromkeys([*terms, *(model(name) for name in models), task(spec.task_id)]))


def words_in(text: str) -> list[str]:
    """Words that a search looks for, each once."""
    return list(dict.fromkeys(_WORD.findall(text.casefold())))


def words(text: str) -> Iterable[str]:
    return (f"w:{word}" for word in words_in(text))


def label(name: str, value: str) -> str:
    return f"l:{_mark(name, value)}"


def model(name: str) -> str:
    return f"m:{_mark(name)}"


def task(task_id: str) -> str:
    return f"t:{_mark(task_id)}"


def _mark(*parts: str) -> str:
    """Of any text a term of the same length."""
    text = "\0".join(parts)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
