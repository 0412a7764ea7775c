"""Other programs, each in a virtual environment of its own in the user's cache: installed once, never into the project's."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

_REQUIREMENTS = {
    "dspy": ("dspy==3.4.1", "deno==2.9.8"),
    "predict-rlm": ("predict-rlm==0.13.1", "dspy==3.4.1", "deno==2.9.8"),
    "rlms": ("rlms==0.1.3",),
    "dbos": ("dbos==3.3.0", "psycopg[binary]>=3.2"),
}
_INSTALL_SECONDS = 900
# Deno takes the place of a remote module that only reads lines: hosts without that network could not start the peer otherwise.
_LINE_READER = """export async function* readLines(reader) {
  const decoder = new TextDecoder(), block = new Uint8Array(65536);
  let kept = "";
  for (let n; (n = await reader.read(block)) !== null; ) {
    const lines = (kept + decoder.decode(block.subarray(0, n), { stream: true })).split("\\n");
    kept = lines.pop();
    yield* lines;
  }
  if (kept) yield kept;
}
"""


class CannotBeHad(Exception):
    """The peer cannot run here; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Peer:
    """A peer that can be started."""

    python: Path
    env: Mapping[str, str] = field(default_factory=dict)


def cache() -> Path:
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "custody" / "bench-peers"


def peer(name: str) -> Peer:
    """The peer's interpreter, with its environment; installs it when it is not there yet."""
    folder = cache() / name
    python = folder / "bin" / "python"
    done = folder / ".installed"
    if not done.is_file() or done.read_text() != repr(_REQUIREMENTS[name]):
        print(f"   installing {' '.join(_REQUIREMENTS[name])} …", flush=True)
        _run([sys.executable, "-m", "venv", "--clear", str(folder)], seconds=_INSTALL_SECONDS)
        _run([str(python), "-m", "pip", "install", "-q", *_REQUIREMENTS[name]], seconds=_INSTALL_SECONDS)
        done.write_text(repr(_REQUIREMENTS[name]))
    return Peer(python=python)


def dspy_with_deno() -> Peer:
    """dspy with its default interpreter."""
    return _with_deno("dspy", runner="dspy/primitives/runner.js")


def predict_rlm_with_deno() -> Peer:
    """predict-rlm with its default interpreter."""
    return _with_deno("predict-rlm", runner="predict_rlm/backends/jspi/payload.js")


def _with_deno(name: str, *, runner: str) -> Peer:
    """A peer whose cells run under Deno. Its npm part is fetched once; its remote line reader is taken from here."""
    plain = peer(name)
    folder, deno = cache() / "deno", plain.python.with_name("deno")
    folder.mkdir(parents=True, exist_ok=True)
    source = next(plain.python.parent.parent.glob(f"lib/*/site-packages/{runner}"), None)
    remote = source and re.search(r'^import \{ readLines \} from "(.+)";', source.read_text(), re.MULTILINE)
    if source is None or remote is None:
        raise CannotBeHad(f"{name}'s runner does not import what this benchmark knows to replace")
    (folder / "lines.js").write_text(_LINE_READER)
    import_map = folder / f"{name}.json"
    import_map.write_text(json.dumps({"imports": {remote[1]: "./lines.js"}}))
    env = {"DENO_DIR": str(folder / "dir"), "PATH": f"{deno.parent}{os.pathsep}{os.environ['PATH']}"}
    command = [str(deno), "cache", "--node-modules-dir=none", f"--import-map={import_map}", str(source)]
    _run(command, seconds=120, env=env)
    return Peer(python=plain.python, env={**env, "BENCH_IMPORT_MAP": str(import_map)})


def _run(command: list[str], *, seconds: float, env: Mapping[str, str] | None = None) -> None:
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **(env or {})},
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotBeHad(str(error)[:200]) from error
    if done.returncode:
        raise CannotBeHad(f"{Path(command[0]).name}: {' '.join(done.stderr.split())[-200:]}")
