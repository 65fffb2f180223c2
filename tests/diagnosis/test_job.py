"""The job: its ranks and places, what control.jobs carries of it, and which of its ranks are pivots."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnosis.job import Communicator, Job, Layout, Place, pivots
from diagnosis.topology import Device
from schemas.catalogue import JOBS
from schemas.message import decode, encode

JOB = Job(
    "j",
    (Place(0, "a", 0, ("n0", "n1")), Place(1, "a", 1), Place(2, "b", 0, ("n0",)), Place(3)),
    (Communicator("x", (0, 1), "tp"), Communicator("y", (1, 2, 3)), Communicator("z", (0, 2))),
)


def plain(ranks: int) -> Job:
    return Job("j", tuple(Place(rank) for rank in range(ranks)), ())


def test_what_is_known_of_each_rank() -> None:
    assert JOB.ranks == (0, 1, 2, 3)
    assert JOB.communicators_of == {0: ("x", "z"), 1: ("x", "y"), 2: ("y", "z"), 3: ("y",)}
    assert JOB.ranks_of_host == {"a": (0, 1), "b": (2,)}
    assert [JOB.clock(rank) for rank in (0, 1, 2, 3, 9)] == ["a", "a", "b", "rank3", "rank9"]
    assert JOB.gpu(1) == Device("gpu:a/1", "gpu", 0)
    assert JOB.gpu(3) == Device("gpu:rank3", "gpu", 0)
    assert JOB.nics(0) == (Device("nic:a/n0", "nic", 1), Device("nic:a/n1", "nic", 1))
    assert JOB.nics(1) == (Device("nic:rank1", "nic", 1),)


def test_ranks_share_a_host_only_where_it_is_known() -> None:
    assert JOB.on_one_host([0, 1])
    assert not JOB.on_one_host([0, 2])
    assert not JOB.on_one_host([3])
    assert not JOB.on_one_host([0, 3])
    assert not JOB.on_one_host([0, 99])


def test_a_stage_is_the_slowest_dimension() -> None:
    layout = Layout(tp=2, pp=3, dp=2, cp=2)
    assert layout.world == 24
    assert [layout.pipeline_stage(rank) for rank in (0, 7, 8, 16, 23)] == [0, 0, 1, 2, 2]
    assert layout.pipeline_stage(24) is None
    assert replace(layout, dp=None).pipeline_stage(0) is None


_names = st.text("abc", min_size=1, max_size=3)


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    ranks = sorted(draw(st.sets(st.integers(0, 40), min_size=1, max_size=12)))
    places = [
        Place(
            rank,
            draw(st.none() | _names),
            draw(st.none() | st.integers(0, 7)),
            tuple(draw(st.lists(_names, max_size=2))),
        )
        for rank in ranks
    ]
    members = st.lists(st.sampled_from(ranks), min_size=1, unique=True).map(tuple)
    communicators = [
        Communicator(name, draw(members), draw(st.none() | _names))
        for name in draw(st.lists(_names, unique=True, max_size=4))
    ]
    degree = st.none() | st.integers(1, 8)
    layouts = st.builds(
        Layout, tp=degree, pp=degree, dp=degree, cp=degree, ep=degree, source=st.sampled_from(["given", "inferred"])
    ).filter(lambda layout: any((layout.tp, layout.pp, layout.dp, layout.cp, layout.ep)))
    return Job(
        draw(_names),
        tuple(places),
        tuple(communicators),
        layout=draw(st.none() | layouts),
        started_ns=draw(st.none() | st.integers(0, 2**60)),
        ended_ns=draw(st.none() | st.integers(0, 2**60)),
        monitoring=draw(st.booleans()),
    )


@given(jobs())
def test_a_job_survives_its_record(job: Job) -> None:
    message = encode(JOBS, JOBS.from_rows([job.to_row()]), job=job.job)
    [row] = decode(message, JOBS).to_pylist()
    assert Job.from_row(row) == job


def test_a_rewritten_record_loses_nothing() -> None:
    row: dict[str, Any] = {**JOB.to_row(), "links": [{"link": "l", "a": "x"}], "training": {"tp": 4, "hidden": 512}}
    job = Job.from_row(row)
    assert job.layout == Layout(tp=4, cp=None, ep=None)
    again = replace(job, ended_ns=5).to_row()
    assert (again["links"], again["ended_ns"], again["training"]["hidden"]) == (row["links"], 5, 512)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"job": ""}, "a job without a name"),
        ({"ranks": [{"rank": 1}, {"rank": 1}]}, "a rank is listed twice"),
        ({"ranks": [{"rank": 0}, {"rank": 1 << 20}]}, "a rank is not one of 0 to 1048575"),
        ({"communicators": [{"communicator": "c", "ranks": [0]}] * 2}, "a communicator is listed twice"),
        ({"communicators": [{"communicator": "c", "ranks": [0, 8]}]}, "communicator c has rank 8"),
        ({"communicators": [{"communicator": "c", "ranks": [0, 1, 0]}]}, "communicator c lists a rank twice"),
        ({"training": {"tp": 0}}, "the degree tp is 0"),
    ],
)
def test_contradictions_are_refused(change: dict[str, Any], text: str) -> None:
    row = {"job": "j", "ranks": [{"rank": 0}, {"rank": 1}], "communicators": []}
    with pytest.raises(ValueError, match=text):
        Job.from_row({**row, **change})


@given(st.integers(0, 300), st.integers(-1, 20))
def test_there_are_as_many_pivots_as_wanted_spread_over_the_job(ranks: int, count: int) -> None:
    chosen = pivots(plain(ranks), count)
    assert len(chosen) == min(max(count, 1), ranks)
    assert list(chosen) == sorted(set(chosen) & set(range(ranks)))
    share = ranks / len(chosen) if chosen else 0
    assert all(int(i * share) <= rank < (i + 1) * share for i, rank in enumerate(chosen))


def test_pivots_do_not_all_sit_at_the_same_place_of_their_tensor_group() -> None:
    assert len({rank % 8 for rank in pivots(plain(64), 4)}) == 4
