"""Which schemas go out in strict mode."""

import pytest

from rlm_worker.contracts.signature import fields_schema
from rlm_worker.models.strict import is_strict


@pytest.mark.parametrize(
    ("fields", "strict"),
    [
        ("a: int, b: Literal['x']", True),
        ("a: list[int], b: date | None, c: Decimal", True),
        ("a: Any", False),
        ("a: list", False),
        ("a: dict[str, int]", False),
        ("a: tuple[int, str]", False),
    ],
)
def test_only_closed_schemas_are_strict(fields, strict):
    assert is_strict(fields_schema(fields)) is strict


def test_a_field_that_may_be_missing_is_not_strict():
    assert not is_strict(
        {
            "type": "object",
            "properties": {"a": {"type": "string"}},
            "required": [],
            "additionalProperties": False,
        }
    )
