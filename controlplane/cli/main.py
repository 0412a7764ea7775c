"""`custody`: the group, and the one boundary where errors become a paragraph and an exit code. Imports click alone."""

import importlib
import json
import os
import sys
import traceback
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from controlplane.cli.exits import Exit, Refusal, exit_of_error
from controlplane.errors import ControlPlaneError

#: By theme, and by name: module below controlplane.cli, attribute, one line of help. A module is imported when its command is used.
_THEMES: dict[str, dict[str, tuple[str, str, str]]] = {
    "Ask": {
        "run": ("run", "run", "Ask a question of evidence and watch the answer being worked out."),
        "demo": ("demo", "demo", "Audit the standard library's comments: no key, no service, no setup."),
        "playbooks": ("playbooks", "playbooks", "List the shipped playbooks, or show one."),
        "models": ("models", "models", "List, pull and remove embedded models."),
    },
    "Look": {
        "jobs": ("jobs", "jobs", "List jobs, newest first: by state, label, age, model, words."),
        "show": ("jobs", "show", "Show one job: answer, citations, spend, stop times, receipt."),
        "trace": ("trace", "trace", "Read what a job did, step by step; --follow while it works."),
        "evidence": (
            "evidence",
            "evidence",
            "Show what a job was given: each file with type, size, hash, pages.",
        ),
        "artifacts": ("artifacts", "artifacts", "List the files a job made and kept; --out DIR copies them."),
        "tasks": ("fleet", "tasks", "List tasks, newest first."),
    },
    "Steer": {
        "stop": ("orders", "stop", "Stop jobs and wait until nothing of them is left."),
        "kill": ("switches", "kill", "Kill jobs at once, or put a kill switch on a scope."),
        "pause": ("orders", "pause", "Pause jobs; each lets go of its worker."),
        "resume": ("resume", "resume", "Go on with a job; paid subcalls are not paid again."),
        "steer": ("orders", "steer", "Give a working job an instruction for its next iteration."),
        "retune": ("retune", "retune", "Change the limits of a job."),
        "fork": ("fork", "fork", "Share a job's first iterations and go on another way."),
        "ask": ("people", "ask", "See what jobs ask of people: custody ask list."),
        "answer": ("people", "answer", "Answer a question of a job; it goes on with it."),
    },
    "Prove": {
        "replay": ("replay", "replay", "Run a finished job again from its trace, without a model."),
        "export": ("traces", "export", "Write a job to a file that can be verified and replayed anywhere."),
        "import": ("traces", "import_", "Enter a job from an exported file into this home."),
        "verify": ("traces", "verify", "Check the chain of a job, or of an exported file alone."),
    },
    "Serve": {
        "up": ("serve", "up", "Serve this home over HTTP, with a worker, in one process."),
        "api": ("serve", "api", "Serve the HTTP API alone."),
        "watchdogs": ("serve", "watchdogs", "Send ready jobs to workers and look after them."),
        "worker": ("worker", "worker", "Work on any ready job of this home, or of a server."),
        "migrate": ("serve", "migrate", "Bring the database to the schema of this release."),
        "login": ("login", "login", "Keep a server and its key under a name, for --server NAME."),
        "logout": ("login", "logout", "Forget a server and its key."),
        "profiles": ("login", "list_profiles", "List the servers you have logged in to."),
        "whoami": ("login", "whoami", "Say who you are to a server, and what you may do."),
    },
    "Look after": {
        "doctor": ("doctor", "doctor", "Say whether a job could run here, or how a server is."),
        "switches": ("switches", "switches", "List the kill switches in force."),
        "release": ("switches", "release", "Release a kill switch."),
        "workers": ("fleet", "workers", "List the workers that were seen."),
        "drain": ("fleet", "drain", "Let a worker finish what it has and take up nothing more."),
        "findings": ("fleet", "findings", "List what the watchdogs found wrong."),
        "monitors": ("fleet", "monitors", "Say how everything that is watched stands."),
        "runbook": ("runbook", "runbook", "Say what to do about a job that does not go on."),
        "budgets": ("access", "budgets", "List what tenants may use and have used; set limits."),
        "keys": ("access", "keys", "Make, list and revoke keys."),
        "tenants": ("access", "tenants", "List, make and change tenants."),
        "permissions": ("access", "permissions", "Grant, deny and revoke what goes beyond the roles."),
        "audit": ("access", "audit", "List who did what, and what was refused."),
    },
}
_COMMANDS = {name: found for theme in _THEMES.values() for name, found in theme.items()}

_EPILOG = "Exit codes: 0 answered, 2 usage, 3 partial answer, 4 failed, 5 stopped, 6 waits for an answer, 130 interrupted, 1 a defect of ours."


