"""What every operation says of itself in OpenAPI: its answers, those that are refusals too, and the parameters that many share."""

from typing import Annotated, Any

from fastapi import Header, Path, Query
from pydantic import BaseModel

from controlplane.api.bodies import Digest, Problem
from controlplane.api.problems import MEDIA_TYPE, TITLES

_ID = r"^[A-Za-z0-9][A-Za-z0-9._:@+-]*$"

JobId = Annotated[str, Path(max_length=200, pattern=_ID, description="The id of a job.")]
TaskId = Annotated[str, Path(max_length=200, pattern=_ID, description="The id of a task.")]
NamedId = Annotated[str, Path(max_length=200, pattern=_ID)]
DigestPath = Annotated[Digest, Path(description="The digest of the evidence.")]
Limit = Annotated[int, Query(ge=1, le=500, description="Items of one answer, at most.")]
Cursor = Annotated[str | None, Query(max_length=1_000, description="`next` of the answer before.")]
Content = Annotated[
    bool, Query(description="Show texts of models and of evidence; needs the capability `content.read`.")
]
Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=200,
        pattern=r"^[\x20-\x7e]+$",
        description="The same request with the same key is carried out once, and answered the same for 48 hours.",
    ),
]
Match = Annotated[
    str | None,
    Header(
        alias="If-Match",
        max_length=2_000,
        description="The ETag that the job was seen with: it is left alone when it has another by now.",
    ),
]
_REFUSALS = (400, 401, 403, 404, 405, 409, 413, 415, 422, 429, 500, 503)


def answers(
    status: int, body: type[BaseModel] | Any, *, more: tuple[int, ...] = (), has_tag: bool = False
) -> dict[str, Any]:
    """The arguments of a route that document its answers."""
    documented: dict[int | str, dict[str, Any]] = {
        refusal: {
            "description": TITLES[refusal],
            "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
        for refusal in (*_REFUSALS, *more)
    }
    for refusal in (429, 503):
        documented[refusal]["headers"] = {
            "Retry-After": {"schema": {"type": "integer"}, "description": "Seconds to wait."}
        }
    documented[status] = {"description": "Done."}
    if has_tag:
        documented[status]["headers"] = {
            "ETag": {"schema": {"type": "string"}, "description": "Stands for the state of the job."}
        }
    return {"status_code": status, "response_model": body, "responses": documented}


#: Named here, so that the schema of problems is part of every document that points to it.
PROBLEM = Problem
