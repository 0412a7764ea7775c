"""Scripts rely on exit codes: the table is pinned."""

import pytest

from controlplane import errors
from controlplane.cli.exits import Exit, exit_of_error, exit_of_state
from controlplane.views import TERMINAL


def test_the_codes_are_the_documented_ones():
    assert {code.name: int(code) for code in Exit} == {
        "ANSWERED": 0,
        "INTERNAL": 1,
        "USAGE": 2,
        "PARTIAL": 3,
        "FAILED": 4,
        "STOPPED": 5,
        "ASKS": 6,
        "INTERRUPTED": 130,
        "PIPE_CLOSED": 141,
    }


def test_every_way_a_job_ends_has_its_code():
    codes = {state: int(exit_of_state(state)) for state in TERMINAL}

    assert codes == {"succeeded": 0, "partial": 3, "failed": 4, "quarantined": 4, "stopped": 5}


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.InvalidRequest, 2),
        (errors.NotFound, 2),
        (errors.Denied, 2),
        (errors.OverBudget, 2),
        (errors.VersionConflict, 4),
        (errors.Tampered, 4),
        (errors.Unavailable, 4),
    ],
)
def test_an_error_that_the_caller_can_mend_is_usage(error, code):
    assert exit_of_error(error("x")) == code
