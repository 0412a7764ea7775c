"""The live view: progress, job and clock to one rich renderable. Decides nothing and reads nothing by itself."""

from dataclasses import dataclass
from decimal import Decimal

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from controlplane.cli.figures import count, duration, money
from controlplane.cli.progress import Progress, Row
from controlplane.cli.safe import one_line
from controlplane.custodian import driver_name
from controlplane.views import JobView

_SHOWN_ROWS = 10
_SHOWN_NOTICES = 3
_BAR_WIDTH = 24
_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"

_OUTCOMES = {
    "working": ("…", "cyan"),
    "ok": ("✓", "green"),
    "ended": ("✓", "green"),
    "error": ("✗", "yellow"),
    "rejected": ("✗", "yellow"),
    "timed_out": ("⏱", "red"),
    "interrupted": ("■", "red"),
    "crashed": ("✗", "red"),
    "violation": ("✗", "red"),
}


@dataclass(frozen=True, kw_only=True)
class Gauge:
    """One dimension of the budget: how much of what limit."""

    name: str
    used: float
    limit: float
    words: str

    @property
    def share(self) -> float:
        return min(self.used / self.limit, 1.0) if self.limit else 1.0


def render(view: JobView, progress: Progress, *, now_ms: int, order: str = "") -> RenderableType:
    """The whole view of a working job at one moment."""
    parts: list[RenderableType] = [_header(view), _rows(progress, now_ms=now_ms)]
    if view.waiting_for:
        parts.append(Text(f"  · waiting: {one_line(view.waiting_for, width=300)}", style="yellow"))
    parts += [Text(f"  · {notice}", style="yellow") for notice in progress.notices[-_SHOWN_NOTICES:]]
    parts += [_subcalls(view, progress), _gauges(gauges(view, progress, now_ms=now_ms))]
    parts.append(_footer(view, progress, now_ms=now_ms, order=order))
    return Group(*parts)


def gauges(view: JobView, progress: Progress, *, now_ms: int) -> list[Gauge]:
    """The limited dimensions that a person watches, in a fixed order."""
    budget, usage = view.spec.budget, view.usage
    cells = max(usage.iterations, sum(1 for place in progress.rows if not place[0]))
    elapsed = max(usage.wall_time_ms, progress.elapsed_ms(now_ms))
    calls, tokens = max(usage.subcalls, progress.started), max(usage.tokens, progress.tokens)
    found = [
        _gauge("iterations", cells, budget.max_iterations),
        _gauge("subcalls", calls, budget.max_subcalls),
        _gauge("tokens", tokens, budget.max_tokens),
        _usd(max(usage.cost_usd or Decimal(0), progress.cost or Decimal(0)), budget.max_cost_usd),
        Gauge(
            name="time",
            used=elapsed,
            limit=budget.max_wall_time_ms,
            words=f"{duration(elapsed)} of {duration(budget.max_wall_time_ms)}",
        ),
    ]
    return [gauge for gauge in found if gauge is not None]


def _gauge(name: str, used: int, limit: int | None) -> Gauge | None:
    if limit is None:
        return Gauge(name=name, used=0, limit=1, words=f"{count(used)}, no limit") if used else None
    return Gauge(name=name, used=used, limit=limit, words=f"{count(used)} of {count(limit)}")


def _usd(used: Decimal, limit: Decimal | None) -> Gauge | None:
    if limit is None:
        return Gauge(name="usd", used=0, limit=1, words=f"{money(used)}, no limit") if used else None
    return Gauge(name="usd", used=float(used), limit=float(limit), words=f"{money(used)} of {money(limit)}")


def _header(view: JobView) -> RenderableType:
    title = Text(one_line(view.spec.task, width=300), style="bold")
    sources = ", ".join(ref.name for ref in view.spec.input_artifacts) or "no evidence"
    facts = f"job {view.job_id} · {driver_name(view.spec)} · predict() by {view.spec.sub_model} · {sources}"
    return Group(title, Text(one_line(facts, width=300), style="dim"), Rule(style="dim"))


