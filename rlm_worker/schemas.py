"""Values against JSON Schema: one validator per schema, mistakes as sentences a model can act on."""

from functools import lru_cache
from typing import Any

import jsonschema_rs

from rlm_worker.contracts import JsonObject, canonical
from rlm_worker.contracts.formats import FORMATS

_MISTAKES_SHOWN = 8
#: A schema with all its references written out: above this, checking one value could take for ever.
_MOST_PARTS = 10_000


class SchemaRefused(ValueError):
    """The schema itself is not usable."""


def _refuse(address: str) -> Any:
    """A cell may write the schema: following its references would be its way to the network and to files."""
    raise ValueError(f"references may only point inside the schema, not to {address}")


def _parts(part: Any, schema: JsonObject, known: dict[str, int | None]) -> int:
    """How many parts a schema has once its references are written out; a cell may write one that doubles at each."""
    children = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
    count = 1 + sum(_parts(child, schema, known) for child in children)
    target = part.get("$ref") if isinstance(part, dict) else None
    if isinstance(target, str):
        count += _referenced(target, schema, known)
    if count > _MOST_PARTS:
        raise SchemaRefused(
            f"the schema is too large: more than {_MOST_PARTS} parts with its references written out"
        )
    return count


def _referenced(target: str, schema: JsonObject, known: dict[str, int | None]) -> int:
    if target not in known:
        known[target] = None
        known[target] = _parts(_look_up(target, schema), schema, known)
    count = known[target]
    if count is None:
        raise SchemaRefused(f"the schema refers to itself at {target}: recursive types are not offered")
    return count


def _look_up(target: str, schema: JsonObject) -> Any:
    found: Any = schema
    for name in target.removeprefix("#").split("/")[1:]:
        key = name.replace("~1", "/").replace("~0", "~")
        found = found.get(key) if isinstance(found, dict) else None
    return found


class Shape:
    """A JSON Schema, ready to check values."""

    def __init__(self, schema: JsonObject) -> None:
        self.schema = schema
        try:
            _parts(schema, schema, {})
        except RecursionError:
            raise SchemaRefused("the schema is nested too deeply") from None
        try:
            self._validator = jsonschema_rs.validator_for(
                schema, retriever=_refuse, formats=FORMATS, validate_formats=True
            )
        except (ValueError, jsonschema_rs.ValidationError) as error:
            raise SchemaRefused(f"not a usable JSON Schema: {str(error).splitlines()[0]}") from error

    def fits(self, value: Any) -> bool:
        return bool(self._validator.is_valid(value))

    def mistakes(self, value: Any) -> tuple[str, ...]:
        """What does not fit, each with the place; empty when the value fits."""
        found = []
        for error in self._validator.iter_errors(value):
            place = ".".join(str(part) for part in error.instance_path) or "the answer"
            found.append(f"{place}: {error.message}"[:400])
            if len(found) == _MISTAKES_SHOWN:
                break
        return tuple(found)


def shape_of(schema: JsonObject) -> Shape:
    """The checker of this schema, made once."""
    return _shape(canonical(schema))


@lru_cache(maxsize=512)
def _shape(encoded: bytes) -> Shape:
    import json  # noqa: PLC0415  # only on a miss

    return Shape(json.loads(encoded))
