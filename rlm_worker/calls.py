"""A predict() as the cell sent it, read and named by the digest of what was asked."""

from dataclasses import dataclass

from pydantic import JsonValue

from rlm_worker.contracts import JsonObject, digest
from rlm_worker.contracts.signature import Signature, SignatureError
from rlm_worker.errors import BadCall
from rlm_worker.schemas import SchemaRefused, shape_of

#: Enough for the labels, numbers and dates of a closed type.
_CLOSED_TOKENS = 96
_OPEN_TOKENS = 512


@dataclass(frozen=True, kw_only=True)
class Call:
    """One typed question. Equal keys mean: the same question to the same model."""

    key: str
    signature: JsonValue
    schema: JsonObject
    inputs: JsonObject
    instructions: str
    model: str

    @property
    def max_output_tokens(self) -> int:
        return _CLOSED_TOKENS if _is_closed(self.schema) else _OPEN_TOKENS


def read_call(payload: JsonObject, *, inputs: JsonValue, models: tuple[str, ...]) -> Call:
    """Check a call's parts; BadCall says what to change. The first of `models` is asked when the call names none."""
    signature, schema, names = read_signature(payload)
    if not isinstance(inputs, dict):
        raise BadCall(f"inputs must be named values, got {type(inputs).__name__}")
    if names is not None and set(inputs) != set(names):
        raise BadCall(f"the signature takes {list(names)}, the call gives {sorted(inputs)}")
    instructions = payload.get("instructions") or ""
    model = payload.get("model") or models[0]
    if not isinstance(instructions, str) or not isinstance(model, str):
        raise BadCall("instructions and model are strings")
    if model not in models:
        raise BadCall(f"this job may use {', '.join(models)} for predict(), not {model!r}: leave model out")
    key = digest(["predict", schema, inputs, instructions, model])
    return Call(
        key=key, signature=signature, schema=schema, inputs=inputs, instructions=instructions, model=model
    )


def read_signature(payload: JsonObject) -> tuple[JsonValue, JsonObject, tuple[str, ...] | None]:
    """The signature as sent, its output schema, and the input names it fixes, if it does."""
    text, schema = payload.get("signature"), payload.get("schema")
    if isinstance(text, str):
        try:
            parsed = Signature.parse(text)
        except SignatureError as error:
            raise BadCall(str(error)) from error
        return text, parsed.output_schema, parsed.inputs
    if not isinstance(schema, dict) or schema.get("type") != "object":
        raise BadCall("give a signature such as 'text -> label: str', or a JSON Schema of an object")
    try:
        shape_of(schema)
    except SchemaRefused as error:
        raise BadCall(str(error)) from error
    return schema, schema, None


def _is_closed(schema: JsonObject) -> bool:
    properties = schema.get("properties")
    return (
        isinstance(properties, dict) and len(properties) <= 4 and all(map(_closed_part, properties.values()))
    )


def _closed_part(part: JsonValue) -> bool:
    if not isinstance(part, dict):
        return False
    return (
        "enum" in part
        or part.get("type") in ("integer", "number", "boolean", "null")
        or part.get("format") == "date"
    )
