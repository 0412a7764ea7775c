"""News between processes, by LISTEN and NOTIFY: one connection and one thread, once somebody waits. News may be lost; nobody relies on it."""

import logging
import select
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psycopg

log = logging.getLogger(__name__)
_RETRY_SECONDS = 0.5
#: More than this at once is told as one: anything may have changed.
_MOST = 50


class Messenger:
    """Tells other processes what this one announces, and this one what the others do."""

    CHANNEL = "custody"

    def __init__(self, url: str, *, on_news: Callable[[str], None]) -> None:
        self._url = url
        self._on_news = on_news
        self._lock = threading.Lock()
        self._to_tell: set[str] = set()
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._ready = threading.Event()
        self._bell, self._hammer = socket.socketpair()
        self._bell.setblocking(False)
        self._hammer.setblocking(False)

    def start(self) -> None:
        """Begin to listen, and return when nothing is missed any more, or the server does not answer. Starting twice is fine."""
        with self._lock:
            if self._thread is None and not self._is_closed:
                self._thread = threading.Thread(target=self._turn, name="messenger", daemon=True)
                self._thread.start()
        self._ready.wait(timeout=5)

    def tell(self, about: str) -> bool:
        """Hand over news; False when nobody is here to carry them."""
        with self._lock:
            if self._thread is None or self._is_closed:
                return False
            self._to_tell.add(about)
        self._ring()
        return True

    def _ring(self) -> None:
        with suppress(BlockingIOError, OSError):
            self._hammer.send(b"!")

    def close(self) -> None:
        """Tell what is to be told and end. Closing twice is fine."""
        with self._lock:
            self._is_closed, thread = True, self._thread
        self._ring()
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=5)
        self._bell.close()
        self._hammer.close()

    def _turn(self) -> None:
        while not self._is_closed:
            try:
                with psycopg.connect(self._url, autocommit=True, connect_timeout=5) as connection:
                    connection.execute(f"LISTEN {self.CHANNEL}")
                    connection.execute("SET synchronous_commit = off")
                    self._ready.set()
                    # What happened before is known to nobody here.
                    self._on_news("")
                    self._carry(connection)
            except psycopg.Error as error:
                self._ready.set()
                log.warning("messenger_lost", extra={"error": str(error).strip()})
                select.select([self._bell], [], [], _RETRY_SECONDS if not self._is_closed else 0)

    def _carry(self, connection: "psycopg.Connection[Any]") -> None:
        while True:
            select.select([connection.fileno(), self._bell.fileno()], [], [])
            with suppress(BlockingIOError):
                self._bell.recv(4096)
            self._send(connection)
            for news in connection.notifies(timeout=0):
                if news.pid != connection.info.backend_pid:
                    self._on_news(news.payload)
            if self._is_closed:
                return

    def _send(self, connection: "psycopg.Connection[Any]") -> None:
        with self._lock:
            told, self._to_tell = self._to_tell, set()
        if not told:
            return
        about = [""] if "" in told or len(told) > _MOST else sorted(told)
        connection.execute(
            "SELECT pg_notify(%s, about) FROM unnest(%s::text[]) AS news(about)", (self.CHANNEL, about)
        )
