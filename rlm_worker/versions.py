"""What runs here, for the record."""

import platform
from importlib.metadata import PackageNotFoundError, version


def versions() -> dict[str, str]:
    try:
        custody = version("custody")
    except PackageNotFoundError:
        custody = "source"
    return {"custody": custody, "python": platform.python_version()}
