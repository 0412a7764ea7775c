"""A predict() as the cell sent it, read and named by the digest of what was asked."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from pydantic import JsonValue

from rlm_worker.contracts import JsonObject, canonical
from rlm_worker.contracts.signature import Signature, SignatureError
from rlm_worker.errors import BadCall
from rlm_worker.media import Attachment, take_media
from rlm_worker.models.port import Media
from rlm_worker.prompts import describe_fields
from rlm_worker.schemas import SchemaRefused, Shape, shape_of

#: Enough for the labels, numbers and dates of a closed type.
_CLOSED_TOKENS = 96
_OPEN_TOKENS = 512


@dataclass(frozen=True, kw_only=True)
class Call:
    """One typed question. Equal keys mean: the same question to the same model."""

    key: str
    signature: JsonValue
    schema: JsonObject
    shape: Shape
    #: The answer's fields in words, for the prompt.
    fields: str
    inputs: JsonObject
    instructions: str
    model: str
    max_output_tokens: int
    #: Images, PDFs and pages of PDFs, whose digests or places stand in the inputs.
    attachments: tuple[Attachment, ...] = ()
    #: Their bytes, once the call is admitted and its pages are cut out.
    media: tuple[Media, ...] = ()


def read_call(payload: JsonObject, *, inputs: JsonValue, models: tuple[str, ...]) -> Call:
    """Check a call's parts; BadCall says what to change. The first of `models` is asked when the call names none."""
    return read_calls(payload, rows=[inputs], models=models)[0]


def read_calls(payload: JsonObject, *, rows: Sequence[JsonValue], models: tuple[str, ...]) -> list[Call]:
    """The calls of a batch, which differ in their inputs alone."""
    signature, schema, names = read_signature(payload)
    instructions = payload.get("instructions") or ""
    model = payload.get("model") or models[0]
    if not isinstance(instructions, str) or not isinstance(model, str):
        raise BadCall("instructions and model are strings")
    if model not in models:
        raise BadCall(f"this job may use {', '.join(models)} for predict(), not {model!r}: leave model out")
    shape, asked = shape_of(schema), canonical(schema)
    told = b",".join([canonical(instructions), canonical(model)])
    fields = describe_fields(schema)
    tokens = _CLOSED_TOKENS if _is_closed(schema) else _OPEN_TOKENS
    return [
        Call(
            # The digest of ["predict", schema, inputs, instructions, model], without encoding the schema for each row.
            key=hashlib.sha256(b'["predict",%b,%b,%b]' % (asked, canonical(inputs), told)).hexdigest(),
            signature=signature,
            schema=schema,
            shape=shape,
            fields=fields,
            inputs=inputs,
            instructions=instructions,
            model=model,
            max_output_tokens=tokens,
            attachments=attachments,
        )
        for inputs, attachments in (take_media(_checked_inputs(row, names)) for row in rows)
    ]


def _checked_inputs(inputs: JsonValue, names: tuple[str, ...] | None) -> JsonObject:
    if not isinstance(inputs, dict):
        raise BadCall(f"inputs must be named values, got {type(inputs).__name__}")
    if names is not None and inputs.keys() != set(names):
        raise BadCall(f"the signature takes {list(names)}, the call gives {sorted(inputs)}")
    return inputs


def read_signature(payload: JsonObject) -> tuple[JsonValue, JsonObject, tuple[str, ...] | None]:
    """The signature as sent, its output schema, and the input names it fixes, if it does."""
    text, schema = payload.get("signature"), payload.get("schema")
    if isinstance(text, str):
        try:
            parsed = _parse(text)
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


@lru_cache(maxsize=256)
def _parse(text: str) -> Signature:
    """The rows of a batch share one text, so that it is read once."""
    return Signature.parse(text)


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
