"""note(), propose_effect(), remember(): what a job suggests. Recorded, marked, bounded; carried out by nobody here."""

from pydantic import JsonValue, TypeAdapter, ValidationError

from rlm_worker.contracts import JobSpec, JsonObject, canonical
from rlm_worker.contracts.result import Proposal
from rlm_worker.contracts.trace import ProposalMade
from rlm_worker.errors import BadCall
from rlm_worker.execution import Execution
from rlm_worker.meter import Meter
from rlm_worker.redaction import redact
from rlm_worker.trust import trust_of
from rlm_worker.workbench import Workbench

_TEXT: TypeAdapter[str] = TypeAdapter(str)
_OBJECT: TypeAdapter[JsonObject] = TypeAdapter(JsonObject)
_KIND_CHARS = 100
_TEXT_CHARS = 4_000
_REQUEST_BYTES = 64 << 10
#: Proposals of one job: people must be able to decide about each.
_MOST = 200


class Proposals:
    """The proposals of one REPL."""

    def __init__(self, bench: Workbench, spec: JobSpec, *, meter: Meter) -> None:
        self._bench = bench
        self._meter = meter
        self._trust = trust_of(spec)

    async def note(self, at: Execution, payload: JsonObject) -> JsonValue:
        """An entry for the task's ledger."""
        try:
            kind, text = (
                _TEXT.validate_python(payload.get("kind")),
                _TEXT.validate_python(payload.get("text")),
            )
        except ValidationError as error:
            raise BadCall("note(kind, text) takes two strings") from error
        return await self._make(at, "note", {"kind": kind[:_KIND_CHARS], "text": text[:_TEXT_CHARS]})

    async def effect(self, at: Execution, payload: JsonObject) -> JsonValue:
        """An outside action, for the control plane to decide about."""
        try:
            kind, target = (_TEXT.validate_python(payload.get(name)) for name in ("kind", "target"))
            reason = _TEXT.validate_python(payload.get("reason"))
            request = _OBJECT.validate_python(payload.get("request"))
        except ValidationError as error:
            raise BadCall(
                "propose_effect(kind, target=…, reason=…, **request) takes strings and plain data"
            ) from error
        if not kind.strip():
            raise BadCall(
                "propose_effect needs the kind of effect, as in propose_effect('mail', target='ops@…')"
            )
        if len(canonical(request)) > _REQUEST_BYTES:
            raise BadCall(
                f"the request of an effect may hold {_REQUEST_BYTES:,} bytes: put the rest into a file"
            )
        body: JsonObject = {
            "kind": kind[:_KIND_CHARS],
            "target": target[:_TEXT_CHARS],
            "reason": reason[:_TEXT_CHARS],
            "request": request,
        }
        return await self._make(at, "effect", body)

    async def memory(self, at: Execution, payload: JsonObject) -> JsonValue:
        """Knowledge worth keeping beyond the task, for policy to decide about."""
        try:
            text, subject = (_TEXT.validate_python(payload.get(name)) for name in ("text", "subject"))
            source = _TEXT.validate_python(payload.get("source"))
        except ValidationError as error:
            raise BadCall("remember(text, subject=…, source=…) takes strings") from error
        if not text.strip():
            raise BadCall("remember needs the text that is to be kept")
        body: JsonObject = {
            "text": text[:_TEXT_CHARS],
            "subject": subject[:_KIND_CHARS],
            "source": source[:_TEXT_CHARS],
        }
        return await self._make(at, "memory", body)

    async def _make(self, at: Execution, kind: str, body: JsonObject) -> JsonValue:
        """Record it once: a cell that runs again after a crash makes the same proposals again."""
        # Without secrets before it is compared: so it stands in the record.
        proposal = redact(Proposal.model_validate({"kind": kind, "body": body, "trust": self._trust}))
        if at.proposed(proposal):
            return {"proposed": True}
        if len(self._bench.journal.proposals) >= _MOST:
            raise BadCall(f"this job has made {_MOST} proposals, which is the most there can be")
        at.must_be_live("a proposal")
        self._meter.count_host_call()
        await self._bench.writer.write(ProposalMade(node=at.node, iteration=at.iteration, proposal=proposal))
        return {"proposed": True}
