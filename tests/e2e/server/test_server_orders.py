"""Orders to jobs of a server: steer, pause, resume, stop, one at a time and many at once."""

import signal

import pytest


@pytest.mark.requirement("S1-CONC-1")
def test_a_steer_reaches_the_next_iteration(admin):
    job_id = admin.begins("long.py")

    done = admin("steer", job_id, "look at the retries first")

    assert done.code == 0, done.err
    observed = admin.until(lambda: [e for e in admin.events(job_id) if e["kind"] == "steer_observed"])
    assert observed[0]["text"] == "look at the retries first"
    admin("stop", job_id)


def test_a_job_is_stopped_and_the_stop_is_verified(admin):
    job_id = admin.begins("endless.py")

    done = admin("stop", job_id, "--json")

    assert done.code == 0, done.err
    assert done.document["state"] == "stopped"
    assert done.document["stop"]["verified_at"] is not None


def test_a_job_is_paused_and_goes_on(admin):
    job_id = admin.begins("long.py")

    paused = admin("pause", job_id)
    held = admin.state(job_id)
    resumed = admin("resume", job_id, "--detach")
    admin.until(lambda: [e for e in admin.events(job_id) if e["kind"] == "attempt_started"][1:])
    admin("stop", job_id)

    assert paused.code == 0, paused.out + paused.err
    assert held == "held"
    assert resumed.code == 0, resumed.err


def test_many_jobs_are_stopped_by_ids_from_standard_input(admin):
    label = "batch=many"
    jobs = {admin.begins("endless.py", "--label", label), admin.begins("endless.py", "--label", label)}
    ids = admin("jobs", "--label", label, "-o", "ids").out

    looked = admin("stop", "-", "--dry-run", "--json", stdin=ids)
    unasked = admin("stop", "-", stdin=ids)
    done = admin("stop", "-", "--yes", "--json", stdin=ids)

    assert {one["job_id"] for one in looked.document["outcomes"]} == jobs
    assert {one["outcome"] for one in looked.document["outcomes"]} == {"would"}
    assert unasked.code == 2
    assert "stop 2 jobs" in unasked.err
    assert {one["outcome"] for one in done.document["outcomes"]} == {"done"}
    assert {admin.state(job_id) for job_id in jobs} == {"stopped"}


def test_jobs_that_fit_a_filter_are_stopped(admin):
    job_id = admin.begins("endless.py", "--label", "batch=filtered")

    done = admin("stop", "--label", "batch=filtered", "--state", "running", "--yes")

    assert done.code == 0, done.err
    assert admin.state(job_id) == "stopped"


def test_a_kill_switch_ends_what_runs_and_lets_nothing_start_until_it_is_released(admin):
    job_id = admin.begins("endless.py")
    task_id = admin("show", job_id, "--json").document["task_id"]

    looked = admin("kill", "--task", task_id, "--reason", "test", "--dry-run")
    unreasoned = admin("kill", "--task", task_id, "--yes")
    engaged = admin("kill", "--task", task_id, "--reason", "test", "--yes", "--json")
    admin.until(lambda: admin.state(job_id) == "stopped")
    in_force = admin("switches", "-o", "ids").out.split()
    released = admin("release", in_force[0], "--reason", "over")

    assert "Nothing was done" in looked.out
    assert unreasoned.code == 2
    assert engaged.code == 0, engaged.err
    assert str(engaged.document["order_id"]) in in_force
    assert released.code == 0, released.err
    assert admin("switches", "-o", "ids").out == ""


def test_whoever_follows_a_job_goes_on_when_the_server_comes_back(served, admin):
    job_id = admin.begins("long.py")
    following = admin.start("trace", job_id, "--follow", "--json", "--all")
    assert following.stdout is not None
    first = following.stdout.readline()

    served.stop(signal.SIGKILL)
    served.start()
    assert admin("stop", job_id).code == 0
    # Not communicate(): it would pass over what readline() has read ahead.
    rest = following.stdout.read()
    done = admin.finish(following)

    assert done.code == 0, done.err
    assert (first + rest).splitlines() == admin("trace", job_id, "--json", "--all").out.splitlines()
