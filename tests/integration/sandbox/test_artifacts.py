"""Hostile workspaces, made by code inside: what is handed over is plain and bounded, and the host is not held up."""

import time

from sandbox import ArtifactLimits

HOSTILE = """
import os, socket
os.chdir(workspace)
open('plain.txt', 'w').write('kept')
open('twice', 'w').write('x'); os.link('twice', 'thrice')
os.symlink('/evidence', 'evidence-link'); os.symlink('/proc/1/environ', 'environ')
for make in (lambda: os.mkfifo('pipe'), lambda: socket.socket(socket.AF_UNIX).bind('sock')):
    try:
        make()
    except OSError:
        pass  # some backends do not even let it be made
open(b'not-utf8-\\xff', 'w').write('kept too')
open('line\\nbreak\\x1b[2J', 'w').write('kept three')
with open('sparse', 'wb') as file:
    try:
        file.truncate(1 << 40)
    except OSError:
        file.truncate(200 << 20)
os.mkdir('deep'); os.chdir('deep')
for _ in range(4000):
    os.mkdir('d'); os.chdir('d')
open('bottom', 'w').write('x')
os.chdir(workspace)
os.mkdir('closed', 0); os.chmod('plain.txt', 0o400)
"""


def test_a_hostile_workspace_gives_its_plain_files_and_reasons_for_the_rest(in_box, tmp_path):
    async def story(box) -> None:
        made = await box.run(HOSTILE)
        assert made.outcome == "ok", made.error
        started = time.monotonic()

        collected = await box.session.artifacts(tmp_path / "copies")

        assert time.monotonic() - started < 10
        assert [(a.path, a.file.read_text()) for a in collected.artifacts] == [
            (r"line\u000abreak\u001b[2J", "kept three"),
            (r"not-utf8-\xff", "kept too"),
            ("plain.txt", "kept"),
        ]
        reasons = {skipped.path: skipped.reason for skipped in collected.skipped}
        assert reasons.pop("sparse").startswith("it holds")
        assert reasons.pop("deep" + "/d" * 32) == "it lies deeper than 32 directories"
        reasons.pop("closed", None)  # to root it is open, and empty
        assert reasons.pop("pipe", "it is a named pipe") == "it is a named pipe"
        assert reasons.pop("sock", "it is a socket") == "it is a socket"
        assert reasons == {
            "environ": "it is a link",
            "evidence-link": "it is a link",
            "thrice": "it has 2 links",
            "twice": "it has 2 links",
        }

    in_box(story)


def test_files_that_change_while_they_are_collected_are_whole_or_left_out(in_box, tmp_path):
    churn = """
import threading, os
def churn():
    n = 0
    while True:
        n += 1
        with open(workspace / 'log', 'ab') as file: file.write(b'x' * 4096)
        if n % 50 == 0: os.truncate(workspace / 'log', 0)
        try:
            os.symlink('/etc/passwd', workspace / 'swap'); os.unlink(workspace / 'swap')
            os.mkdir(workspace / 'swap'); os.rmdir(workspace / 'swap')
        except OSError: pass
threading.Thread(target=churn, daemon=True).start()
"""

    async def story(box) -> None:
        assert (await box.run(churn)).outcome == "ok"
        for number in range(20):
            collected = await box.session.artifacts(tmp_path / str(number))
            for artifact in collected.artifacts:
                assert artifact.path == "log"
                assert set(artifact.file.read_bytes()) <= {ord("x")}
                assert artifact.file.stat().st_size == artifact.size_bytes

    in_box(story, artifacts=ArtifactLimits(file_bytes=1 << 20))
