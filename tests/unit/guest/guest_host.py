"""A host for the guest's names: answers calls in this process, keeps what it was asked, and fills types by rule."""

import asyncio
import hashlib
import json
import re
from typing import Any

from rlm_worker.contracts.signature import Signature
from rlm_worker.schemas import shape_of
from sandbox.guest.calls import BudgetExceeded, CellEnd, SubmitRejected
from sandbox.guest.names import install


class GuestHost:
    """Deterministic: the same inputs always get the same answer, and every answer fits the schema."""

    def __init__(self, *, subcalls: int = 100, params=None, question: str = "", output_schema=None) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.left = subcalls
        self.params = params or {}
        self.question = question
        self.output_schema = output_schema
        self.drafts: list[dict[str, Any]] = []
        self.submitted: dict[str, Any] | None = None
        self.failing_rows = 0
        self.in_flight = self.most_in_flight = 0

    def call(self, name: str, payload: dict[str, Any]) -> Any:
        payload = json.loads(json.dumps(payload, allow_nan=False))
        self.asked.append((name, payload))
        return getattr(self, f"_{name}")(payload)

    async def call_async(self, name: str, payload: dict[str, Any]) -> Any:
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        await asyncio.sleep(0)
        self.in_flight -= 1
        return self.call(name, payload)

    def names(self, evidence_root, workspace=".") -> dict[str, Any]:
        namespace: dict[str, Any] = {"__name__": "__main__"}
        install(
            namespace,
            evidence_root=str(evidence_root),
            workspace=str(workspace),
            call=self.call,
            call_async=self.call_async,
        )
        return namespace

    def run(self, cells, evidence_root) -> dict[str, Any]:
        """Run cells as the sandbox would, up to the one that submits."""
        namespace = self.names(evidence_root)
        for cell in cells:
            try:
                exec(compile(cell.padded, "<playbook>", "exec"), namespace)
            except CellEnd:
                break
        return namespace

    def _predict(self, payload):
        self._spend(1)
        schema = _schema(payload)
        return {
            "value": fill(schema, payload["inputs"]),
            "probability": 0.75,
            "model": "rules",
            "cached": False,
            "schema": schema,
        }

    def _predict_batch(self, payload):
        self._spend(max(len(payload["rows"]), payload.get("total_rows", 0)))
        schema = _schema(payload)
        results = []
        for row in payload["rows"]:
            if self.failing_rows > 0:
                self.failing_rows -= 1
                results.append({"ok": False, "error": "gave no answer", "error_class": "InvalidAnswer"})
            else:
                results.append({"ok": True, "value": fill(schema, row), "probability": 0.5, "cached": False})
        return {"results": results, "schema": schema, "model": "rules"}

    def _rlm_query(self, payload):
        return {
            "value": fill(_schema(payload), {"task": payload["task"]}),
            "probability": None,
            "model": "child",
        }

    def _spend(self, count: int) -> None:
        if count > self.left:
            raise BudgetExceeded(f"this needs {count} subcalls and {self.left} are left")
        self.left -= count

    def _draft(self, payload):
        self._check(payload["fields"])
        self.drafts.append(payload["fields"])

    def _submit(self, payload):
        self._check(payload["fields"])
        self.submitted = payload["fields"]
        return {"accepted": True}

    def _check(self, fields):
        if self.output_schema is not None:
            mistakes = shape_of(self.output_schema).mistakes(fields)
            if mistakes:
                raise SubmitRejected("; ".join(mistakes))

    def _budget(self, payload):
        return {"subcalls": self.left, "iterations": 9}

    def _params(self, payload):
        return self.params

    def _question(self, payload):
        return self.question

    def _note(self, payload):
        return {"noted": True}

    def _propose_effect(self, payload):
        return {"proposed": True}

    def _remember(self, payload):
        return {"proposed": True}

    def _progress(self, payload):
        return None


def _schema(payload):
    if payload.get("signature") is not None:
        return Signature.parse(payload["signature"]).output_schema
    return payload["schema"]


def fill(schema, inputs):
    """A value of the schema; words of the inputs decide, where they can."""
    text = json.dumps(inputs, sort_keys=True, ensure_ascii=False).lower()
    value = _value(schema, text)
    assert shape_of(schema).fits(value), (schema, value)
    return value


def _value(schema, text):
    if "enum" in schema:
        named = [label for label in schema["enum"] if str(label).lower() in text]
        spread = hashlib.sha256(text.encode()).digest()[0] % len(schema["enum"])
        return named[0] if named else schema["enum"][spread]
    if "anyOf" in schema:
        return _value(schema["anyOf"][0], text)
    match schema.get("type"), schema.get("format"):
        case "object", _ if "propertyNames" in schema:
            names = schema["propertyNames"]
            key = names["enum"][0] if "enum" in names else "7"
            return {key: _value(schema["additionalProperties"], text)}
        case "object", _:
            return {name: _value(part, text) for name, part in schema.get("properties", {}).items()}
        case "array", _ if "prefixItems" in schema:
            return [_value(part, text) for part in schema["prefixItems"]]
        case "string", "decimal":
            return "12.50"
        case "array", _:
            return [_value(schema.get("items", {}), text)]
        case "string", "date":
            found = re.search(r"\d{4}-\d\d-\d\d", text)
            return found[0] if found else "1999-01-01"
        case "string", "date-time":
            return "2024-05-06T07:08:09Z"
        case "string", _:
            return text[:40]
        case "integer", _:
            return len(text)
        case "number", _:
            return 0.5
        case "boolean", _:
            return "true" in text
        case _:
            return None
