"""A dramatiq broker on a table: wake-ups without any service. A message may be lost or doubled; nothing depends on it."""

import itertools
import secrets
import threading
import time
from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa
from dramatiq.broker import Broker, Consumer, MessageProxy
from dramatiq.common import current_millis
from dramatiq.errors import ConnectionClosed, QueueNotFound
from dramatiq.message import Message
from dramatiq.middleware import Middleware

from controlplane.adapters import schema
from controlplane.adapters.databases import Place, open_database
from controlplane.notice import Notice

_MESSAGE = schema.queue_message
#: A wake-up this old is stale: the dispatcher has sent another one since.
_STALE_MS = 3_600_000


def _visible(now_ms: sa.TextClause) -> sa.Select[tuple[str]]:
    return sa.select(_MESSAGE.c.message_id).where(
        _MESSAGE.c.queue == sa.bindparam("wanted"),
        _MESSAGE.c.is_dead.is_(False),
        _MESSAGE.c.ready_ms <= now_ms,
        _MESSAGE.c.hidden_until_ms <= now_ms,
    )


class SqlBroker(Broker):
    """Queues as rows. Each process has its own connections; threads of one process wake each other at once."""

    def __init__(
        self,
        place: Place,
        *,
        visibility_ms: int = 30_000,
        middleware: list[Middleware] | None = None,
        notice: Notice | None = None,
    ) -> None:
        super().__init__(middleware=middleware or [])
        self.queues: dict[str, None] = {}
        self.visibility_ms = visibility_ms
        self.notice = notice or Notice()
        self._made = itertools.count()
        self._database = open_database(place)
        self.engine, self.reader = self._database.writer, self._database.reader
        self.now_ms = sa.text(self._database.now_ms)

    def consume(self, queue_name: str, prefetch: int = 1, timeout: int = 5_000) -> Consumer:
        if queue_name not in self.queues:
            raise QueueNotFound(queue_name)  # type: ignore[no-untyped-call]
        return SqlConsumer(self, queue_name, prefetch=prefetch, timeout_ms=timeout)

    def declare_queue(self, queue_name: str) -> None:
        if queue_name not in self.queues:
            self.emit_before("declare_queue", queue_name)
            self.queues[queue_name] = None
            self.emit_after("declare_queue", queue_name)

    def enqueue(self, message: Message[Any], *, delay: int | None = None) -> Message[Any]:
        self.emit_before("enqueue", message, delay)
        row = {
            "message_id": self._next_id(),
            "queue": message.queue_name,
            "body": message.encode(),
            "ready_ms": current_millis() + (delay or 0),
            "hidden_until_ms": 0,
            "fence": 0,
            "deliveries": 0,
            "is_dead": False,
        }
        with _connected(self.engine) as connection:
            connection.execute(sa.insert(_MESSAGE), row)
        self.notice.announce()
        self.emit_after("enqueue", message, delay)
        return message

    def _next_id(self) -> str:
        """Sorts by when it was made, also within a millisecond."""
        return f"{current_millis():014d}.{next(self._made):08d}.{secrets.token_hex(8)}"

    def depth(self, queue_name: str) -> int:
        """Messages that no worker has taken."""
        query = sa.select(sa.func.count()).select_from(_visible(self.now_ms).subquery())
        with _connected(self.reader) as connection:
            return connection.execute(query, {"wanted": queue_name}).scalar_one()

    def flush(self, queue_name: str) -> None:
        with _connected(self.engine) as connection:
            connection.execute(sa.delete(_MESSAGE).where(_MESSAGE.c.queue == queue_name))

    def flush_all(self) -> None:
        for queue_name in self.queues:
            self.flush(queue_name)

    def drop_stale(self) -> None:
        """Remove what ended processes left in queues of their own."""
        with _connected(self.engine) as connection:
            connection.execute(
                sa.delete(_MESSAGE).where(_MESSAGE.c.ready_ms < self.now_ms - sa.literal(_STALE_MS))
            )

    def close(self) -> None:
        self._database.close()


class _connected:  # noqa: N801 - reads as a verb where it is used
    """A transaction whose failure dramatiq understands: it waits and tries again."""

    def __init__(self, engine: sa.Engine) -> None:
        self._begin = engine.begin()

    def __enter__(self) -> sa.Connection:
        try:
            return self._begin.__enter__()
        except sa.exc.DBAPIError as error:
            raise ConnectionClosed(error) from error  # type: ignore[no-untyped-call]

    def __exit__(self, *error: object) -> None:
        try:
            self._begin.__exit__(*error)  # type: ignore[arg-type]
        except sa.exc.DBAPIError as failed:
            raise ConnectionClosed(failed) from failed  # type: ignore[no-untyped-call]


