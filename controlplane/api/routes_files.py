"""What is brought in and taken out: uploads that may be interrupted, evidence made of them, artifacts of jobs."""

from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Header
from fastapi import Path as InPath
from fastapi.responses import FileResponse, Response
from starlette.requests import ClientDisconnect

from controlplane.adapters.inbox import Piece
from controlplane.api import answers as to
from controlplane.api.bodies import ArtifactBody, Page
from controlplane.api.bodies_files import EvidenceBody, EvidenceRequest, UploadBody, UploadRequest
from controlplane.api.calls import Acting, Call, Called, Reply
from controlplane.api.operations import Content, DigestPath, JobId, Key, NamedId, answers
from controlplane.api.routes_jobs import view_of
from controlplane.api.withholding import text
from controlplane.errors import InvalidRequest, NotFound
from controlplane.handlers import contents, uploads
from controlplane.ports_access import UploadRow

routes = APIRouter(prefix="/v1", tags=["files"])
#: What is written to the disk at once.
_BLOCK = 1 << 20
Offset = Annotated[
    int,
    Header(
        alias="Upload-Offset", ge=0, lt=2**53, description="Where this piece begins: at `received_bytes`."
    ),
]
_PIECE = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}
_FILE = {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}


@routes.post("/uploads", operation_id="begin_upload", **answers(200, UploadBody))
async def begin_upload(call: Called, body: UploadRequest, key: Key = None) -> Response:
    """Announce a file by its hash. What the tenant has already is complete at once; what was interrupted goes on."""

    def act(acting: Acting) -> Reply:
        row = uploads.begin(
            acting.desk,
            acting.app.evidence.inbox,
            content=body.sha256,
            size_bytes=body.size_bytes,
            quota_bytes=acting.app.settings.upload_quota_bytes,
            caller=acting.caller,
        )
        if row.size_bytes == 0 and row.done_ms is None:
            row = _took(acting, row, b"")
        return Reply(body=to.upload(row))

    _ = key
    return await call.write(act)


def _took(acting: Acting, row: UploadRow, content: bytes) -> UploadRow:
    inbox = acting.app.evidence.inbox
    with inbox.writing(row.upload_id, offset=0, size_bytes=row.size_bytes) as piece:
        piece.write(content)
    return uploads.went_on(acting.desk, inbox, row, received_bytes=piece.received_bytes)


@routes.get("/uploads/{upload_id}", operation_id="get_upload", **answers(200, UploadBody))
async def get_upload(call: Called, upload_id: NamedId) -> Response:
    """How far an upload has come."""

    def act(acting: Acting) -> Reply:
        row = uploads.find(acting.desk, upload_id, caller=acting.caller)
        if row.done_ms is None:
            received = acting.app.evidence.inbox.received_bytes(upload_id)
            row = uploads.reached(row, received_bytes=received)
        return Reply(body=to.upload(row), headers=_offset(row))

    return await call.read(act)


@routes.patch(
    "/uploads/{upload_id}", operation_id="send_piece", openapi_extra=_PIECE, **answers(200, UploadBody)
)
async def send_piece(call: Called, upload_id: NamedId, offset: Offset) -> Response:
    """Send the next piece of a file. With the last one its hash is checked, and the file can be made evidence of."""
    with ExitStack() as stack:
        acting, row, piece = await call.run(partial(_open, stack, upload_id=upload_id, offset=offset))
        try:
            await _receive(call, piece)
        except ClientDisconnect:
            pass
        finally:
            # What has come stays: the caller goes on from there.
            await call.kernel.pool.run(stack.close)
        row = await call.run(lambda _: _went_on(acting, row, piece))
    reply = Reply(body=to.upload(row), headers=_offset(row))
    return reply.response()


def _open(
    stack: ExitStack, acting: Acting, *, upload_id: str, offset: int
) -> tuple[Acting, UploadRow, Piece]:
    row = uploads.find(acting.desk, upload_id, caller=acting.caller)
    if row.done_ms is not None:
        raise InvalidRequest(f"upload {upload_id} is complete: nothing more is taken")
    writing = acting.app.evidence.inbox.writing(upload_id, offset=offset, size_bytes=row.size_bytes)
    return acting, row, stack.enter_context(writing)


