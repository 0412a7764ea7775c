"""The names that every cell finds, against a host in this process."""

import asyncio
import dataclasses
import enum
import math
import pydoc
from datetime import date
from decimal import Decimal

import pytest

from rlm_worker.hostcalls import CALLS
from sandbox.guest import subcalls
from sandbox.guest.calls import BudgetExceeded, CellEnd, SubcallError, SubmitRejected
from sandbox.guest.names import BUILT_IN_CALLS
from tests.unit.guest.guest_host import GuestHost

LABEL = "line -> severity: Literal['low', 'high']"


@dataclasses.dataclass
class Finding:
    when: date
    size: int


@pytest.fixture
def host():
    return GuestHost()


@pytest.fixture
def names(host, tmp_path):
    (tmp_path / "a.log").write_text("first\nhigh water\n")
    return host.names(tmp_path, tmp_path)


@pytest.mark.requirement("S3-RLM-4")
class TestPredict:
    def test_fields_come_back_typed_by_attribute_and_item(self, names, host):
        result = names["predict"](LABEL, instructions="Judge.", line="a high fever")
        assert (result.severity, result["severity"], result.value) == ("high", "high", {"severity": "high"})
        assert (result.ok, result.error, result.probability, result.model) == (True, None, 0.75, "rules")
        assert host.asked == [
            (
                "predict",
                {
                    "signature": LABEL,
                    "schema": None,
                    "inputs": {"line": "a high fever"},
                    "instructions": "Judge.",
                    "model": None,
                },
            )
        ]
        assert dict(result) == {"severity": "high"}
        assert "p=0.75" in repr(result)
        with pytest.raises(AttributeError, match="no field 'colour', only severity"):
            _ = result.colour

    def test_dates_are_real_dates(self, names):
        assert names["predict"]("text -> day: date", text="on 2024-05-06").day == date(2024, 5, 6)

    def test_a_class_of_the_cell_is_a_signature(self, names, host):
        result = names["predict"](Finding, text="2024-05-06")
        assert isinstance(result.value, Finding)
        assert result.when == date(2024, 5, 6)
        assert host.asked[0][1]["schema"]["required"] == ["when", "size"]

    def test_a_schema_is_a_signature(self, names):
        schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
        assert isinstance(names["predict"](schema, text="abc").n, int)

    @pytest.mark.parametrize(
        ("signature", "inputs", "message"),
        [
            ("line", {"line": ""}, "has no '->'"),
            ("a, b -> c", {"a": 1}, r"missing \['b'\]"),
            ("a -> c", {"a": 1, "z": 2}, r"not in the signature \['z'\]"),
            ("a -> error: bool", {"a": 1}, "cannot be named error"),
            ("a b -> c", {"a": 1}, "cannot read signature"),
            (3, {}, "is no signature"),
        ],
    )
    def test_a_mistake_is_told_before_anything_is_spent(self, names, host, signature, inputs, message):
        with pytest.raises((TypeError, ValueError), match=message):
            names["predict"](signature, **inputs)
        assert host.asked == []

    def test_errors_of_single_calls_are_raised(self, tmp_path):
        with pytest.raises(BudgetExceeded):
            GuestHost(subcalls=0).names(tmp_path)["predict"](LABEL, line="x")


class Level(enum.Enum):
    LOW = "low"
    HIGH = "high"


@dataclasses.dataclass
class Event:
    level: Level
    where: tuple[int, str]


class TestTypesOfTheCell:
    @pytest.fixture
    def names(self, names):
        names.update(Level=Level, Event=Event)
        return names

    def test_a_signature_may_name_classes_of_the_cell(self, names, host):
        result = names["predict"](
            "line -> level: Level, events: list[Event], best: Event | None, n: int", line="high"
        )

        assert result.level is Level.HIGH
        assert isinstance(result.events[0], Event)
        assert isinstance(result.best, Event)
        assert isinstance(result.events[0].where, tuple)
        asked = host.asked[0][1]
        assert asked["signature"] is None
        assert asked["schema"]["properties"]["level"] == {"enum": ["low", "high"]}

    def test_inputs_are_checked_for_such_a_signature_too(self, names, host):
        with pytest.raises(TypeError, match="missing"):
            names["predict"]("line -> level: Level", text="high")
        assert host.asked == []

    def test_numbers_tuples_and_keys_of_a_signature_are_real_values(self, names):
        result = names["predict"](
            "t -> price: Decimal, pair: tuple[int, date], counts: dict[int, str], maybe: Decimal | None",
            t="on 2024-05-06",
        )

        assert result.price == Decimal("12.50")
        assert result.maybe == Decimal("12.50")
        assert result.pair[1] == date(2024, 5, 6)
        assert list(result.counts) == [7]

    def test_remarks_in_a_signature_describe_its_fields(self, names, host):
        names["predict"](
            """
            line,  # what was logged
            n: int
            ->
            level: Level,  # how bad it is
            why: str
            """,
            line="high",
            n=1,
        )

        assert host.asked[0][1]["schema"]["properties"]["level"]["description"] == "how bad it is"

    def test_an_unknown_type_is_told_before_anything_is_spent(self, names, host):
        with pytest.raises(ValueError, match="unknown type 'Missing'"):
            names["predict"]("line -> level: Level, other: Missing", line="x")
        assert host.asked == []


