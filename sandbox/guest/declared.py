"""Declared host calls as functions of the cell. Knows their names; what they mean only the host knows."""

from collections.abc import Callable
from typing import Any

from sandbox.guest.calls import HostCallError
from sandbox.guest.inputs import plain


class Tool:
    """One tool of the host: call it with keyword arguments, get its answer."""

    def __init__(self, name: str, call: Callable[[str, dict[str, Any]], Any]) -> None:
        self.__name__ = name
        self._call = call

    def __call__(self, *positional: Any, **arguments: Any) -> Any:
        if positional:
            raise HostCallError(
                f"{self.__name__} takes its arguments by name, as in {self.__name__}(name=value)"
            )
        return self._call(self.__name__, plain(arguments))

    def __repr__(self) -> str:
        return f"<tool {self.__name__}: runs on the host, arguments by name>"
