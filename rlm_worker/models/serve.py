"""The process that holds an embedded model: llama.cpp's own HTTP server on loopback, for all users on the machine.

python -m rlm_worker.models.serve MODEL STATE USERS --name NAME --threads N --context N --slots N --linger SECONDS

Writes where it listens and its key to STATE (readable by its owner only), and ends when nobody has held USERS for a while.
"""

import argparse
import fcntl
import json
import os
import secrets
import signal
import sys
import time
from pathlib import Path
from typing import Any

from rlm_worker.models.processes import boot_id, start_time

POLL_SECONDS = 0.5


def main() -> None:
    options = _options()
    # A Ctrl-C in the terminal of the one who started us is not meant for the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    key = secrets.token_urlsafe(24)
    server = _start(options, key)
    _write_state(options.state, url=str(server.listening_address), key=key)
    try:
        users = _wait_for_last_user(options.users, linger_seconds=options.linger)
    finally:
        options.state.unlink(missing_ok=True)
    sys.stdout.flush()
    assert users >= 0  # held until the process is gone, so that a new user starts a new server
    os._exit(0)  # the C++ server has threads of its own and nothing to save


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="rlm_worker.models.serve")
    parser.add_argument("model", type=Path)
    parser.add_argument("state", type=Path)
    parser.add_argument("users", type=Path)
    parser.add_argument("--name", required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--context", type=int, required=True)
    parser.add_argument("--slots", type=int, required=True)
    parser.add_argument("--linger", type=float, required=True)
    return parser.parse_args()


def _start(options: argparse.Namespace, key: str) -> Any:
    import xllamacpp  # noqa: PLC0415  # absent on some systems; the message is then the last line of the log

    params = xllamacpp.CommonParams()
    params.model.path = str(options.model)
    params.model_alias = {options.name}  # else every answer would tell the file's path
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [key]
    params.n_parallel = options.slots
    params.n_ctx = options.context * options.slots  # llama.cpp shares it out among the slots
    params.cpuparams.n_threads = options.threads
    params.cpuparams_batch.n_threads = options.threads
    params.cache_ram_mib = 256  # by default it keeps up to 8 GiB of old prompts
    params.ui = False
    params.endpoint_slots = False
    params.offline = True
    params.verbosity = 0
    return xllamacpp.Server(params)


def _write_state(state: Path, *, url: str, key: str) -> None:
    told = {
        "pid": os.getpid(),
        "started": start_time(os.getpid()),
        "boot_id": boot_id(),
        "url": url,
        "key": key,
    }
    draft = state.with_name(f"{state.name}.{os.getpid()}")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump(told, file)
    draft.replace(state)


def _wait_for_last_user(users: Path, *, linger_seconds: float) -> int:
    """Returns, holding the users' lock alone, when nobody else has held it for `linger_seconds`.

    The system drops the lock of a user that dies, however it dies.
    """
    lock = os.open(users, os.O_RDWR | os.O_CREAT, 0o600)
    alone_since: float | None = None
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            alone_since = None
        else:
            alone_since = alone_since or time.monotonic()
            if time.monotonic() - alone_since >= linger_seconds:
                return lock
            fcntl.flock(lock, fcntl.LOCK_UN)
        time.sleep(POLL_SECONDS)


if __name__ == "__main__":
    main()