class TestAsync:
    def test_gathered_calls_run_side_by_side(self, names, host):
        async def cell():
            return await asyncio.gather(*(names["predict"](LABEL, line=f"{n} high") for n in range(5)))

        results = asyncio.run(cell())
        assert [result.severity for result in results] == ["high"] * 5
        assert host.most_in_flight == 5
        assert [payload["inputs"]["line"] for _, payload in host.asked] == [f"{n} high" for n in range(5)]

    def test_a_call_in_async_code_also_works_without_await(self, names, host):
        async def cell():
            result = names["predict"](LABEL, line="low tide")
            assert result.severity == "low"
            return await result

        assert asyncio.run(cell()).severity == "low"
        assert len(host.asked) == 1

    def test_a_finished_result_can_be_awaited(self, names):
        result = names["predict"](LABEL, line="low")

        async def cell():
            return await result, await names["apredict"](LABEL, line="high"), await names["llm_query"]("hi")

        again, other, text = asyncio.run(cell())
        assert (again is result, other.severity, isinstance(text, str)) == (True, "high", True)

    def test_every_name_can_be_awaited(self, names, host):
        async def cell():
            texts = await names["llm_query_batched"](["a", "b"])
            children = await names["rlm_query_batched"](["c"])
            left = await names["budget"]()
            for done in (
                names["note"]("discovery", "x"),
                names["DRAFT"](n=1),
                names["propose_effect"]("mail", target="ops"),
                names["remember"]("x"),
                names["progress"](1, 2),
            ):
                assert await done is None
            return texts, children, left

        texts, children, left = asyncio.run(cell())
        assert (len(texts), children[0].ok, left.subcalls) == (2, True, 98)
        assert all(isinstance(text, str) for text in texts)

    def test_calls_in_functions_and_task_groups_of_the_cell_run_side_by_side(self, names, host):
        async def one(n):
            return (await names["predict"](LABEL, line=f"{n} low")).severity

        async def cell():
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one(n)) for n in range(4)]
            return [task.result() for task in tasks]

        assert asyncio.run(cell()) == ["low"] * 4
        assert host.most_in_flight == 4

    def test_batches_can_be_awaited(self, names):
        async def cell():
            return await names["predict_batch"](LABEL, ["low", "high"])

        assert [result.severity for result in asyncio.run(cell())] == ["low", "high"]


class TestBatches:
    def test_results_come_in_order_and_bare_values_serve_one_input(self, names, host):
        hit = names["evidence"].search("high")[0]
        results = names["predict_batch"](LABEL, ["low a", hit, {"line": "low b"}], instructions="Judge.")
        assert [result.severity for result in results] == ["low", "high", "low"]
        assert host.asked[0][1]["rows"] == [{"line": "low a"}, {"line": "high water"}, {"line": "low b"}]
        assert {result.model for result in results} == {"rules"}

    def test_a_failed_row_is_a_value_whose_fields_raise(self, names, host):
        host.failing_rows = 1
        failed, fine = names["predict_batch"](LABEL, ["low", "high"])
        assert (failed.ok, failed.error, fine.ok) == (False, "InvalidAnswer: gave no answer", True)
        with pytest.raises(SubcallError, match="gave no answer"):
            _ = failed.severity
        assert "failed" in repr(failed)

    def test_no_rows_ask_nothing(self, names, host):
        assert names["predict_batch"](LABEL, []) == []
        assert host.asked == []

    def test_bare_values_need_exactly_one_input(self, names):
        with pytest.raises(TypeError, match="exactly one input"):
            names["predict_batch"]("a, b -> c", ["x"])

    def test_a_large_batch_goes_in_frames_and_the_first_says_how_many_there_are(
        self, names, host, monkeypatch
    ):
        monkeypatch.setattr(subcalls, "_FRAME_ROWS_BYTES", 100)
        rows = [f"{n:02} " + "x" * 30 for n in range(10)]
        assert len(names["predict_batch"](LABEL, rows)) == 10
        payloads = [payload for _, payload in host.asked]
        assert len(payloads) == 5
        assert [payload.get("total_rows") for payload in payloads] == [10, None, None, None, None]
        assert [row["line"] for payload in payloads for row in payload["rows"]] == rows

    def test_a_batch_beyond_the_budget_spends_nothing(self, tmp_path, monkeypatch):
        monkeypatch.setattr(subcalls, "_FRAME_ROWS_BYTES", 100)
        host = GuestHost(subcalls=9)
        with pytest.raises(BudgetExceeded):
            host.names(tmp_path)["predict_batch"](LABEL, [f"{n:02} " + "x" * 30 for n in range(10)])
        assert host.left == 9


