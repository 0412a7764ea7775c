"""The course of a REPL through the real engine: circles are told and end, long conversations start anew."""

import asyncio
import re
from collections import Counter
from dataclasses import replace

import pytest

from rlm_worker.contracts import Budget
from rlm_worker.models.settings import ModelSettings
from rlm_worker.replay import verify_replay
from tests.builders import a_spec
from tests.engine import QUICK, attempt, run_job
from tests.memory_gateway import MemoryGateway
from tests.scripted_model import Fault, ScriptedModel, cells, in_turn

SUBMIT = "SUBMIT(answer='done')"


def prompts_of(model) -> list[str]:
    """The last user message of every root turn."""
    turns = [request for request in model.requests if "response_format" not in request]
    return [request["messages"][-1]["content"] for request in turns]


class TestNoProgress:
    @pytest.mark.requirement("LESSON-30")
    def test_the_model_is_told_before_equivalent_failing_cells_end_the_job(self):
        with ScriptedModel(cells("1/0", "1 / 0  # once more", "\n1/0", "x = 1")) as model:
            ran = run_job(a_spec(model=model.url))
            prompts = prompts_of(model)

        assert "No progress: 2 equivalent cells failed in the same way" in prompts[2]
        assert (ran.result.status, ran.result.failure_class) == ("failed", "model_error")
        assert ran.result.message.startswith("no progress (repeated_failures)")
        steered, ended = ran.of("no_progress")
        assert (steered.action, steered.iterations) == ("steered", (1, 2))
        assert (ended.action, ended.iterations) == ("ended", (1, 2, 3))

    def test_a_model_that_listens_goes_on(self):
        with ScriptedModel(cells("1/0", "1/0", SUBMIT)) as model:
            ran = run_job(a_spec(model=model.url))

        assert ran.result.status == "succeeded"
        assert [event.action for event in ran.of("no_progress")] == ["steered"]

    def test_turns_without_a_cell_end_the_job_early(self):
        with ScriptedModel(in_turn("I am thinking about it.")) as model:
            ran = run_job(a_spec(model=model.url), settings=replace(QUICK, empty_turns=3))

        assert ran.result.usage.iterations == 3
        assert "no progress (empty_turns)" in ran.result.message

    def test_the_same_observation_again_and_again_ends_the_job_early(self):
        with ScriptedModel(cells(*(f"x{n} = {n}\nprint('same')" for n in range(20)))) as model:
            ran = run_job(a_spec(model=model.url), settings=replace(QUICK, repeated_observations=4))

        assert ran.result.usage.iterations == 4
        assert "no progress (repeated_observations)" in ran.result.message

    def test_the_draft_of_a_job_that_turns_in_a_circle_is_delivered(self):
        with ScriptedModel(cells("DRAFT(answer='so far')", *["1/0"] * 9)) as model:
            ran = run_job(a_spec(model=model.url))

        assert (ran.result.status, ran.result.answered_by) == ("partial", "draft")
        assert ran.output == {"answer": "so far"}

    def test_a_storm_of_failing_subcalls_is_cut_off_in_its_cell_and_a_second_one_ends_the_job(self):
        code = """
failed = 0
for n in range(200):
    try:
        predict("t -> label: Literal['x']", t=f"question {n} {failed}")
    except SubcallError as error:
        failed += 1
        if "not asked" in str(error):
            break
print(failed, error if failed else "")
"""
        broken = cells(code, code + "\nagain = 1", otherwise=lambda request, n: Fault(400, "no"))
        with ScriptedModel(broken) as model:
            settings = replace(QUICK, failing_subcalls=6)
            gateway = MemoryGateway(a_spec(model=model.url))
            attempt(gateway, settings=settings)
            asked = len([r for r in model.requests if "response_format" in r])
            prompts = prompts_of(model)

        assert asked <= 12 + 1
        assert gateway.result is not None
        assert "no progress (subcall_storm)" in gateway.result.message
        assert "6 predict() calls in a row failed" in prompts[1]
        findings = [event for event in (r.typed() for r in gateway.records) if event.kind == "no_progress"]
        assert [event.action for event in findings] == ["steered", "ended"]
        assert findings[1].iterations == (1, 2)

    def test_a_batch_stops_asking_when_everything_fails(self):
        code = """
rows = predict_batch("t -> label: Literal['x']", [f"question {n}" for n in range(150)])
SUBMIT(answer=str(sum(r.ok for r in rows)))
"""
        with ScriptedModel(cells(code, otherwise=lambda request, n: Fault(400, "no"))) as model:
            ran = run_job(a_spec(model=model.url), settings=replace(QUICK, failing_subcalls=10))
            asked = len(model.requests) - 1

        assert ran.output == {"answer": "0"}
        assert asked < 150
        assert len(ran.of("subcall_finished")) == 150

    def test_a_job_with_a_storm_replays_as_recorded(self):
        code = """
for n in range(40):
    try:
        predict("t -> label: Literal['x','y']", t="why" + "!" * n)
    except SubcallError as error:
        print(n, error)
        break
SUBMIT(answer='x')
"""
        with ScriptedModel(cells(code)) as model:
            ran = run_job(a_spec(model=model.url), settings=replace(QUICK, similar_subcalls=5))
            spec = ran.gateway.spec

        assert "5 predict() calls with nearly the same inputs" in ran.of("cell_finished")[0].stdout
        report = asyncio.run(verify_replay(spec, ran.gateway.records))
        assert report.verified, report

    def test_a_playbook_whose_subcalls_all_fail_ends_after_its_second_storm(self):
        cell = """# %%
for n in range(100):
    try:
        predict("t -> label: Literal['x']", t=f"question {n}")
    except SubcallError:
        pass
"""
        with ScriptedModel(lambda request, n: Fault(400, "no")) as model:
            spec = a_spec(playbook=cell + cell.replace("question", "other") + cell, sub_model=model.url)
            ran = run_job(spec, settings=replace(QUICK, failing_subcalls=5))
            asked = len(model.requests)

        assert asked == 10
        assert "no progress (subcall_storm)" in ran.result.message
        assert [event.action for event in ran.of("no_progress")] == ["steered", "ended"]

    @pytest.mark.parametrize("kept", ["cell_finished", "no_progress"])
    def test_a_job_that_died_in_its_last_circle_ends_the_same_when_it_is_resumed(self, kept):
        with ScriptedModel(cells("1/0")) as model:
            spec = a_spec(model=model.url)
            whole = run_job(spec)
            last = max(n for n, event in enumerate(whole.events) if event.kind == kept)
            gateway = MemoryGateway(spec)
            gateway.records = whole.gateway.records[: last + 1]
            model.requests.clear()
            attempt(gateway)

        assert model.requests == []
        assert gateway.result is not None
        assert gateway.result.message == whole.result.message
        assert [r.kind for r in gateway.records].count("no_progress") == 2

    @pytest.mark.parametrize("asked", ["single", "batch"])
    @pytest.mark.parametrize("died_after", [3, 6], ids=["between cells", "within a cell"])
    def test_a_storm_of_nearly_the_same_questions_is_counted_across_a_crash(self, asked, died_after):
        """Four questions a cell, a storm at ten: where the worker died changes neither where it is cut off nor the end."""
        single = """
for n in range({first}, {first} + 4):
    try:
        predict("t -> label: Literal['x', 'y']", t="why" + "!" * n)
    except SubcallError as error:
        print(n, error)
print("cell", {first})
"""
        batch = """
rows = predict_batch("t -> label: Literal['x', 'y']", ["why" + "!" * n for n in range({first}, {first} + 4)])
print("cell", {first}, [row.ok for row in rows])
"""
        code = single if asked == "single" else batch
        script = [code.format(first=first) for first in (0, 4, 8, 12, 16, 20, 24)]
        settings = replace(QUICK, similar_subcalls=10)
        with ScriptedModel(cells(*script)) as model:
            spec = a_spec(model=model.url)
            whole = run_job(spec, settings=settings)
            done = [n for n, event in enumerate(whole.events) if event.kind == "subcall_finished"]
            gateway = MemoryGateway(spec)
            kept = (
                done[died_after]
                if died_after != 3
                else next(n for n, event in enumerate(whole.events) if event.kind == "cell_finished")
            )
            gateway.records = whole.gateway.records[: kept + 1]
            turns = len([r for r in gateway.records if r.kind == "model_answered"])
            model.script = cells(*script[turns:])
            attempt(gateway, settings=settings)

        again = [record.typed() for record in gateway.records]
        assert gateway.result is not None
        assert "10 predict() calls with nearly the same inputs" in gateway.result.message
        assert gateway.result.message == whole.result.message
        assert self.circles(again) == self.circles(whole.events)
        assert self.answered(again) == self.answered(whole.events)
        assert asyncio.run(verify_replay(spec, gateway.records)).verified

    def test_a_cell_that_is_only_repeated_is_not_counted_twice(self):
        failing = """
for n in range({first}, {first} + 3):
    try:
        predict("t -> label: Literal['x']", t=f"question {{n}} of {{n * n}}")
    except SubcallError as error:
        print(n)
"""
        script = cells(
            failing.format(first=0),
            "import os\nos._exit(1)",
            failing.format(first=3).replace("3 + 3", "3 + 1"),
            SUBMIT,
            otherwise=lambda request, n: Fault(400, "no"),
        )
        with ScriptedModel(script) as model:
            ran = run_job(a_spec(model=model.url), settings=replace(QUICK, failing_subcalls=7))

        assert [event.reason for event in ran.of("sandbox_opened")] == ["start", "state_lost"]
        assert ran.of("no_progress") == []
        assert ran.output == {"answer": "done"}

    def circles(self, events):
        return [(e.iterations, e.action, e.detail) for e in events if e.kind == "no_progress"]

    def answered(self, events):
        """How often a model answered, in each cell."""
        return Counter(e.iteration for e in events if e.kind == "subcall_finished" and e.ok)

    def test_a_child_that_turns_in_a_circle_ends_and_its_parent_is_told(self):
        def script(request, n):
            if "count them" in request["messages"][1]["content"]:
                return "```python\n1/0\n```"
            return (
                "```python\ntry:\n    rlm_query('count them', signature='-> n: int')\n"
                "except SubcallError as error:\n    SUBMIT(answer=str(error))\n```"
            )

        with ScriptedModel(script) as model:
            ran = run_job(a_spec(model=model.url, budget=Budget(max_depth=1)))

        assert "no progress (repeated_failures)" in ran.output["answer"]
        assert {event.node for event in ran.of("no_progress")} == {ran.of("child_started")[0].child_id}


