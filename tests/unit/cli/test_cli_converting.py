"""What is told while documents become text."""

import io

import pytest
from rich.console import Console

from controlplane.cli import converting
from controlplane.cli.converting import conversion_progress


def tell_all(total: int, *, silent: bool = False) -> None:
    with conversion_progress(silent=silent) as tell:
        for number in range(1, total + 1):
            tell(number, total, f"[bold]{number}\x1b.pdf")


def test_a_pipe_is_told_each_tenth(capsys):
    tell_all(45)

    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 10
    assert lines[0] == "reading documents: 5 of 45"
    assert lines[-1] == "reading documents: 45 of 45"


@pytest.mark.parametrize(("total", "silent"), [(9, False), (100, True)])
def test_a_pipe_is_told_nothing_of_few_documents_or_when_it_asked_for_silence(capsys, total, silent):
    tell_all(total, silent=silent)

    assert capsys.readouterr() == ("", "")


def test_a_terminal_has_a_bar_with_the_name_that_is_done_made_harmless(monkeypatch):
    shown = io.StringIO()
    monkeypatch.setattr(
        converting,
        "Console",
        lambda stderr: Console(file=shown, force_terminal=True, width=120, color_system=None),
    )

    tell_all(3)

    assert "reading documents" in shown.getvalue()
    assert "3/3" in shown.getvalue()
    assert "[bold]3" in shown.getvalue()
    assert "\x1b.pdf" not in shown.getvalue()
