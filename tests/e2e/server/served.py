"""`custody up` as a process, and people who ask it from folders of their own."""

import signal
import subprocess
import sys
from pathlib import Path

from tests.e2e.cli.custody import Custody, Done, environment

QUICK = """# %% find
hits = list(evidence.search(r"pump", limit=10))
# %% answer
SUBMIT(answer=str(len(hits)), citations=[h.citation for h in hits])
"""
#: Works until somebody ends it, in cells that are short.
LONG = """# %% begin
print("begun")
""" + "".join(
    f"""# %% wait {number}
import time
time.sleep(2)
"""
    for number in range(18)
)
#: One cell that never ends by itself.
ENDLESS = """# %% begin
print("begun")
# %% never
while True:
    pass
"""
NOTES = "alpha\nthe pump failed at noon\nomega\n"


class Served:
    """One home, served at one port, again and again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.first_key = ""
        self.address = ""
        self._port = "0"
        self._process: subprocess.Popen[str] | None = None

    def start(self, *more: str) -> None:
        words = ["up", "--home", str(self.folder / "home"), "--port", self._port, "--first-key", *more]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "controlplane.cli.main", *words],
            cwd=self.folder,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=(self.folder / "up.err").open("a"),
            text=True,
        )
        assert self._process.stdout is not None
        said = self._process.stdout.readline().strip()
        if said.startswith("cst_"):
            self.first_key, said = said, self._process.stdout.readline().strip()
        assert said.startswith("http://"), (self.folder / "up.err").read_text()
        self.address = said
        self._port = said.rpartition(":")[2]

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        assert self._process is not None
        process, self._process = self._process, None
        process.send_signal(number)
        code = process.wait(timeout=30)
        assert process.stdout is not None
        process.stdout.close()
        return code


class Person(Custody):
    """Somebody with a key, evidence and a profile called `there`."""

    def __init__(self, folder: Path, served: Served, *, key: str) -> None:
        super().__init__(folder)
        self.served = served
        for name, text in (
            ("notes.txt", NOTES),
            ("quick.py", QUICK),
            ("long.py", LONG),
            ("endless.py", ENDLESS),
        ):
            (folder / name).write_text(text, encoding="utf-8")
        (folder / "key").write_text(key + "\n", encoding="utf-8")
        (folder / "key").chmod(0o600)
        done = self("login", "there", "--server", served.address, "--key-file", "key", there=False)
        assert done.code == 0, done.err

    def start(self, *words: str, there: bool = True, stdin: str | None = None) -> "subprocess.Popen[str]":
        env = environment() | {"XDG_CONFIG_HOME": str(self.folder / "config")}
        started = subprocess.Popen(
            [sys.executable, "-m", "controlplane.cli.main", *words],
            cwd=self.folder,
            env=env | ({"CUSTODY_SERVER": "there"} if there else {}),
            stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        if stdin is not None:
            assert started.stdin is not None
            started.stdin.write(stdin)
            started.stdin.close()
            started.stdin = None
        return started

    def __call__(
        self, *words: str, seconds: float = 60, there: bool = True, stdin: str | None = None
    ) -> Done:
        return self.finish(self.start(*words, there=there, stdin=stdin), seconds=seconds)

    def begins(self, playbook: str, *more: str) -> str:
        """The id of a job that was entered and whose first cell was executed."""
        done = self("run", "How often?", "-e", "notes.txt", "--playbook", playbook, "--detach", *more)
        assert done.code == 0, done.err
        job_id = done.out.strip()
        self.until(lambda: any(event["kind"] == "cell_finished" for event in self.events(job_id)))
        return job_id

    def state(self, job_id: str) -> str:
        return str(self("show", job_id, "--json").document["state"])
