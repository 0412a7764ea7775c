"""What can be set about a worker. One frozen value, made by whoever starts it."""

from dataclasses import dataclass, field

from rlm_worker.models.settings import ModelSettings


@dataclass(frozen=True, kw_only=True)
class WorkerSettings:
    """Limits and habits of one worker process."""

    models: ModelSettings = field(default_factory=ModelSettings)
    #: Model requests of one job tree that may be under way at once.
    subcalls_in_flight: int = 64
    #: Children of one depth, each with a sandbox of its own, that may run at once in one job tree.
    children_at_once: int = 8
    #: Times an answer that does not fit its type is sent back to the model.
    repairs: int = 1
    #: Times a request is sent again after a rate limit, overload or broken connection.
    retries: int = 3
    retry_seconds: float = 0.5
    #: Rate limits that last longer are not waited out by a worker: the job is parked.
    park_after_seconds: float = 20.0
    #: Times in a row, without one answer in between, that a job is parked for a rate limit.
    parks_in_a_row: int = 12
    model_timeout_seconds: float = 300.0
    turn_output_tokens: int = 4_096
    #: Least wall time that is kept for the closing turn of a model.
    closing_seconds: float = 10.0
    #: Time that a stopped job has for a last SUBMIT; a kill gives none.
    stop_grace_seconds: float = 5.0
    #: Characters of a cell's output that the next prompt shows, head and tail together.
    observation_chars: int = 10_000
    #: Identical failing cells in a row that count as no progress.
    repeated_failures: int = 3
    #: A lease is given up this long before the control plane may grant it again.
    lease_margin_seconds: float = 1.5
