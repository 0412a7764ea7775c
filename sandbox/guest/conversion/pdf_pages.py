"""Single pages of a PDF, each as a PDF of its own that holds nothing of the others. Needs pypdf, which the host mounts."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sandbox.guest.conversion.xml_parts import BadDocument

_WHY_CHARS = 300
#: Of an annotation, what leads to other pages.
_LEADS_AWAY = ("/A", "/AA", "/Dest", "/IRT", "/P", "/Parent", "/Popup", "/StructParent")
#: Of a page, what leads to other pages: beads of articles, actions, the tree of marks.
_NOT_OF_THE_PAGE = ("/AA", "/B", "/PieceInfo", "/StructParents", "/Tabs")


def cut(numbers: Iterable[int], *, source: str, folder: str) -> None:
    """Write `3.pdf` for page 3, or `3.error` with the reason why there is none."""
    import pypdf  # noqa: PLC0415 - mounted for this alone

    reader = pypdf.PdfReader(source)
    if reader.is_encrypted and not reader.decrypt(""):
        raise BadDocument("it is encrypted and its password is not empty")
    for number in numbers:
        try:
            page = _alone(reader.pages[number - 1])
            writer = pypdf.PdfWriter()
            writer.add_page(page, excluded_keys=_NOT_OF_THE_PAGE)
            with (Path(folder) / f"{number}.pdf").open("wb") as file:
                writer.write(file)
        except Exception as error:  # noqa: BLE001 - a broken page is not a broken document
            (Path(folder) / f"{number}.pdf").unlink(missing_ok=True)
            (Path(folder) / f"{number}.error").write_text(f"{type(error).__name__}: {error}"[:_WHY_CHARS])


def _alone(page: Any) -> Any:
    """The page with what is drawn on it, and no way from it to another."""
    from pypdf.generic import ArrayObject, DictionaryObject, NameObject  # noqa: PLC0415 - see above

    annotations = page.get("/Annots")
    if annotations is None:
        return page
    kept = ArrayObject()
    for each in annotations.get_object():
        drawn = each.get_object()
        if drawn.get("/Subtype") not in ("/Link", "/Popup"):
            left = {key: value for key, value in drawn.items() if key not in _LEADS_AWAY}
            kept.append(DictionaryObject(left))
    page[NameObject("/Annots")] = kept
    return page
