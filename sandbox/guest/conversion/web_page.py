"""Web pages: what a reader sees, a line a block, without scripts and styles."""

import codecs
import re
from html.parser import HTMLParser
from pathlib import Path

from sandbox.guest.conversion.form import Form

_HIDDEN = frozenset({"script", "style", "noscript", "template", "svg", "math"})
_BLOCKS = frozenset(
    [
        "address",
        "article",
        "aside",
        "blockquote",
        "body",
        "br",
        "caption",
        "dd",
        "div",
        "dl",
        "dt",
        "fieldset",
        "figcaption",
        "figure",
        "footer",
        "form",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "head",
        "header",
        "hr",
        "html",
        "li",
        "main",
        "nav",
        "ol",
        "option",
        "p",
        "pre",
        "section",
        "table",
        "tbody",
        "tfoot",
        "thead",
        "title",
        "tr",
        "ul",
    ]
)
_CHARSET = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?([A-Za-z0-9_.:-]{1,40})", re.IGNORECASE)
_SPACES = re.compile(r"[ \t\n\r\f\v]+")
_BOMS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))


def convert(path: Path, form: Form) -> None:
    reader = _Reader(form)
    reader.feed(_decoded(path.read_bytes()))
    reader.close()
    reader.end_line()


def _decoded(data: bytes) -> str:
    for mark, encoding in _BOMS:
        if data.startswith(mark):
            return data.decode(encoding, "replace")
    named = _CHARSET.search(data[:4096])
    for encoding in (named[1].decode("ascii") if named else "utf-8", "utf-8"):
        try:
            return data.decode(encoding)
        except (UnicodeDecodeError, LookupError):
            continue
    return data.decode("cp1252", "replace")


class _Reader(HTMLParser):
    def __init__(self, form: Form) -> None:
        super().__init__(convert_charrefs=True)
        self._form = form
        self._said: list[str] = []
        self._hidden = 0
        self._kept = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _HIDDEN:
            self._hidden += 1
        elif tag in _BLOCKS:
            self.end_line()
            self._kept += tag == "pre"
            self._said.extend(["- "] if tag == "li" else [])
        elif tag in ("td", "th"):
            self._said.append("\t")
        elif tag == "img":
            self._said.append(next((f"[{value}]" for name, value in attrs if name == "alt" and value), ""))

    def handle_endtag(self, tag: str) -> None:
        if tag in _HIDDEN:
            self._hidden = max(0, self._hidden - 1)
        elif tag in _BLOCKS:
            self.end_line()
            self._kept = max(0, self._kept - (tag == "pre"))

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self._said.append(data if self._kept else _SPACES.sub(" ", data))

    def end_line(self) -> None:
        """Write what was said since the last block began, if anything was."""
        text = "".join(self._said)
        self._said.clear()
        if text.strip():
            self._form.block(text.rstrip() if self._kept else text.strip())
