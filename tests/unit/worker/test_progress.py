"""Circles that a REPL can turn in: found from the history alone, told once, then the end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm_worker.contracts.trace import CellFinished
from rlm_worker.drivers.driver import Cell, NoCell, Step
from rlm_worker.errors import NotAsked
from rlm_worker.progress import Patience, advice, assess, normal_form
from rlm_worker.storms import StormWatch, nearly

ANY = {"type": "object"}
PATIENCE = Patience(failures=3, observations=5, empty_turns=4)


def failed(iteration, code="1/0", *, message="division by zero") -> Step:
    cell = CellFinished(
        iteration=iteration,
        outcome="error",
        stdout="",
        stderr="",
        stdout_bytes=0,
        stderr_bytes=0,
        error_type="ZeroDivisionError",
        error_message=message,
        digest="0" * 64,
    )
    return Step(iteration=iteration, turn=Cell(code=code), outcome=cell)


def fine(iteration, code="x", *, stdout="") -> Step:
    cell = CellFinished(
        iteration=iteration,
        outcome="ok",
        stdout=stdout,
        stderr="",
        stdout_bytes=len(stdout),
        stderr_bytes=0,
        digest="0" * 64,
    )
    return Step(iteration=iteration, turn=Cell(code=code), outcome=cell)


def empty(iteration) -> Step:
    return Step(iteration=iteration, turn=NoCell(reason="empty"))


def found(history):
    finding = assess(history, PATIENCE)
    return None if finding is None else (finding.circle, finding.action, finding.iterations)


@pytest.mark.requirement("LESSON-30")
def test_equivalent_failing_cells_are_told_and_then_end_the_job():
    cells = [failed(1, "1/0"), failed(2, "1 / 0  # again"), failed(3, "\n1/0\n")]

    assert found(cells[:1]) is None
    assert found(cells[:2]) == ("repeated_failures", "steered", (1, 2))
    assert found(cells) == ("repeated_failures", "ended", (1, 2, 3))


def test_two_mistakes_made_in_turn_are_a_circle_too():
    history = [failed(n, "1/0" if n % 2 else "2/0") for n in range(1, 6)]

    assert found(history) == ("repeated_failures", "ended", (1, 3, 5))


def test_another_error_of_the_same_code_is_progress():
    assert found([failed(1), failed(2, message="other"), failed(3, message="third")]) is None


def test_the_same_output_again_and_again_is_a_circle_whatever_the_code():
    history = [fine(n, f"print({n})", stdout="same") for n in range(1, 6)]

    assert found(history[:3]) is None
    assert found(history[:4]) == ("repeated_observations", "steered", (1, 2, 3, 4))
    assert found(history) == ("repeated_observations", "ended", (1, 2, 3, 4, 5))


def test_two_looks_in_turn_are_a_circle_too_unless_something_new_comes_between():
    in_turn = [fine(n, f"look({n % 2})", stdout=str(n % 2)) for n in range(1, 10)]
    moving = [fine(n, "step()") if n % 2 else fine(n, "print(state)", stdout=str(n)) for n in range(1, 20)]

    assert found(in_turn[:6]) is None
    assert found(in_turn[:7]) == ("repeated_observations", "steered", (1, 3, 5, 7))
    assert found(in_turn) == ("repeated_observations", "ended", (1, 3, 5, 7, 9))
    assert all(found(moving[:n]) is None for n in range(1, 20))


@pytest.mark.requirement("LESSON-30")
def test_the_name_of_the_cell_and_an_address_in_a_message_are_no_difference():
    history = [
        failed(n, "print('a", message=f"unterminated string (<cell {n} {n}>, line 1) at 0x7f{n}")
        for n in range(1, 4)
    ]

    assert found(history) == ("repeated_failures", "ended", (1, 2, 3))


def test_silent_cells_are_a_circle_only_when_their_code_is_the_same():
    assert found([fine(n, f"x{n} = 1") for n in range(1, 9)]) is None
    assert found([fine(n, "x = 1") for n in range(1, 6)])[:2] == ("repeated_observations", "ended")


def test_turns_without_a_cell_are_a_circle():
    assert found([fine(1), *map(empty, range(2, 6))]) == ("empty_turns", "ended", (2, 3, 4, 5))
    assert found([*map(empty, range(1, 4)), fine(4)]) is None


STEPS = st.lists(
    st.sampled_from(["fail a", "fail b", "show a", "show b", "silent", "look a", "look b", "empty"]),
    max_size=20,
)


def steps_of(kinds):
    make = {
        "fail a": failed,
        "fail b": lambda n: failed(n, "2/0"),
        "show a": lambda n: fine(n, f"f({n})", stdout="a"),
        "show b": lambda n: fine(n, f"f({n})", stdout="b"),
        "look a": lambda n: fine(n, "f()", stdout="c"),
        "look b": lambda n: fine(n, "g()", stdout="d"),
        "silent": lambda n: fine(n, f"x = {n}"),
        "empty": empty,
    }
    return [make[kind](number) for number, kind in enumerate(kinds, 1)]


@given(STEPS)
def test_a_finding_names_the_last_turn_and_only_turns_of_its_own_kind(kinds):
    history = steps_of(kinds)

    finding = assess(history, PATIENCE)

    if finding is None:
        return
    assert finding.iterations[-1] == len(history)
    assert list(finding.iterations) == sorted(set(finding.iterations))
    assert len({kinds[iteration - 1] for iteration in finding.iterations}) == 1
    assert advice(finding.event(node="")).startswith("No progress: ")


@given(STEPS)
def test_a_job_never_ends_without_having_been_told_before(kinds):
    """Whatever the history: the first finding that ends it comes after one that steered, in the same circle."""
    history, told = steps_of(kinds), set()
    for length in range(1, len(history) + 1):
        finding = assess(history[:length], PATIENCE)
        if finding is None:
            continue
        if finding.action == "ended":
            assert finding.circle in told
            return
        told.add(finding.circle)


@given(STEPS)
def test_the_same_history_gives_the_same_finding(kinds):
    assert assess(steps_of(kinds), PATIENCE) == assess(steps_of(kinds), PATIENCE)


@given(st.text(max_size=60))
def test_every_text_has_a_normal_form(code):
    assert normal_form(code) == normal_form(code)


def test_the_normal_form_sees_through_layout_and_not_through_meaning():
    assert normal_form("f(1,'a')  # x") == normal_form('\nf(1, "a")')
    assert normal_form("f(1)") != normal_form("f(2)")
    assert normal_form("this is  not code") == normal_form("this is not   code")


class TestStorms:
    def test_nearly_the_same_question_over_and_over_is_a_storm(self):
        watch = StormWatch(similar=3, failing=99)
        for number in range(3):
            watch.check()
            watch.count(f"key {number}", schema=ANY, inputs={"text": "Why so?" + "!" * number})

        with pytest.raises(NotAsked, match="nearly the same inputs"):
            watch.check()
        assert "nearly the same" in watch.take()
        watch.check()

    def test_equal_questions_and_different_ones_are_no_storm(self):
        watch = StormWatch(similar=3, failing=99)
        for number in range(100):
            watch.count("same", schema=ANY, inputs={"text": "equal"})
            watch.count(f"key {number}", schema=ANY, inputs={"text": f"line {number}"})
            watch.count(f"other {number}", schema={"title": str(number)}, inputs={"text": "one passage"})
        assert watch.take() == ""

    @given(st.lists(st.booleans(), max_size=40))
    def test_only_failures_without_an_answer_between_them_are_a_storm(self, outcomes):
        watch = StormWatch(similar=99, failing=5)
        longest = streak = 0
        for ok in outcomes:
            watch.hear(ok=ok)
            streak = 0 if ok else streak + 1
            longest = max(longest, streak)
        assert bool(watch.take()) == (longest >= 5)

    @given(st.dictionaries(st.text(max_size=5), st.text(max_size=20), max_size=3))
    def test_case_and_spaces_do_not_make_another_question(self, inputs):
        spaced = {name: f"  {value} " for name, value in inputs.items()}
        assert nearly(spaced) == nearly(inputs)