class ReaderGone(Exception):
    """Whoever read our output went away; click would call that a failure of its own."""


class LazyGroup(click.Group):
    """A group that knows its commands by name and imports them on demand."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as gone:
            raise ReaderGone from gone

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _COMMANDS:
            return None
        module, attribute, _ = _COMMANDS[cmd_name]
        importlib.import_module("controlplane.cli.logs").keep_off_the_terminal()
        command = getattr(importlib.import_module(f"controlplane.cli.{module}"), attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        longest = max(map(len, _COMMANDS))
        for theme, commands in _THEMES.items():
            with formatter.section(theme):
                formatter.write_dl([(name.ljust(longest), line) for name, (_, _, line) in commands.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in _COMMANDS:
            raise Refusal(_unknown_command(args[0]))
        return super().resolve_command(ctx, args)


def _unknown_command(name: str) -> str:
    difflib = importlib.import_module("difflib")
    close = difflib.get_close_matches(name, _COMMANDS, n=1)
    hint = f"Did you mean 'custody {close[0]}'?" if close else "See 'custody --help'."
    return f"there is no command {name!r}. {hint}"


def _print_version(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        click.echo(f"custody {importlib.import_module('importlib.metadata').version('custody')}")
        ctx.exit()


@click.group(cls=LazyGroup, epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Say the version.",
)
def cli() -> None:
    """Answer hard questions over evidence no prompt can hold, bounded, sandboxed and with a receipt."""


def main(argv: Sequence[str] | None = None) -> None:
    """Entry of the console script."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    code = _guarded(arguments)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        code = _pipe_closed()
    sys.exit(code)


def _guarded(arguments: list[str]) -> int:
    try:
        returned = cli.main(args=arguments, prog_name="custody", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as shown:
        click.echo(shown.ctx.get_help() if shown.ctx else shown.format_message(), err=True)
        return Exit.USAGE
    except ReaderGone:
        return _pipe_closed()
    except (click.Abort, KeyboardInterrupt):
        return Exit.INTERRUPTED
    except Exception as problem:  # noqa: BLE001  # the boundary: whatever it is becomes a paragraph and a code
        return _ended_badly(problem, arguments)
    return returned if isinstance(returned, int) else Exit.ANSWERED


def _ended_badly(problem: Exception, arguments: list[str]) -> int:
    match problem:
        case click.ClickException():
            message, code = problem.format_message(), Exit.USAGE
        case Refusal():
            message, code = str(problem), problem.code
        case ControlPlaneError():
            message, code = str(problem) or type(problem).__doc__ or "", exit_of_error(problem)
        case _:
            message, code = _logged(problem, arguments), Exit.INTERNAL
    return _refused(message, code=code, as_json=_wants_json(arguments))


def _refused(message: str, *, code: Exit, as_json: bool) -> int:
    paragraph = " ".join(message.split())
    click.echo(f"custody: {paragraph}", err=True)
    if as_json:
        document: dict[str, Any] = {"error": {"message": paragraph, "exit_code": int(code)}}
        click.echo(json.dumps(document, ensure_ascii=False))
    return code


def _wants_json(arguments: list[str]) -> bool:
    return "--json" in arguments or "-ojson" in arguments or " -o json " in f" {' '.join(arguments)} "


def _pipe_closed() -> int:
    # The interpreter flushes stdout once more at exit; let that go nowhere instead of failing loudly.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return Exit.PIPE_CLOSED


def _logged(defect: Exception, arguments: list[str]) -> str:
    files = importlib.import_module("controlplane.adapters.private_files")
    name = f"cli-{datetime.now(UTC):%Y%m%dT%H%M%S%f}.log"
    for folder in (_home_of(arguments) / "log", Path(os.environ.get("TMPDIR", "/tmp"))):  # noqa: S108  # last resort
        try:
            files.make_folder(folder)
            files.write_file(
                folder / name, "".join(traceback.format_exception(defect)).encode("utf-8", "replace")
            )
        except OSError:
            continue
        return (
            f"this is a defect of custody, not of your request: {type(defect).__name__}: {defect}. "
            f"The traceback is in {folder / name}; the state of your jobs is safe in the home."
        )
    return f"this is a defect of custody: {type(defect).__name__}: {defect}. No log file could be written."


def _home_of(arguments: list[str]) -> Path:
    for index, argument in enumerate(arguments):
        if argument == "--home" and index + 1 < len(arguments):
            return Path(arguments[index + 1])
        if argument.startswith("--home="):
            return Path(argument.removeprefix("--home="))
    return Path(os.environ.get("CUSTODY_HOME", ".custody"))


if __name__ == "__main__":
    main()
