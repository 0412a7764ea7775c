"""PDF files: the text of each page, in the order in which its pages stand. Needs pypdf, which the host mounts."""

from pathlib import Path
from typing import Any

from sandbox.guest.conversion.form import Form, Full
from sandbox.guest.conversion.xml_parts import BadDocument

_MOST_PAGES = 20_000


def convert(path: Path, form: Form) -> None:
    import pypdf  # noqa: PLC0415 - mounted for this conversion alone

    reader = pypdf.PdfReader(path)
    if reader.is_encrypted and not reader.decrypt(""):
        raise BadDocument("it is encrypted and its password is not empty")
    empty = 0
    for number, page in enumerate(reader.pages, 1):
        if number > _MOST_PAGES:
            form.note(f"the text form ends after page {_MOST_PAGES:,}")
            break
        form.page()
        text = _text(page, number, form)
        empty += not text.strip()
        form.block(text)
    if empty:
        form.note(f"{empty} of {len(form.pages)} pages hold no text, they may be pictures")


def _text(page: Any, number: int, form: Form) -> str:
    try:
        return str(page.extract_text())
    except Full:
        raise
    except Exception as error:  # noqa: BLE001 - a broken page is not a broken document
        form.note(f"page {number} cannot be read: {type(error).__name__}")
        return ""
