"""Renaming ranks, hosts and communicators renames them and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from producers.simulation import Fault, Kind, Omissions, simulate
from producers.simulation.relabel import relabelled
from tests.producers.simulation.small import meetings, small

RUN = simulate(
    small(iterations=4, omissions=Omissions(layout=True), faults=(Fault(Kind.NIC_SLOW, 2, (3,), slowdown=1.4),))
)
HOSTS = ["h0", "h1", "h2", "h3"]


@settings(max_examples=20)
@given(ranks=st.permutations(range(8)), hosts=st.permutations(["a", "b", "c", "d"]))
def test_names_come_back(ranks: list[int], hosts: list[str]) -> None:
    rank_names, host_names = dict(enumerate(ranks)), dict(zip(HOSTS, hosts, strict=True))
    other = relabelled(RUN, rank_names, host_names, lambda name: f"c{name}")
    old_ranks = {new: old for old, new in rank_names.items()}
    old_hosts = {new: old for old, new in host_names.items()}
    again = relabelled(other, old_ranks, old_hosts, lambda name: name[1:])
    assert again.table.equals(RUN.table)
    assert again.job == RUN.job
    assert again.truth.to_json() == RUN.truth.to_json()
    assert (again.truth.abnormal == RUN.truth.abnormal).all()


@settings(max_examples=20)
@given(ranks=st.permutations(range(8)))
def test_the_renamed_run_is_the_same_run(ranks: list[int]) -> None:
    names = dict(enumerate(ranks))
    other = relabelled(RUN, names, {host: host for host in HOSTS})
    assert other.truth.faults[0].rank == names[2]
    assert other.truth.faults[0].device == RUN.truth.faults[0].device
    assert other.job.nics(names[2]) == RUN.job.nics(2)

    def ends(rows: list[dict[str, object]]) -> set[tuple[object, ...]]:
        return {(row["rank"], row["op"], row["end_ns"]) for row in rows}

    renamed = {frozenset((names[r], op, end) for r, op, end in ends(rows)) for rows in meetings(RUN).values()}  # type: ignore[index]
    assert {frozenset(ends(rows)) for rows in meetings(other).values()} == renamed


def test_names_may_not_merge() -> None:
    with pytest.raises(ValueError, match="one name"):
        relabelled(RUN, dict.fromkeys(range(8), 0), {host: host for host in HOSTS})
