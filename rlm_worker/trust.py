"""The mark of trust that derived things keep: what was made of untrusted evidence is untrusted."""

from typing import Literal

from rlm_worker.contracts import JobSpec

Trust = Literal["untrusted", "trusted"]


def trust_of(spec: JobSpec) -> Trust:
    """Trusted only where all that the cells could read is: some evidence, every piece of it trusted, no network."""
    pieces = spec.input_artifacts
    is_trusted = bool(pieces) and all(ref.trust == "trusted" for ref in pieces)
    return "trusted" if is_trusted and not spec.network_policy.allow else "untrusted"
