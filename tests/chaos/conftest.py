"""What lies in this folder kills real processes, one at a time: it takes minutes."""

from pathlib import Path

import pytest


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.slow)
