"""Settings: one frozen value, read once. A flag wins over CUSTODY_*, which wins over the TOML file."""

import math
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from types import NoneType
from typing import Any, get_args

from controlplane.control_settings import ControlSettings
from controlplane.engine_settings import MAY_BE_ZERO, EngineSettings, ModelChoices
from controlplane.errors import InvalidRequest

_PREFIX = "CUSTODY_"


@dataclass(frozen=True, kw_only=True)
class Settings(ModelChoices, EngineSettings, ControlSettings):
    """Everything that can be set about an installation. Keys of providers are not here: the worker alone reads them."""

    #: Folder of the database and of staged evidence.
    home: Path = Path(".custody")
    #: PostgreSQL database that several machines share, as postgresql://USER:PASSWORD@HOST:PORT/NAME; none: a file in the home.
    database_url: str | None = field(default=None, repr=False)
    #: Where old traces go, as a URL that fsspec knows and every machine sees; none: the folder cold of the home.
    cold_url: str | None = field(default=None, repr=False)
    tenant: str = "local"
    #: A worker that is silent this long has lost its job.
    lease_seconds: float = 15.0
    #: Jobs that one process works on at once.
    worker_threads: int = 2
    #: Workers a job may take down before it is quarantined.
    max_attempts: int = 3
    #: Jobs of one tenant at work at once; none means as many as there are workers.
    tenant_concurrency: int | None = None
    #: A ready job that nobody took up is announced again after this time.
    resend_seconds: float = 5.0
    #: Time a stopping process gives its jobs to let go.
    drain_seconds: float = 10.0
    #: What a stopping process does with its jobs: hand_back lets others go on at once, finish waits drain_seconds for them.
    drain: str = "hand_back"
    #: Name of the image or release that a worker runs; kill switches look for it.
    worker_image: str = ""
    #: Redis or Valkey that carries wake-ups; none means a table beside the database.
    redis_url: str | None = None
    #: Begins the names of all keys there.
    redis_namespace: str = "custody"
    #: Jobs at work at once that ask a model of this name: "openai:*=8, anthropic:claude-opus=2".
    model_limits: str = ""
    #: Most bytes of one request to the gateway, as it is after unpacking.
    request_bytes: int = 64 << 20
    model: str | None = None
    sub_model: str | None = None
    #: Longest time of one cell.
    cell_seconds: float = 300.0
    #: What contains cells: namespaces, docker, gvisor or landlock.
    sandbox: str = "namespaces"
    #: What cells may say: open or strict.
    language: str | None = None
    #: Models by their address, separated by spaces, that callers of the API may name.
    api_models: str | None = None
    #: Bytes of one request's body; a piece of an upload may have more.
    max_body_bytes: int = 4 * 1024 * 1024
    max_piece_bytes: int = 64 * 1024 * 1024
    #: Bytes that a tenant may bring in.
    upload_quota_bytes: int = 50 * 1024 * 1024 * 1024
    #: Threads that answer requests, and requests that may wait for one.
    api_threads: int = 16
    api_waiting: int = 64
    #: Requests of one caller in a second, over time and all at once.
    api_rate: float = 50.0
    api_burst: float = 200.0
    #: Who issues tokens, for whom, and where its keys are (a URL or a file): without an issuer, keys of the API alone.
    oidc_issuer: str | None = None
    oidc_audience: str | None = None
    oidc_jwks: str | None = None
    #: Claims that name the tenant, the roles and the caller; in which tenant and roles by value, as in admins=admin,ops=operator.
    oidc_tenant_claim: str = "tenant"
    oidc_roles_claim: str = "roles"
    oidc_name_claim: str = "sub"
    oidc_roles: str | None = None
    #: Clocks may differ by this much.
    oidc_leeway_seconds: float = 30.0
    #: Where each value comes from: default, a file, a variable or a flag.
    sources: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def database(self) -> Path:
        return self.home / "custody.db"

    @property
    def artifacts(self) -> Path:
        """Where what jobs made is kept, each file under the hash of its content."""
        return self.home / "artifacts"


