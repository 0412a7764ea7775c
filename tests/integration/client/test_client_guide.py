"""The examples of docs/client.md, run in their order against a real server with a worker."""

import re
from pathlib import Path

from controlplane.runtime import EmbeddedRuntime

_GUIDE = Path(__file__).parents[3] / "docs" / "client.md"


def test_the_examples_of_the_guide_run(app, address, key, tmp_path, capsys):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "notes.txt").write_text("the pump failed\nthe pump worked\n")
    names = {"server": address, "key": key("admin", "operator"), "folder": folder}

    with EmbeddedRuntime(app):
        for example in re.findall(r"```python\n(.*?)```", _GUIDE.read_text(encoding="utf-8"), re.DOTALL):
            exec(compile(example, str(_GUIDE), "exec"), names)

    said = capsys.readouterr().out
    assert "succeeded {'answer': '2'}" in said
    assert "attempt_ended" in said
    assert "not_found" in said
