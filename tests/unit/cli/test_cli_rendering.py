"""What people see of a job: from golden traces to text, to the letter where it matters."""

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console, RenderableType

from controlplane.cli.answer import facts, fields_table, render_end, stop_line, usage_line
from controlplane.cli.events import observation_of, summary
from controlplane.cli.jobs import about
from controlplane.cli.live import gauges, render
from controlplane.cli.progress import Progress, cell_name
from controlplane.cli.screens import LineScreen
from controlplane.cli.shapes import job_document
from rlm_worker.contracts import Budget
from rlm_worker.contracts import trace as t
from rlm_worker.contracts.base import Event
from rlm_worker.contracts.result import CitationReport, Proposal
from rlm_worker.contracts.trace import TraceRecord
from tests.unit.cli import golden_job as golden


def _text(renderable: RenderableType, *, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width, no_color=True, force_terminal=False)
    console.print(renderable)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())  # type: ignore[attr-defined]


def _folded(records: list[TraceRecord]) -> Progress:
    progress = Progress()
    for record in records:
        progress.take(record)
    return progress


def test_each_event_is_one_line():
    assert [summary(record) for record in golden.chain()] == [
        "attempt 1 by w1",
        "sandbox namespaces (start): user, net, seccomp",
        "cell 1 by playbook: Find the comments",
        'subcall 0 → embedded: {"line": "# BUG \\u001b[31m"}',
        'subcall 0 ← {"kind": "bug"} (650 ms, 120 in, 4 out, p 0.93)',
        "cell 1 ok (31 ms CPU)",
        "cell 2 by playbook: Submit",
        'SUBMIT {"kinds": [{"kind": "bug", "count": 1}], "total": 1}',
        "cell 2 ended (2 ms CPU)",
        "attempt 1 ended succeeded, answered by submit",
    ]


def test_every_event_kind_has_a_line():
    kinds = {record.kind for record in golden.chain()}

    assert kinds < set(t.EVENT_KINDS)
    for variant in Event.__subclasses__():
        filled = variant.model_construct(**_least(variant))
        record = TraceRecord.model_construct(
            seq=0, at_ms=0, event=filled.model_dump(mode="json"), prev=t.GENESIS, hash=t.GENESIS
        )
        assert "does not know" not in summary(record), variant.__name__


def _least(variant: type[Event]) -> dict[str, object]:
    """The fewest fields that make a valid event."""
    stock: dict[str, object] = {
        "hold": t.Hold(),
        "charged": t.Hold(),
        "spend": t.Spend(),
        "proposal": Proposal(kind="note", body={}),
        "outcome": "ok",
        "driver": "model",
        "dimension": "tokens",
        "order": "stop",
        "reason": "rate_limited",
        "source": "free",
        "status": "failed",
        "answered_by": "nobody",
        "failure_class": "model_error",
        "fields": {},
        "inputs": {},
        "request": {},
        "signature": "a -> b",
        "layers": (),
        "errors": (),
        "ok": True,
        **dict.fromkeys(("number", "covers_to", "tokens_before", "tokens_after", "trace_events"), 1),
        **dict.fromkeys(("brief_digest", "left_out_digest"), t.GENESIS),
        "read": (1, 1),
        "answer_schema": {},
        "version": 1,
        "budget": Budget(),
    }
    found: dict[str, object] = {}
    for name, field in variant.model_fields.items():
        if not field.is_required():
            continue
        digests = {"key", "digest", "prompt_digest", "payload_digest", "content_digest", "expected", "got"}
        digests |= {"source_head"}
        numbers = {"iteration", "ordinal", "attempt", "steer_id", "kill_ms", "stdout_bytes", "stderr_bytes"}
        numbers |= {"at", "source_events", "inherited"}
        numbers |= {"characters", "kept_characters"}
        found[name] = golden.KEY if name in digests else 1 if name in numbers else stock.get(name, "x")
    return found


