"""The view of control.jobs."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from schemas import catalogue
from schemas.errors import ImpossibleValue, MessageError, UndecodableMessage, UnknownJob, WrongSchema
from schemas.message import Message, encode
from streams.control_view import FollowedJobs, Jobs
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
