"""Values against JSON Schema: one validator per schema, mistakes as sentences a model can act on."""

from functools import lru_cache
from typing import Any

import jsonschema_rs

from rlm_worker.contracts import JsonObject, canonical

_MISTAKES_SHOWN = 8


class SchemaRefused(ValueError):
    """The schema itself is not usable."""


def _refuse(address: str) -> Any:
    """A cell may write the schema: following its references would be its way to the network and to files."""
    raise ValueError(f"references may only point inside the schema, not to {address}")


class Shape:
    """A JSON Schema, ready to check values."""

    def __init__(self, schema: JsonObject) -> None:
        self.schema = schema
        try:
            self._validator = jsonschema_rs.validator_for(schema, retriever=_refuse)
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
