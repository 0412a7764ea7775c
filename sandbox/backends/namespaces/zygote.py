"""The zygote: a clean interpreter, exec'ed with an empty environment, that forks one child per sandbox.

Run as a script. It never sees a secret, starts no thread, and ends when its worker does.
"""

import gc
import importlib
import json
import os
import signal
import socket
import sys
import types
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[2]
_PRELOADED = [
    "re",
    "json",
    "collections",
    "itertools",
    "functools",
    "math",
    "statistics",
    "datetime",
    "dataclasses",
    "typing",
    "enum",
    "csv",
    "io",
    "random",
    "textwrap",
    "string",
    "hashlib",
    "pathlib",
    "asyncio",
    "concurrent.futures",
    "heapq",
    "bisect",
    "difflib",
    "fractions",
    "decimal",
    "operator",
    "contextlib",
    "copy",
    "time",
    "unicodedata",
    "zlib",
    "gzip",
    "base64",
    "traceback",
    "linecache",
    "ast",
    "inspect",
    "threading",
    "queue",
    "contextvars",
    "tempfile",
    "mmap",
]


def _stand_in_package() -> None:
    """Let `sandbox.guest` and this backend be imported without the host side of the package."""
    package = types.ModuleType("sandbox")
    package.__path__ = [str(_PACKAGE)]
    sys.modules["sandbox"] = package


def main(nursery: str = "sandbox.backends.namespaces.nursery") -> None:
    """Serve requests from the control socket, which is descriptor 0, until the worker is gone."""
    # The runner's places stay taken, so that no wire of a request ever lands on one.
    null = os.open("/dev/null", os.O_RDWR)
    for place in (3, 4):
        os.dup2(null, place)
    control = socket.socket(fileno=os.dup(0))
    os.dup2(null, 0)
    _stand_in_package()
    try:
        zygote = importlib.import_module(nursery).Nursery()
    except Exception as failure:
        reason = {"failed": getattr(failure, "layer", "zygote"), "message": str(failure)}
        control.send(json.dumps(reason).encode())
        raise
    for name in _PRELOADED:
        importlib.import_module(name)
    if (_PACKAGE / "guest" / "names.py").exists():
        importlib.import_module("sandbox.guest.names")
    wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda *_: None)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    gc.collect()
    gc.freeze()
    control.send(b"ready")
    zygote.serve(control, wake_read)


if __name__ == "__main__":
    main()
