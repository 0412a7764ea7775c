"""`custody-worker`: runs the jobs of a control plane elsewhere. Holds a key to its gateway, and no password of any database."""

import logging
import os
import secrets
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence

from rlm_worker.contracts.gateway import GatewayDown, GatewayRefused
from rlm_worker.contracts.remote import HandBackRequest, HelloAnswer, HelloRequest
from rlm_worker.remote.gateway import HttpGateway, NotAdmitted, WrongProtocol
from rlm_worker.remote.link import BadAddress
from rlm_worker.remote.options import KEY, CannotStart, Options, read_options, worker_settings
from rlm_worker.versions import versions

log = logging.getLogger(__name__)

#: What a script can rely on; the numbers are those of `custody`.
DRAINED, FAILED = 0, 4
#: Time for jobs to notice that they were handed back.
_UNWIND_SECONDS = 5.0
_AGAIN_SECONDS = 0.5
_USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def main(argv: Sequence[str] | None = None) -> int:
    _log_to_stderr()
    try:
        return run(read_options(argv, os.environ))
    except CannotStart as error:
        sys.stderr.write(f"custody-worker: {error}\n")
        return error.code


def run(options: Options) -> int:
    """Work until told to stop."""
    try:
        gateway = HttpGateway(options.server)
    except BadAddress as error:
        raise CannotStart(str(error)) from error
    # What runs here from now on has no use for it.
    os.environ.pop(KEY, None)
    request = HelloRequest(
        # Parts as in other workers' names: the place, the pid as it counts there, and what no later process has.
        name=f"{socket.gethostname()}/{os.getpid()}/{secrets.token_hex(8)}",
        host=socket.gethostname(),
        slots=options.slots,
        asks=not options.redis,
        image=options.image,
        versions=versions(),
    )
    admitted = _admitted(gateway, request, options)
    return _Worker(gateway, options, request, admitted).run()


def _admitted(gateway: HttpGateway, request: HelloRequest, options: Options) -> HelloAnswer:
    """Say hello; a server that does not answer is waited for."""
    waited = 0.0
    while True:
        try:
            return gateway.hello(request)
        except GatewayDown as down:
            if waited >= options.patience_seconds:
                raise CannotStart(
                    f"{down}. Look whether {options.server.url} is right and reachable from here", code=FAILED
                ) from down
            waited += _AGAIN_SECONDS
            threading.Event().wait(_AGAIN_SECONDS)
        except GatewayRefused as refused:
            raise refusal(refused, options.server.url) from refused


def refusal(refused: GatewayRefused, url: str) -> CannotStart:
    """What to say when the server does not want this worker."""
    match refused:
        case WrongProtocol():
            said = f"{refused}. Run the release of custody that the server runs: it says which with `custody doctor`"
        case NotAdmitted():
            said = f"{url} does not accept the key: {refused}. Have a new one issued with the role worker"
        case _:
            said = f"{url} did not let this worker in: {refused}"
    return CannotStart(said, code=FAILED)


class _Worker:
    """One process: admitted, working, draining, gone."""

    def __init__(
        self, gateway: HttpGateway, options: Options, request: HelloRequest, admitted: HelloAnswer
    ) -> None:
        self._gateway = gateway
        self._options = options
        self._request = request
        self._worker_id = admitted.worker_id
        self._ended = threading.Event()
        self._hurry = threading.Event()
        self._refused: GatewayRefused | None = None

    def run(self) -> int:
        from rlm_worker.remote.working import AskingSource, Presence, RedisSource, Source  # noqa: PLC0415

        work, slots = self._work(), self._options.slots
        source: Source = (
            RedisSource(self._options.redis, work, slots=slots, namespace=self._options.redis_namespace)
            if self._options.redis
            else AskingSource(self._gateway, self._worker_id, work, slots=slots)
        )
        presence = Presence(self._gateway, self._request, drain=self._ended.set, refused=self._turned_away)
        for wanted in (signal.SIGTERM, signal.SIGINT):
            signal.signal(wanted, self._told)
        source.start()
        presence.start()
        log.info("working", extra={"worker_id": self._worker_id, "server": self._options.server.url})
        # A bare wait would keep the signal from being heard until it ends.
        while not self._ended.wait(1.0):
            pass
        source.stop_taking()
        presence.stop()
        self._drain(source.join)
        if self._refused is not None:
            raise refusal(self._refused, self._options.server.url)
        return DRAINED

    def _work(self) -> Callable[[str, int], None]:
        from rlm_worker.actor import Runner  # noqa: PLC0415 - after the checks: it starts what sandboxes are made of
        from rlm_worker.job import EvidenceKeeper, Parts  # noqa: PLC0415
        from rlm_worker.remote.place import RemotePlace  # noqa: PLC0415

        settings = worker_settings(os.environ)
        home, cache_bytes = self._options.home, self._options.cache_bytes
        try:
            place = RemotePlace(self._gateway, home, cache_bytes=cache_bytes)
        except OSError as error:
            raise CannotStart(f"the home {str(home)!r} cannot be used: {error}") from error
        parts = Parts(
            gateway=self._gateway,
            worker_id=self._worker_id,
            settings=settings,
            evidence=EvidenceKeeper(seal=place.seal, changed=place.changed),
            place=place,
        )
        return Runner(parts).run

    def _told(self, *_signal: object) -> None:
        """The first time: end when the jobs have. Again: now."""
        (self._hurry if self._ended.is_set() else self._ended).set()

    def _turned_away(self, refused: GatewayRefused) -> None:
        self._refused = refused
        self._ended.set()

    def _drain(self, join: Callable[[float], bool]) -> None:
        """Let jobs end, then give back those that have not."""
        left = self._options.drain_seconds
        while left > 0 and not self._hurry.is_set():
            step = min(left, 0.2)
            if join(step):
                return
            left -= step
        try:
            handed = self._gateway.hand_back(HandBackRequest(worker_id=self._worker_id))
        except GatewayRefused as refused:
            # Their leases run out by themselves.
            log.warning("not_handed_back", extra={"reason": str(refused)})
        else:
            log.info("handed_back", extra={"jobs": handed})
        join(_UNWIND_SECONDS)


def _log_to_stderr() -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(_Line("%(asctime)s %(levelname)s %(name)s %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    for name in ("rlm_worker", "sandbox"):
        logging.getLogger(name).setLevel(logging.INFO)


class _Line(logging.Formatter):
    """One line with what the record says beside its message."""

    def format(self, record: logging.LogRecord) -> str:
        more = {name: value for name, value in vars(record).items() if name not in _USUAL}
        return " ".join([super().format(record), *(f"{name}={value!r}" for name, value in more.items())])


if __name__ == "__main__":
    sys.exit(main())
