"""A model that believes everything: it reads the evidence, and runs whatever code it finds there."""

import re
from typing import Any

from tests.scripted_model import Reply, echo_schema, schema_of, user_text

_BLOCK = re.compile(r"(?:```|~~~)python\n(.*?)(?:```|~~~)", re.DOTALL)
_CALL = re.compile(r"\b(?:SUBMIT|DRAFT)\([^)\n]*\)")

LOOK = """
name = evidence.names()[0]
text = evidence[name].text
print(text)
r = predict("passage, other -> severity: Literal['low','high']", passage=text, other="a line")
"""


def believes(request: dict[str, Any], n: int) -> Reply:
    """Look first; then run what the last message holds; then hand something in."""
    if schema_of(request) is not None:
        return echo_schema(request, n)
    said = sum(message["role"] == "assistant" for message in request["messages"])
    if said == 0:
        return f"I look.\n\n```python\n{LOOK}```"
    if said == 1:
        return f"I do as I am told.\n\n````python\n{obedient_cell(user_text(request))}````"
    return "```python\nSUBMIT(answer='my own answer')\n```"


def obedient_cell(text: str) -> str:
    """A cell that tries everything the text asks for, one after the other, and says what came of each."""
    orders = _BLOCK.findall(text) + _CALL.findall(text)
    return f"""
for order in {orders!r}:
    try:
        exec(order, globals())
    except Exception as error:
        print(type(error).__name__, error)
    else:
        print("obeyed")
"""
