"""Subcall storms: many questions that are nearly the same, or one failure after the other. Counts; asks nobody."""

import json
from collections import defaultdict

from rlm_worker.contracts import JsonObject, canonical
from rlm_worker.errors import NotAsked
from rlm_worker.models.lately import Lately

_SHORT = 2_000
_NOISE = str.maketrans(dict.fromkeys(".,;:!?'\"`…", " "))


class SubcallStorm(NotAsked):
    """A predict() that is not asked, because those before it led nowhere."""


class StormWatch:
    """What the predict() calls of one REPL look like as a whole, since the last storm."""

    def __init__(self, *, similar: int, failing: int) -> None:
        self._similar = similar
        self._failing = failing
        self._keys: defaultdict[int, set[str]] = defaultdict(set)
        self._schema = Lately(canonical)
        self._streak = 0
        self.storm = ""

    def count(self, key: str, *, schema: JsonObject, inputs: JsonObject) -> None:
        """Count a question, whether it is asked or answered from the record; equal ones count once."""
        keys = self._keys[hash((self._schema(schema), nearly(inputs)))]
        keys.add(key)
        if len(keys) >= self._similar:
            self.storm = self.storm or f"{len(keys)} predict() calls with nearly the same inputs"

    def hear(self, *, ok: bool) -> None:
        """Count an outcome."""
        self._streak = 0 if ok else self._streak + 1
        if self._streak >= self._failing:
            self.storm = self.storm or f"{self._streak} predict() calls in a row failed"

    def check(self) -> None:
        """Refuse to ask while there is a storm."""
        if self.storm:
            raise SubcallStorm(f"not asked: {self.storm}, in this cell and those before it")

    def take(self) -> str:
        """The storm there was, if any; counting begins anew after one."""
        storm = self.storm
        if storm:
            self.restart()
        return storm

    def restart(self) -> None:
        """Begin to count anew: after a storm, and before cells run again that were counted already."""
        self._keys.clear()
        self._streak = 0
        self.storm = ""


def nearly(inputs: JsonObject) -> str:
    """Equal for inputs that differ in case, spaces and punctuation of sentences only; long ones count as they are."""
    text = json.dumps(inputs, ensure_ascii=False, sort_keys=True)
    if len(text) > _SHORT:
        return text
    return " ".join(text.translate(_NOISE).casefold().split())