class TestProfiles:
    def test_the_model_is_spoken_to_as_its_family_is(self):
        with ScriptedModel(cells(SUBMIT), model="deepseek-chat") as model:
            run_job(a_spec(model=model.url))
            system = model.requests[0]["messages"][0]["content"]

        assert "Be very careful with predict" in system

    def test_a_setting_chooses_the_profile(self):
        with ScriptedModel(cells("print('x' * 9000)", SUBMIT), model="deepseek-chat") as model:
            run_job(a_spec(model=model.url), settings=replace(QUICK, profile="small-local"))
            system, shown = (model.requests[1]["messages"][n]["content"] for n in (0, 3))

        assert "at most ten lines" in system
        assert "6,001 of 9,001 characters left out" in shown


class TestSampling:
    """How turns are drawn: by the profile, unless a person chose."""

    def drawn(self, name, **settings):
        """Temperature and top_p of a turn and of a predict(), on the wire and in the record."""
        code = "SUBMIT(answer=predict('t -> label: Literal[\"x\"]', t='a').label)"
        with ScriptedModel(cells(code), model=name) as model:
            ran = run_job(a_spec(model=model.url), settings=replace(QUICK, **settings))
            turn, subcall = ((r.get("temperature"), r.get("top_p")) for r in model.requests)
        (asked,) = ran.of("model_asked")
        assert (asked.temperature, asked.top_p) == turn
        return turn, subcall

    def test_a_family_has_its_own_and_subcalls_are_left_alone(self):
        assert self.drawn("deepseek-chat") == ((0.6, 0.95), (None, None))

    def test_a_family_that_does_well_by_itself_is_sent_none(self):
        assert self.drawn("gpt-5-scripted") == ((None, None), (None, None))

    def test_a_temperature_for_turns_wins_over_the_profile(self):
        assert self.drawn("deepseek-chat", turn_temperature=0.0) == ((0.0, 0.95), (None, None))

    def test_a_temperature_for_all_calls_wins_over_the_profile_too(self):
        everywhere = ModelSettings(temperature=0.3)
        assert self.drawn("deepseek-chat", models=everywhere) == ((0.3, 0.95), (0.3, None))


