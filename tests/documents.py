"""Small documents of every kind that becomes text, made by hand: what they hold is known to the letter."""

import zipfile
from pathlib import Path

_DATE_STYLE = '<styleSheet xmlns="s"><cellXfs><xf numFmtId="0"/><xf numFmtId="14"/><xf numFmtId="164"/></cellXfs></styleSheet>'


def a_pdf(path: Path, pages: list[list[str]]) -> Path:
    """A PDF with one line of text under the other on each page."""
    objects: list[bytes] = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"",
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    kids = []
    for lines in pages:
        shown = " T* ".join(f"({line.replace('(', '').replace(')', '')}) Tj" for line in lines)
        stream = f"BT /F1 12 Tf 14 TL 50 700 Td {shown} ET".encode("latin-1")
        objects.append(b"<< /Length %d >>\nstream\n%s\nendstream" % (len(stream), stream))
        content = len(objects)
        objects.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Resources << /Font << /F1 3 0 R >> >> /Contents %d 0 R >>"
            % content
        )
        kids.append(f"{len(objects)} 0 R")
    objects[1] = f"<< /Type /Pages /Kids [{' '.join(kids)}] /Count {len(kids)} >>".encode()
    body, offsets = b"%PDF-1.4\n", []
    for number, content_of in enumerate(objects, 1):
        offsets.append(len(body))
        body += b"%d 0 obj\n%s\nendobj\n" % (number, content_of)
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    start = len(body)
    body += b"xref\n0 %d\n0000000000 65535 f \n%s" % (len(objects) + 1, table)
    body += b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, start)
    path.write_bytes(body)
    return path


def a_docx(path: Path, paragraphs: list[str], *, table: list[list[str]] = (), footnote: str = "") -> Path:
    def paragraph(text: str) -> str:
        return f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>"

    rows = "".join(
        "<w:tr>" + "".join(f"<w:tc>{paragraph(cell)}</w:tc>" for cell in row) + "</w:tr>" for row in table
    )
    body = "".join(map(paragraph, paragraphs)) + (f"<w:tbl>{rows}</w:tbl>" if rows else "")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as package:
        package.writestr("[Content_Types].xml", "<Types/>")
        package.writestr("word/document.xml", f'<w:document xmlns:w="w"><w:body>{body}</w:body></w:document>')
        if footnote:
            package.writestr(
                "word/footnotes.xml", f'<w:footnotes xmlns:w="w">{paragraph(footnote)}</w:footnotes>'
            )
    return path


def an_xlsx(path: Path, sheets: dict[str, str], *, strings: tuple[str, ...] = ()) -> Path:
    """A workbook whose sheets are given as the XML of their rows."""
    listed = "".join(f'<sheet name="{name}" sheetId="{n}" r:id="r{n}"/>' for n, name in enumerate(sheets, 1))
    relations = "".join(
        f'<Relationship Id="r{n}" Target="worksheets/sheet{n}.xml"/>' for n, _ in enumerate(sheets, 1)
    )
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as package:
        package.writestr(
            "xl/workbook.xml", f'<workbook xmlns="s" xmlns:r="r"><sheets>{listed}</sheets></workbook>'
        )
        package.writestr(
            "xl/_rels/workbook.xml.rels", f'<Relationships xmlns="p">{relations}</Relationships>'
        )
        package.writestr("xl/styles.xml", _DATE_STYLE)
        shared = "".join(f"<si><t>{text}</t></si>" for text in strings)
        package.writestr("xl/sharedStrings.xml", f'<sst xmlns="s">{shared}</sst>')
        for n, rows in enumerate(sheets.values(), 1):
            package.writestr(
                f"xl/worksheets/sheet{n}.xml",
                f'<worksheet xmlns="s"><sheetData>{rows}</sheetData></worksheet>',
            )
    return path


ORDERS = (
    '<row r="1"><c r="A1" t="s"><v>0</v></c><c r="B1" t="s"><v>1</v></c><c r="C1" t="inlineStr"><is><t>when</t></is></c></row>'
    '<row r="2"><c r="A2" t="s"><v>2</v></c><c r="B2"><v>12.5</v></c><c r="C2" s="1"><v>45292</v></c></row>'
    '<row r="4"><c r="A4" t="str"><v>Bo</v></c><c r="C4" s="1"><v>45292.5</v></c></row>'
)
ORDER_STRINGS = ("who", "paid", "Ann")
