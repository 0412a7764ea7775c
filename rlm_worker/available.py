"""What a spec can ask for and this worker cannot do."""

from rlm_worker.contracts import JobSpec
from rlm_worker.contracts.job import RecordingDriver
from rlm_worker.errors import JobFailed
from rlm_worker.workbench import Workbench


def refuse_unavailable(bench: Workbench, spec: JobSpec) -> None:
    """What a spec can say and no part of this worker carries out yet: refused, never left out silently."""
    if spec.allowed_tools:
        raise JobFailed("tool_policy_denied", f"no tools are offered yet: {', '.join(spec.allowed_tools)}")
    if spec.artifact_policy.collect and bench.artifacts is None:
        raise JobFailed("invalid_request", "this worker has no place to keep artifacts")
    if spec.sandbox_policy.runtime != "runc" and spec.sandbox_policy.backend != "docker":
        raise JobFailed("invalid_request", "only containers have another runtime: use the docker backend")
    if isinstance(spec.driver, RecordingDriver) and not spec.driver.cells:
        raise JobFailed("invalid_request", f"the recording of {spec.driver.job_id} holds no cells")
