"""Images and PDFs as inputs of predict(): read here, sent with their kind. What they show only the model sees."""

import base64
from pathlib import Path
from typing import Any

from sandbox.guest.documents import Document, Page

#: What fits one frame of the channel with room to spare.
MOST_BYTES = 4 << 20

_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"%PDF-", "application/pdf"),
)

_PDF = "application/pdf"


def medium(value: Any, *, kind: str, name: str) -> dict[str, Any]:
    """The bytes of an image or a PDF, given as a path, a document of the evidence, or bytes; of a page, which one it is."""
    if isinstance(value, Page):
        return _page(value, kind=kind, name=name)
    data = _bytes(value, name=name)
    if len(data) > MOST_BYTES:
        smaller = "pass single pages, as in doc.page(3)" if isinstance(value, Document) else "make it smaller"
        raise ValueError(f"{name} has {len(data):,} bytes: an {kind} may have {MOST_BYTES:,}, {smaller}")
    media_type = media_type_of(data)
    if media_type is None or (media_type == "application/pdf") != (kind == "Pdf"):
        offered = "a PDF" if kind == "Pdf" else "a PNG, JPEG, GIF or WebP"
        raise ValueError(
            f"{name} is no {kind}: {offered} was expected, found {media_type or 'something else'}"
        )
    return {"$media": {"media_type": media_type, "base64": base64.b64encode(data).decode("ascii")}}


def _page(page: Page, *, kind: str, name: str) -> dict[str, Any]:
    """A page as the host finds it again: the host cuts it out of the document."""
    if kind != "Pdf":
        raise ValueError(
            f"{name} is a page, and pages are not drawn as pictures here: type the input Pdf for a model that takes "
            "PDFs, or leave it untyped and the page's text is sent"
        )
    if page.document.kind != _PDF:
        raise ValueError(
            f"{name} is a page of {page.document.name}, which is no PDF: leave the input untyped, its text is sent"
        )
    return {"$media": {"media_type": _PDF, "document": page.document.name, "page": page.number}}


def media_type_of(data: bytes) -> str | None:
    """What the bytes say they are."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for magic, kind in _MAGIC if data.startswith(magic)), None)


def _bytes(value: Any, *, name: str) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, Document):
        return bytes(value.raw[: MOST_BYTES + 1])
    if isinstance(value, str | Path):
        with Path(value).open("rb") as file:
            return file.read(MOST_BYTES + 1)
    raise TypeError(
        f"{name} must be a path, a document or a page of the evidence, or bytes, not {type(value).__name__}"
    )
