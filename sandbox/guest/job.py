"""What a cell can say to its job: the answer so far, the answer, notes, progress; and what it can ask of it."""

from collections.abc import Callable, Generator, Iterator, Mapping
from functools import cached_property
from typing import Any, NoReturn

from sandbox.guest.calls import CellEnd
from sandbox.guest.inputs import plain
from sandbox.guest.results import Done, in_async_code
from sandbox.guest.showing import table

Call = Callable[[str, dict[str, Any]], Any]


class Remaining(dict[str, Any]):
    """What is left of the budget, by dimension: a dict whose keys are attributes too."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"the budget has no {name!r}, only {', '.join(self)}") from None

    def __await__(self) -> Generator[Any, None, "Remaining"]:
        return self
        yield

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

    def _tell(self, name: str, payload: dict[str, Any]) -> Done | None:
        """Say something that has no answer; in `async` code what comes back can be awaited."""
        self._call(name, payload)
        return Done() if in_async_code() else None

    def draft(self, **fields: Any) -> Done | None:
        """Keep the answer so far: it is delivered, marked partial, if a limit ends the job before SUBMIT."""
        return self._tell("draft", {"fields": plain(fields)})

    def submit(self, **fields: Any) -> NoReturn:
        """Hand in the answer and end the job. Raises SubmitRejected, with every mistake named, when it does not fit."""
        self._call("submit", {"fields": plain(fields)})
        raise CellEnd

    def budget(self) -> Remaining:
        """What is left of the budget, as in `budget()["subcalls"]` or `budget().subcalls`."""
        return Remaining(self._call("budget", {}))

    def note(self, kind: str, text: str) -> Done | None:
        """Propose an entry for the task's ledger: decision, constraint, progress, discovery, validation, blocker."""
        return self._tell("note", {"kind": str(kind), "text": str(text)})

    def propose_effect(
        self, kind: str, /, *, target: str = "", reason: str = "", **request: Any
    ) -> Done | None:
        """Propose an outside action, as in `propose_effect("ticket", target="OPS", reason="…", title="…")`.

        Nothing happens by it: it stands in the result, and the control plane and its people decide.
        """
        said = {"kind": str(kind), "target": str(target), "reason": str(reason), "request": plain(request)}
        return self._tell("propose_effect", said)

    def remember(self, text: str, /, *, subject: str = "", source: str = "") -> Done | None:
        """Propose knowledge to keep beyond this task, with its source: a citation, or how it was found out.

        It enters memory only by policy, with the trust of the evidence it comes from.
        """
        return self._tell("remember", {"text": str(text), "subject": str(subject), "source": str(source)})

    def progress(self, done: int, total: int, text: str = "") -> Done | None:
        """Tell whoever watches how far the work is."""
        return self._tell("progress", {"done": int(done), "total": int(total), "text": str(text)})

    def show_vars(self) -> None:
        """Print the variables of this session: name, type, and what they hold."""
        print("\n".join(table(self._names, left_out=self._own)) or "no variables yet")  # noqa: T201 - its purpose
