"""Randomness of the cells: from the session's seed alone, whatever name it is asked by. Repeatable, therefore not secret."""

import os
import random
import uuid
from typing import Any

_NODE_BITS = 48
_MULTICAST = 1 << 40


class Chance:
    """The bytes behind os.urandom, secrets, uuid4, SystemRandom and every Random without a seed."""

    def __init__(self) -> None:
        self._stream = random.Random(0)  # noqa: S311 - repeatable is what it must be

    def begin(self, seed: int) -> None:
        """A session begins: all that follows is decided by its seed."""
        self._stream = random.Random(f"bytes of {seed}")  # noqa: S311
        # What an unseeded clock-based id would take from the machine.
        _replace(uuid, _node=self._stream.getrandbits(_NODE_BITS) | _MULTICAST)
        random.seed(seed)

    def take(self, count: int, _flags: int = 0) -> bytes:
        return self._stream.randbytes(count)


def install(chance: Chance) -> None:
    """Make the sources of the standard library draw from this one; once is enough, also for forks."""
    seed = random.Random.seed

    def seed_or_draw(self: random.Random, a: Any = None, version: int = 2) -> None:
        seed(self, int.from_bytes(chance.take(32)) if a is None else a, version)

    _replace(random.Random, seed=seed_or_draw)
    shared = random.seed.__self__  # type: ignore[attr-defined]
    _replace(random, seed=shared.seed, _urandom=chance.take)
    _replace(os, urandom=chance.take, getrandom=chance.take)
    # The system's own makes ids of its clock and its network card.
    _replace(uuid, _generate_time_safe=None, _UuidCreate=None)


def _replace(owner: object, **parts: Any) -> None:
    for name, part in parts.items():
        setattr(owner, name, part)
