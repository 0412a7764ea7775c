"""Where the one package lies that the strict language needs inside the sandbox. Imports nothing of it."""

import functools
import importlib.metadata
import importlib.util
from pathlib import Path

from sandbox.errors import SandboxUnavailable

LAYER = "strict-language"
_PACKAGE = "RestrictedPython"
_LEAST = (8, 5)


@functools.cache
def package_directory() -> str:
    """Return the installed package's own directory, or raise SandboxUnavailable: there is no strictness without it."""
    found = importlib.util.find_spec(_PACKAGE)
    if found is None or not found.submodule_search_locations:
        raise SandboxUnavailable(
            f"the strict language needs {_PACKAGE}, which is not installed: install {_PACKAGE}>=8.5",
            layer=LAYER,
        )
    version = importlib.metadata.version(_PACKAGE)
    if tuple(int(part) for part in version.split(".")[:2]) < _LEAST:
        raise SandboxUnavailable(
            f"the strict language needs {_PACKAGE} 8.5 or newer, not {version}: upgrade it", layer=LAYER
        )
    return str(Path(next(iter(found.submodule_search_locations))).resolve())
