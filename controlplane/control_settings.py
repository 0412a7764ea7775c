"""Settings of the watchdogs that look for stuck jobs: how long is too long, and what is done about it."""

from dataclasses import dataclass, fields


@dataclass(frozen=True, kw_only=True)
class ControlSettings:
    """What each kind of finding means stands in controlplane/README.md."""

    #: How often they look.
    stuck_seconds: float = 5.0
    #: Time without a record after which a job at work counts as stuck. A job with long cells gets twice their time.
    progress_seconds: float = 1_800.0
    #: How long past its time a parked job may be still parked.
    overdue_seconds: float = 60.0
    #: How long a call may be unanswered, and a question to a person that names no time.
    answer_seconds: float = 1_800.0
    question_seconds: float = 604_800.0
    #: How long a ready job may be sent to nobody.
    dispatch_seconds: float = 60.0
    #: Attempts at one job, whatever ended them.
    attempts_limit: int = 100
    #: Tokens that a job may spend in a minute; none: any number.
    spend_tokens_per_minute: int | None = None
    #: What is done about findings, as in no_progress=kill,wait_overdue=stop: warn, pause, stop, kill, quarantine.
    stuck_policy: str | None = None


#: Settings of the control plane's watchdogs.
CONTROL: tuple[str, ...] = tuple(item.name for item in fields(ControlSettings))
