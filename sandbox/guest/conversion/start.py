"""One document to its text form: chosen by name, bounded, its failure said in one line."""

import importlib
from pathlib import Path
from typing import Protocol

from sandbox.guest.conversion.form import Form, Full


class Converter(Protocol):
    def convert(self, path: Path, form: Form) -> None: ...


#: Name of a conversion and the module that does it; what it needs is imported with it.
_MODULES = {
    "html": "web_page",
    "docx": "word",
    "xlsx": "workbook",
    "pdf": "pdf",
    "parquet": "parquet",
    "gzip": "compressed",
    "bzip2": "compressed",
    "xz": "compressed",
    "utf-16": "wide_text",
    "utf-32": "wide_text",
}


def convert(how: str, *, source: str, folder: str, max_bytes: int) -> None:
    """Write the text form of a document into a folder. Raises what the document's own parser raises."""
    module: Converter = importlib.import_module(f"sandbox.guest.conversion.{_MODULES[how]}")
    form = Form(Path(folder), max_bytes=max_bytes)
    try:
        module.convert(Path(source), form)
    except Full:
        form.note(f"the text form ends here: it has reached {max_bytes:,} bytes")
    form.close()
