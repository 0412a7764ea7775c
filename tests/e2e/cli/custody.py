"""The command line as a person has it: a process, its output, its exit code."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_KEYS = ("ANTHROPIC", "OPENAI", "GOOGLE", "GEMINI", "MISTRAL", "GROQ", "CUSTODY")


def environment() -> dict[str, str]:
    """This process's, without what would choose models or a home."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("CUSTODY_")}
    for key in _KEYS:
        env.pop(f"{key}_API_KEY", None)
    return env | {"PYTHONPATH": str(Path(__file__).resolve().parents[3])}


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


class Custody:
    """Runs `custody` with one home, from one working directory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"

    def start(self, *words: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-m", "controlplane.cli.main", *words],
            cwd=self.folder,
            env=environment() | {"CUSTODY_HOME": str(self.home)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def __call__(self, *words: str, seconds: float = 60) -> Done:
        return self.finish(self.start(*words), seconds=seconds)

    @staticmethod
    def finish(process: "subprocess.Popen[str]", *, seconds: float = 60) -> Done:
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            out, err = process.communicate()
            raise AssertionError(f"no end after {seconds} s\nstdout: {out}\nstderr: {err}") from None
        return Done(process.returncode, out, err)

    def jobs(self) -> list[dict[str, Any]]:
        done = self("jobs", "--json")
        assert done.code in (0, 2), done.err  # 2: the home is not there yet
        return done.document["jobs"] if done.code == 0 else []

    def events(self, job_id: str) -> list[dict[str, Any]]:
        done = self("trace", job_id, "--json", "--all")
        assert done.code == 0, done.err
        return [json.loads(line)["event"] for line in done.out.splitlines()]

    def until(self, holds: Callable[[], Any], *, seconds: float = 30) -> Any:
        """What `holds` gives once it gives something: the state of another process can only be asked for."""
        deadline = time.monotonic() + seconds
        while not (found := holds()):
            if time.monotonic() > deadline:
                raise AssertionError("it did not come to that in time")
            time.sleep(0.05)
        return found

    def working_job(self) -> str:
        """The id of the job whose cell is being executed."""

        def working() -> str | None:
            for job in self.jobs():
                kinds = [event["kind"] for event in self.events(job["job_id"])]
                if "cell_proposed" in kinds and kinds[-1] != "cell_finished":
                    return str(job["job_id"])
            return None

        try:
            return str(self.until(working))
        except AssertionError as late:
            told = [
                (job["state"], [event["kind"] for event in self.events(job["job_id"])]) for job in self.jobs()
            ]
            raise AssertionError(f"no cell is at work; jobs: {told}") from late
