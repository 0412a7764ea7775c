"""Ranked search: passages by how well they answer words (BM25), indexed when first asked. Knows texts and numbers only."""

import math
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

_WORD = re.compile(r"\w+")
_K1, _B = 1.2, 0.75
_MOST_WORDS = 64


class Index(Protocol):
    """Texts by number, from 1, in the order in which they were added."""

    def add(self, texts: Iterable[str]) -> None: ...
    def best(self, words: list[str], limit: int) -> list[tuple[int, float]]: ...


def words_of(query: str) -> list[str]:
    """The words of a query, each once, in their order."""
    return list(dict.fromkeys(word.lower() for word in _WORD.findall(query)))[:_MOST_WORDS]


def new_index(folder: str) -> Index:
    """SQLite's full-text index in a folder; without it, one of our own in memory."""
    try:
        return FullText(folder)
    except (ImportError, OSError, RuntimeError):
        return InMemory()


class FullText:
    """FTS5, without the texts themselves. Equal scores stay in the order of the passages, so that a replay agrees."""

    def __init__(self, folder: str) -> None:
        import sqlite3  # noqa: PLC0415 - few jobs rank, and every guest would pay

        path = Path(folder) / ".ranking.sqlite3"
        path.unlink(missing_ok=True)
        try:
            self._base = sqlite3.connect(path, isolation_level=None)
            for statement in (
                "PRAGMA journal_mode=OFF",
                "PRAGMA synchronous=OFF",
                "PRAGMA locking_mode=EXCLUSIVE",
                "PRAGMA cache_size=-16384",
                "CREATE VIRTUAL TABLE passages USING fts5(text, content='', tokenize='porter unicode61')",
            ):
                self._base.execute(statement)
        except sqlite3.Error as error:
            raise RuntimeError(f"no full-text index here: {error}") from error
        # Open, and under no name: it is nobody's artifact and goes with this process.
        path.unlink()

    def add(self, texts: Iterable[str]) -> None:
        self._base.execute("BEGIN")
        self._base.executemany("INSERT INTO passages(text) VALUES (?)", ((text,) for text in texts))
        self._base.execute("COMMIT")

    def best(self, words: list[str], limit: int) -> list[tuple[int, float]]:
        asked = " OR ".join(f'"{word}"' for word in words)
        found = self._base.execute(
            "SELECT rowid, round(-bm25(passages), 9) AS score FROM passages WHERE passages MATCH ? "
            "ORDER BY score DESC, rowid LIMIT ?",
            (asked, limit),
        )
        return [(int(number), float(score)) for number, score in found]


class InMemory:
    """The same ranking without SQLite: whole words, no stems."""

    def __init__(self) -> None:
        self._lengths: list[int] = []
        self._postings: dict[str, list[tuple[int, int]]] = {}

    def add(self, texts: Iterable[str]) -> None:
        for text in texts:
            found = _WORD.findall(text.lower())
            self._lengths.append(len(found))
            for word, count in Counter(found).items():
                self._postings.setdefault(word, []).append((len(self._lengths), count))

    def best(self, words: list[str], limit: int) -> list[tuple[int, float]]:
        total = len(self._lengths)
        mean = sum(self._lengths) / total if total else 1.0
        scores: dict[int, float] = {}
        for word in words:
            holders = self._postings.get(word, ())
            weight = math.log(1 + (total - len(holders) + 0.5) / (len(holders) + 0.5))
            for number, count in holders:
                norm = count + _K1 * (1 - _B + _B * self._lengths[number - 1] / (mean or 1.0))
                scores[number] = scores.get(number, 0.0) + weight * count * (_K1 + 1) / norm
        ordered = sorted(scores.items(), key=lambda item: (-round(item[1], 9), item[0]))
        return [(number, round(score, 9)) for number, score in ordered[:limit]]
