"""Local models for the tests: pulled once per machine, then seen through a folder of the test's own."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rlm_worker.models import ModelSettings
from rlm_worker.models.catalogue import find_entry
from rlm_worker.models.errors import ModelUnavailable
from rlm_worker.models.pull import pull
from rlm_worker.models.shelf import Shelf


@pytest.fixture
def settings_with(tmp_path: Path) -> Callable[[str], ModelSettings]:
    """Settings under which the named model is installed and no server of anybody else's is found."""

    def give(name: str) -> ModelSettings:
        shelf = Shelf(ModelSettings.from_env().cache_dir())
        entry = find_entry(name)
        try:
            file = pull(entry, shelf=shelf)
        except ModelUnavailable as reason:
            pytest.skip(str(reason))
        folder = tmp_path / "models"
        folder.mkdir()
        (folder / file.name).symlink_to(file)
        shutil.copy(shelf.folder / f".{name}.verified", folder)
        return ModelSettings(models_dir=folder, linger_seconds=0.5)

    return give