def _rows(progress: Progress, *, now_ms: int) -> RenderableType:
    rows = list(progress.rows.values())
    table = Table.grid(padding=(0, 1), expand=True)
    for justify, ratio in (("right", None), ("left", None), ("left", 1), ("right", None), ("right", None)):
        table.add_column(justify=justify, ratio=ratio, no_wrap=True, overflow="ellipsis")  # type: ignore[arg-type]
    hidden = len(rows) - _SHOWN_ROWS
    if hidden > 0:
        table.add_row("", "", Text(f"… {hidden} earlier cells", style="dim"), "", "")
    for row in rows[-_SHOWN_ROWS:]:
        table.add_row(*_row(row, now_ms=now_ms))
    if progress.thinking:
        table.add_row(
            "",
            _spinning(now_ms),
            Text(f"{one_line(progress.thinking, width=60)} writes the next cell"),
            "",
            "",
        )
    elif not rows:
        table.add_row("", _spinning(now_ms), Text("waiting for the first cell"), "", "")
    return table


def _spinning(now_ms: int) -> Text:
    return Text(_FRAMES[now_ms // 100 % len(_FRAMES)], style="cyan")


def _row(row: Row, *, now_ms: int) -> tuple[RenderableType, ...]:
    sign, style = _OUTCOMES.get(row.outcome, ("?", "red"))
    mark = _spinning(now_ms) if row.outcome == "working" else Text(sign, style=style)
    title = Text(("  ↳ " if row.node else "") + row.title)
    if row.detail:
        title.append(f"  {row.detail}", style=style)
    took = duration(max((row.finished_ms or now_ms) - row.started_ms, 0))
    calls = Text(f"{row.subcalls} calls" if row.subcalls else "", style="dim")
    return Text(str(row.number), style="dim"), mark, title, calls, Text(took, style="dim")


def _subcalls(view: JobView, progress: Progress) -> RenderableType:
    if not progress.started:
        return Text("")
    line = Table.grid(padding=(0, 1))
    bar = ProgressBar(total=max(progress.started, 1), completed=progress.finished, width=_BAR_WIDTH)
    words = f"{progress.finished} of {progress.started} asked"
    extras = [f"{len(progress.in_flight)} in flight"] if progress.in_flight else []
    extras += [f"{progress.failed} failed"] if progress.failed else []
    extras += [f"{duration(progress.mean_subcall_ms)} each"] if progress.finished else []
    if not progress.finished and view.spec.sub_model.startswith("embedded"):
        extras.append("the embedded model is being loaded")
    extras += (
        [f"{view.usage.answered_from_journal} from the journal"] if view.usage.answered_from_journal else []
    )
    line.add_row(Text("  predict()  "), bar, Text(" · ".join([words, *extras]), style="cyan"))
    return line


def _gauges(found: list[Gauge]) -> RenderableType:
    grid = Table.grid(padding=(0, 1))
    for gauge in found:
        style = "red" if gauge.share >= 0.95 else "yellow" if gauge.share >= 0.75 else "green"
        bar = ProgressBar(
            total=1.0, completed=gauge.share, width=_BAR_WIDTH, complete_style=style, finished_style=style
        )
        grid.add_row(Text(f"  {gauge.name:<11}", style="dim"), bar, Text(gauge.words, style="dim"))
    return grid


def _footer(view: JobView, progress: Progress, *, now_ms: int, order: str) -> RenderableType:
    ago = (
        f"last event {duration(max(now_ms - progress.last_ms, 0))} ago"
        if progress.last_ms
        else "no event yet"
    )
    facts = f"{view.state} · {progress.events} trace events · {ago}"
    if view.is_terminal:
        return Text(f"  {facts}", style="dim")
    if order:
        hint = "again kills it at once" if order == "stop" else "waiting for proof that nothing is left"
        return Text(f"  {order} ordered: {hint} · {facts}", style="bold yellow")
    return Text(f"  {facts} · Ctrl-C stops the job and keeps what it has", style="dim")
