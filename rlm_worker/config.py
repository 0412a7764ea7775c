"""What can be set about a worker. One frozen value, made by whoever starts it."""

from dataclasses import dataclass, field

from rlm_worker.models.settings import ModelSettings
from rlm_worker.profiles import profile_for


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
    #: Temperature of turns; when None the one of all calls (ModelSettings), else the profile's.
    turn_temperature: float | None = None
    #: Least wall time that is kept for the closing turn of a model.
    closing_seconds: float = 10.0
    #: Time that a stopped job has for a last SUBMIT; a kill gives none.
    stop_grace_seconds: float = 5.0
    #: Time that a paused job has to end its calls and its cell; what takes longer is cut off and done again on resume.
    pause_grace_seconds: float = 30.0
    #: Characters of a cell's output that the next prompt shows, head and tail together.
    observation_chars: int = 10_000
    #: How the model that writes cells is spoken to; by its name when None. See profiles.py.
    profile: str | None = None
    #: Equivalent cells that fail alike among the latest turns, and end the job; one less and the model is told. So below.
    repeated_failures: int = 3
    #: Cells in a row that show the same.
    repeated_observations: int = 5
    #: Turns in a row without a cell.
    empty_turns: int = 5
    #: predict() calls with nearly the same inputs, or in a row without an answer, that are a storm: the next is refused,
    #: and a second storm ends the job.
    similar_subcalls: int = 20
    failing_subcalls: int = 25
    #: Estimated tokens of a conversation past which it starts anew, and how often it may.
    rollover_tokens: int = 120_000
    max_rollovers: int = 8
    #: A lease is given up this long before the control plane may grant it again.
    lease_margin_seconds: float = 1.5

    def __post_init__(self) -> None:
        """Refuse a profile that there is not, before a job meets it."""
        profile_for("", chosen=self.profile)
