"""What can go wrong with a model, sorted by what must happen next. Messages name the model and never hold a key.

ModelError
├── AskAgainLater            nothing is wrong with the request: wait, then ask again
│   ├── RateLimited          wait `retry_after_seconds`
│   ├── Overloaded           the server is up and cannot answer now
│   └── Unreachable          no connection, a broken one, or no answer in time
├── AskDifferently           the same request will fail again
│   ├── ContextTooLong       send less
│   ├── Refused              the model or its filter declined
│   └── Malformed            request or answer is not understood
└── ChangeTheSetup           a person must change something
    ├── NotAuthorised        the key is missing, wrong, or lacks the right
    ├── UnknownModel         no such name
    └── ModelUnavailable     a known local model that cannot be had here
"""

from typing import ClassVar


class ModelError(Exception):
    """A model gave no usable answer."""

    may_retry: ClassVar[bool] = False

    def __init__(self, model: str, message: str, *, may_have_spent: bool = False) -> None:
        """`may_have_spent`: the request left and its outcome is unknown, so the budget's hold must be charged."""
        super().__init__(f"{model}: {message}")
        self.model = model
        self.may_have_spent = may_have_spent


class AskAgainLater(ModelError):
    """Nothing is wrong with the request: wait, then ask again."""

    may_retry = True


class RateLimited(AskAgainLater):
    """The provider asks for a pause."""

    def __init__(self, model: str, message: str, *, retry_after_seconds: float | None = None) -> None:
        super().__init__(model, message)
        self.retry_after_seconds = retry_after_seconds


class Overloaded(AskAgainLater):
    """The server is up and cannot answer now."""


class Unreachable(AskAgainLater):
    """No connection, a broken one, or no answer in time."""


class AskDifferently(ModelError):
    """The same request will fail again."""


class ContextTooLong(AskDifferently):
    """The messages do not fit the model's context: send less."""


class Refused(AskDifferently):
    """The model, or a filter before it, declined to answer."""


class Malformed(AskDifferently):
    """The server does not understand the request, or its answer is not a chat completion."""


class ChangeTheSetup(ModelError):
    """A person must change something before asking again."""


class NotAuthorised(ChangeTheSetup):
    """The key is missing, wrong, or lacks the right."""


class UnknownModel(ChangeTheSetup):
    """No model goes by this name."""


class ModelUnavailable(ChangeTheSetup):
    """A known local model cannot be had on this machine; the message names the next option."""
