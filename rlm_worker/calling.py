"""Code in a turn that was written as a call of a tool, as models do that were trained to. Pure; None when there is none."""

import json
import re
from typing import Any

#: What stands around the code, in the spelling of one family or another. The code itself is between the marks as it is.
_MARKS = (
    ("<code>", "</code>"),
    ("<python>", "</python>"),
    ("<execute>", "</execute>"),
    ('<parameter name="code">', "</parameter>"),
    ("<parameter=code>", "</parameter>"),
    ("<|python_tag|>", "<|eom_id|>"),
)
_CALL = re.compile(r"<(?:tool_call|function_call)>\s*+")
_ARGUMENTS = ("arguments", "parameters", "input", "args")
_CODE = ("code", "source", "script", "python", "cell")
_MOST_CHARS = 100_000


def code_of_call(text: str) -> str | None:
    """The code that a call carries, when the text is one."""
    for begin, end in _MARKS:
        before, found, rest = text.partition(begin)
        # A mark in the middle of a line may be what somebody writes about.
        if found and (not before or before[-1] in "\n>"):
            return rest.partition(end)[0].strip("\n") or None
    call = _CALL.search(text)
    said = text[call.end() :] if call else text.strip()
    if not said.startswith("{") or len(said) > _MOST_CHARS:
        return None
    try:
        return _code_in(json.JSONDecoder().raw_decode(said)[0])
    except (ValueError, RecursionError):
        return None


def _code_in(call: Any) -> str | None:
    """The code among the arguments of a call that names a tool."""
    if not isinstance(call, dict):
        return None
    call = call.get("function") if isinstance(call.get("function"), dict) else call
    given = next((call[name] for name in _ARGUMENTS if name in call), None)
    if isinstance(given, str):
        given = json.loads(given)
    if "name" not in call or not isinstance(given, dict):
        return None
    return next((given[name] for name in _CODE if isinstance(given.get(name), str) and given[name]), None)
