"""Images, PDFs and pages of PDFs that a cell passes to predict(): their bytes go to the model, what they are into the record."""

import base64
import binascii
import hashlib
import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pydantic import JsonValue

from rlm_worker.contracts import JsonObject
from rlm_worker.errors import BadCall, NotAsked
from rlm_worker.folders import sync_folder
from rlm_worker.marking import defused
from rlm_worker.models.port import Media
from rlm_worker.models.settings import ModelSettings
from rlm_worker.models.sight import sees

MOST_BYTES = 4 << 20
_NAME_CHARS = 200
_PDF = "application/pdf"
_MARK = "$media"


@dataclass(frozen=True, kw_only=True, slots=True)
class PageOf:
    """A page of a PDF of the evidence, that is cut out when the call is asked."""

    document: str
    page: int
    media_type: str = _PDF


#: What a call sends beside its text, in the order of its inputs.
Attachment = Media | PageOf


def take_media(inputs: JsonObject) -> tuple[JsonObject, tuple[Attachment, ...]]:
    """The inputs with digests in the place of bytes, and the bytes, or which page is meant, in the order of the inputs."""
    if not any(_is_media(value) for value in inputs.values()):
        return inputs, ()
    taken = {name: _read(name, value) for name, value in inputs.items() if _is_media(value)}
    told: JsonObject = {
        name: _told(taken[name]) if name in taken else value for name, value in inputs.items()
    }
    return told, tuple(taken.values())


def _is_media(value: JsonValue) -> bool:
    return isinstance(value, dict) and value.keys() == {_MARK}


def _read(name: str, value: JsonValue) -> Attachment:
    said = value[_MARK] if isinstance(value, dict) else None
    match said:
        case {"media_type": "application/pdf", "document": str(document), "page": int(page), **more} if (
            not more
        ):
            return PageOf(document=document, page=page)
    if not isinstance(said, dict) or not isinstance(said.get("base64"), str):
        raise BadCall(
            f"input {name} is no image: pass a path, a document, a page or bytes to an input typed Image or Pdf"
        )
    try:
        data = base64.b64decode(str(said["base64"]), validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadCall(f"input {name} is not base64") from error
    if not data or len(data) > MOST_BYTES:
        raise BadCall(f"input {name} has {len(data):,} bytes: an image or PDF may have {MOST_BYTES:,}")
    media_type = said.get("media_type")
    if media_type not in ("image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf"):
        raise BadCall(f"input {name} is {media_type!r}: PNG, JPEG, GIF, WebP and PDF can be sent")
    return Media(media_type=str(media_type), data=data)


def _told(media: Attachment) -> JsonObject:
    """What stands in the record, and names the call: of a page which one it is, since how it is cut may change."""
    if isinstance(media, PageOf):
        return {_MARK: {"media_type": _PDF, "document": media.document, "page": media.page}}
    return {
        _MARK: {
            "media_type": media.media_type,
            "sha256": media_digest(media),
            "bytes": len(media.data),
        }
    }


def media_digest(media: Media) -> str:
    """The name under which the bytes are kept."""
    return hashlib.sha256(media.data).hexdigest()


def described_media(value: object) -> str | None:
    """What stands in the prompt for an input that is sent as it is; None for all others."""
    match value:
        case {"$media": {"media_type": str(kind), "bytes": int(size)}}:
            return f"(attached: {kind}, {size:,} bytes)"
        case {"$media": {"document": str(document), "page": int(page)}}:
            name = " ".join(defused(document).split())[:_NAME_CHARS]
            return f"(attached: page {page} of {name}, as a PDF of one page)"
        case _:
            return None


def refuse_unseeing(model: str, media: Iterable[Attachment], settings: ModelSettings) -> None:
    """Fail before anything is spent when the model does not take what would be sent."""
    wanted = tuple(media)
    for kind in sorted({each.media_type for each in wanted}):
        if not sees(model, kind, settings=settings):
            page = next((each for each in wanted if isinstance(each, PageOf)), None)
            if kind == _PDF and page is not None:
                raise NotAsked(
                    f"{model} is not known to take PDFs, and pages are not drawn as pictures here: leave the input "
                    f"untyped to send the page's text ({page_text(page)}), name a model that takes PDFs with model=…, "
                    "or, if this one does, list it in CUSTODY_SEEING_MODELS"
                )
            raise NotAsked(
                f"{model} is not known to take {kind}: name a model that does with model=…, "
                "or, if this one does, list it in CUSTODY_SEEING_MODELS"
            )


def page_text(page: PageOf) -> str:
    """How a cell has the text of a page."""
    return f"evidence[{page.document!r}].page({page.page}).text"


def keep_media(media: Iterable[Media], folder: Path | None) -> None:
    """Keep the bytes by content, where this worker keeps what jobs made."""
    if folder is None:
        return
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for each in media:
        place = folder / media_digest(each)
        if place.exists():
            continue
        descriptor, temporary = tempfile.mkstemp(prefix=".incoming-", dir=folder)
        with os.fdopen(descriptor, "wb") as file:
            file.write(each.data)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(place)
    sync_folder(folder)
