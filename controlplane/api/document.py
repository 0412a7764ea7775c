"""Writes the OpenAPI document of the API: `python -m controlplane.api.document docs/openapi.json`."""

import json
import sys
import tempfile
from pathlib import Path

from controlplane.api.app import create_app
from controlplane.api.authenticate import Authenticator
from controlplane.bootstrap import open_app
from controlplane.config import Settings


def document() -> str:
    """The document as text, the same for the same code."""
    with tempfile.TemporaryDirectory() as folder:
        app = open_app(Settings(home=Path(folder) / "home"))
        try:
            api = create_app(app, auth=Authenticator(desk=app.desk))
            return json.dumps(api.openapi(), indent=1, sort_keys=True) + "\n"
        finally:
            app.close()


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(document(), encoding="utf-8")
