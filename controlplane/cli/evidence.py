"""`custody evidence`: what a job was given, file by file."""

from itertools import islice
from typing import Any

import click
from rich import box
from rich.table import Table
from rich.text import Text

from controlplane.cli.consoles import stdout_console
from controlplane.cli.figures import size
from controlplane.cli.flags import Where, job_argument, json_flag, where_flags
from controlplane.cli.home import opened
from controlplane.cli.safe import one_line
from controlplane.cli.shapes import write_json
from controlplane.custodian import Custodian
from rlm_worker.contracts import EvidenceRef
from rlm_worker.contracts.reading import ManifestEntry

_KINDS = {
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
    "application/vnd.apache.parquet": "parquet",
}


@click.command()
@job_argument
@click.option("--limit", "-n", default=50, show_default=True, type=click.IntRange(1, 1_000_000), metavar="N")
@json_flag
@where_flags
def evidence(job_id: str, *, limit: int, as_json: bool, where: Where) -> None:
    """Show the evidence of a job: each file with its type, size, hash, encoding, pages and rows.

    JSON keys: evidence [{name, kind, origin, location, files, size_bytes, manifest_digest, notes, manifest [file …], truncated}].
    """
    with opened(where) as app:
        refs = app.job(job_id).spec.input_artifacts
        if as_json:
            write_json({"evidence": [_document(app, ref, limit=limit) for ref in refs]})
            return
        console = stdout_console()
        for ref in refs:
            console.print(_heading(ref), highlight=False)
            console.print(manifest_table(list(islice(app.manifest(ref), limit))))
            for note in app.notes(ref):
                console.print(Text(f"  {one_line(note, width=300)}", style="yellow"))
            if ref.files > limit:
                console.print(f"… {ref.files - limit:,} more: -n {ref.files}", markup=False, highlight=False)
        if not refs:
            console.print("This job was given no evidence.", markup=False, highlight=False)


def _document(app: Custodian, ref: EvidenceRef, *, limit: int) -> dict[str, Any]:
    files = app.manifest(ref)
    return {
        **ref.model_dump(mode="json", exclude={"reading", "trust"}),
        "notes": list(app.notes(ref)),
        "manifest": [entry.model_dump(mode="json") for entry in files[:limit]],
        "truncated": len(files) > limit,
    }


def _heading(ref: EvidenceRef) -> Text:
    origin = f", {one_line(ref.origin, width=200)}" if ref.origin else ""
    return Text(f"{one_line(ref.name)}: {ref.files:,} files, {size(ref.size_bytes)}{origin}", style="bold")


def manifest_table(entries: list[ManifestEntry]) -> Table:
    """Files as a table, one a row."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("file", "type", "size", "sha256", "encoding", "pages", "rows", "note"):
        table.add_column(
            name, overflow="fold" if name in ("file", "note") else "ellipsis", no_wrap=name == "sha256"
        )
    for entry in entries:
        table.add_row(
            *(
                Text(text)
                for text in (
                    one_line(entry.path, width=200),
                    _KINDS.get(entry.kind, entry.kind),
                    size(entry.size_bytes),
                    "not sealed" if entry.digest is None else entry.digest[:12],
                    entry.encoding or "",
                    "" if entry.pages is None else f"{entry.pages:,}",
                    "" if entry.rows is None else f"{entry.rows:,}",
                    one_line(entry.note or ("as text" if entry.is_converted else ""), width=200),
                )
            )
        )
    return table
