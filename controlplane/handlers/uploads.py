"""What tenants bring in: uploads by content, and evidence made of them. Content is shared on the disk; the right to name it is a tenant's."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol

from controlplane.domain.identity import Caller
from controlplane.errors import InvalidRequest, NotFound, OverBudget
from controlplane.handlers.permits import require
from controlplane.ports import Desk, Transaction
from controlplane.ports_access import OwnedRow, UploadRow
from rlm_worker.contracts import EvidenceRef, digest

#: An upload that is not whole by then is dropped.
KEPT_MS = 24 * 3_600_000
_AT_ONCE = 100

#: Makes evidence of files: digests by path, the name, and whether it is taken as it is.
Stage = Callable[[Mapping[str, str], str, bool], EvidenceRef]


class Inbox(Protocol):
    """Where files grow."""

    def take(self, upload_id: str, *, digest: str) -> object: ...

    def drop(self, upload_id: str) -> None: ...


def tenant_of(desk: Desk, caller: Caller) -> str:
    return caller.scope.tenant_id or desk.rules.default_tenant


def begin(
    desk: Desk, inbox: Inbox, *, content: str, size_bytes: int, quota_bytes: int, caller: Caller
) -> UploadRow:
    """A place for a file; when the tenant has the same content already, one that is done."""
    _expire(desk, inbox)
    tenant_id = tenant_of(desk, caller)
    row = UploadRow(
        upload_id=desk.new_id("upl"),
        tenant_id=tenant_id,
        principal=caller.name,
        content_digest=content,
        size_bytes=size_bytes,
    )
    with desk.store.write() as tx:
        require(tx, caller, "evidence.write", tenant_id=tenant_id)
        known = tx.owned.get(tenant_id=tenant_id, kind="blob", digest=content)
        if known is not None:
            return _known(known, size_bytes)
        under_way = tx.uploads.open_of(tenant_id=tenant_id, digest=content)
        if under_way is not None and under_way.size_bytes == size_bytes:
            return under_way
        used = tx.uploads.bytes_of(tenant_id)
        if used + size_bytes > quota_bytes:
            raise OverBudget(
                f"tenant {tenant_id} has brought in {used:,} of {quota_bytes:,} bytes, {size_bytes:,} more do not fit"
            )
        tx.uploads.add(row)
        return replace(row, at_ms=tx.now_ms)


def _known(known: OwnedRow, size_bytes: int) -> UploadRow:
    facts = json.loads(known.facts)
    if facts["size_bytes"] != size_bytes:
        raise InvalidRequest(f"content {known.digest} has {facts['size_bytes']:,} bytes, not {size_bytes:,}")
    return UploadRow(
        upload_id=facts["upload_id"],
        tenant_id=known.tenant_id,
        principal=facts["by"],
        content_digest=known.digest,
        size_bytes=size_bytes,
        received_bytes=size_bytes,
        at_ms=known.at_ms,
        done_ms=known.at_ms,
    )


def find(desk: Desk, upload_id: str, *, caller: Caller) -> UploadRow:
    """An upload of the caller's tenant, to look at or to write on."""
    with desk.store.read() as tx:
        row = tx.uploads.get(upload_id, scope=caller.scope)
        if row is None:
            raise NotFound(f"there is no upload {upload_id!r}")
        require(tx, caller, "evidence.write", tenant_id=row.tenant_id)
    return row


def reached(row: UploadRow, *, received_bytes: int) -> UploadRow:
    """As the disk tells it: a process that died may not have entered its last piece."""
    return replace(row, received_bytes=received_bytes)


def went_on(desk: Desk, inbox: Inbox, row: UploadRow, *, received_bytes: int) -> UploadRow:
    """Enter how far an upload has come, and keep it when it is whole."""
    is_whole = received_bytes == row.size_bytes
    if is_whole:
        try:
            inbox.take(row.upload_id, digest=row.content_digest)
        except InvalidRequest:
            with desk.store.write() as tx:
                tx.uploads.drop(row.upload_id)
            raise
    with desk.store.write() as tx:
        done_ms = tx.now_ms if is_whole else None
        row = replace(row, received_bytes=received_bytes, done_ms=done_ms)
        tx.uploads.save(row)
        if is_whole:
            facts = {"size_bytes": row.size_bytes, "upload_id": row.upload_id, "by": row.principal}
            tx.owned.add(
                OwnedRow(
                    tenant_id=row.tenant_id, kind="blob", digest=row.content_digest, facts=json.dumps(facts)
                )
            )
    return row


def _expire(desk: Desk, inbox: Inbox) -> None:
    with desk.store.read() as tx:
        stale = tx.uploads.stale(before_ms=tx.now_ms - KEPT_MS, limit=_AT_ONCE)
    for row in stale:
        inbox.drop(row.upload_id)
        with desk.store.write("normal") as tx:
            tx.uploads.drop(row.upload_id)


def make_evidence(
    desk: Desk, stage: Stage, *, name: str, files: Mapping[str, str], is_plain: bool, caller: Caller
) -> OwnedRow:
    """Evidence of files that the tenant has brought in; the same again is the same."""
    tenant_id = tenant_of(desk, caller)
    mark = digest([name, is_plain, sorted(files.items())])
    with desk.store.read() as tx:
        require(tx, caller, "evidence.write", tenant_id=tenant_id)
        _check_owned(tx, files, tenant_id=tenant_id)
        known = tx.owned.get(tenant_id=tenant_id, kind="evidence", digest=mark)
    if known is not None:
        return known
    # Long documents take their time: no transaction waits for them.
    ref = stage(files, name, is_plain)
    facts = {"ref": ref.model_dump(mode="json"), "files": dict(files), "by": caller.name}
    with desk.store.write() as tx:
        require(tx, caller, "evidence.write", tenant_id=tenant_id)
        tx.owned.add(OwnedRow(tenant_id=tenant_id, kind="evidence", digest=mark, facts=json.dumps(facts)))
        made = tx.owned.get(tenant_id=tenant_id, kind="evidence", digest=mark)
    assert made is not None
    return made


def _check_owned(tx: Transaction, files: Mapping[str, str], *, tenant_id: str) -> None:
    for path, content in files.items():
        if tx.owned.get(tenant_id=tenant_id, kind="blob", digest=content) is None:
            raise NotFound(f"the content {content} of {path!r} was not uploaded: upload it first")


def evidence(desk: Desk, mark: str, *, caller: Caller, tenant_id: str | None = None) -> OwnedRow:
    """Evidence that a tenant may refer to."""
    owner = tenant_id or tenant_of(desk, caller)
    with desk.store.read() as tx:
        found = None
        if caller.scope.covers(owner):
            found = tx.owned.get(tenant_id=owner, kind="evidence", digest=mark)
        if found is None:
            raise NotFound(f"there is no evidence {mark}: upload its files, and make evidence of them")
        require(tx, caller, "evidence.read", tenant_id=owner)
    return found


def ref_of(row: OwnedRow) -> EvidenceRef:
    return EvidenceRef.model_validate(json.loads(row.facts)["ref"])
