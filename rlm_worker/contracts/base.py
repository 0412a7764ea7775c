"""What every contract value shares: frozen, no unknown fields, canonical JSON. Imports pydantic only."""

import hashlib
import json
from functools import cache
from typing import Annotated, Any, Final, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue

#: 2: budgets change while a job runs (`retuned`), a pause is carried out, a job may ask at its limit. Specs and results of 1 are read.
PROTOCOL_VERSION: Final = 2

JsonObject = dict[str, JsonValue]
Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(gt=0)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Name = Annotated[str, Field(min_length=1, max_length=200)]


class Contract(BaseModel):
    """A value that crosses a process boundary."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_bytes="base64", val_json_bytes="base64")

    @classmethod
    def made(cls, **fields: Any) -> Self:
        """A value of parts that were checked before, and are not checked again."""
        defaults, required = _fields(cls)
        if not required <= fields.keys():
            raise TypeError(f"{cls.__name__} lacks {', '.join(sorted(required - fields.keys()))}")
        made = cls.__new__(cls)
        object.__setattr__(made, "__dict__", {**defaults, **fields})
        object.__setattr__(made, "__pydantic_fields_set__", set(fields))
        object.__setattr__(made, "__pydantic_extra__", None)
        object.__setattr__(made, "__pydantic_private__", None)
        return made


@cache
def _fields(contract: type[Contract]) -> tuple[dict[str, Any], frozenset[str]]:
    """Every field in its order with its default, and the names of those that have none."""
    fields = contract.model_fields
    defaults = {name: field.get_default(call_default_factory=True) for name, field in fields.items()}
    return defaults, frozenset(name for name, field in fields.items() if field.is_required())


class Event(Contract):
    """One act in a trace. `node` names the REPL it belongs to: empty for the job's own, a child's id below an rlm_query."""

    node: str = ""


# Made once: building an encoder costs as much as encoding a small event. JSON values hold no circles, so none is looked for.
_encode = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False, check_circular=False
).encode


def canonical(value: Any) -> bytes:
    """Encode a JSON value in the one form that digests are taken of. Raises ValueError for NaN and infinities."""
    return _encode(value).encode("utf-8", "surrogatepass")


def digest(value: Any) -> str:
    """SHA-256 of the canonical JSON form."""
    return hashlib.sha256(canonical(value)).hexdigest()
