"""The view of a REPL: everything its driver may know when it writes the next turn. Made of the spec and the record."""

from collections.abc import Sequence

from rlm_worker import listing
from rlm_worker.contracts import JobSpec, JsonObject, digest
from rlm_worker.drivers.driver import Step, View
from rlm_worker.drivers.recording import notices_at
from rlm_worker.journal import NodeJournal
from rlm_worker.prompts import offers

_LAST_TURN = "This is your last turn: SUBMIT what you have now."


def make_view(
    spec: JobSpec,
    journal: NodeJournal,
    *,
    node: str,
    iteration: int,
    history: Sequence[Step],
    left: JsonObject,
    closing: str,
) -> View:
    """The view of this iteration; after a rollover, with its brief and the history since."""
    rolled = journal.rollovers[-1] if journal.rollovers else None
    covered = rolled.covers_to if rolled else 0
    return View(
        question=spec.task,
        output_schema=spec.output_schema,
        iteration=iteration,
        history=tuple(step for step in history if step.iteration > covered),
        evidence=listing.pieces(spec.input_artifacts),
        documents=listing.documents(spec.input_artifacts),
        offers=offers(spec),
        inputs=spec.params,
        left=left,
        notices=(*notices_at(journal, iteration), *_last_words(left, closing)),
        brief=rolled.brief if rolled else "",
        seed=digest([spec.job_id, node]),
    )


def _last_words(left: JsonObject, closing: str) -> tuple[str, ...]:
    if closing:
        return (closing,)
    return (_LAST_TURN,) if left["iterations"] == 0 else ()
