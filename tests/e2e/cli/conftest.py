"""A home of its own and some evidence for each test."""

from pathlib import Path

import pytest

from tests.e2e.cli.custody import Custody


@pytest.fixture
def custody(tmp_path: Path) -> Custody:
    (tmp_path / "notes.txt").write_text("alpha\nthe pump failed at noon\nomega\n", encoding="utf-8")
    return Custody(tmp_path)
