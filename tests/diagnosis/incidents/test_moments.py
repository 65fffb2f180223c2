"""Which spikes may be nobody's fault, and what is no chance any more."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnosis.incidents.evidence import Evidence
from diagnosis.incidents.moments import MomentSettings, chances
from diagnosis.incidents.moments import momentary as momentary_beside
from diagnosis.irregularity.run import DEGRADATION, FLUCTUATION, SPIKE
from diagnosis.topology import Device
from tests.diagnosis.incidents.findings import found, in_run

SETTINGS = MomentSettings()


def momentary(findings: Sequence[Evidence], world: int | None, settings: MomentSettings) -> frozenset[str]:
    return momentary_beside(findings, world, settings, comparable=0.5)


def chance(finding: Evidence, moments: Sequence[Evidence], world: int, spines: int = 0) -> float:
    return chances(moments, world, spines)[finding.id]


def ids(findings: Sequence[Evidence]) -> frozenset[str]:
    return frozenset(finding.id for finding in findings)


def faint(iteration: int, *ranks: int) -> Evidence:
    return found(iteration, *ranks, prominence=1.5)


def test_what_stands_out_or_whose_scatter_is_not_known_is_no_moment() -> None:
    clear = [found(20, 3, prominence=2.5), found(31, 3)]
    assert momentary([*clear, faint(45, 3)], None, SETTINGS) == ids([faint(45, 3)])
    assert not momentary([faint(45, 3)], None, replace(SETTINGS, prominence=0.0))


@pytest.mark.parametrize("pattern", [DEGRADATION, FLUCTUATION])
def test_a_run_that_lasts_is_none(pattern: str) -> None:
    first = in_run(20, 20, 3, pattern=SPIKE, prominence=1.5)
    assert momentary([first, in_run(21, 20, 7, pattern=pattern)], None, SETTINGS) == frozenset()
    assert momentary([first, in_run(31, 30, 7, pattern=pattern)], None, SETTINGS) == ids([first])


def test_nor_is_what_hangs() -> None:
    hang = replace(faint(20, 3), cause="hang_not_entered")
    assert not momentary([hang], None, SETTINGS)


def spike(*ranks: int, **fields: Any) -> Evidence:
    return found(20, *ranks, **{"prominence": 6.0, **fields})


def test_several_at_once_share_what_they_explain() -> None:
    three = [spike(rank) for rank in (3, 7, 11)]
    assert momentary(three, None, SETTINGS) == ids(three)
    assert not momentary(three[:2], None, SETTINGS)
    assert not momentary([replace(known, prominence=7.5) for known in three], None, SETTINGS)
    elsewhere = [found(21, 11), replace(three[2], id="x", method="traffic"), replace(three[2], id="y", active=False)]
    assert not momentary([*three[:2], *elsewhere], None, SETTINGS)


def test_of_a_spike_counts_what_the_culprit_explains() -> None:
    assert momentary([spike(3, share=0.41)], None, SETTINGS) == ids([spike(3)])
    assert not momentary([spike(3, share=0.42)], None, SETTINGS)


def test_culprits_that_have_something_in_common_are_one_of_several_at_once() -> None:
    pairs = [spike(3, rank, cause="communication_slow") for rank in (7, 11)]
    assert not momentary([spike(30), *pairs], None, SETTINGS)
    apart = [spike(30), *pairs, spike(40)]
    assert momentary(apart, None, SETTINGS) == ids(apart)


def test_a_faint_spike_of_which_nobody_is_found_says_nothing_either() -> None:
    nobody = [faint(20), found(21), found(22, prominence=2.5)]
    assert momentary(nobody, 8, SETTINGS) == ids(nobody[:1])


def test_who_explains_most_of_it_is_not_one_of_many() -> None:
    least = [spike(rank, share=0.4) for rank in (7, 11)]
    assert momentary([spike(3), *least], None, SETTINGS) == ids(least)


def test_the_chance_is_the_tail_of_a_binomial_distribution_for_each_rank() -> None:
    moments = [faint(20, 3), faint(21, 7), faint(22, 3), faint(23, 3)]
    share = 1 / 8
    assert chance(moments[0], moments, 8) == pytest.approx(8 * (4 * share**3 * (1 - share) + share**4))
    assert chance(moments[1], moments, 8) == 1.0
    pairs = [found(i, 3, rank, cause="communication_slow") for i, rank in ((20, 7), (21, 1))]
    assert chance(pairs[0], pairs, 64) == pytest.approx(64 / 3 * (2 * 3 / 64) ** 2), "who shows it is 1, 3 or 7"


def switch(kind: str, name: str, iteration: int, *ranks: int) -> Evidence:
    return found(
        iteration, *ranks, cause="communication_slow", level="device", devices=(Device(f"{kind}:{name}", kind),)
    )


def test_a_switch_is_drawn_with_all_ranks_below_it() -> None:
    """Of eight ToRs, eight ranks below each, one is named three times and another one once."""
    moments = [switch("tor", str(i == 1), 20 + i, *range(8 * (i == 1), 8 * (i == 1) + 8)) for i in range(4)]
    share = 1 / 8
    assert chance(moments[0], moments, 64) == pytest.approx(8 * (4 * share**3 * (1 - share) + share**4))
    with_a_nic = [*moments, faint(24, 30)]
    share = (4 * 8 / 64 + 8 / 64) / 5
    at_least_three = 10 * share**3 * (1 - share) ** 2 + 5 * share**4 * (1 - share) + share**5
    assert chance(moments[0], with_a_nic, 64) == pytest.approx(8 * at_least_three)


def test_a_spine_is_one_of_all_spines_whoever_shows_it() -> None:
    moments = [switch("spine", "3", 20 + i, *range(8 * i, 8 * i + 8)) for i in range(3)]
    assert chance(moments[0], moments, 64, spines=16) == pytest.approx(16 * (1 / 16) ** 3)
    assert chance(moments[0], moments, 64) == 1.0, "how many there are is not known"
    everyone = [replace(one, devices=tuple(Device(f"spine:{i}", "spine") for i in range(16))) for one in moments]
    assert chance(everyone[0], everyone, 64, spines=16) == 1.0, "that spines are slow, not which of them"
    shared = faint(23, 5)  # one of 24 ranks that show it
    assert chance(moments[0], [*moments, shared], 64, spines=16) < chance(moments[0], [*moments, shared], 64) == 1.0


def test_the_iterations_of_a_run_are_one_occasion() -> None:
    run = [in_run(i, 20, 3, pattern=SPIKE, prominence=1.5) for i in (20, 21, 23)]
    assert chance(run[0], run, 2048) == 1.0
    assert chance(run[0], [*run, faint(40, 3)], 2048) == pytest.approx(2048 / 2048**2)


def test_who_is_named_again_and_again_is_no_chance() -> None:
    names = [faint(20 + i, 3 if i < 5 else 7) for i in range(6)]
    assert momentary(names[:4], 8, SETTINGS) == frozenset(), "1 / 8**3 for each of 8 ranks"
    assert momentary(names[:3], 8, SETTINGS) == ids(names[:3])
    assert momentary(names, 8, SETTINGS) == ids(names[5:])
    assert momentary(names[:2], 2048, SETTINGS) == frozenset()
    assert momentary(names[:1], 2048, SETTINGS) == ids(names[:1])
    everybody = [faint(20 + i, rank) for i in range(6) for rank in range(8)]
    assert momentary(everybody, 8, SETTINGS) == ids(everybody)


_told = st.lists(st.sets(st.integers(0, 7), min_size=1, max_size=4), min_size=1, max_size=8)


@given(_told, st.integers(0, 7))
def test_what_is_no_chance_stays_so_when_it_comes_again(told: list[set[int]], rank: int) -> None:
    moments = [faint(20 + i, one) for i, ranks in enumerate(told) for one in sorted(ranks | {rank})]
    before = chance(moments[0], moments, 64)
    own = next(known for known in moments if known.ranks == (rank,))
    again = [*moments, faint(20 + len(told), rank)]
    assert 0.0 <= before <= 1.0
    assert chance(own, again, 64) <= chance(own, moments, 64)


@given(_told)
def test_of_two_the_one_that_is_named_more_often_is_less_of_a_chance(told: list[set[int]]) -> None:
    moments = [faint(20 + i, rank) for i, ranks in enumerate(told) for rank in sorted(ranks)]
    times = {known.ranks: sum(other.ranks == known.ranks for other in moments) for known in moments}
    for one, other in combinations(moments, 2):
        if times[one.ranks] >= times[other.ranks]:
            assert chance(one, moments, 8) <= chance(other, moments, 8)