def test_an_event_of_a_later_version_is_named_not_hidden():
    record = TraceRecord.model_construct(
        seq=0, at_ms=0, event={"kind": "thought_weighed"}, prev=t.GENESIS, hash=t.GENESIS
    )

    assert summary(record) == "thought_weighed (an event this version does not know)"
    assert _folded([record]).events == 1


def test_control_characters_of_the_evidence_are_escaped_in_observations():
    finished = golden.chain()[5]

    assert observation_of(finished, lines=5) == "1 hit\\x1b]0;owned\\x07"


def test_the_fold_counts_what_the_trace_says():
    progress = _folded(golden.chain())

    assert (progress.started, progress.finished, progress.failed, progress.in_flight) == (1, 1, 0, {})
    assert progress.tokens == 124
    assert [(row.number, row.title, row.outcome) for row in progress.rows.values()] == [
        (1, "Find the comments", "ok"),
        (2, "Submit", "ended"),
    ]
    assert progress.ended == "succeeded"


def test_the_gap_between_two_attempts_is_not_time_worked():
    first = golden.chain(golden.EVENTS[:4])
    later = [
        record.model_copy(update={"at_ms": record.at_ms + 3_600_000})
        for record in golden.chain([t.AttemptStarted(attempt=2, worker_id="w2", resumed_iterations=0)])
    ]

    progress = _folded([*first, *later])

    assert progress.elapsed_ms(golden.START_MS + 3_600_050) == 300 + 50
    assert progress.in_flight == {}


def test_the_live_view_shows_question_cells_subcalls_and_gauges():
    progress = _folded(golden.chain(golden.EVENTS[:4]))

    text = _text(
        render(
            golden.job(state="running", result=None, usage=golden.Usage()),
            progress,
            now_ms=golden.START_MS + 1_500,
        )
    )

    assert "Which comments admit a bug?" in text
    assert "job job-1 · playbook audit_comments · predict() by embedded · stdlib" in text
    assert "Find the comments" in text
    assert "0 of 1 asked · 1 in flight" in text
    for gauge in ("1 of 10", "1 of 40", "0 of 20k", "$0 of $0.5000", "1.5 s of 1:00 min"):
        assert gauge in text
    assert "running · 4 trace events · last event 1.2 s ago" in text
    assert "Ctrl-C stops the job" in text


def test_after_ctrl_c_the_view_says_that_it_is_stopping():
    text = _text(
        render(golden.job(state="stopping", result=None), _folded([]), now_ms=golden.START_MS, order="stop")
    )

    assert "stop ordered: again kills it at once" in text


def test_the_live_view_fits_a_small_terminal():
    events = [golden.EVENTS[0]] + [
        t.CellProposed(iteration=n, driver="model", code=f"print({n})") for n in range(1, 60)
    ]

    text = _text(
        render(golden.job(state="running"), _folded(golden.chain(events)), now_ms=golden.START_MS), width=80
    )

    assert len(text.splitlines()) <= 24
    assert "… 49 earlier cells" in text


def test_gauges_never_pass_their_end():
    progress = _folded(golden.chain())
    spent = golden.USAGE.model_copy(update={"subcalls": 90, "iterations": 11})

    shares = {
        gauge.name: gauge.share for gauge in gauges(golden.job(usage=spent), progress, now_ms=golden.START_MS)
    }

    assert shares["subcalls"] == 1.0
    assert shares["iterations"] == 1.0


def test_the_answer_is_a_table_with_what_it_rests_on():
    text = _text(render_end(golden.job()))

    assert "kinds (1 row)" in text
    assert "stdlib/ast.py:7" in text
    assert "12 of 12 citations checked and found" in text
    assert "types filled by embedded:qwen2.5-coder-1.5b" in text
    assert "2 iterations, 1 subcall, 120 tokens in, 4 out, $0, 900 ms" in text
    assert "receipt     rc-1" in text
    assert "custody replay job-1 --verify" in text


