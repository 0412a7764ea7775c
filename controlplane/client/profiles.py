"""Servers by name, each with its key, in a file that nobody else may read. Keys come from files, variables or standard input."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from controlplane.client.address import checked_address
from controlplane.client.blocking import Client
from controlplane.client.errors import BadRequest, Missing

_OTHERS = 0o077


@dataclass(frozen=True, kw_only=True)
class Profile:
    """A server, and the key that was made there."""

    server: str
    key: str | None = None
    #: The way there is safe although it is not encrypted.
    plain_http: bool = False

    def client(self) -> Client:
        return Client(self.server, key=self.key, allow_plain_http=self.plain_http)


def profiles_file(env: Mapping[str, str] = os.environ) -> Path:
    folder = env.get("XDG_CONFIG_HOME") or Path(env.get("HOME") or Path.home(), ".config")
    return Path(folder) / "custody" / "profiles.json"


def profiles(env: Mapping[str, str] = os.environ) -> dict[str, Profile]:
    """All of them, by name."""
    path = profiles_file(env)
    try:
        if path.stat().st_mode & _OTHERS:
            raise BadRequest(f"{path} holds keys and others may read it: chmod 600 {path}")
        body: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
        return {name: Profile(**fields) for name, fields in body.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise BadRequest(f"the profiles in {path} cannot be read: {error}") from error


def keep_profile(name: str, profile: Profile, env: Mapping[str, str] = os.environ) -> Path:
    """Enter a profile, or change it."""
    checked_address(profile.server, has_key=profile.key is not None, allow_plain=profile.plain_http)
    return _write(profiles(env) | {name: profile}, env)


def forget_profile(name: str, env: Mapping[str, str] = os.environ) -> None:
    kept = profiles(env)
    if kept.pop(name, None) is None:
        raise Missing(f"there is no profile {name!r}: see custody profiles")
    _write(kept, env)


def _write(kept: Mapping[str, Profile], env: Mapping[str, str]) -> Path:
    path = profiles_file(env)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as opened:
        json.dump({name: asdict(profile) for name, profile in kept.items()}, opened, indent=2)
    fresh.replace(path)
    return path


def profile_of(server: str, env: Mapping[str, str] = os.environ) -> Profile:
    """A profile by its name; or an address, with the key of CUSTODY_KEY_FILE, CUSTODY_KEY, or the profile of that address."""
    known = profiles(env)
    if "://" not in server:
        if server not in known:
            there_are = ", ".join(known) or "none yet"
            raise Missing(
                f"there is no profile {server!r}, there are: {there_are}. Make one with "
                f"'custody login {server} --server URL --key-file FILE', or name an address"
            )
        return known[server]
    address = server.rstrip("/")
    key = _key_of(env)
    if key is not None:
        return Profile(server=address, key=key, plain_http=env.get("CUSTODY_PLAIN_HTTP") == "1")
    same = (profile for profile in known.values() if profile.server == address)
    return next(same, Profile(server=address))


def _key_of(env: Mapping[str, str]) -> str | None:
    if file := env.get("CUSTODY_KEY_FILE"):
        return read_key(Path(file))
    return env.get("CUSTODY_KEY") or None


def read_key(path: Path) -> str:
    """The key in a file, without the line end."""
    try:
        key = path.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise BadRequest(f"the key in {str(path)!r} cannot be read: {error}") from error
    if not key:
        raise BadRequest(f"there is no key in {str(path)!r}")
    return key
