"""Where log records of a command go: a file in the home, never the terminal. A person reads paragraphs, not records."""

import logging
import logging.handlers
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from pathlib import Path

from controlplane.adapters.private_files import make_folder, private_opener

_BYTES = 1_000_000
_KEPT = 2
#: Others log addresses and contents of requests at this level.
_OURS = ("controlplane", "rlm_worker", "sandbox")
_USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def keep_off_the_terminal() -> None:
    """Let no record, warning or death of a thread reach stderr by itself. Doing it twice is fine."""
    root = logging.getLogger()
    if not root.handlers:
        root.addHandler(logging.NullHandler())
    logging.captureWarnings(True)
    threading.excepthook = _thread_died


@contextmanager
def logging_into(home: Path) -> Iterator[None]:
    """Send records of this process to the log of a home. Without the right to write there, they go nowhere."""
    keep_off_the_terminal()
    root = logging.getLogger()
    opened = LogFile(home / "log" / "custody.log")
    with suppress(OSError):
        make_folder(home / "log")
    root.addHandler(opened)
    for name in _OURS:
        logging.getLogger(name).setLevel(logging.INFO)
    try:
        yield
    finally:
        root.removeHandler(opened)
        opened.close()


def log_with_errors() -> Path | None:
    """The log that took an error of this process; None when there was no error."""
    found = (handler for handler in logging.getLogger().handlers if isinstance(handler, LogFile))
    return next((Path(handler.baseFilename) for handler in found if handler.error_count), None)


class LogFile(logging.handlers.RotatingFileHandler):
    """A private file of bounded size that counts the errors that went into it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, maxBytes=_BYTES, backupCount=_KEPT, encoding="utf-8", delay=True)
        self.error_count = 0
        self.setFormatter(_Line("%(asctime)s %(process)d %(levelname)s %(name)s %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        self.error_count += record.levelno >= logging.ERROR
        super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - named by logging
        """A log that cannot be written must not disturb the job or the terminal."""

    def _open(self) -> TextIOWrapper:
        return open(self.baseFilename, "a", encoding="utf-8", opener=private_opener)


class _Line(logging.Formatter):
    """One line a record, with what it carries beside its name; a traceback follows below."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - named by logging
        extras = (f"{key}={value!r}" for key, value in vars(record).items() if key not in _USUAL)
        return " ".join([super().formatMessage(record), *extras])


def _thread_died(death: threading.ExceptHookArgs) -> None:
    name = death.thread.name if death.thread is not None else ""
    problem = death.exc_value
    info = None if problem is None else (type(problem), problem, death.exc_traceback)
    logging.getLogger(__name__).error("thread_died", exc_info=info, extra={"thread_name": name})
