"""`custody ask list` and `custody answer`: what jobs want to know of people, and telling them."""

import json
from typing import Any

import click
from pydantic import JsonValue

from controlplane.cli.exits import Refusal
from controlplane.cli.flags import Where, job_argument, json_flag, where_flags
from controlplane.cli.home import opened
from controlplane.cli.orders import operator
from controlplane.cli.safe import one_line, printable
from controlplane.cli.shapes import question_document, write_json
from controlplane.custodian import JobQuery
from controlplane.views import QuestionView
from rlm_worker.contracts import JsonObject


@click.group()
def ask() -> None:
    """See what jobs ask of people; answer with `custody answer`."""


@ask.command("list")
@json_flag
@where_flags
def list_questions(*, as_json: bool, where: Where) -> None:
    """List the questions that wait for an answer.

    JSON keys: questions [job_id, question, text, schema, asked_at, until, is_answered].
    """
    with opened(where) as app:
        waiting = [line.job_id for line in app.lines(JobQuery(state="parked"))]
        found = [asked for job_id in waiting for asked in app.questions(job_id)]
    if as_json:
        write_json({"questions": [question_document(asked) for asked in found]})
        return
    for asked in found:
        click.echo(question_line(asked))
    if not found:
        click.echo("No job waits for an answer.")


def question_line(asked: QuestionView) -> str:
    """A question with the command that answers it."""
    until = "" if asked.until is None else f" (until {asked.until:%Y-%m-%d %H:%M} UTC)"
    shape = one_line(json.dumps(asked.schema, ensure_ascii=False), width=200)
    return (
        f"{asked.job_id} asks{until}: {printable(asked.text)}\n"
        f"  custody answer {asked.job_id} --question {asked.question} VALUE      which fits {shape}"
    )


@click.command()
@job_argument
@click.argument("value")
@click.option("--question", type=int, metavar="N", help="Which question, when the job asks several.")
@json_flag
@where_flags
def answer(job_id: str, value: str, *, question: int | None, as_json: bool, where: Where) -> None:
    """Answer a question of a job: text where it wants text, JSON otherwise. The job goes on with it.

    Who answered and when is kept. JSON keys: job_id, question, accepted.
    """
    with opened(where) as app:
        view = app.job(job_id)
        open_ones = [asked for asked in app.questions(view.job_id) if question in (None, asked.question)]
        schema = open_ones[0].schema if open_ones else {}
        number = app.reply(view.job_id, question=question, value=_value(value, schema), by=operator())
    if as_json:
        write_json({"job_id": view.job_id, "question": number, "accepted": True})
    else:
        click.echo(f"question {number} of job {view.job_id} is answered")
        click.echo(
            f"It goes on with a worker of {app.place}, or here: custody resume {view.job_id}", err=True
        )


def _value(text: str, schema: JsonObject) -> JsonValue:
    if _wants_text(schema):
        return text
    try:
        value: JsonValue = json.loads(text)
    except ValueError:
        raise Refusal(
            f"this question wants a value that fits {json.dumps(schema)}: write it as JSON, {text!r} is none."
        ) from None
    return value


def _wants_text(schema: dict[str, Any]) -> bool:
    """Whether bare words are an answer: text, or a choice among texts."""
    choices = schema.get("enum")
    return schema.get("type") == "string" or (
        isinstance(choices, list) and all(isinstance(choice, str) for choice in choices)
    )