LOOK = "seen = {n}\nnote('discovery', 'found {n}')\nprint('x' * 3000 + '{n:03}')"


class TestRollover:
    SMALL = replace(QUICK, rollover_tokens=8_000)

    def long_job(self, turns=12):
        return cells(*(LOOK.format(n=n) for n in range(1, turns)), "SUBMIT(answer=str(seen))")

    @pytest.mark.requirement("S2-FAQ-2")
    def test_a_long_conversation_starts_anew_with_the_working_set_and_goes_on(self):
        with ScriptedModel(self.long_job()) as model:
            ran = run_job(a_spec(model=model.url), settings=self.SMALL)
            requests = [request["messages"] for request in model.requests]

        rolled = ran.of("rolled_over")
        assert ran.output == {"answer": "11"}
        assert len(rolled) >= 1
        assert ran.result.usage.rollovers == len(rolled)
        first = rolled[0]
        fresh = requests[first.iteration - 1]
        assert len(fresh) == 4
        told = fresh[1]["content"]
        assert "What is in the evidence?" in told
        assert f"Turns 1 to {first.covers_to} are done" in told
        assert "seen: int" in told
        assert "discovery: found 1" in told
        assert all(
            f"\n{n}. Next step. → ok, printed 3,004 bytes" in told for n in range(1, first.covers_to + 1)
        )
        assert first.tokens_after < first.tokens_before
        assert "x" * 2000 in fresh[3]["content"]

    def test_nothing_is_told_from_an_earlier_brief(self):
        with ScriptedModel(self.long_job(18)) as model:
            ran = run_job(a_spec(model=model.url), settings=self.SMALL)

        rolled = ran.of("rolled_over")
        assert [event.number for event in rolled] == list(range(1, len(rolled) + 1))
        assert len(rolled) >= 2
        for event in rolled:
            assert event.brief.count("starts anew") == 1
            assert "\n1. Next step." in event.brief

    def test_there_is_an_end_to_starting_anew(self):
        with ScriptedModel(self.long_job(20)) as model:
            settings = replace(self.SMALL, max_rollovers=1)
            ran = run_job(a_spec(model=model.url, budget=Budget(max_iterations=40)), settings=settings)

        assert len(ran.of("rolled_over")) == 1
        assert ran.result.failure_class == "model_error"
        assert "started anew 1 times" in ran.result.message

    def test_a_job_that_started_anew_replays_as_recorded(self):
        with ScriptedModel(self.long_job()) as model:
            ran = run_job(a_spec(model=model.url), settings=self.SMALL)

        assert asyncio.run(verify_replay(ran.gateway.spec, ran.gateway.records)).verified

    def test_the_brief_is_in_the_record_before_the_turn_that_is_asked_with_it(self):
        with ScriptedModel(self.long_job()) as model:
            ran = run_job(a_spec(model=model.url), settings=self.SMALL)

        events = ran.events
        place = next(n for n, event in enumerate(events) if event.kind == "rolled_over")
        asked = [
            n
            for n, e in enumerate(events)
            if e.kind == "model_asked" and e.iteration == events[place].iteration
        ]
        assert asked[0] > place
        assert events[place].trace_events <= place

    def test_a_resumed_job_goes_on_in_the_conversation_it_had(self):
        with ScriptedModel(self.long_job()) as model:
            spec = a_spec(model=model.url)
            whole = run_job(spec, settings=self.SMALL)
            rolled = whole.of("rolled_over")[0]
            before = [r["messages"] for r in model.requests]
            # The record up to the question that was asked after the rollover, as a crash would leave it.
            cut = next(
                n
                for n, e in enumerate(whole.events)
                if e.kind == "model_asked" and e.iteration == rolled.iteration
            )
            gateway = MemoryGateway(spec)
            gateway.records = whole.gateway.records[:cut]
            model.requests.clear()
            model.script = cells("SUBMIT(answer=str(seen))")
            attempt(gateway, settings=self.SMALL)
            resumed = model.requests[0]["messages"]

        assert gateway.result is not None
        assert gateway.result.structured_output == {"answer": str(rolled.iteration - 1)}
        assert resumed[1]["content"].startswith(
            before[rolled.iteration - 1][1]["content"].split("\n\n[turn")[0]
        )
        assert resumed[2] == before[rolled.iteration - 1][2]
        assert len([r for r in gateway.records if r.kind == "rolled_over"]) == 1


