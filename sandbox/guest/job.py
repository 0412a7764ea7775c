"""What a cell can say to its job: the answer so far, the answer, notes, progress; and what it can ask of it."""

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any, NoReturn

from sandbox.guest.calls import CellEnd
from sandbox.guest.inputs import plain

Call = Callable[[str, dict[str, Any]], Any]

_SHOWN = 80


class Remaining(dict[str, Any]):
    """What is left of the budget, by dimension: a dict whose keys are attributes too."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"the budget has no {name!r}, only {', '.join(self)}") from None

    def __repr__(self) -> str:
        return "<budget left: " + ", ".join(f"{name} {value}" for name, value in self.items()) + ">"


class Params(Mapping[str, Any]):
    """The job's parameters, by name: `params["limit"]`, `params.get("limit", 24)`."""

    def __init__(self, load: Callable[[], dict[str, Any]]) -> None:
        self._load = load

    @cached_property
    def _values(self) -> dict[str, Any]:
        return self._load()

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"<params {self._values}>"


class Job:
    """The names of one session that speak to its job."""

    def __init__(self, call: Call, names: Mapping[str, Any]) -> None:
        self._call = call
        self._names = names
        self._own: frozenset[str] = frozenset()
        self.params = Params(lambda: dict(call("params", {})))

    @cached_property
    def _question(self) -> str:
        return str(self._call("question", {}))

    def own(self, names: frozenset[str]) -> None:
        """Names that show_vars leaves out, because every session has them."""
        self._own = names

    def question(self) -> str:
        """The question that this job answers."""
        return self._question

    def draft(self, **fields: Any) -> None:
        """Keep the answer so far: it is delivered, marked partial, if a limit ends the job before SUBMIT."""
        self._call("draft", {"fields": plain(fields)})

    def submit(self, **fields: Any) -> NoReturn:
        """Hand in the answer and end the job. Raises SubmitRejected, with every mistake named, when it does not fit."""
        self._call("submit", {"fields": plain(fields)})
        raise CellEnd

    def budget(self) -> Remaining:
        """What is left of the budget, as in `budget()["subcalls"]` or `budget().subcalls`."""
        return Remaining(self._call("budget", {}))

    def note(self, kind: str, text: str) -> None:
        """Propose an entry for the task's ledger: decision, constraint, progress, discovery, validation, blocker."""
        self._call("note", {"kind": str(kind), "text": str(text)})

    def progress(self, done: int, total: int, text: str = "") -> None:
        """Tell whoever watches how far the work is."""
        self._call("progress", {"done": int(done), "total": int(total), "text": str(text)})

    def show_vars(self) -> None:
        """Print the variables of this session: name, type, and what they hold."""
        shown = [
            f"{name}: {type(value).__name__} = {_short(value)}"
            for name, value in self._names.items()
            if not name.startswith("_") and name not in self._own
        ]
        print("\n".join(shown) or "no variables yet")  # noqa: T201 - printing is what it is for


def _short(value: object) -> str:
    try:
        text = repr(value)
    except Exception as error:  # noqa: BLE001 - a cell's own repr may fail in any way
        text = f"<repr failed: {type(error).__name__}>"
    size = f" (len {len(value):,})" if isinstance(value, str | bytes | list | dict | set | tuple) else ""
    return (text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…") + size
