"""The job's state machine, alone."""

from dataclasses import replace
from functools import reduce

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from controlplane.domain import job
from controlplane.domain.commands import (
    ClaimJob,
    HandBack,
    LoseLease,
    ObserveStop,
    OrderStop,
    ParkJob,
    RejectLateWrite,
    ResumeJob,
    SettleJob,
    StartJob,
    SteerJob,
    SubmitJob,
    UnparkJob,
    VerifyStop,
)
from controlplane.domain.events import JobFinished, JobQuarantined, from_json, to_json
from controlplane.domain.job_state import JobState
from controlplane.errors import FenceStale, InvalidRequest, VersionConflict

SUBMIT = SubmitJob(job_id="j", task_id="t", step_id="s", tenant_id="local", spec_digest="d", max_attempts=3)


def given(*commands) -> JobState:
    state = JobState()
    for command in (SUBMIT, *commands):
        state = reduce(job.evolve, job.decide(state, command), state)
    return state


def claim(generation: int = 1) -> ClaimJob:
    return ClaimJob(worker_id="w", generation=generation)


def settle(fence: int, digest: str = "r", status: str = "succeeded") -> SettleJob:
    return SettleJob(fence=fence, status=status, failure_class=None, result_digest=digest)


def lost(fence: int, *survivors: int) -> LoseLease:
    return LoseLease(fence=fence, reason="silent", at_ms=9, survivors=survivors)


def stop(order: str = "stop") -> OrderStop:
    return OrderStop(order=order, by="me", reason="enough", at_ms=5)


@pytest.mark.requirement("LESSON-1", "LESSON-6")
def test_a_result_from_a_lost_lease_is_refused():
    state = given(claim(), lost(1), claim(2))

    with pytest.raises(FenceStale):
        job.decide(state, settle(1))


def test_a_redelivered_result_changes_nothing():
    assert job.decide(given(claim(), settle(1)), settle(1)) == []


def test_another_result_from_the_same_fence_is_refused():
    with pytest.raises(FenceStale):
        job.decide(given(claim(), settle(1)), settle(1, "other"))


def test_a_job_whose_worker_died_three_times_is_quarantined_with_the_reason():
    state = given(claim(), lost(1), claim(2), lost(2), claim(3), lost(3))

    assert state.state == "quarantined"
    assert "died 3 times" in state.reason


def test_a_job_that_was_handed_back_is_not_a_death():
    state = given(claim(1), HandBack(fence=1), claim(2), HandBack(fence=2), claim(3), HandBack(fence=3))

    assert (state.state, state.losses, state.attempts, state.generation) == ("queued", 0, 3, 4)


def test_a_queued_job_is_stopped_and_verified_at_once():
    state = given(stop())

    assert state.state == "stopped"
    assert state.stop is not None
    assert state.stop.verified_ms == 5


def test_a_stop_whose_worker_is_gone_ends_verified_instead_of_running_again():
    state = given(claim(), stop(), lost(1))

    assert state.state == "stopped"
    assert state.stop is not None
    assert state.stop.verified_ms == 9


@pytest.mark.parametrize(("order", "ends"), [("stop", "stopped"), ("kill", "stopped"), ("pause", "held")])
def test_a_stop_whose_worker_may_still_be_there_is_not_called_verified(order, ends):
    state = given(claim(), stop(order), lost(1, 77))

    assert state.state == ends
    assert state.stop is not None
    assert (state.stop.verified_ms, state.stop.survivors) == (None, (77,))


def test_a_stop_after_an_unproved_pause_is_not_proved_either():
    state = given(claim(), stop("pause"), lost(1, 77), stop())

    assert state.state == "stopped"
    assert state.stop is not None
    assert (state.stop.verified_ms, state.stop.survivors) == (None, (77,))


def test_a_stop_that_its_worker_proved_stays_proved_when_the_worker_is_lost():
    state = given(claim(), stop(), VerifyStop(fence=1, at_ms=7), lost(1, 77))

    assert state.stop is not None
    assert (state.stop.verified_ms, state.stop.survivors) == (7, ())


def test_a_second_press_is_a_kill_and_keeps_the_time_of_the_first():
    state = given(claim(), stop(), replace(stop(), at_ms=50))

    assert (state.desired, state.state) == ("kill", "stopping")
    assert state.stop is not None
    assert (state.stop.order, state.stop.requested_ms) == ("kill", 5)


def test_a_stop_of_a_job_that_ended_is_too_late_and_changes_nothing():
    assert job.decide(given(claim(), settle(1)), stop("kill")) == []


def test_a_paused_job_is_held_when_its_worker_proved_the_stop_and_ready_when_resumed():
    state = given(claim(), stop("pause"), ObserveStop(fence=1, at_ms=6), VerifyStop(fence=1, at_ms=7))
    assert (state.state, state.is_leased) == ("held", False)

    resumed = reduce(job.evolve, job.decide(state, ResumeJob(by="me")), state)
    assert resumed.is_ready
    assert resumed.generation == 2


def test_a_stale_wake_up_cannot_claim():
    with pytest.raises(VersionConflict):
        job.decide(given(claim(), lost(1)), claim(1))