STEPS = 6
TOO_LONG = Fault(
    400, {"error": {"message": "maximum context length is 10", "code": "context_length_exceeded"}}
)


def small_model(most_chars):
    """Writes the step after the last one that the conversation shows, and takes no conversation longer than this."""

    def script(request, n):
        said = " ".join(message["content"] for message in request["messages"])
        if len(said) > most_chars:
            return TOO_LONG
        step = max((int(found) for found in re.findall(r"step (\d+)", said)), default=0) + 1
        code = (
            f"done = {step}\nprint('step {step}', 'x' * 3000)"
            if step <= STEPS
            else "SUBMIT(answer=str(done))"
        )
        return f"Next.\n```python\n{code}\n```"

    return script


class TestConversationsThatDoNotFit:
    def first_prompt(self):
        """Characters of the prompt of a first turn, by which the model's size is told."""
        with ScriptedModel(cells(SUBMIT)) as model:
            run_job(a_spec(model=model.url))
            return sum(len(message["content"]) for message in model.requests[0]["messages"])

    def ran(self, room, **settings):
        with ScriptedModel(small_model(self.first_prompt() + room)) as model:
            ran = run_job(a_spec(model=model.url), settings=replace(QUICK, **settings))
            return ran, model

    @pytest.mark.requirement("S2-FAQ-2")
    def test_a_conversation_longer_than_the_model_takes_starts_anew_and_goes_on(self):
        ran, _ = self.ran(8_000)

        rolled = ran.of("rolled_over")
        assert ran.output == {"answer": str(STEPS)}
        assert rolled[0].reason == "did_not_fit"
        assert ran.of("prompt_shortened") == []
        assert ran.result.usage.rollovers == len(rolled)
        refused = [event for event in ran.of("model_answered") if not event.ok]
        assert refused[0].iteration == rolled[0].iteration
        assert [event.iteration for event in ran.of("cell_finished")] == list(range(1, STEPS + 2))

    def test_what_did_not_fit_once_is_not_asked_with_again(self):
        ran, model = self.ran(8_000)

        rolled = ran.of("rolled_over")
        assert [event.reason for event in rolled] == ["did_not_fit", *["threshold"] * (len(rolled) - 1)]
        assert len(rolled) > 1
        assert len(model.requests) == STEPS + 2

    def outcome(self, *replies, **settings):
        """What became of turns that did not fit, in a job whose model answers in this order."""
        said = [reply if isinstance(reply, Fault) else f"```python\n{reply}\n```" for reply in replies]
        with ScriptedModel(in_turn(*said)) as model:
            ran = run_job(a_spec(model=model.url), settings=replace(QUICK, **settings))
        assert ran.output == {"answer": "done"}
        return [event.kind for event in ran.events if event.kind in ("rolled_over", "prompt_shortened")]

    def test_a_conversation_that_does_not_fit_anew_either_is_shortened_as_the_last_resort(self):
        kinds = self.outcome("a = 1", "b = 1\nprint('x' * 9000)", TOO_LONG, TOO_LONG, SUBMIT)

        assert kinds == ["rolled_over", "prompt_shortened"]

    def test_a_job_that_may_not_start_anew_again_is_shortened(self):
        print_much = [f"n{n} = 1\nprint('{n}' * 9000)" for n in range(5)]
        kinds = self.outcome(
            *print_much[:2],
            TOO_LONG,
            *print_much[2:],
            TOO_LONG,
            SUBMIT,
            max_rollovers=1,
            rollover_tokens=10**6,
        )

        assert kinds == ["rolled_over", "prompt_shortened"]

    def test_a_first_turn_that_does_not_fit_has_nothing_to_leave_out(self):
        assert self.outcome("print('x' * 9000)", TOO_LONG, SUBMIT) == ["prompt_shortened"]

    def test_it_replays_as_recorded(self):
        ran, _ = self.ran(8_000)

        assert asyncio.run(verify_replay(ran.gateway.spec, ran.gateway.records)).verified

    @pytest.mark.parametrize("kept", ["model_answered", "rolled_over"])
    def test_a_worker_that_died_between_the_refusal_and_the_new_conversation_starts_it_once(self, kept):
        with ScriptedModel(small_model(self.first_prompt() + 8_000)) as model:
            spec = a_spec(model=model.url)
            whole = run_job(spec)
            last = next(
                n
                for n, event in enumerate(whole.events)
                if event.kind == kept and not getattr(event, "ok", False)
            )
            gateway = MemoryGateway(spec)
            gateway.records = whole.gateway.records[: last + 1]
            attempt(gateway)

        again = [record.typed() for record in gateway.records]
        rolled = [event for event in again if event.kind == "rolled_over"]
        assert gateway.result is not None
        assert gateway.result.structured_output == whole.output
        first, before = rolled[0], whole.of("rolled_over")[0]
        assert (first.number, first.iteration, first.reason) == (
            before.number,
            before.iteration,
            before.reason,
        )
        assert len({event.iteration for event in rolled}) == len(rolled)
        assert asyncio.run(verify_replay(spec, gateway.records)).verified
