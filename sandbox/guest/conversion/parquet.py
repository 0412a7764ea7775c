"""Parquet files: one JSON line a row, by column. Needs pyarrow, which the host mounts when it is installed."""

from pathlib import Path

from sandbox.guest.conversion.form import Form

_ROWS_AT_ONCE = 4_096


def convert(path: Path, form: Form) -> None:
    from pyarrow import parquet  # noqa: PLC0415 - mounted for this conversion alone

    with parquet.ParquetFile(path, memory_map=False) as table:
        for batch in table.iter_batches(batch_size=_ROWS_AT_ONCE, use_threads=False):
            for row in batch.to_pylist():
                form.row(row)
