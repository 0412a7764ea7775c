"""Requests that bring files in: uploads by content, piece by piece, and the evidence that is made of them."""

from controlplane.api.bodies_files import EvidenceBody, EvidenceRequest, UploadBody, UploadRequest
from controlplane.client.calls import Call, body_as, get, post, segment

_UPLOAD = body_as(UploadBody)


def begin_upload(sha256: str, size_bytes: int, *, key: str | None = None) -> Call[UploadBody]:
    """Announce a file; one whose content is there already is complete at once."""
    return post("/v1/uploads", _UPLOAD, UploadRequest(sha256=sha256, size_bytes=size_bytes), key=key)


def upload(upload_id: str) -> Call[UploadBody]:
    """How much of a file has come."""
    return get(f"/v1/uploads/{segment(upload_id)}", _UPLOAD)


def send_piece(upload_id: str, piece: bytes, *, offset: int) -> Call[UploadBody]:
    """A piece of a file. Whether one that broke off has come is asked; it is not sent twice on a guess."""
    return Call(
        method="PATCH",
        path=f"/v1/uploads/{segment(upload_id)}",
        read=_UPLOAD,
        content=piece,
        headers={"Upload-Offset": str(offset), "Content-Type": "application/octet-stream"},
        is_repeatable=False,
    )


def make_evidence(request: EvidenceRequest, *, key: str | None = None) -> Call[EvidenceBody]:
    """Make uploaded files a piece of evidence that jobs can use."""
    return post("/v1/evidence", body_as(EvidenceBody), request, key=key)


def evidence(digest: str) -> Call[EvidenceBody]:
    """A piece of evidence by its digest."""
    return get(f"/v1/evidence/{segment(digest)}", body_as(EvidenceBody))
