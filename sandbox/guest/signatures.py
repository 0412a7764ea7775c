"""What a subcall asks for: a signature string, a JSON Schema or a class, checked before anything is spent."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sandbox.guest.annotations import Field, media_of, names_a_class, read_fields, resolve
from sandbox.guest.calls import SubcallError
from sandbox.guest.described import Schema, described
from sandbox.guest.inputs import plain
from sandbox.guest.media import medium
from sandbox.guest.results import RESERVED, Result
from sandbox.guest.typed import build, is_record, revive, schema_of


@dataclass(frozen=True)
class Question:
    """One signature, ready to be sent, and the way back from an answer to a Result."""

    signature: str | None
    schema: Schema | None
    cls: type | None
    #: Declared input names; None when any are accepted.
    inputs: tuple[str, ...] | None
    names: Mapping[str, Any]
    #: Types of the fields of a signature that names classes of the cell.
    hints: Mapping[str, Any] | None = None
    #: Inputs whose bytes are sent along, and what they are.
    media: Mapping[str, str] = field(default_factory=dict)

    def fields(self) -> dict[str, Any]:
        """The part of a payload that says what is asked for."""
        return {"signature": self.signature, "schema": self.schema}

    def row(self, row: Any) -> dict[str, Any]:
        """The inputs of one row as plain JSON: a mapping of names, or the bare value of the only input."""
        if isinstance(row, Mapping):
            self._check_names(row)
            return {str(name): self._input(str(name), value) for name, value in row.items()}
        if self.inputs is None or len(self.inputs) != 1:
            raise TypeError(
                f"a row must be a dict of inputs, not {type(row).__name__}: a bare value needs exactly one input"
            )
        return {self.inputs[0]: self._input(self.inputs[0], row)}

    def _input(self, name: str, value: Any) -> Any:
        kind = self.media.get(name)
        return plain(value) if kind is None else medium(value, kind=kind, name=name)

    def _check_names(self, row: Mapping[str, Any]) -> None:
        if self.inputs is None:
            return
        missing = [name for name in self.inputs if name not in row]
        extra = [name for name in row if name not in self.inputs]
        if missing or extra:
            raise TypeError(
                f"the inputs do not fit {self.signature!r}: missing {missing}, not in the signature {extra}"
            )

    def result(self, answer: Mapping[str, Any], *, schema: Schema | None = None, model: str = "") -> Result:
        """A Result from one answer of the host."""
        meta: dict[str, Any] = {
            "probability": answer.get("probability"),
            "cached": bool(answer.get("cached")),
        }
        model = answer.get("model") or model
        if answer.get("ok") is False:
            error_class = answer.get("error_class") or "SubcallError"
            return Result(None, model=model, error=f"{error_class}: {answer.get('error', '')}", **meta)
        try:
            return self._made(answer, schema or self.schema or {}, {"model": model, **meta})
        except Exception as error:  # noqa: BLE001 - what a class demands beyond its types only its own code knows
            said = f"the answer does not fit its class: {type(error).__name__}: {error}"
            return Result(None, model=model, error=said, **meta)

    def only(self, answer: Mapping[str, Any]) -> Result:
        """The Result of a single call, which raises where a row of a batch would have failed."""
        result = self.result(answer)
        if result.error is not None:
            raise SubcallError(result.error)
        return result

    def _made(self, answer: Mapping[str, Any], schema: Schema, meta: dict[str, Any]) -> Result:
        value = answer["value"]
        if self.hints is not None:
            built = {name: build(hint, value[name], names=self.names) for name, hint in self.hints.items()}
            return Result(built, **meta)
        if self.cls is None:
            return Result(revive(value, answer.get("schema") or schema), **meta)
        instance = build(self.cls, value, names=self.names)
        fields = instance if isinstance(instance, dict) else _fields(instance, value)
        return Result(instance, fields=fields, **meta)


def _fields(instance: Any, value: Mapping[str, Any]) -> dict[str, Any]:
    """By the names of the answer; a pydantic model may know one of them by another."""
    return {name: getattr(instance, name, said) for name, said in value.items()}


def ask(signature: Any, names: Mapping[str, Any]) -> Question:
    """Read a signature in any of its forms."""
    if isinstance(signature, str):
        return _read(signature, names)
    if isinstance(signature, Mapping):
        return Question(None, _checked(plain(signature)), None, None, names)
    if isinstance(signature, type) and (is_record(signature) or hasattr(signature, "model_json_schema")):
        return Question(None, _checked(schema_of(signature, names=names)), signature, None, names)
    raise TypeError(
        f'{signature!r} is no signature: write \'text -> label: Literal["a", "b"]\', '
        "or give a dataclass, a TypedDict, a pydantic model or a JSON Schema"
    )


def _read(signature: str, names: Mapping[str, Any]) -> Question:
    left, arrow, right = signature.partition("->")
    if not arrow:
        raise ValueError(f"signature {signature!r} has no '->': write it as 'input, … -> field: type, …'")
    outputs = read_fields(right, signature=signature)
    _refuse_reserved(tuple(output.name for output in outputs))
    inputs = read_fields(left, signature=signature)
    taken = tuple(each.name for each in inputs)
    media = {each.name: kind for each in inputs if (kind := media_of(each)) is not None}
    if not any(names_a_class(output.annotation, names) for output in outputs):
        return Question(signature, None, None, taken, names, media=media)
    hints = {output.name: resolve(output.annotation, names) for output in outputs}
    return Question(None, _schema(outputs, hints, names), None, taken, names, hints=hints, media=media)


def _schema(outputs: list[Field], hints: Mapping[str, Any], names: Mapping[str, Any]) -> Schema:
    fields = {
        output.name: described(schema_of(hints[output.name], names=names, depth=1), output.remark)
        for output in outputs
    }
    return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}


def _checked(schema: Schema) -> Schema:
    properties = schema.get("properties")
    _refuse_reserved(tuple(properties) if isinstance(properties, dict) else ())
    return schema


def _refuse_reserved(fields: tuple[str, ...]) -> None:
    taken = sorted(RESERVED.intersection(fields))
    if taken:
        raise ValueError(
            f"a field cannot be named {', '.join(taken)}, which every Result has already: "
            f"take another name, such as {taken[0]}_found"
        )