def load_settings(
    flags: Mapping[str, Any] | None = None,
    *,
    env: Mapping[str, str] = os.environ,
    folder: Path | None = None,
) -> Settings:
    """Read flags, environment and file, in this order of rank."""
    given: dict[str, tuple[Any, str]] = {}
    known = {item.name: item for item in fields(Settings) if item.name != "sources"}
    layers = [_from_flags(flags or {}), _from_env(env)]
    home = next((layer["home"][0] for layer in layers if "home" in layer), Settings.home)
    layers.append(_from_file(folder or Path.cwd(), home=Path(home)))
    for layer in layers:
        for name, (value, source) in layer.items():
            if name not in known:
                raise InvalidRequest(f"{source}: there is no setting {name!r}. There are: {', '.join(known)}")
            given.setdefault(name, (_typed(name, value, source=source, kind=known[name].type), source))
    sources = {name: given[name][1] if name in given else "default" for name in known}
    settings = Settings(**{name: value for name, (value, _) in given.items()}, sources=sources)
    _check_database(settings)
    return settings


def _check_database(settings: Settings) -> None:
    url = settings.database_url
    if url is not None and not re.match(r"postgres(ql)?(\+psycopg)?://", url):
        raise InvalidRequest(
            f"{settings.sources['database_url']}: database_url must look like postgresql://USER:PASSWORD@HOST:PORT/NAME"
        )


def setting_rows(settings: Settings) -> list[tuple[str, str, str]]:
    """Name, value and source of every setting, for people; passwords are not among what they see."""
    return [
        (
            name,
            "" if (value := getattr(settings, name)) is None else without_password(str(value)),
            settings.sources.get(name, "default"),
        )
        for name in (item.name for item in fields(Settings))
        if name != "sources"
    ]


def without_password(text: str) -> str:
    """A URL as people may see it; other text as it is."""
    hidden = re.sub(r"(?<=://)([^/?#@]*?):[^/?#]*(?=@)", r"\1:***", text)
    return re.sub(r"([?&]password=)[^&]*", r"\1***", hidden) if "://" in text else text


def _from_flags(flags: Mapping[str, Any]) -> dict[str, tuple[Any, str]]:
    return {
        name: (value, f"--{name.replace('_', '-')}") for name, value in flags.items() if value is not None
    }


def _from_env(env: Mapping[str, str]) -> dict[str, tuple[Any, str]]:
    # Other parts read variables of the same prefix, so only known names are taken from here.
    names = {item.name: _PREFIX + item.name.upper() for item in fields(Settings) if item.name != "sources"}
    return {name: (env[variable], variable) for name, variable in names.items() if env.get(variable)}


def _from_file(folder: Path, *, home: Path) -> dict[str, tuple[Any, str]]:
    found = next((path for path in (folder / "custody.toml", home / "config.toml") if path.is_file()), None)
    if found is None:
        return {}
    try:
        body = tomllib.loads(found.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidRequest(f"the settings file {str(found)!r} cannot be read: {error}") from error
    return {name: (value, str(found)) for name, value in body.items()}


def _typed(name: str, value: Any, *, source: str, kind: Any) -> Any:
    wanted = next((part for part in get_args(kind) if part is not NoneType), kind)
    try:
        typed = wanted(value)
    except (TypeError, ValueError):
        typed = MISSING
    may_be_zero = name in MAY_BE_ZERO
    is_bad = typed is MISSING or isinstance(value, bool)
    if is_bad or (isinstance(typed, int | float) and not _is_in_range(typed, may_be_zero=may_be_zero)):
        least = "not below zero" if may_be_zero else "above zero"
        words = {int: f"a whole number {least}", float: f"a number {least}"}.get(wanted, "text")
        raise InvalidRequest(f"{source}: {name} must be {words}, not {value!r}")
    return typed


def _is_in_range(number: float, *, may_be_zero: bool) -> bool:
    return math.isfinite(number) and (number > 0 or (may_be_zero and number == 0))