class TestTheJob:
    def test_submit_ends_the_cell(self, names, host):
        with pytest.raises(CellEnd):
            names["SUBMIT"](answer=names["evidence"].search("high")[0], seen={"b", "a"})
        assert host.submitted == {"answer": "high water", "seen": ["a", "b"]}

    def test_a_refused_submit_names_the_mistakes_and_does_not_end_the_cell(self, tmp_path):
        schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
        with pytest.raises(SubmitRejected, match="n: "):
            GuestHost(output_schema=schema).names(tmp_path)["SUBMIT"](n="three")

    def test_the_small_names(self, names, host, capsys):
        host.params, host.question = {"limit": 3}, "why?"
        assert (names["params"]["limit"], names["params"].get("x", 5), names["question"]()) == (3, 5, "why?")
        assert (names["budget"]().subcalls, names["budget"]()["iterations"]) == (100, 9)
        assert "subcalls 100" in repr(names["budget"]())
        names["DRAFT"](n=1)
        names["note"]("discovery", "there is water")
        names["progress"](1, 2, "half")
        assert host.drafts == [{"n": 1}]
        names["found"] = [1, 2]
        names["SHOW_VARS"]()
        assert capsys.readouterr().out == "found: list = [1, 2] (len 2)\n"

    def test_proposals_are_told_to_the_host_and_answer_nothing(self, names, host):
        assert (
            names["propose_effect"]("ticket", target="OPS", reason="full", title="Disk", tags={"b", "a"})
            is None
        )
        assert names["remember"]("disks fill on Mondays", subject="disks", source="app.log:3") is None
        assert host.asked == [
            (
                "propose_effect",
                {
                    "kind": "ticket",
                    "target": "OPS",
                    "reason": "full",
                    "request": {"title": "Disk", "tags": ["a", "b"]},
                },
            ),
            ("remember", {"text": "disks fill on Mondays", "subject": "disks", "source": "app.log:3"}),
        ]

    def test_variables_are_shown_without_running_code_of_their_classes(self, names, capsys):
        loud = type("Loud", (), {"__module__": "__main__", "__repr__": lambda self: print("ran!") or "x"})
        names.update(one=loud(), many=[loud()] * 3, long=list(range(10**6)), text="a\nb" * 500, n=3)

        names["show_vars"]()

        shown = capsys.readouterr().out.splitlines()
        assert shown[0] == "one: Loud = <Loud>"
        assert shown[1] == "many: list = [<Loud>, <Loud>, <Loud>] (len 3)"
        assert shown[2].endswith("(len 1,000,000)")
        assert len(shown) == 5
        assert max(map(len, shown)) < 140

    def test_children_are_asked_with_their_budget(self, names, host):
        result = names["rlm_query"](
            "look", signature="-> module: str", inputs={"n": 1}, budget={"subcalls": 3}
        )
        assert isinstance(result.module, str)
        assert host.asked[0][1]["budget"] == {"subcalls": 3}
        assert [r.ok for r in names["rlm_query_batched"](["a", "b"])] == [True, True]
        assert host.most_in_flight == 2

    def test_words_of_other_rlms_are_understood(self, names):
        assert names["context"] is names["evidence"]
        assert isinstance(names["llm_query"]("hello"), str)
        assert len(names["llm_query_batched"](["a", "b"])) == 2

    def test_every_name_explains_itself(self, names):
        for name in (
            "predict",
            "predict_batch",
            "rlm_query",
            "SUBMIT",
            "DRAFT",
            "budget",
            "note",
            "propose_effect",
            "remember",
            "evidence",
            "Hit",
        ):
            assert len(pydoc.render_doc(names[name])) > 200, name


class TestInputs:
    def test_values_of_a_cell_become_plain_data(self, names, host):
        evidence = names["evidence"]
        line = evidence["a.log"].line(1)
        chunk = evidence["a.log"][1:3]
        names["predict"](
            "a, b, c, d, e, f, g -> x: str",
            a=line,
            b=chunk,
            c=b"\xffraw",
            d=Finding(date(2024, 1, 2), 3),
            e=(1, {"k": {2, 1}}),
            f=evidence["a.log"],
            g=ValueError("odd"),
        )
        assert host.asked[0][1]["inputs"] == {
            "a": "first",
            "b": "first\nhigh water",
            "c": "\ufffdraw",
            "d": {"when": "2024-01-02", "size": 3},
            "e": [1, {"k": [1, 2]}],
            "f": "first\nhigh water\n",
            "g": "odd",
        }

    def test_what_json_cannot_say_is_refused(self, names):
        with pytest.raises(ValueError, match="not a JSON number"):
            names["predict"](LABEL, line=math.nan)

    def test_a_large_document_is_refused_with_advice(self, host, tmp_path):
        (tmp_path / "big.txt").write_bytes(b"x\n" * 150_000)
        names = host.names(tmp_path)
        with pytest.raises(TypeError, match="pass a slice"):
            names["predict"](LABEL, line=names["evidence"]["big.txt"])

    def test_a_result_can_be_the_input_of_the_next_call(self, names, host):
        first = names["predict"](LABEL, line="low")
        names["predict"]("finding -> x: str", finding=first)
        assert host.asked[1][1]["inputs"] == {"finding": {"severity": "low"}}


def test_the_calls_behind_the_names_are_those_that_the_worker_answers():
    assert BUILT_IN_CALLS == CALLS
