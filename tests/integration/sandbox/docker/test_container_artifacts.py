"""Files out of a container, whatever code left in its workspace and whatever the relay says about it."""

import asyncio
import hashlib
import os

import pytest

import sandbox
from sandbox import ArtifactLimits, Policy, SessionEnded
from sandbox.backends.docker import collecting
from sandbox.backends.docker.inside import records


def test_files_are_collected_with_their_bytes_and_names(in_box, tmp_path):
    async def story(box):
        await box.run(
            "(workspace / 'a').mkdir()\n"
            "(workspace / 'a' / 'big.bin').write_bytes(bytes(range(256)) * 4000)\n"
            "(workspace / 'empty').touch()\n"
            "import os\nopen(b'/workspace/\\xff\\n', 'w').write('odd')"
        )
        found = await box.session.artifacts(tmp_path / "out")

        assert [artifact.path for artifact in found.artifacts] == ["a/big.bin", "empty", r"\xff\u000a"]
        big = found.artifacts[0]
        assert big.file.read_bytes() == bytes(range(256)) * 4000
        assert big.sha256 == hashlib.sha256(big.file.read_bytes()).hexdigest()
        assert (found.skipped, found.skipped_total) == ((), 0)
        assert await box.value("1 + 1") == "2"

    in_box(story)


def test_what_is_no_plain_file_is_named_and_left(in_box, tmp_path):
    async def story(box):
        await box.run(
            "import os, socket\nos.chdir('/workspace')\n"
            "os.symlink('/etc/hostname', 'link')\nos.symlink('/', 'root')\n"
            "open('one', 'w').write('x'); os.link('one', 'two')\n"
            "open('large', 'w').truncate(50_000)\n"
            "os.makedirs('/'.join('d' * 12)); open('/'.join('d' * 12) + '/deep', 'w').write('x')\n"
            "open('plain', 'w').write('fine')"
        )
        found = await box.session.artifacts(tmp_path / "out")

        assert [artifact.path for artifact in found.artifacts] == ["plain"]
        reasons = {skipped.path: skipped.reason for skipped in found.skipped}
        assert reasons["link"] == reasons["root"] == "it is a link"
        assert reasons["one"] == reasons["two"] == "it has 2 links"
        assert "more than the 40000" in reasons["large"]
        assert any("deeper than 8" in reason for reason in reasons.values())

    in_box(story, artifacts=ArtifactLimits(file_bytes=40_000, depth=8))


def test_no_more_is_collected_than_is_allowed(in_box, tmp_path):
    async def story(box):
        await box.run("for n in range(300): (workspace / f'{n:03}').write_text('x' * 10)")
        found = await box.session.artifacts(tmp_path / "out")

        assert len(found.artifacts) == 20
        assert found.skipped_total >= 80
        assert any("more than 100 entries" in skipped.reason for skipped in found.skipped)

    in_box(story, artifacts=ArtifactLimits(files=20, entries=100))


def test_only_what_was_asked_for_is_collected(in_box, tmp_path):
    async def story(box):
        await box.run("for n in ('a.csv', 'b.txt'): (workspace / n).write_text(n)")
        found = await box.session.artifacts(tmp_path / "out")

        assert [artifact.path for artifact in found.artifacts] == ["a.csv"]
        assert found.skipped_total == 0

    in_box(story, artifacts=ArtifactLimits(only=("*.csv",)))


def test_files_can_be_collected_while_code_runs_and_changes_them(in_box, tmp_path):
    async def story(box):
        await box.run(
            "import threading, time\n"
            "def churn():\n"
            "    while True:\n"
            "        (workspace / 'moving').write_bytes(b'x' * 200_000); (workspace / 'moving').unlink()\n"
            "threading.Thread(target=churn, daemon=True).start()"
        )
        for number in range(5):
            found = await box.session.artifacts(tmp_path / str(number))
            assert {artifact.path for artifact in found.artifacts} <= {"moving"}
        assert await box.value("1 + 1") == "2"

    in_box(story)


def test_a_container_that_is_gone_took_its_files_along(runtime, tmp_path):
    async def main():
        session = await sandbox.open_session(Policy(backend="docker", runtime=runtime))
        await session.kill()
        with pytest.raises(SessionEnded, match="collect before"):
            await session.artifacts(tmp_path / "out")

    asyncio.run(main())


class Lies:
    """A pump whose relay says what a hostile one might."""

    def __init__(self, *said: bytes) -> None:
        self._said = b"".join(said)

    def collect(self) -> int:
        ours, theirs = os.pipe()
        os.write(theirs, self._said)
        os.close(theirs)
        return ours

    def order(self, kind: bytes, data: bytes = b"") -> None:
        assert kind == records.COLLECT


def a_file(path: bytes, *data: bytes) -> bytes:
    return records.encode(records.FILE, path) + b"".join(
        records.encode(records.DATA, piece) for piece in (*data, b"")
    )


@pytest.mark.parametrize(
    "said",
    [
        a_file(b"../../etc/passwd"),
        a_file(b"/etc/passwd"),
        a_file(b"a/../b"),
        a_file(b""),
        a_file(b"a\0b"),
        a_file(b"/".join([b"d"] * 40)),
        a_file(b"large", *[b"x" * 1000] * 3),
        records.encode(records.DATA, b"of no file"),
        records.encode(records.FILE, b"a") + records.encode(records.FILE, b"b"),
        records.encode(records.SKIPPED, b"no json"),
        records.encode(records.SKIPPED, b'["zz", 1]'),
        records.encode(records.SKIPPED, b"[" * 60_000),
        b"".join(a_file(b"%d" % number) for number in range(50)),
        b"?????????",
    ],
)
def test_a_lying_relay_is_found_out(tmp_path, said):
    limits = ArtifactLimits(file_bytes=2000, entries=20)

    with pytest.raises(records.RecordError):
        collecting.collect(Lies(said, records.encode(records.COLLECTED)), tmp_path / "out", limits)


def test_a_relay_cannot_talk_a_file_past_the_limits(tmp_path):
    said = [a_file(b"%d" % number, b"x" * 1000) for number in range(10)]
    limits = ArtifactLimits(files=4, total_bytes=3000)

    found = collecting.collect(Lies(*said, records.encode(records.COLLECTED)), tmp_path / "out", limits)

    assert (len(found.artifacts), found.skipped_total) == (3, 7)
