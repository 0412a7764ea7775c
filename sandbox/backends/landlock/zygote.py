"""The degraded backend's zygote: a clean interpreter with every offered module loaded, that forks one child per sandbox.

Run as a script, like the one of the namespaces backend, whose start it shares.
"""

import importlib.util
from pathlib import Path

_SHARED = Path(__file__).resolve().parents[1] / "namespaces" / "zygote.py"


def main() -> None:
    """Serve requests from the control socket until the worker is gone."""
    found = importlib.util.spec_from_file_location("shared_zygote", _SHARED)
    assert found is not None
    assert found.loader is not None
    shared = importlib.util.module_from_spec(found)
    found.loader.exec_module(shared)
    shared.main("sandbox.backends.landlock.nursery")


if __name__ == "__main__":
    main()
