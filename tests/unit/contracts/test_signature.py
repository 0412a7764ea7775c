"""Signatures: what they mean, what is refused, and that no text breaks the reader."""

import keyword

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlm_worker.contracts.signature import Signature, SignatureError, fields_schema

TEXT = {"type": "string"}
NUMBER = {"type": "integer"}


@pytest.mark.parametrize(
    ("field", "schema"),
    [
        ("a", TEXT),
        ("a: str", TEXT),
        ("a: int", NUMBER),
        ("a: float", {"type": "number"}),
        ("a: bool", {"type": "boolean"}),
        ("a: None", {"type": "null"}),
        ("a: date", {"type": "string", "format": "date"}),
        ("a: datetime", {"type": "string", "format": "date-time"}),
        ("a: Citation", {"type": "string", "format": "citation"}),
        ("a: Any", {}),
        ("a: list", {"type": "array"}),
        ("a: list[int]", {"type": "array", "items": NUMBER}),
        ("a: List[list[str]]", {"type": "array", "items": {"type": "array", "items": TEXT}}),
        ("a: dict", {"type": "object"}),
        ("a: dict[str, int]", {"type": "object", "additionalProperties": NUMBER}),
        (
            "a: dict[int, str]",
            {"type": "object", "propertyNames": {"pattern": r"^-?\d+$"}, "additionalProperties": TEXT},
        ),
        (
            "a: dict[Literal['x', 'y'], int]",
            {"type": "object", "propertyNames": {"enum": ["x", "y"]}, "additionalProperties": NUMBER},
        ),
        ("a: tuple[int, ...]", {"type": "array", "items": NUMBER}),
        (
            "a: tuple[int, str]",
            {"type": "array", "prefixItems": [NUMBER, TEXT], "minItems": 2, "maxItems": 2, "items": False},
        ),
        ("a: Decimal", {"type": "string", "format": "decimal", "pattern": r"^[+-]?\d+(\.\d+)?$"}),
        ("a: int  # how many", {**NUMBER, "description": "how many"}),
        ("a: Optional[int]", {"anyOf": [NUMBER, {"type": "null"}]}),
        ("a: int | None", {"anyOf": [NUMBER, {"type": "null"}]}),
        ("a: Union[int, str]", {"anyOf": [NUMBER, TEXT]}),
        ("a: 'int'", NUMBER),
        ("a: Literal['low', 'high']", {"enum": ["low", "high"]}),
        ("a: Literal['']", {"enum": [""]}),
        ("a: Literal[-1, 2.5, True, None]", {"enum": [-1, 2.5, True, None]}),
        ("a: Literal['two  spaces', 'a\\nb']", {"enum": ["two  spaces", "a\nb"]}),
    ],
)
def test_a_type_becomes_its_schema(field, schema):
    assert fields_schema(field)["properties"] == {"a": schema}


def test_every_output_is_required_and_nothing_else_is_allowed():
    schema = fields_schema("a: int, b")

    assert schema["required"] == ["a", "b"]
    assert schema["additionalProperties"] is False


def test_a_signature_may_stand_on_several_lines_with_remarks():
    read = Signature.parse(
        """
        line,       # the text
        n: int
        ->
        severity: Literal['low', 'high'],
        why: str,   # one sentence
        """
    )

    assert read.inputs == ("line", "n")
    assert list(read.output_schema["properties"]) == ["severity", "why"]


def test_what_is_said_beside_a_field_describes_it():
    read = Signature.parse("text -> a: int,  # how many\nb, c: str  # why not")

    about = {name: part.get("description") for name, part in read.output_schema["properties"].items()}
    assert about == {"a": "how many", "b": None, "c": "why not"}


def test_images_and_pdfs_are_inputs():
    read = Signature.parse("page: Image, form: Pdf -> total: float")

    assert [part["format"] for part in read.input_schema["properties"].values()] == ["image", "pdf"]


