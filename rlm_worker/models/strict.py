"""Which JSON Schemas fit the strict mode of native structured outputs: closed objects, all fields required, few keywords."""

from pydantic import JsonValue

_KEYWORDS = frozenset(
    {
        *(
            "type",
            "properties",
            "required",
            "additionalProperties",
            "items",
            "enum",
            "const",
            "anyOf",
            "$ref",
            "$defs",
        ),
        *("description", "title", "default", "format", "pattern"),
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minItems", "maxItems"),
    }
)


def is_strict(schema: JsonValue) -> bool:
    """Whether a server in strict mode takes this schema as it is."""
    if not isinstance(schema, dict) or not schema.keys() <= _KEYWORDS or not schema:
        return False
    properties = schema.get("properties")
    if schema.get("type") == "object" or properties is not None:
        if not isinstance(properties, dict) or schema.get("additionalProperties") is not False:
            return False
        required = schema.get("required")
        if not isinstance(required, list) or set(properties) != {str(name) for name in required}:
            return False
        if not all(map(is_strict, properties.values())):
            return False
    if schema.get("type") == "array" and not is_strict(schema.get("items")):
        return False
    options, definitions = schema.get("anyOf", []), schema.get("$defs", {})
    parts = [
        *(options if isinstance(options, list) else []),
        *(definitions.values() if isinstance(definitions, dict) else []),
    ]
    return all(map(is_strict, parts))
