"""Text of people and models, in columns of a database that takes neither a zero nor half a surrogate pair."""

import json

import sqlalchemy as sa

_MARK = "\x1bjson:"


def kept(text: str) -> str:
    """The text as it is stored: itself, but for the few that some database refuses."""
    if text.isascii():
        is_plain = "\0" not in text and not text.startswith(_MARK)
    else:
        is_plain = not any(char == "\0" or "\ud800" <= char <= "\udfff" for char in text)
    return text if is_plain else _MARK + json.dumps(text)


def plain(text: str) -> str:
    """The text as it was."""
    return str(json.loads(text[len(_MARK) :])) if text.startswith(_MARK) else text


class Words(sa.TypeDecorator[str]):
    """A column for such text."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: sa.Dialect) -> str | None:
        _ = dialect
        return None if value is None else kept(value)

    def process_result_value(self, value: str | None, dialect: sa.Dialect) -> str | None:
        _ = dialect
        return None if value is None else plain(value)
