"""The container's command. Makes the guest importable without the host side of the package, then becomes the relay."""

import importlib
import os
import sys
import types

#: Where the image holds the guest, which cells see as well, and the confinement.
PLACES = ("/opt/sandbox", "/opt/confinement")

if __name__ == "__main__":
    package = types.ModuleType("sandbox")
    package.__path__ = list(PLACES)
    sys.modules["sandbox"] = package
    status = 70
    try:
        status = importlib.import_module("sandbox.backends.docker.inside.relay").main()
    except BaseException as error:  # noqa: BLE001 - pid 1 says why, and ends; nothing lives on without it
        os.write(2, f"the relay failed: {error!r}\n".encode(errors="replace")[:4000])
    finally:
        os._exit(status)
