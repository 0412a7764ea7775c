"""The engine on this machine, through its SDK: every call has a time limit, every failure says what to do."""

import contextlib
import functools
import os
import socket
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import docker
import docker.errors
import requests.exceptions

from sandbox.backends.docker.image import REPOSITORY, Image
from sandbox.errors import SandboxUnavailable
from sandbox.policy import Runtime

_DEFAULT = "unix:///var/run/docker.sock"
_STATE_SECONDS, _ASK_SECONDS, _MAKE_SECONDS, _IMPORT_SECONDS = 3.0, 10.0, 60.0, 300.0
Failure = (docker.errors.DockerException, requests.exceptions.RequestException, OSError)


def address() -> str:
    return os.environ.get("DOCKER_HOST") or _DEFAULT


@contextlib.contextmanager
def _explained(what: str) -> Iterator[None]:
    try:
        yield
    except Failure as error:
        raise SandboxUnavailable(
            f"the Docker engine at {address()} could not {what}: {_reason(error)}", layer="docker"
        ) from error


def _reason(error: BaseException) -> str:
    explanation = getattr(error, "explanation", None)
    return str(explanation or error)[:500]


@dataclass
class Engine:
    """One engine, as one process uses it. Thread-safe: a client of the SDK is made for each call."""

    url: str
    version: str
    info: dict[str, Any]
    owner: int = field(default_factory=os.getpid)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _image: str | None = None

    @classmethod
    def connect(cls) -> "Engine":
        url = address()
        if not url.startswith("unix://"):
            raise SandboxUnavailable(
                f"DOCKER_HOST is {url!r}: the docker backend needs an engine on this machine, by a unix:// address",
                layer="docker",
            )
        try:
            with contextlib.closing(docker.APIClient(base_url=url, timeout=_ASK_SECONDS)) as client:
                return cls(url=url, version=client._version, info=client.info())  # noqa: SLF001 - has no public name
        except Failure as error:
            raise SandboxUnavailable(
                f"no Docker engine answers at {url} ({_reason(error)}): start dockerd, or point DOCKER_HOST at the"
                " socket of one that this user may use",
                layer="docker",
            ) from error

    def client(self, *, seconds: float = _ASK_SECONDS) -> Any:
        """Return a client whose calls take at most so long; close it after use."""
        return contextlib.closing(docker.APIClient(base_url=self.url, version=self.version, timeout=seconds))

    def require(self, runtime: Runtime) -> None:
        runtimes = self.info.get("Runtimes") or {}
        if runtime not in runtimes:
            raise SandboxUnavailable(
                f"the Docker engine at {self.url} has no runtime {runtime!r}, only {', '.join(sorted(runtimes))}:"
                " install it and name it under `runtimes` in the engine's daemon.json",
                layer=runtime,
            )

    @property
    def maps_users(self) -> bool:
        """Whether only some ids exist inside: the engine runs rootless or in a user namespace."""
        options = self.info.get("SecurityOptions") or []
        return any(name in option for option in options for name in ("userns", "rootless"))

    # ---------------------------------------------------------------- the image

    def image(self) -> str:
        """Return the image's name; it is made and imported by the first who asks."""
        with self._lock:
            if self._image is None:
                image = _image()
                with _explained(f"import the image {image.name}"):
                    self._import(image)
                self._image = image.name
            return self._image

    def forget_image(self) -> None:
        """Look again before the next container: somebody removed it."""
        with self._lock:
            self._image = None

    def _import(self, image: Image) -> None:
        with self.client(seconds=_IMPORT_SECONDS) as client:
            if client.images(name=image.name, quiet=True):
                return
            with tempfile.NamedTemporaryFile(prefix="custody-guest-") as tar:
                image.write(tar.file)
                tar.flush()
                client.import_image_from_file(tar.name, repository=REPOSITORY, tag=image.tag)

    # ---------------------------------------------------------------- containers

    def create(self, settings: dict[str, Any]) -> str:
        with _explained("create a container"), self.client(seconds=_MAKE_SECONDS) as client:
            return str(client.create_container_from_config(settings)["Id"])

    def attach(self, container: str) -> socket.socket:
        """Return the container's stdin, stdout and stderr as one socket, to be framed by the engine."""
        with _explained("attach to a container"):
            client = docker.APIClient(base_url=self.url, version=self.version, timeout=_ASK_SECONDS)
            params = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
            raw = client.attach_socket(container, params=params)
            link = socket.socket(fileno=os.dup(raw.fileno()))
            raw.close()
            client.close()
            return link

    def start(self, container: str) -> None:
        with _explained("start a container"), self.client(seconds=_MAKE_SECONDS) as client:
            client.start(container)

    def state(self, container: str) -> dict[str, Any]:
        with self.client(seconds=_STATE_SECONDS) as client:
            return dict(client.inspect_container(container)["State"])

    def kill(self, container: str) -> None:
        with self.client() as client:
            client.kill(container, signal="SIGKILL")

    def thaw(self, container: str) -> None:
        with self.client() as client:
            client.unpause(container)

    def remove(self, container: str) -> None:
        """Remove the container by force; one that is gone already is as good."""
        with self.client(seconds=_MAKE_SECONDS) as client, contextlib.suppress(docker.errors.NotFound):
            client.remove_container(container, force=True, v=True)

    def leave(self, container: str) -> None:
        """Its processes are gone and the engine does not answer: remove it when it does."""
        with _Current.lock:
            _Current.left.add(container)

    def remove_left(self) -> None:
        with _Current.lock:
            left, _Current.left = _Current.left, set()
        for container in left:
            try:
                self.remove(container)
            except Failure:
                self.leave(container)

    def containers(self, label: str) -> list[dict[str, Any]]:
        with self.client() as client:
            return list(client.containers(all=True, filters={"label": label}))


@functools.cache
def _image() -> Image:
    return Image()


class _Current:
    lock = threading.Lock()
    engine: Engine | None = None
    left: ClassVar[set[str]] = set()


def current() -> Engine:
    """Return this process's engine; another DOCKER_HOST or a fork gets another."""
    with _Current.lock:
        engine = _Current.engine
        if engine is None or engine.url != address() or engine.owner != os.getpid():
            _Current.engine = engine = Engine.connect()
        return engine


def forget() -> None:
    """Connect anew next time: this engine did not answer."""
    with _Current.lock:
        _Current.engine = None