def test_an_ended_job_cannot_be_resumed_or_steered():
    ended = given(claim(), settle(1))

    with pytest.raises(InvalidRequest):
        job.decide(ended, ResumeJob(by="me"))
    with pytest.raises(InvalidRequest):
        job.decide(ended, SteerJob(steer_id=1, text="t", by="me"))


def park(fence: int, reason: str = "rate_limited", not_before_ms: int | None = 50) -> ParkJob:
    return ParkJob(fence=fence, reason=reason, detail="slow down", not_before_ms=not_before_ms)


def test_a_parked_job_holds_no_lease_and_cannot_be_claimed_until_it_is_unparked():
    parked = given(claim(), park(1))

    assert (parked.state, parked.is_leased, parked.losses) == ("parked", False, 0)
    assert parked.parked is not None
    assert parked.parked.not_before_ms == 50
    with pytest.raises(VersionConflict):
        job.decide(parked, claim(1))

    ready = reduce(job.evolve, job.decide(parked, UnparkJob(by="dispatcher")), parked)
    assert (ready.is_ready, ready.parked, ready.generation) == (True, None, 2)


def test_a_park_that_is_asked_for_again_after_its_answer_was_lost_changes_nothing():
    assert job.decide(given(claim(), park(1)), park(1)) == []


def test_a_stale_fence_cannot_park():
    with pytest.raises(FenceStale):
        job.decide(given(claim(), lost(1), claim(2)), park(1))


@pytest.mark.parametrize("order", ["pause", "stop", "kill"])
def test_an_order_in_force_is_stronger_than_waiting(order):
    assert job.decide(given(claim(), stop(order)), park(1)) == []


@pytest.mark.parametrize(("order", "ends"), [("stop", "stopped"), ("kill", "stopped"), ("pause", "held")])
def test_an_order_reaches_a_parked_job_at_once(order, ends):
    state = given(claim(), park(1), stop(order))

    assert (state.state, state.parked) == (ends, None)
    assert state.stop is not None
    assert state.stop.verified_ms == 5


def test_a_person_can_resume_a_parked_job():
    assert given(claim(), park(1, "asked", None), ResumeJob(by="me")).is_ready


def test_what_is_not_parked_is_not_unparked():
    assert job.decide(given(claim()), UnparkJob(by="me")) == []


class AnyOrder(RuleBasedStateMachine):
    """Commands in any order, with current and stale fences."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list = []
        self.state = JobState()
        self.do(SUBMIT)

    def do(self, command) -> None:
        before = self.state
        try:
            events = job.decide(self.state, command)
        except (FenceStale, VersionConflict, InvalidRequest):
            events = []
        self.log += events
        self.state = reduce(job.evolve, events, self.state)
        if before.is_terminal:
            assert self.state == before, f"{command} moved a job that had ended"
        fence = getattr(command, "fence", None)
        if fence is not None and fence != before.fence:
            assert self.state == before, f"{command} acted with a stale fence"

    fences = st.integers(min_value=1, max_value=6)

    @rule()
    def claims(self):
        self.do(claim(self.state.generation))

    @rule(generation=st.integers(0, 5))
    def claims_late(self, generation):
        self.do(claim(generation))

    @rule(fence=fences)
    def starts(self, fence):
        self.do(StartJob(fence=fence))

    @rule(fence=fences, survivors=st.sampled_from([(), (7,)]))
    def loses(self, fence, survivors):
        self.do(lost(fence, *survivors))

    @rule(fence=fences)
    def hands_back(self, fence):
        self.do(HandBack(fence=fence))

    @rule(fence=fences, reason=st.sampled_from(["rate_limited", "asked"]))
    def parks(self, fence, reason):
        self.do(park(fence, reason))

    @rule()
    def unparks(self):
        self.do(UnparkJob(by="dispatcher"))

    @rule(order=st.sampled_from(["pause", "stop", "kill"]))
    def orders(self, order):
        self.do(stop(order))

    @rule(fence=fences, at_ms=st.integers(0, 99))
    def observes(self, fence, at_ms):
        self.do(ObserveStop(fence=fence, at_ms=at_ms))

    @rule(fence=fences, at_ms=st.integers(0, 99))
    def verifies(self, fence, at_ms):
        self.do(VerifyStop(fence=fence, at_ms=at_ms, survivors=(7,)))

    @rule()
    def resumes(self):
        self.do(ResumeJob(by="me"))

    @rule(fence=fences)
    def writes_late(self, fence):
        self.do(RejectLateWrite(fence=fence, what="settle"))

    @precondition(lambda self: self.state.attempts > 1)
    @rule(fence=fences, digest=st.sampled_from(["r", "q"]))
    def settles(self, fence, digest):
        self.do(settle(fence, digest))

    @invariant()
    def ends_at_most_once(self):
        ends = [event for event in self.log if isinstance(event, JobFinished | JobQuarantined)]
        assert len(ends) == int(self.state.is_terminal)

    @invariant()
    def lease_and_state_agree(self):
        assert self.state.is_leased == (self.state.state in ("leased", "running", "stopping"))

    @invariant()
    def what_it_waits_for_is_known_exactly_while_it_is_parked(self):
        assert (self.state.parked is not None) == (self.state.state == "parked")

    @invariant()
    def replay_from_json_gives_the_same_state(self):
        assert reduce(job.evolve, (from_json(to_json(event)) for event in self.log), JobState()) == self.state


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
