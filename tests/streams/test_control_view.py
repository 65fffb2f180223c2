"""The view of control.jobs."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from schemas import catalogue
from schemas.errors import ImpossibleValue, MessageError, UndecodableMessage, UnknownJob, WrongSchema
from schemas.message import Message, encode
from streams import control_view
from streams.control_view import MOST_ENDED_AT_HAND, FollowedJobs, Jobs
from tests.streams.examples import job_record


def test_the_newest_record_of_a_job_counts_and_a_tombstone_drops_it() -> None:
    jobs = Jobs()
    jobs.process(job_record("a"))
    row = jobs["a"].to_row() | {"ended_ns": 9}
    jobs.process(encode(catalogue.JOBS, catalogue.JOBS.from_rows([row]), job="a"))
    assert jobs["a"].ended_ns == 9
    jobs.process(replace(job_record("a"), value=None))
    assert len(jobs) == 0


def test_an_unknown_job_is_poison_and_a_missing_key() -> None:
    jobs = Jobs()
    with pytest.raises(UnknownJob, match=r"^job 'x' is not in control\.jobs"):
        jobs["x"]
    assert issubclass(UnknownJob, MessageError)
    assert jobs.get("x") is None
    assert "x" not in jobs


def test_bad_records_are_refused_and_change_nothing() -> None:
    jobs = Jobs()
    jobs.process(job_record("a"))
    row = jobs["a"].to_row()
    twice = {**row, "ranks": [{"rank": 0}, {"rank": 0}]}
    with pytest.raises(ImpossibleValue, match="job 'a': a rank is listed twice"):
        jobs.process(encode(catalogue.JOBS, catalogue.JOBS.from_rows([twice]), job="a"))
    with pytest.raises(WrongSchema, match="2 rows"):
        jobs.process(encode(catalogue.JOBS, catalogue.JOBS.from_rows([row, row]), job="a"))
    with pytest.raises(UndecodableMessage):
        jobs.process(replace(job_record("a"), value=b"?"))
    assert jobs["a"].ranks == (0,)


def ended(job: str, ended_ns: int = 9) -> Message:
    jobs = Jobs()
    jobs.process(job_record(job))
    row = jobs[job].to_row() | {"ended_ns": ended_ns}
    return encode(catalogue.JOBS, catalogue.JOBS.from_rows([row]), job=job, watermark_ns=1)


def test_of_the_jobs_that_have_ended_a_handful_are_kept_as_objects() -> None:
    jobs = Jobs()
    jobs.process(job_record("runs"))
    assert jobs["runs"].ended_ns is None
    for number in range(20):
        job = f"ended-{number}"
        jobs.process(job_record(job))
        assert jobs[job].ended_ns is None
        jobs.process(ended(job))
        assert jobs[job].ended_ns == 9
        assert len(jobs.at_hand) <= 1 + MOST_ENDED_AT_HAND
    assert len(jobs) == 21
    assert "runs" in jobs.at_hand
    assert jobs["ended-0"].ended_ns == 9  # made from its record again
    assert jobs["ended-0"] is jobs["ended-0"]


def test_a_job_that_nobody_looks_up_is_never_an_object() -> None:
    jobs = Jobs()
    jobs.process(job_record("a"))
    jobs.process(ended("a"))
    assert not jobs.at_hand


def test_jobs_that_vanished_without_an_end_give_way_to_those_looked_up_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_view, "MOST_RANKS_AT_HAND", 3)
    jobs = Jobs()
    for job in "abcd":
        jobs.process(job_record(job))
        assert jobs[job].ranks == (0,)
    assert jobs.at_hand == ["b", "c", "d"]
    assert jobs["b"].ranks == (0,)
    assert jobs["a"].ranks == (0,)
    assert jobs.at_hand == ["d", "b", "a"]


def test_a_job_that_comes_back_after_its_end_runs_again() -> None:
    jobs = Jobs()
    jobs.process(ended("a"))
    assert jobs["a"].ended_ns == 9
    jobs.process(job_record("a"))
    assert jobs["a"].ended_ns is None


class FakeFollower:
    """What a broker would bring: nothing by itself, and all of ``published`` when asked to catch up."""

    def __init__(self) -> None:
        self.published: list[Message] = []
        self.asked = 0

    def catch_up(self) -> Iterator[Message]:
        self.asked += 1
        return self.poll()

    def poll(self) -> Iterator[Message]:
        published, self.published = self.published, []
        return iter(published)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_an_unknown_job_makes_it_catch_up_once() -> None:
    follower, clock = FakeFollower(), Clock()
    jobs = FollowedJobs(follower, clock=clock)
    follower.published = [job_record("a")]
    assert jobs["a"].job == "a"
    assert follower.asked == 1
    for _ in range(10):
        with pytest.raises(UnknownJob):
            jobs["b"]
    assert follower.asked == 2
    clock.now = 2.0
    follower.published = [job_record("b")]
    assert jobs["b"].job == "b"
    assert follower.asked == 3


def test_it_follows_without_being_asked_and_passes_bad_records_over(caplog: pytest.LogCaptureFixture) -> None:
    follower = FakeFollower()
    jobs = FollowedJobs(follower)
    follower.published = [replace(job_record("x"), value=b"?", partition=3, offset=8), job_record("a")]
    jobs.follow()
    assert list(jobs) == ["a"]
    assert follower.asked == 0
    assert "control.jobs partition 3 offset 8" in caplog.text
