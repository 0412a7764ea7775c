"""Which Python a session's cells may be written in: `open` or `strict`. Never the boundary; that is the system's."""

from sandbox.guest.language.policy import Language, Places, choose

__all__ = ["Language", "Places", "choose"]
