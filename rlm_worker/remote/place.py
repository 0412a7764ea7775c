"""A machine that is not the control plane's own: evidence is brought here, and what jobs make is handed in over there."""

import json
import logging
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from rlm_worker.contracts import EvidenceRef
from rlm_worker.contracts.gateway import Claimed, GatewayDown, GatewayRefused, Lease
from rlm_worker.contracts.remote import PART_BYTES
from rlm_worker.endings import Failed
from rlm_worker.errors import LostAuthority
from rlm_worker.ground import Ground
from rlm_worker.remote.cache import EvidenceCache
from rlm_worker.remote.evidence import Abandoned, Fetched, Fetcher
from rlm_worker.remote.gateway import EvidenceRefused, HttpGateway

log = logging.getLogger(__name__)

_AGAIN_SECONDS = 0.2


class RemotePlace:
    """Where a worker of this process runs its jobs, and how it vouches for their evidence."""

    def __init__(self, gateway: HttpGateway, home: Path, *, cache_bytes: int) -> None:
        self._gateway = gateway
        self._cache = EvidenceCache(home / "evidence", most_bytes=cache_bytes)
        self._made = home / "made"
        self._made.mkdir(mode=0o700, exist_ok=True)

    def bring(self, claimed: Claimed, enough: threading.Event) -> Ground:
        held: list[Fetched] = []
        made = Path(tempfile.mkdtemp(prefix="job-", dir=self._made))

        def close() -> None:
            for piece in held:
                piece.entry.close()
            shutil.rmtree(made, ignore_errors=True)

        fetcher = Fetcher(self._gateway, self._cache, claimed.lease, enough)
        refused: Failed | None = None
        try:
            for ref in claimed.spec.input_artifacts:
                held.append(fetcher.fetch(ref))  # noqa: PERF401 - what is held must be known when the next one fails
        except Abandoned:
            log.info("evidence_abandoned", extra={"job_id": claimed.lease.job_id})
        except EvidenceRefused as error:
            refused = Failed("invalid_request", f"{error}. The job was not run")
        except OSError as error:
            refused = Failed("backend_unavailable", f"evidence cannot be kept on this worker: {error}")
        except BaseException:
            close()
            raise
        refs = {piece.ref.name: piece.ref for piece in held}
        placed = tuple(refs.get(ref.name, ref) for ref in claimed.spec.input_artifacts)
        return Ground(
            spec=claimed.spec.model_copy(update={"input_artifacts": placed}),
            artifacts=made,
            hand_in=self._handing_in(claimed.lease),
            refused=refused,
            close=close,
        )

    def _handing_in(self, lease: Lease) -> Callable[[Path], None]:
        known: set[str] = set()

        def hand_in(path: Path) -> None:
            if path.name not in known:
                self._hand_in(lease, path)
                known.add(path.name)

        return hand_in

    def _hand_in(self, lease: Lease, path: Path) -> None:
        """Send a file, from where the server has it to. A server that is away longer than the lease has taken the job back."""
        size, at, is_kept = path.stat().st_size, 0, False
        patience = lease.ttl_ms / 1000
        give_up = time.monotonic() + patience
        with path.open("rb") as opened:
            while not is_kept:
                opened.seek(at)
                piece = opened.read(PART_BYTES)
                try:
                    answer = self._gateway.keep(
                        lease.job_id, lease.fence, path.name, piece, offset=at, size=size
                    )
                except GatewayDown as down:
                    if time.monotonic() >= give_up:
                        raise LostAuthority(f"a file could not be handed in: {down}") from down
                    time.sleep(_AGAIN_SECONDS)
                except GatewayRefused as error:
                    raise LostAuthority(f"a file was not taken: {error}") from error
                else:
                    at, is_kept = answer.received_bytes, answer.is_kept
                    give_up = time.monotonic() + patience

    # ── what the worker vouches for ──────────────────────────────────────────────────────────────────────────

    def seal(self, ref: EvidenceRef, _enough: threading.Event) -> str | None:
        """The digest of the content, which was checked when it came; None when it did not."""
        facts = Path(ref.location).parent / "facts.json"
        try:
            return str(json.loads(facts.read_bytes())["content_digest"])
        except (OSError, ValueError, KeyError):
            return None

    def changed(self, ref: EvidenceRef) -> bool:
        """True when what lies here is no longer what was fetched."""
        top = Path(ref.location)
        with suppress(OSError, ValueError, KeyError):
            facts = json.loads((top.parent / "facts.json").read_bytes())
            for below, size, changed_ns, unreadable in facts["files"]:
                found = (top / below if below else top).lstat()
                if not unreadable and (found.st_size, found.st_mtime_ns) != (size, changed_ns):
                    return True
            return False
        return True