class SqlMessage(MessageProxy):
    """A message with the row it came from and the fence of this delivery."""

    def __init__(self, message: Message[Any], *, message_row: str, fence: int) -> None:
        super().__init__(message)
        self.message_row = message_row
        self.fence = fence


class SqlConsumer(Consumer):
    """Takes messages of one queue, hides them while they are worked on, and removes them only under its own fence."""

    def __init__(self, broker: SqlBroker, queue_name: str, *, prefetch: int, timeout_ms: int) -> None:
        self._broker = broker
        self._queue = queue_name
        self._prefetch = prefetch
        self._timeout = timeout_ms / 1000
        self._taken: list[SqlMessage] = []
        self._outstanding: dict[str, int] = {}
        self._lock = threading.Lock()
        self._renewed = time.monotonic()

    def __next__(self) -> MessageProxy | None:
        self._keep_hidden()
        seen = self._broker.notice.count
        if not self._taken:
            self._taken = self._take()
        if self._taken:
            return self._taken.pop(0)
        self._broker.notice.wait(seen, timeout=self._timeout)
        return None

    def _take(self) -> list[SqlMessage]:
        free = self._prefetch - len(self._outstanding)
        if free <= 0:
            return []
        visible = _visible(self._broker.now_ms)
        # Looking costs no write lock, so idle consumers do not disturb anyone.
        with _connected(self._broker.reader) as connection:
            if connection.execute(visible.limit(1), {"wanted": self._queue}).first() is None:
                return []
        # Rows that another consumer is taking are passed over.
        chosen = (
            visible.order_by(_MESSAGE.c.ready_ms, _MESSAGE.c.message_id)
            .limit(free)
            .with_for_update(skip_locked=True)
        )
        claim = (
            sa.update(_MESSAGE)
            .where(_MESSAGE.c.message_id.in_(chosen))
            .values(
                fence=_MESSAGE.c.fence + 1,
                deliveries=_MESSAGE.c.deliveries + 1,
                hidden_until_ms=self._broker.now_ms + sa.literal(self._broker.visibility_ms),
            )
            .returning(_MESSAGE.c.message_id, _MESSAGE.c.fence, _MESSAGE.c.body)
        )
        with _connected(self._broker.engine) as connection:
            rows = connection.execute(claim, {"wanted": self._queue}).all()
        with self._lock:
            self._outstanding.update({row.message_id: row.fence for row in rows})
        return [
            SqlMessage(Message.decode(bytes(row.body)), message_row=row.message_id, fence=row.fence)
            for row in sorted(rows, key=lambda row: row.message_id)
        ]

    def _keep_hidden(self) -> None:
        if time.monotonic() - self._renewed < self._broker.visibility_ms / 3_000:
            return
        self._renewed = time.monotonic()
        with self._lock:
            held = list(self._outstanding.items())
        if not held:
            return
        with _connected(self._broker.engine) as connection:
            for message_id, fence in held:
                connection.execute(
                    sa.update(_MESSAGE)
                    .where(_MESSAGE.c.message_id == message_id, _MESSAGE.c.fence == fence)
                    .values(hidden_until_ms=self._broker.now_ms + sa.literal(self._broker.visibility_ms))
                )

    def ack(self, message: MessageProxy) -> None:
        self._finish(message, sa.delete(_MESSAGE))

    def nack(self, message: MessageProxy) -> None:
        self._finish(message, sa.update(_MESSAGE).values(is_dead=True))

    def requeue(self, messages: Iterable[MessageProxy]) -> None:
        for message in messages:
            self._finish(message, sa.update(_MESSAGE).values(hidden_until_ms=0))

    def _finish(self, message: MessageProxy, statement: sa.Delete | sa.Update) -> None:
        assert isinstance(message, SqlMessage)
        own = statement.where(_MESSAGE.c.message_id == message.message_row, _MESSAGE.c.fence == message.fence)
        with _connected(self._broker.engine) as connection:
            connection.execute(own)
        with self._lock:
            self._outstanding.pop(message.message_row, None)
        # A place is free: whoever waits for one looks again.
        self._broker.notice.announce()
