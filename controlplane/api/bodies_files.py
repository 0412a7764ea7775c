"""Bodies of the API for what is brought in: uploads by content, and the evidence that is made of them."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from controlplane.api.bodies import Answer, Digest, Request, Whole


class UploadRequest(Request):
    """A file that is to be sent."""

    sha256: Digest
    size_bytes: Whole


class UploadBody(Answer):
    upload_id: str
    sha256: str
    size_bytes: int
    #: Where the next piece begins.
    received_bytes: int
    is_complete: bool
    expires_at: datetime | None = None


class EvidenceFile(Request):
    """A file that was uploaded, and the path that cells see it under."""

    path: Annotated[str, Field(min_length=1, max_length=1_000)]
    sha256: Digest


class EvidenceRequest(Request):
    """Uploaded files that make a piece of evidence; one file is a file, several are a folder."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._ -]{0,199}$")]
    files: Annotated[tuple[EvidenceFile, ...], Field(min_length=1, max_length=10_000)]
    #: Take it as it is: neither unpacked nor converted.
    plain: bool = False


class EvidenceBody(Answer):
    """Evidence that jobs of the tenant can use."""

    digest: str
    name: str
    kind: Literal["file", "tree"]
    files: int
    size_bytes: int
    trust: Literal["untrusted", "trusted"] = "untrusted"
    origin: str = ""
    created_at: datetime
