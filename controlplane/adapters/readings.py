"""Readings: what is known of evidence before a job opens it, and the text forms of its documents. Made once by content."""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from controlplane.adapters.content_store import ContentStore, link
from controlplane.adapters.private_files import make_folder, replace_file
from controlplane.adapters.sniffing import look_at, sniff
from rlm_worker.contracts import digest
from rlm_worker.contracts.job import Reading
from rlm_worker.contracts.reading import INDEX, KINDS, FileFacts, ReadingIndex, suffix_of

_SNIFFED = 1_000
_CONVERTED = 2_000
_CONVERTED_BYTES = 512 << 20
_LARGEST = 64 << 20
#: Changes when the same evidence gives another index or another text form.
_VERSION = 2

#: Kinds that have a text form, and how it is made.
_HOW = {
    "text/html": "html",
    "application/pdf": "pdf",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
    "application/vnd.apache.parquet": "parquet",
    "application/gzip": "gzip",
    "application/x-bzip2": "bzip2",
    "application/x-xz": "xz",
}
_ROWED = ("xlsx", "parquet")
_PACKED = ("gzip", "bzip2", "xz")
_FAILED = "not converted"


@dataclass(frozen=True, kw_only=True)
class Document:
    """A file that is to get a text form."""

    path: Path
    how: str


@dataclass(frozen=True, kw_only=True)
class TextForm:
    """The text form of a document, or in the note why there is none."""

    file: Path | None
    facts: FileFacts


#: Told of each document as it is done: how many are, of how many, and its name.
OnConverted = Callable[[int, int, str], None]
#: Makes text forms in a sandbox, in a folder that is thrown away afterwards; tells the number of each that is done.
Convert = Callable[[Sequence[Document], Path, Callable[[int], None]], list[TextForm]]


