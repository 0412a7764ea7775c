"""Word files: one line a paragraph, cells of a table side by side, notes and comments after the body."""

from pathlib import Path

from sandbox.guest.conversion.form import Form
from sandbox.guest.conversion.xml_parts import Event, Package

_BODY = "word/document.xml"
_APPENDED = ("footnotes", "endnotes", "comments")


def convert(path: Path, form: Form) -> None:
    package = Package(path)
    _write(package, _BODY, form)
    for name in _APPENDED:
        part = f"word/{name}.xml"
        if package.has(part):
            form.line("")
            form.line(f"[{name}]")
            _write(package, part, form)


def _write(package: Package, part: str, form: Form) -> None:
    page = _Paragraphs(form)
    for event in package.events(part):
        page.take(event)


class _Paragraphs:
    def __init__(self, form: Form) -> None:
        self._form = form
        self._said: list[str] = []
        self._cells: list[list[str]] = []
        self._in_text = False

    def take(self, event: Event) -> None:
        what, tag, _ = event
        if what == "text":
            if self._in_text:
                self._said.append(tag)
        elif what == "start":
            self._begin(tag)
        else:
            self._finish(tag)

    def _begin(self, tag: str) -> None:
        match tag:
            case "t":
                self._in_text = True
            case "tab":
                self._said.append("\t")
            case "br" | "cr":
                self._said.append("\n")
            case "tr":
                self._cells.append([])
            case "tc" if self._cells:
                self._cells[-1].append("")

    def _finish(self, tag: str) -> None:
        match tag:
            case "t":
                self._in_text = False
            case "p":
                self._paragraph("".join(self._said))
                self._said.clear()
            case "tr" if self._cells:
                row = "\t".join(cell.strip() for cell in self._cells.pop())
                self._paragraph(row)

    def _paragraph(self, text: str) -> None:
        if self._cells and self._cells[-1]:
            self._cells[-1][-1] += " " + " ".join(text.split("\n"))
        else:
            self._form.block(text)
