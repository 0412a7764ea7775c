"""Documents cut into passages and ranked: what `evidence.rank` gives. Reads documents, keeps addresses and no text."""

from array import array
from collections.abc import Iterator

from sandbox.guest.documents import Chunk, Document, TooLarge
from sandbox.guest.ranking import new_index, words_of

_PASSAGE_BYTES = 1_200
_MOST_BYTES = 192 << 20


class Passage(Chunk):
    """A Chunk that was found by words, with the `score` of how well it fits them."""

    __slots__ = ("score",)
    score: float


class Passages:
    """All passages of some documents, indexed once."""

    def __init__(self, documents: list[Document], *, folder: str) -> None:
        self._documents = [document for document in documents if not document.is_binary]
        size = sum(document.size for document in self._documents)
        if size > _MOST_BYTES:
            raise TooLarge(
                f"{size:,} bytes are too many to rank, at most {_MOST_BYTES:,}: choose documents with glob=…, "
                "or narrow with evidence.search(regex) first"
            )
        self._of = array("L")
        self._starts = array("Q")
        self._ends = array("Q")
        self._index = new_index(folder)
        self._index.add(self._cut())

    def _cut(self) -> Iterator[str]:
        for place, document in enumerate(self._documents):
            for chunk in document.chunks(chars=_PASSAGE_BYTES, overlap=0):
                self._of.append(place)
                self._starts.append(chunk.start)
                self._ends.append(chunk.end)
                yield chunk

    def best(self, query: str, *, limit: int) -> list[Passage]:
        """The best passages first; equal ones in the order of the documents."""
        words = words_of(query)
        if not words or limit < 1:
            return []
        return [self._passage(number - 1, score) for number, score in self._index.best(words, limit)]

    def _passage(self, place: int, score: float) -> Passage:
        chunk = self._documents[self._of[place]].between(self._starts[place], self._ends[place])
        passage = Passage(chunk)
        passage.stands_as(chunk)
        passage.score = score
        return passage