def test_a_partial_answer_names_the_limit_that_ended_it():
    ended = golden.result(
        status="partial", failure_class="partial_success", limit="tokens", answered_by="draft"
    )

    text = _text(render_end(golden.job(state="partial", result=ended)))

    assert "Partial answer" in text
    assert "the limit on tokens ended the job; this is its last DRAFT, not the whole answer." in text


def test_a_citation_that_does_not_exist_is_shouted():
    report = CitationReport(checked=3, verified=2, missing=("stdlib/no.py:1",))

    lines = facts(golden.job(result=golden.result(citations=report)))

    assert lines[0] == "citations   2 of 3 citations checked and found; NOT in the evidence: stdlib/no.py:1"


def test_a_stop_tells_its_timeline():
    assert (
        stop_line(golden.STOPPED)
        == "stop requested, observed after 12 ms, verified after 87 ms; survivors: none"
    )


def test_a_stop_that_is_not_verified_says_what_may_be_left():
    unproved = replace(golden.STOPPED, verified_at=None, survivors=(77, 0))

    assert stop_line(unproved) == (
        "stop requested, observed after 12 ms, NOT verified; "
        "it may still be at work in process 77, of unknown number"
    )


def test_a_job_that_waits_says_what_for(capsys):
    waiting = golden.job(state="queued", result=None, waiting_for="the tenant's budget \x1b[2J is used up")

    assert "· waiting: the tenant's budget \\x1b[2J is used up" in _text(
        render(waiting, Progress(), now_ms=0, order="")
    )
    assert "waiting    the tenant's budget" in _text(about(waiting))
    with LineScreen() as screen:
        screen.update(waiting, Progress(), order="")
        screen.update(waiting, Progress(), order="")
    assert capsys.readouterr().err.count("waiting: the tenant's budget") == 1


def test_markup_in_an_answer_is_text():
    ended = golden.result(structured_output={"answer": "[bold]x[/bold] \x1b[2J", "citations": []})

    text = _text(render_end(golden.job(result=ended)))

    assert "[bold]x[/bold] \\x1b[2J" in text


def test_the_json_of_a_job_is_stable():
    document = job_document(golden.job(stop=golden.STOPPED), whole=True)

    assert list(document) == [
        "job_id",
        "task_id",
        "tenant_id",
        "state",
        "desired",
        "generation",
        "attempts",
        "created_at",
        "updated_at",
        "question",
        "driver",
        "sub_model",
        "labels",
        "usage",
        "trace",
        "waiting_for",
        "not_before",
        "lease",
        "stop",
        "result",
        "receipt_id",
        "forked_from",
        "forks",
        "exit_code",
        "spec",
    ]
    assert document["created_at"] == "2026-11-18T08:00:00Z"
    assert document["stop"] == {
        "order": "stop",
        "requested_at": "2026-11-18T08:00:00Z",
        "observed_at": "2026-11-18T08:00:00.012000Z",
        "verified_at": "2026-11-18T08:00:00.087000Z",
        "observed_ms": 12,
        "verified_ms": 87,
        "survivors": [],
    }
    assert json.loads(json.dumps(document)) == document


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("# %% Find it\nx = 1", "Find it"),
        ("\n\nx = 1\ny = 2", "x = 1"),
        ("", "(empty cell)"),
        ("#\n#!\n", "!"),
    ],
)
def test_a_cell_is_called_by_its_first_words(code, name):
    assert cell_name(code) == name


def test_usage_says_what_the_journal_saved():
    usage = golden.USAGE.model_copy(update={"answered_from_journal": 7})

    assert "7 answered from the journal" in usage_line(usage)


def test_rows_with_many_fields_are_shown_as_blocks_and_nothing_is_left_out():
    row = {f"field{i}": i for i in range(9)} | {"text": "long " * 20}

    shown = _text(fields_table({"groups": [row, row]}), width=100)

    assert "groups (2 rows)" in shown
    assert all(shown.count(f"field{i} {i}") == 2 for i in range(9))
    assert shown.count("long") == 40