def unheard(_done: int, _total: int, _name: str) -> None:
    """Nobody listens."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """Evidence as it lies: where, under which name, and the files in it by path and size."""

    place: Path
    name: str
    files: Sequence[tuple[str, int]]
    #: Names the state of the files: the same key is the same evidence.
    key: str
    notes: tuple[str, ...] = ()
    is_plain: bool = False
    on_converted: OnConverted = unheard

    def path_of(self, below: str) -> Path:
        return self.place / below if below else self.place


class ReadingRoom:
    """Readings of one home."""

    def __init__(self, folder: Path, store: ContentStore, convert: Convert | None) -> None:
        self._folder = folder
        self._store = store
        self._convert = convert

    def read(self, found: Found) -> Reading:
        """The reading of evidence; one that was made for the same state of it is used again."""
        key = digest([_VERSION, found.key, found.notes, found.is_plain, self._convert is None])
        known = self._folder / "known" / f"{key}.json"
        if known.is_file():
            reading = Reading.model_validate_json(known.read_bytes())
            if (Path(reading.location) / INDEX).is_file():
                return reading
        facts = self._look(found)
        forms = {} if found.is_plain else self._forms(found, facts)
        reading = self._write(found, facts, forms)
        self._store.sync()
        if not any(fact.note.startswith(_FAILED) for fact in facts.values()):
            # What failed for want of a library or a sandbox may go well the next time.
            replace_file(known, reading.model_dump_json().encode())
        return reading

    def _look(self, found: Found) -> dict[str, FileFacts]:
        """What the first bytes say, of as many files as can be looked at without anybody noticing the time."""
        facts: dict[str, FileFacts] = {}
        top, is_alone = str(found.place), len(found.files) == 1
        for below, _ in found.files[:_SNIFFED]:
            try:
                look = look_at(f"{top}/{below}" if below else top, spots=is_alone)
            except OSError:
                continue
            facts[below] = sniff(look, name=below or found.name)
        return facts

    def _forms(self, found: Found, facts: dict[str, FileFacts]) -> dict[str, str]:
        """Digests of text forms by path; what has none, and could, gets a note."""
        wanted, left = dict[str, Document](), _CONVERTED_BYTES
        for below, size in found.files:
            how = _how(facts.get(below), below or found.name)
            if how is None:
                continue
            if size > _LARGEST or size > left or len(wanted) >= _CONVERTED:
                _note(facts, below, "not converted: it is too large, or there are too many")
                continue
            left -= size
            wanted[below] = Document(path=found.path_of(below), how=how)
        return self._converted(wanted, facts, found.on_converted) if wanted else {}

    def _converted(
        self, wanted: dict[str, Document], facts: dict[str, FileFacts], on_converted: OnConverted
    ) -> dict[str, str]:
        if self._convert is None:
            for below in wanted:
                _note(facts, below, "not converted: there is no sandbox here in which it could be")
            return {}
        forms: dict[str, str] = {}
        kept = dict(self._all_kept(wanted, facts))
        missing = [below for below, (_, known) in kept.items() if known is None]
        made = self._make([wanted[below] for below in missing], on_converted)
        for below, (content, known) in kept.items():
            told = known or made[missing.index(below)]
            if known is None and told[0]:
                self._remember(wanted[below], content, told)
            text, form = told
            facts[below] = _merged(facts.get(below, FileFacts()), form, content=content)
            if text and wanted[below].how in _PACKED:
                facts[below] = facts[below].model_copy(update={"kind": _packed_kind(wanted[below].path.name)})
            if text:
                forms[below] = text
        return forms

    def _all_kept(
        self, wanted: dict[str, Document], facts: dict[str, FileFacts]
    ) -> Iterator[tuple[str, tuple[str, tuple[str, FileFacts] | None]]]:
        for below, document in wanted.items():
            try:
                yield below, self._kept(document)
            except OSError as error:
                _note(facts, below, f"not converted: it cannot be read, {error.strerror}")

    def _kept(self, document: Document) -> tuple[str, tuple[str, FileFacts] | None]:
        """The digest of a document, and the text form that an earlier evidence had it converted to."""
        content = self._store.digest_of(document.path)
        record = self._record(document, content)
        if not record.is_file():
            return content, None
        said = json.loads(record.read_bytes())
        known = self._store.find(said["text"])
        return content, None if known is None else (said["text"], FileFacts.model_validate(said["facts"]))

    def _record(self, document: Document, content: str) -> Path:
        return self._folder / "conversions" / f"{content}.{document.how}.{_VERSION}.json"

    def _remember(self, document: Document, content: str, told: tuple[str, FileFacts]) -> None:
        """Keep what a document became, unless it was changed on the way: then nobody knows what was converted."""
        if self._store.digest_of(document.path) != content:
            return
        body = {"text": told[0], "facts": told[1].model_dump(mode="json")}
        replace_file(self._record(document, content), json.dumps(body).encode())

    def _make(self, documents: list[Document], on_converted: OnConverted) -> list[tuple[str, FileFacts]]:
        assert self._convert is not None
        if not documents:
            return []
        done: list[int] = []

        def tell(number: int) -> None:
            done.append(number)
            on_converted(len(done), len(documents), documents[number].path.name)

        with self._store.draft() as draft:
            made = [
                ("" if form.file is None else self._store.keep_file(form.file).digest, form.facts)
                for form in self._convert(documents, draft, tell)
            ]
        self._store.sync()
        return made

    def _write(self, found: Found, facts: dict[str, FileFacts], forms: dict[str, str]) -> Reading:
        names = {
            below: f"{number}.{'jsonl' if _how(facts.get(below), below or found.name) in _ROWED else 'txt'}"
            for number, below in enumerate(sorted(forms))
        }
        told = {
            below: fact.model_copy(update={"text": names.get(below, "")})
            for below, fact in facts.items()
            if fact != FileFacts() or below in names
        }
        suffixes = {suffix_of(below or found.name) for below, _ in found.files}
        kinds = {suffix: KINDS[suffix] for suffix in sorted(suffixes) if suffix in KINDS}
        index = ReadingIndex(kinds=kinds, files=told, notes=found.notes)
        body = json.dumps(index.model_dump(mode="json", exclude_defaults=True), sort_keys=True)
        encoded = body.encode("utf-8", "surrogatepass")
        mark = digest([body, [[names[below], forms[below]] for below in sorted(forms)]])
        place = self._folder / mark
        if not place.is_dir():
            self._place(place, encoded, {names[below]: forms[below] for below in forms})
        self._store.owe(place / INDEX, place, place.parent)
        return Reading(location=str(place.resolve()), digest=mark)

    def _place(self, place: Path, index: bytes, texts: dict[str, str]) -> None:
        make_folder(self._folder)
        with self._store.draft() as draft:
            fresh = draft / "reading"
            fresh.mkdir()
            fresh.chmod(0o755)
            (fresh / INDEX).write_bytes(index)
            (fresh / INDEX).chmod(0o444)
            for name, content in texts.items():
                blob = self._store.find(content)
                assert blob is not None
                link(blob.path, fresh / name)
            try:
                os.rename(fresh, place)  # noqa: PTH104 - must fail when the place is taken
            except OSError:
                if not place.is_dir():
                    raise


def digest_of_reading(reading: Reading, store: ContentStore) -> str:
    """The digest of a reading as it lies now: equal to its own unless somebody changed it."""
    place = Path(reading.location)
    try:
        body = (place / INDEX).read_bytes().decode("utf-8", "surrogatepass")
        files = json.loads(body).get("files", {})
        texts = [told["text"] for _, told in sorted(files.items()) if told.get("text")]
        return digest([body, [[name, store.digest_of(place / name)] for name in texts]])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return digest(["no reading", str(error)])


def _how(facts: FileFacts | None, name: str) -> str | None:
    if facts is not None and facts.encoding in ("utf-16", "utf-32"):
        return facts.encoding
    kind = (facts.kind if facts is not None else "") or KINDS.get(suffix_of(name), "")
    return _HOW.get(kind)


def _packed_kind(name: str) -> str:
    """The kind of what is packed, by the name before the packing's own suffix."""
    return KINDS.get(suffix_of(name.rpartition(".")[0]), "text/plain")


def _note(facts: dict[str, FileFacts], below: str, text: str) -> None:
    facts[below] = facts.get(below, FileFacts()).model_copy(update={"note": text})


def _merged(known: FileFacts, form: FileFacts, *, content: str) -> FileFacts:
    """What the conversion says, beside the kind; a text form is UTF-8, whatever the document was."""
    encoding = known.encoding if form.note.startswith(_FAILED) else None
    return form.model_copy(update={"kind": known.kind, "encoding": encoding, "digest": content})
