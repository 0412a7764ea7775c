"""Modules for strict code: façades that hold the offered names and never the module behind them."""

import dataclasses
import importlib
import math
import sys
import types
from collections.abc import Callable, Mapping
from typing import Any

from sandbox.guest.language import classes, guards, refusals, stand_ins
from sandbox.guest.language.files import Files
from sandbox.guest.language.offered import INSTEAD, OFFERED


class Current:
    """A name whose value changes: what stands in the module now is handed out."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self) -> Any:
        return getattr(sys, self._name)


class Facade:
    """Looks like a module and is none. Without a `__name__`: `from x import y` would search sys.modules by it."""

    __slots__ = ("_names_", "_said_")

    def __init__(self, name: str, offered: Mapping[str, Any]) -> None:
        object.__setattr__(self, "_said_", name)
        object.__setattr__(self, "_names_", dict(offered))

    def __getattr__(self, name: str) -> Any:
        if name not in self._names_:
            raise guards.Refused(_not_offered(self._said_, name), name=name)
        value = self._names_[name]
        return value() if isinstance(value, Current) else value

    def __setattr__(self, name: str, value: object) -> None:
        raise guards.Refused(f"strict language policy: {self._said_}.{name} cannot be replaced")

    def __delattr__(self, name: str) -> None:
        raise guards.Refused(f"strict language policy: {self._said_}.{name} cannot be removed")

    def __contains__(self, name: str) -> bool:
        return name in self._names_

    def __dir__(self) -> list[str]:
        return sorted(self._names_)

    def __repr__(self) -> str:
        return f"<module {self._said_!r}, its public names>"


def _not_offered(module: str, name: str) -> str:
    full = f"{module}.{name}"
    if full in INSTEAD:
        return f"strict language policy: {full} is not offered: {INSTEAD[full]}"
    return f"strict language policy: {full} is not offered (dir({module}) lists what is)"


class Importer:
    """`__import__` for strict code."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._made: dict[str, Facade] = {}

    def __call__(
        self,
        name: str,
        _globals: object = None,
        _locals: object = None,
        fromlist: tuple[str, ...] | None = (),
        _level: int = 0,
    ) -> Facade:
        """Return the façade that an import statement asks for, as `__import__` would return the module."""
        if not any(module == name or module.startswith(f"{name}.") for module in OFFERED):
            raise ModuleNotFoundError(_no_module(name), name=name)
        if not fromlist:
            return self.facade(name.partition(".")[0])
        facade = self.facade(name)
        for wanted in fromlist:
            if wanted not in facade:
                raise ImportError(_not_offered(name, wanted), name=name)
        return facade

    def facade(self, name: str) -> Facade:
        if name not in self._made:
            offered = {**self._public(name), **self._replaced(name)}
            prefix = f"{name}."
            below = {
                module[len(prefix) :].partition(".")[0] for module in OFFERED if module.startswith(prefix)
            }
            offered |= {part: self.facade(prefix + part) for part in below}
            self._made[name] = Facade(name, offered)
        return self._made[name]

    def _public(self, name: str) -> dict[str, Any]:
        if name not in OFFERED:
            return {}
        module, rule = importlib.import_module(name), OFFERED[name]
        everything = getattr(module, "__all__", ())
        if rule is None or rule.startswith("-"):
            wanted = set(everything) - set((rule or "").split())
        else:
            wanted = set(rule.split())
        found = {item: getattr(module, item) for item in sorted(wanted) if hasattr(module, item)}
        return {item: value for item, value in found.items() if not isinstance(value, types.ModuleType)}

    def _replaced(self, name: str) -> dict[str, Any]:
        """Return what stands in for functions that would open any path, read any attribute or run any text."""
        files = self._files
        makers: dict[str, Callable[[], dict[str, Any]]] = {
            "collections": lambda: {"namedtuple": stand_ins.guarded_namedtuple},
            "contextlib": lambda: {
                "redirect_stdout": stand_ins.redirect_stdout,
                "redirect_stderr": stand_ins.redirect_stderr,
            },
            "dataclasses": lambda: {
                "dataclass": stand_ins.guarded_dataclass,
                "Field": classes.handed_out(dataclasses.Field),
            },
            "functools": lambda: {
                "cached_property": stand_ins.cached_property,
                "total_ordering": stand_ins.guarded_total_ordering,
                "wraps": guards.guarded_wraps,
                "update_wrapper": guards.guarded_update_wrapper,
            },
            "glob": lambda: {"glob": files.glob},
            "gzip": lambda: {"open": files.gzip_open},
            "io": lambda: {"open": files.open},
            "logging": lambda: {"basicConfig": stand_ins.guarded_basic_config},
            "math": lambda: {item: getattr(math, item) for item in dir(math) if not item.startswith("_")},
            "operator": guards.operator_names,
            "os": files.os_names,
            "os.path": files.path_names,
            "pathlib": lambda: {"Path": files.path_class, "PosixPath": files.path_class},
            "sqlite3": lambda: {"connect": files.connect_sqlite},
            "sys": lambda: {"argv": [""], **{name: Current(name) for name in ("stdin", "stdout", "stderr")}},
            "typing": lambda: {
                **stand_ins.typing_names(),
                "get_origin": classes.guarded_get_origin,
                "get_args": classes.guarded_get_args,
            },
            "xml.etree.ElementTree": files.xml_names,
        }
        return makers[name]() if name in makers else {}


def _no_module(name: str) -> str:
    top = name.partition(".")[0]
    instead = INSTEAD.get(name) or INSTEAD.get(top)
    if instead is None and top not in sys.stdlib_module_names:
        return f"strict language policy: {refusals.missing_module(name)}"
    advice = (
        instead or "use one of the analysis modules, such as re, json, csv, statistics, itertools, datetime"
    )
    return f"strict language policy: the module {name} is not offered: {advice}"
