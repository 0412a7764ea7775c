"""What a job made: taken out of its workspace at its end, kept by content, and told in its trace."""

import asyncio
import os
import shutil
import tempfile
from pathlib import Path

import sandbox
from rlm_worker.contracts import JobSpec
from rlm_worker.contracts.result import ArtifactRef
from rlm_worker.contracts.trace import ArtifactsCollected
from rlm_worker.folders import sync_folder
from rlm_worker.journal import Journal
from rlm_worker.workbench import Workbench


async def collect_artifacts(bench: Workbench, spec: JobSpec, session: sandbox.Session) -> None:
    """Keep the files that the job was asked for and record them; a workspace that is gone is recorded as such."""
    if not spec.artifact_policy.collect or bench.artifacts is None:
        return
    incoming = await asyncio.to_thread(_incoming, bench.artifacts)
    try:
        collected = await session.artifacts(incoming)
        await asyncio.to_thread(_keep, collected, bench.artifacts)
        await asyncio.to_thread(bench.hand_in, [artifact.sha256 for artifact in collected.artifacts])
    except (sandbox.SandboxError, OSError) as error:
        lost = ArtifactsCollected(skipped=(f"the workspace: {error}",), skipped_total=1)
        await bench.writer.write(lost)
    else:
        await bench.writer.write(_event(collected))
    finally:
        await asyncio.to_thread(shutil.rmtree, incoming, ignore_errors=True)


def _incoming(folder: Path) -> Path:
    """A folder on the same file system, so that what is in it can be moved in one step."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix=".incoming-", dir=folder))


def _keep(collected: sandbox.Collected, folder: Path) -> None:
    for artifact in collected.artifacts:
        with artifact.file.open("rb") as copy:
            os.fsync(copy.fileno())
        artifact.file.replace(folder / artifact.sha256)
    sync_folder(folder)


def _event(collected: sandbox.Collected) -> ArtifactsCollected:
    return ArtifactsCollected(
        artifacts=tuple(
            ArtifactRef(path=artifact.path, digest=artifact.sha256, size_bytes=artifact.size_bytes)
            for artifact in collected.artifacts
        ),
        skipped=tuple(f"{skipped.path}: {skipped.reason}" for skipped in collected.skipped),
        skipped_total=collected.skipped_total,
    )


def uncollected(spec: JobSpec, journal: Journal) -> str:
    """What to say of artifacts that were asked for and are not there."""
    if not spec.artifact_policy.collect:
        return ""
    if journal.collected is None:
        return " [artifacts were not collected: the job ended before they could be]"
    left = journal.collected.skipped_total
    return f" [{left} files were not collected: the trace says why]" if left else ""
