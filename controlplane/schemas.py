"""Output schemas as the control plane checks them: nothing outside the schema is ever fetched."""

from typing import Any

import jsonschema_rs

from controlplane.errors import InvalidRequest
from rlm_worker.contracts import JsonObject
from rlm_worker.contracts.formats import FORMATS


def _refuse(address: str) -> Any:
    raise ValueError(f"references may only point inside the schema, not to {address}")


def checker(schema: JsonObject) -> Any:
    """A validator of this schema. Following a reference would let whoever wrote it choose what we fetch."""
    try:
        return jsonschema_rs.validator_for(schema, retriever=_refuse, formats=FORMATS, validate_formats=True)
    except (ValueError, jsonschema_rs.ValidationError) as error:
        raise InvalidRequest(f"not a usable JSON Schema: {str(error).splitlines()[0]}") from error
