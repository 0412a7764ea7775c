"""Wake-ups over Redis: dramatiq's broker with everything off that leases and the dispatcher own. Nothing depends on a message."""

import logging
from typing import Any

import redis
from dramatiq.broker import Consumer, MessageProxy
from dramatiq.brokers.redis import RedisBroker, _RedisConsumer
from dramatiq.errors import ConnectionClosed
from dramatiq.message import Message
from redis.backoff import NoBackoff
from redis.retry import Retry

log = logging.getLogger(__name__)

#: A server that does not answer within this time is gone: whoever sends has other things to do.
ANSWER_SECONDS = 1.0
#: After so long without a sign of a process dramatiq sends its messages again. Leases do that much sooner: this only cleans up.
_DEAD_MS = 600_000
#: Of a million commands, those that clean up after processes that ended.
_CLEANING = 10_000


class WakeUps(RedisBroker):
    """Queues of wake-ups in Redis. Failures of the server are all the same to dramatiq: it waits and tries again."""

    @property
    def consumer_class(self) -> type[Consumer]:
        return _Consumer

    def declare_queue(self, queue_name: str) -> None:
        """Without a queue of delayed messages: the dispatcher sends nothing before its time."""
        if queue_name not in self.queues:
            self.emit_before("declare_queue", queue_name)
            self.queues.add(queue_name)
            self.emit_after("declare_queue", queue_name)

    def enqueue(self, message: Message[Any], *, delay: int | None = None) -> Message[Any]:
        try:
            return super().enqueue(message, delay=delay)
        except redis.RedisError as error:
            raise ConnectionClosed(error) from error  # type: ignore[no-untyped-call]

    def depth(self, queue_name: str) -> int:
        """Messages that no worker has taken."""
        try:
            return int(self.client.llen(f"{self.namespace}:{queue_name}"))
        except redis.RedisError as error:
            raise ConnectionClosed(error) from error  # type: ignore[no-untyped-call]

    def close(self) -> None:
        self.client.close()


class _Consumer(_RedisConsumer):
    """Does not insist on its acknowledgements: a message that comes twice changes nothing, a thread that waits for Redis does."""

    def __next__(self) -> MessageProxy | None:
        try:
            found: MessageProxy | None = super().__next__()  # type: ignore[no-untyped-call]
        except redis.RedisError as error:
            raise ConnectionClosed(error) from error  # type: ignore[no-untyped-call]
        return found

    def ack(self, message: MessageProxy) -> None:
        self._finish(super().ack, message)

    def nack(self, message: MessageProxy) -> None:
        self._finish(super().nack, message)

    def requeue(self, messages: Any) -> None:
        try:
            super().requeue(messages)  # type: ignore[no-untyped-call]
        except redis.RedisError as error:
            log.warning("wake_ups_not_requeued", extra={"reason": str(error)})

    def _finish(self, act: Any, message: MessageProxy) -> None:
        try:
            act(message)
        except (redis.RedisError, ConnectionClosed) as error:
            log.warning("wake_up_not_acknowledged", extra={"reason": str(error)})


def _client(url: str) -> redis.Redis:
    return redis.Redis.from_url(
        url,
        socket_timeout=ANSWER_SECONDS,
        socket_connect_timeout=ANSWER_SECONDS,
        # Once more, for a connection that was cut while nobody used it.
        retry=Retry(NoBackoff(), 1),
    )


def redis_broker(url: str, *, namespace: str) -> WakeUps:
    """A broker on a server, which is not asked before it is needed."""
    return WakeUps(  # type: ignore[no-untyped-call]
        client=_client(url),
        namespace=namespace,
        middleware=[],
        heartbeat_timeout=_DEAD_MS,
        maintenance_chance=_CLEANING,
    )


def problem_of(url: str) -> str:
    """Why the server does not answer; empty: it does."""
    client = _client(url)
    try:
        client.ping()
    except redis.RedisError as error:
        return f"the queue does not answer: {error}"
    finally:
        client.close()
    return ""
