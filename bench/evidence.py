"""Generated logs that stand in for evidence: the same bytes for the same size."""

import random
from pathlib import Path

_BLOCK_LINES = 20_000
_LEVELS = ("DEBUG", "INFO", "INFO", "INFO", "INFO", "WARNING", "ERROR")
_UNITS = ("auth", "billing", "cache", "gateway", "index", "ledger", "queue", "scheduler")


def write_log(path: Path, *, size_bytes: int) -> Path:
    """A log of at least this many bytes, in the page cache afterwards."""
    block = _block()
    with path.open("wb") as log:
        while log.tell() < size_bytes:
            log.write(block)
    return path


def _block() -> bytes:
    chance = random.Random(7)
    return "".join(_line(chance, number) for number in range(_BLOCK_LINES)).encode()


def _line(chance: random.Random, number: int) -> str:
    what = "connection refused by upstream" if number % 1_000 == 0 else "request served"
    return (
        f"2026-03-{1 + number % 28:02d}T{number % 24:02d}:{number % 60:02d}:07.{number % 1000:03d}Z "
        f"{chance.choice(_LEVELS)} {chance.choice(_UNITS)}[{chance.randrange(1000, 9999)}]: {what} "
        f"in {chance.randrange(1, 900)} ms, request {chance.getrandbits(64):016x}\n"
    )
