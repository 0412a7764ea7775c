"""Images and PDFs that a cell passes to predict(): their bytes go to the model, their digest into the record."""

import base64
import binascii
import hashlib
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from pydantic import JsonValue

from rlm_worker.contracts import JsonObject
from rlm_worker.errors import BadCall, NotAsked
from rlm_worker.folders import sync_folder
from rlm_worker.models.port import Media
from rlm_worker.models.settings import ModelSettings
from rlm_worker.models.sight import sees

_MOST_BYTES = 4 << 20
_MARK = "$media"


def take_media(inputs: JsonObject) -> tuple[JsonObject, tuple[Media, ...]]:
    """The inputs with digests in the place of bytes, and the bytes in the order of the inputs."""
    if not any(_is_media(value) for value in inputs.values()):
        return inputs, ()
    taken = {name: _read(name, value) for name, value in inputs.items() if _is_media(value)}
    told: JsonObject = {
        name: _told(taken[name]) if name in taken else value for name, value in inputs.items()
    }
    return told, tuple(taken.values())


def _is_media(value: JsonValue) -> bool:
    return isinstance(value, dict) and value.keys() == {_MARK}


def _read(name: str, value: JsonValue) -> Media:
    said = value[_MARK] if isinstance(value, dict) else None
    if not isinstance(said, dict) or not isinstance(said.get("base64"), str):
        raise BadCall(
            f"input {name} is no image: pass a path, a document or bytes to an input typed Image or Pdf"
        )
    try:
        data = base64.b64decode(str(said["base64"]), validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadCall(f"input {name} is not base64") from error
    if not data or len(data) > _MOST_BYTES:
        raise BadCall(f"input {name} has {len(data):,} bytes: an image or PDF may have {_MOST_BYTES:,}")
    media_type = said.get("media_type")
    if media_type not in ("image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf"):
        raise BadCall(f"input {name} is {media_type!r}: PNG, JPEG, GIF, WebP and PDF can be sent")
    return Media(media_type=str(media_type), data=data)


def _told(media: Media) -> JsonObject:
    return {
        _MARK: {
            "media_type": media.media_type,
            "sha256": hashlib.sha256(media.data).hexdigest(),
            "bytes": len(media.data),
        }
    }


def described_media(value: object) -> str | None:
    """What stands in the prompt for an input that is sent as it is; None for all others."""
    match value:
        case {"$media": {"media_type": str(kind), "bytes": int(size)}}:
            return f"(attached: {kind}, {size:,} bytes)"
        case _:
            return None


def refuse_unseeing(model: str, media: Iterable[Media], settings: ModelSettings) -> None:
    """Fail before anything is spent when the model does not take what would be sent."""
    for kind in sorted({each.media_type for each in media}):
        if not sees(model, kind, settings=settings):
            raise NotAsked(
                f"{model} is not known to take {kind}: name a model that does with model=…, "
                "or, if this one does, list it in CUSTODY_SEEING_MODELS"
            )


def keep_media(media: Iterable[Media], folder: Path | None) -> None:
    """Keep the bytes by content, where this worker keeps what jobs made."""
    if folder is None:
        return
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for each in media:
        place = folder / hashlib.sha256(each.data).hexdigest()
        if place.exists():
            continue
        descriptor, temporary = tempfile.mkstemp(prefix=".incoming-", dir=folder)
        with os.fdopen(descriptor, "wb") as file:
            file.write(each.data)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(place)
    sync_folder(folder)