def _went_on(acting: Acting, row: UploadRow, piece: Piece) -> UploadRow:
    inbox = acting.app.evidence.inbox
    return uploads.went_on(acting.desk, inbox, row, received_bytes=piece.received_bytes)


async def _receive(call: Call, piece: Piece) -> None:
    """Write what comes, in blocks, as fast as the disk takes it: nothing more is read meanwhile."""
    block = bytearray()
    try:
        async for chunk in call.request.stream():
            block += chunk
            if len(block) >= _BLOCK:
                content, block = bytes(block), bytearray()
                await call.kernel.pool.run(partial(piece.write, content))
    finally:
        if block:
            await call.kernel.pool.run(partial(piece.write, bytes(block)))


def _offset(row: UploadRow) -> dict[str, str]:
    return {"Upload-Offset": str(row.received_bytes)}


@routes.post("/evidence", operation_id="make_evidence", **answers(201, EvidenceBody))
async def make_evidence(call: Called, body: EvidenceRequest, key: Key = None) -> Response:
    """Make evidence of uploaded files. The same files under the same name are the same evidence."""

    def act(acting: Acting) -> Reply:
        files = {file.path: file.sha256 for file in body.files}
        if len(files) != len(body.files):
            raise InvalidRequest("a path is named twice: give every file its own")
        row = uploads.make_evidence(
            acting.desk,
            acting.app.evidence.stage_kept,
            name=body.name,
            files=files,
            is_plain=body.plain,
            caller=acting.caller,
        )
        return Reply(body=to.evidence(row), status=201)

    _ = key
    return await call.write(act)


@routes.get("/evidence/{digest}", operation_id="get_evidence", **answers(200, EvidenceBody))
async def get_evidence(call: Called, digest: DigestPath) -> Response:
    """Evidence that jobs of the tenant can use."""

    def act(acting: Acting) -> Reply:
        return Reply(body=to.evidence(uploads.evidence(acting.desk, digest, caller=acting.caller)))

    return await call.read(act)


@routes.get("/jobs/{job_id}/artifacts", operation_id="list_artifacts", **answers(200, Page[ArtifactBody]))
async def list_artifacts(call: Called, job_id: JobId, *, content: Content = False) -> Response:
    """Files that a job made and that were kept. Their names are the job's own text."""

    def act(acting: Acting) -> Reply:
        result = view_of(acting, job_id, content=content).result
        refs = () if result is None else result.artifact_refs
        items = tuple(
            ArtifactBody(path=text(ref.path, content=content), sha256=ref.digest, size_bytes=ref.size_bytes)
            for ref in refs
        )
        return Reply(body=Page[ArtifactBody](items=items))

    return await call.read(act)


_GET_FILE = answers(200, None)
_GET_FILE["responses"][200] |= _FILE


@routes.get(
    "/jobs/{job_id}/artifacts/{path:path}",
    operation_id="get_artifact",
    response_class=FileResponse,
    **{**_GET_FILE, "response_model": None},
)
async def get_artifact(
    call: Called, job_id: JobId, path: Annotated[str, InPath(min_length=1, max_length=2_000)]
) -> Response:
    """One file that a job made, as it is. It was made by code that nobody vouches for."""
    file, digest = await call.run(partial(_artifact, job_id=job_id, path=path))
    headers = {
        "ETag": f'"{digest}"',
        "Content-Disposition": "attachment",
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": "sandbox; default-src 'none'",
        "Cache-Control": "no-store",
    }
    return FileResponse(file, media_type="application/octet-stream", headers=headers)


def _artifact(acting: Acting, *, job_id: str, path: str) -> tuple[Path, str]:
    view = view_of(acting, job_id, content=False)
    contents.allow(acting.desk, caller=acting.caller, tenant_id=view.tenant_id, job_id=job_id)
    refs = () if view.result is None else view.result.artifact_refs
    digest = next((ref.digest for ref in refs if ref.path == path), None)
    file = None if digest is None else acting.app.settings.artifacts / digest
    if file is None or digest is None or not file.is_file():
        raise NotFound(f"job {job_id} has kept no such file: see its list of artifacts")
    return file, digest
