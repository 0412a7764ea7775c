"""The blocking convenience: a script without an event loop gets the same session."""

import threading
import time

import pytest

import sandbox
from sandbox import Policy, SessionEnded


def test_cells_run_one_after_the_other_and_share_their_variables():
    with sandbox.open() as box:
        box.run("x = 20")

        assert box.run("x + 1").stdout == "21\n"
        assert "seccomp" in box.layers


def test_a_tool_is_a_function_of_the_cell_by_its_name():
    with sandbox.open(tools={"add": lambda a, b: a + b, "names": lambda: ["x"]}) as box:
        assert box.run("add(a=1, b=2), names()").stdout == "(3, ['x'])\n"


def test_an_async_tool_is_awaited():
    async def double(n):
        return n * 2

    with sandbox.open(tools={"double": double}) as box:
        assert box.run("double(n=4)").stdout == "8\n"


@pytest.mark.parametrize(
    ("tool", "code", "said"),
    [
        (lambda: 1 / 0, "tool()", "tool failed: ZeroDivisionError"),
        (object, "tool()", "cannot be sent"),
        (lambda a: a, "tool(b=1)", "tool failed: TypeError"),
        (lambda a: a, "tool(1)", "by name"),
    ],
)
def test_a_tool_that_fails_is_an_error_of_the_cell(tool, code, said):
    with sandbox.open(tools={"tool": tool}) as box:
        error = box.run(code).error

        assert error.type == "HostCallError"
        assert said in error.message
        assert box.run("1").stdout == "1\n"


def test_a_tool_cannot_take_the_place_of_a_built_in_name():
    with sandbox.open(tools={"evidence": lambda: 1, "budget": lambda: {"calls": 1}}) as box:
        assert box.run("type(evidence).__name__").stdout == "'Evidence'\n"
        assert box.run("budget().calls").stdout == "1\n"


def test_what_the_code_does_wrong_is_in_the_answer():
    with sandbox.open() as box:
        assert box.run("1 / 0").error.type == "ZeroDivisionError"
        assert box.run("while True: pass", deadline_seconds=0.2).outcome == "timed_out"
        assert box.run("import os; os._exit(3)").outcome == "crashed"
        with pytest.raises(SessionEnded):
            box.run("1")


def test_another_thread_can_kill_a_running_cell():
    with sandbox.open() as box:
        killer = threading.Timer(0.3, box.kill)
        killer.start()

        assert box.run("while True: pass").state_lost
        killer.join()


def test_a_closed_box_says_so_and_leaves_no_thread():
    with sandbox.open() as box:
        pass

    with pytest.raises(SessionEnded, match="closed"):
        box.run("1")
    assert "sandbox-box" not in {thread.name for thread in threading.enumerate()}


def test_a_policy_that_cannot_be_had_leaves_no_thread():
    with pytest.raises(sandbox.SandboxUnavailable):
        sandbox.open(Policy(required_layers=frozenset({"moat"})))

    time.sleep(0.05)
    assert "sandbox-box" not in {thread.name for thread in threading.enumerate()}
