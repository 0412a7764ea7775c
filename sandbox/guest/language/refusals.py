"""What code cannot have in a sandbox, in words that tell it what to do instead. Decides nothing."""

import errno
import linecache

#: Modules that models reach for, and what does the same work here.
_INSTEAD = {
    **dict.fromkeys(
        ("numpy", "scipy", "np"), "use the standard library: statistics, math, itertools, collections, array"
    ),
    **dict.fromkeys(
        ("pandas", "polars", "pyarrow", "duckdb", "dask"),
        "use the standard library: csv, sqlite3 in memory, collections.Counter, statistics",
    ),
    **dict.fromkeys(
        ("matplotlib", "seaborn", "plotly", "PIL", "cv2"), "nothing here can be drawn: print numbers or a table"
    ),
    **dict.fromkeys(
        ("requests", "httpx", "aiohttp", "urllib3", "boto3", "paramiko", "selenium", "playwright"),
        "direct network is off in this sandbox: use `evidence`, a declared tool, or fetch(url) for hosts the job may reach",
    ),
    **dict.fromkeys(
        ("openai", "anthropic", "litellm", "langchain", "dspy", "transformers", "tiktoken"),
        "call the model with predict(…) or llm_query(…), which are here already",
    ),
    **dict.fromkeys(
        ("bs4", "lxml", "html5lib"), "use the standard library: html.parser, xml.etree.ElementTree, re"
    ),
    **dict.fromkeys(("yaml", "ruamel", "toml"), "parse it with re or line by line; tomllib and json are here"),
    **dict.fromkeys(("sklearn", "torch", "tensorflow", "xgboost", "statsmodels", "networkx"), "write the few lines of it in plain Python, with statistics and heapq"),
    **dict.fromkeys(("dateutil", "pytz", "arrow", "pendulum"), "use datetime and zoneinfo"),
    **dict.fromkeys(("tqdm", "rich", "tabulate", "colorama"), "print plain lines; progress(done, total) tells whoever watches"),
    **dict.fromkeys(("PyPDF2", "pypdf", "fitz", "pdfplumber", "docx", "openpyxl"), "documents are text already here: read evidence[name].text, .pages() or .rows(); .note says what is missing"),
    **dict.fromkeys(("IPython", "google", "ipywidgets"), "this is no notebook server: print what you want to see"),
    **dict.fromkeys(("regex",), "use re"),
}  # fmt: skip

NETWORK = "direct network is off in this sandbox: use `evidence`, a declared tool, or fetch(url) for hosts the job may reach"
PROCESSES = "no program can be started in this sandbox: do it in Python, in this cell"
NO_SHELL = "no shell and no installer is in this sandbox: do it in Python, with what can be imported"
NO_INPUT = "nobody can type into this sandbox: read `question()`, `params` or `evidence`"
FILES = "files of the host are not here: read `evidence`, write below `workspace`"


class NotInThisSandbox(SyntaxError):
    """The cell certainly cannot work here. Raised before any of it has run, with the line and what to do instead."""

    __module__ = "builtins"  # tracebacks then show the bare name

    def __init__(self, message: str, *, filename: str, line: int) -> None:
        super().__init__(message, (filename, line, None, linecache.getline(filename, line)))

    def __str__(self) -> str:
        return str(self.msg)


def missing_module(name: str) -> str:
    """Say that a module is not here, and what to use instead."""
    top = name.partition(".")[0]
    instead = _INSTEAD.get(
        top, "use the standard library, such as re, json, csv, statistics, datetime, sqlite3"
    )
    return f"{top} is not in this sandbox and nothing can be installed: {instead}"


def hint_for(error: BaseException) -> str:
    """Return what to do about an error that the sandbox itself causes; nothing for errors of the code."""
    if isinstance(error, ModuleNotFoundError) and error.name:
        return missing_module(error.name)
    if isinstance(error, EOFError) and "reading a line" in str(error):
        return NO_INPUT
    for cause in _chain(error):
        if isinstance(cause, OSError) and cause.errno == errno.EAFNOSUPPORT:
            return NETWORK
        if type(cause).__name__ == "gaierror":
            return NETWORK
    if isinstance(error, OSError) and str(error.filename or "").startswith(("/bin/", "/usr/bin/")):
        return PROCESSES
    return ""


def _chain(error: BaseException) -> list[BaseException]:
    """Return the error and what it wraps: urllib keeps the cause as `reason`."""
    reason = getattr(error, "reason", None)
    found = [error, error.__cause__, error.__context__, reason]
    return [cause for cause in found if isinstance(cause, BaseException)]
