"""What is known of evidence before a job reads it: media types, encodings, and text forms of what is not text."""

from typing import Annotated, Literal

from pydantic import Field

from rlm_worker.contracts.base import Contract, Count, Positive

#: The file in a reading's folder that holds its index; text forms lie beside it.
INDEX = "index.json"

#: Media type by the end of a name. Ours, and not the machine's: the same evidence is the same everywhere.
KINDS: dict[str, str] = {
    "txt": "text/plain",
    "log": "text/plain",
    "md": "text/markdown",
    "rst": "text/x-rst",
    "py": "text/x-python",
    "js": "text/javascript",
    "ts": "text/x-typescript",
    "c": "text/x-c",
    "h": "text/x-c",
    "go": "text/x-go",
    "rs": "text/x-rust",
    "java": "text/x-java",
    "sh": "text/x-shellscript",
    "sql": "text/x-sql",
    "toml": "application/toml",
    "yaml": "application/yaml",
    "yml": "application/yaml",
    "ini": "text/plain",
    "cfg": "text/plain",
    "xml": "application/xml",
    "json": "application/json",
    "jsonl": "application/jsonl",
    "ndjson": "application/jsonl",
    "csv": "text/csv",
    "tsv": "text/tab-separated-values",
    "tab": "text/tab-separated-values",
    "html": "text/html",
    "htm": "text/html",
    "xhtml": "text/html",
    "pdf": "application/pdf",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "xlsm": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "parquet": "application/vnd.apache.parquet",
    "gz": "application/gzip",
    "bz2": "application/x-bzip2",
    "xz": "application/x-xz",
    "zst": "application/zstd",
    "zip": "application/zip",
    "tar": "application/x-tar",
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "gif": "image/gif",
}
UNKNOWN = "application/octet-stream"


def suffix_of(path: str) -> str:
    """The end of a name by which its kind is known: `csv` of `a/b.CSV`."""
    name = path.rpartition("/")[2]
    return name.rpartition(".")[2].lower() if "." in name else ""


class FileFacts(Contract):
    """What is known of one file beyond its name."""

    #: Media type; empty: the one that its name says.
    kind: str = ""
    #: How its bytes are text; None: UTF-8, or no text at all.
    encoding: str | None = None
    #: What separates the fields of a table.
    delimiter: Annotated[str, Field(max_length=1)] = ""
    rows: Count | None = None
    #: The line on which each page begins in the text form.
    pages: tuple[Positive, ...] = ()
    sheets: tuple[str, ...] = ()
    #: Name of the text form in the reading's folder; empty: the file is read as it is.
    text: Annotated[str, Field(pattern=r"^([0-9]+\.(txt|jsonl))?$")] = ""
    #: Why there is no text form although one could be expected, or what it leaves out.
    note: Annotated[str, Field(max_length=1_000)] = ""
    #: SHA-256 of the file itself, where it was read to be converted.
    digest: Annotated[str, Field(pattern=r"^([0-9a-f]{64})?$")] = ""


class ReadingIndex(Contract):
    """The index of one piece of evidence: types by suffix, and facts of the files that need more than that."""

    version: Literal[1] = 1
    kinds: dict[str, str] = Field(default_factory=dict)
    #: By path below the evidence; the only file of a file has the path "".
    files: dict[str, FileFacts] = Field(default_factory=dict)
    #: What was left out when the evidence was brought in.
    notes: tuple[str, ...] = ()

    def facts_of(self, path: str) -> FileFacts:
        return self.files.get(path, _NOTHING)

    def kind_of(self, path: str, *, name: str) -> str:
        """The media type of a file, by its facts or else by its name."""
        return self.facts_of(path).kind or self.kinds.get(suffix_of(path or name), UNKNOWN)


_NOTHING = FileFacts()


class ManifestEntry(Contract):
    """One file of evidence, as a person is shown it."""

    path: str
    kind: str
    size_bytes: Count
    #: Of its content; None until a job has sealed it. A file that could not be read says so instead.
    digest: str | None = None
    encoding: str | None = None
    rows: Count | None = None
    pages: Count | None = None
    is_converted: bool = False
    note: str = ""


def is_text_kind(kind: str) -> bool:
    """Whether files of a media type are read as text as they lie."""
    return kind.startswith("text/") or kind.endswith(("json", "jsonl", "xml", "yaml", "toml"))
