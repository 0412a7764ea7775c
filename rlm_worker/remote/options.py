"""What `custody-worker` can be told, on its command line and in its environment."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from types import NoneType
from typing import Any, get_args

from rlm_worker.config import WorkerSettings
from rlm_worker.models.settings import ModelSettings
from rlm_worker.remote.link import Server

ABOUT = (
    "Runs the jobs of a control plane elsewhere. Holds a key to its gateway, and no password of any database."
)
#: The variable that holds the key.
KEY = "CUSTODY_WORKER_KEY"
#: The exit code when what was asked for has to change; the number is that of `custody`.
USAGE = 2
_GIB = 1 << 30

#: Flag, the variable that says the same, and how it is read and told.
_FLAGS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("--server", "CUSTODY_SERVER", {"metavar": "URL", "help": "the control plane, as in https://HOST:PORT"}),
    ("--key-file", "", {"type": Path, "metavar": "FILE", "help": f"a file with the key (or set {KEY})"}),
    ("--ca-file", "", {"type": Path, "metavar": "FILE", "help": "certificates to trust, not the machine's"}),
    ("--redis", "CUSTODY_REDIS_URL", {"metavar": "URL", "help": "take wake-ups from there, without asking"}),
    ("--redis-namespace", "CUSTODY_REDIS_NAMESPACE", {"metavar": "NAME", "help": "begins all names there"}),
    ("--image", "CUSTODY_IMAGE", {"metavar": "NAME", "help": "the image or release that runs here"}),
)
_FIGURES: tuple[tuple[str, type, float | str, str], ...] = (
    ("--slots", int, 1, "jobs to work on at once"),
    ("--home", Path, ".custody-worker", "where fetched evidence is kept"),
    ("--cache-gib", float, 10.0, "evidence that is kept for later jobs, in GiB"),
    ("--drain-seconds", float, 10.0, "time that jobs have to end when the worker is told to"),
    ("--patience", float, 60.0, "seconds that a server which does not answer is waited for at the start"),
)


class CannotStart(Exception):
    """The one paragraph that a person reads, and the exit code."""

    def __init__(self, message: str, *, code: int = USAGE) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, kw_only=True)
class Options:
    server: Server
    slots: int
    redis: str
    redis_namespace: str
    image: str
    home: Path
    cache_bytes: int
    drain_seconds: float
    patience_seconds: float


def read_options(argv: Sequence[str] | None, env: Mapping[str, str]) -> Options:
    parser = argparse.ArgumentParser(prog="custody-worker", description=ABOUT)
    for flag, variable, more in _FLAGS:
        parser.add_argument(flag, default=env.get(variable) or None, **more)
    for flag, kind, default, about in _FIGURES:
        parser.add_argument(flag, type=kind, default=kind(default), metavar="N", help=f"{about} ({default})")
    parser.add_argument(
        "--insecure", action="store_true", help="let the key travel in clear text to another machine"
    )
    given = parser.parse_args(argv)
    if not given.server:
        parser.error("say where the control plane is, with --server")
    if given.slots < 1:
        parser.error("--slots must be 1 or more")
    return Options(
        server=Server(
            url=given.server,
            key=_key(given.key_file, env),
            ca_file=given.ca_file,
            is_clear_text_allowed=given.insecure,
        ),
        slots=given.slots,
        redis=given.redis or "",
        redis_namespace=given.redis_namespace or "custody",
        image=given.image or "",
        home=given.home.absolute(),
        cache_bytes=int(given.cache_gib * _GIB),
        drain_seconds=given.drain_seconds,
        patience_seconds=given.patience,
    )


def _key(file: Path | None, env: Mapping[str, str]) -> str:
    if file is None:
        if not env.get(KEY):
            raise CannotStart(f"there is no key: name a file with --key-file, or set {KEY}")
        return env[KEY].strip()
    try:
        return file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise CannotStart(f"the key file {str(file)!r} cannot be read: {error}") from error


def worker_settings(env: Mapping[str, str]) -> WorkerSettings:
    """Limits and habits by CUSTODY_*, under the names they have there and everywhere."""
    chosen: dict[str, Any] = {}
    for item in fields(WorkerSettings):
        variable = f"CUSTODY_{item.name.upper()}"
        if item.name != "models" and env.get(variable):
            kind: Any = next((part for part in get_args(item.type) if part is not NoneType), item.type)
            try:
                chosen[item.name] = kind(env[variable])
            except ValueError:
                raise CannotStart(f"{variable} must be a number, not {env[variable]!r}") from None
    try:
        return WorkerSettings(models=ModelSettings.from_env(env), **chosen)
    except ValueError as error:
        raise CannotStart(str(error)) from error