def test_a_signature_may_have_no_inputs():
    assert Signature.parse("-> n: int").inputs == ()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: int", "has no '->'"),
        ("a ->", "no output fields"),
        ("", "has no '->'"),
        ("a -> b: integer", "unknown type 'integer'"),
        ("a -> b: tuple[()]", "unknown type tuple"),
        ("a -> b: dict[float, str]", "unknown key type 'float'"),
        ("a -> b: dict[int]", "unknown type dict"),
        ("a -> b: Image", "unknown type 'Image'"),
        ("a -> b: list[int, str]", "unknown type list"),
        ("a -> b: 'in t'", "unknown type 'in t'"),
        ("a -> b: Literal[()]", "unknown type Literal"),
        ("a -> b: Union[()]", "unknown type Union"),
        ("a -> b: Literal[1e999]", "takes strings, numbers"),
        ("a -> b: Literal['\\ud800']", "takes strings, numbers"),
        ("a -> b: Literal[b'x']", "takes strings, numbers"),
        ("a -> b: Literal[[1]]", "takes strings, numbers"),
        ("a -> b: Literal[1 + 2j]", "takes strings, numbers"),
        ("a -> b: Literal[x]", "takes strings, numbers"),
        ("a -> b = 1", "no stars, no defaults"),
        ("a -> *b", "no stars, no defaults"),
        ("a -> **b", "no stars, no defaults"),
        ("a -> b, *, c", "no stars, no defaults"),
        ("a -> b, /, c", "no stars, no defaults"),
        ("a -> b, b: int", "twice"),
        ("a, a -> b", "twice"),
        ("a -> _b", "cannot be a field name"),
        ("a -> class", "cannot read"),
        ("a -> b c", "cannot read"),
        ("a -> b): import os #", "cannot read"),
        ("a -> b) -> (int", "cannot read"),
        ("a -> b): pass\ndef c(d", "cannot read"),
        ("a -> b): print('x'); (1", "cannot read"),
        ("a -> b\0", "cannot read"),
        ("a -> \ud800", "cannot read"),
        ("a -> " + ", ".join(f"f{n}" for n in range(65)), "too many"),
        ("a -> b: " + "|".join(["int"] * 3_000), "nested|cannot read"),
        ("a -> b: Literal[" + "-" * 3_000 + "1]", "nested|cannot read"),
    ],
    ids=lambda value: value[:40].encode("ascii", "backslashreplace").decode(),
)
def test_what_is_refused_is_refused_with_a_reason(text, told):
    with pytest.raises(SignatureError, match=told):
        Signature.parse(text)


def test_ninety_levels_of_lists_are_no_problem():
    assert fields_schema("b: " + "list[" * 90 + "int" + "]" * 90)["properties"]


WORDS = ("->", "int", "list", "Literal", "lambda", "pass", "def", "None", "e999", "dict[str,")
ALPHABET = st.sampled_from([*"ab:,|*=-1;#_()[]'\"\\é\0\ud800 \n", *WORDS])


@settings(max_examples=300)
@given(st.one_of(st.text(), st.lists(ALPHABET).map("".join)))
def test_no_text_raises_anything_but_a_signature_error(text):
    try:
        read = Signature.parse(text)
    except SignatureError:
        return
    jsonschema_rs.validator_for(read.output_schema)
    jsonschema_rs.validator_for(read.input_schema)


NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True).filter(lambda name: not keyword.iskeyword(name))
LITERALS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8).filter(lambda text: "->" not in text),
    st.integers(),
    st.booleans(),
    st.none(),
)
TYPES = st.recursive(
    st.sampled_from(["str", "int", "float", "bool", "date", "Citation", "Any"])
    | st.lists(LITERALS, min_size=1, max_size=3).map(lambda items: f"Literal[{', '.join(map(repr, items))}]"),
    lambda inner: st.one_of(
        inner.map("list[{}]".format), inner.map("dict[str, {}]".format), inner.map("Optional[{}]".format)
    ),
    max_leaves=4,
)


def spelled(schema):
    """The type that a schema came from: the way back, which shows that nothing was lost."""
    match schema:
        case {"enum": values}:
            return f"Literal[{', '.join(map(repr, values))}]"
        case {"anyOf": [part, {"type": "null"}]}:
            return f"Optional[{spelled(part)}]"
        case {"type": "array", "items": part}:
            return f"list[{spelled(part)}]"
        case {"type": "object", "additionalProperties": part}:
            return f"dict[str, {spelled(part)}]"
        case {"format": form}:
            return {"date": "date", "citation": "Citation"}[form]
        case {"type": kind}:
            return {"string": "str", "integer": "int", "number": "float", "boolean": "bool"}[kind]
        case _:
            return "Any"


@settings(max_examples=150)
@given(st.dictionaries(NAMES, TYPES, min_size=1, max_size=5), st.lists(NAMES, unique=True, max_size=4))
def test_a_signature_made_of_its_parts_reads_back_to_them(outputs, inputs):
    text = ", ".join(inputs) + " -> " + ", ".join(f"{name}: {kind}" for name, kind in outputs.items())

    read = Signature.parse(text)

    assert read.inputs == tuple(inputs)
    assert {name: spelled(part) for name, part in read.output_schema["properties"].items()} == outputs
    jsonschema_rs.validator_for(read.output_schema)
