"""Where operators are told to be, beside where they truly were, in every setup."""

from __future__ import annotations

import dataclasses
import json
from functools import cache

import pytest

from benchmarks.traffic import boundaries
from benchmarks.traffic.boundaries import Counts
from offbeat.settings import Settings
from producers.simulation.nic import DEFAULT, WHOLE, NicScenario, Noise, Setup, healthy, simulate_nics
from tests.offbeat.command_line import offbeat
from tests.producers.simulation.nic.small import EXPERTS, PIPELINE, SMALL

SEED = 39_000


LIMITS = {
    Setup.GPT2_32B: (1.0, 0.97),
    Setup.GPT2_70B_DEEP: (1.0, 0.9),
    Setup.MIXTRAL: (1.0, 0.8),
    Setup.HOT_EXPERTS: (1.0, 0.7),
    Setup.MIXTRAL_TREES: (1.0, 0.7),
}
"""Boundaries in time, and volumes within 1 %, of setups where it is not all of them.

Of two operators back to back what travels in the epoch between them is known as a whole only.
"""


ALONE = (Setup.NEIGHBOURS, Setup.ALL_TO_ONE, Setup.ONE_TO_ALL)


@cache
def counted(setup: Setup, noise: Noise) -> Counts:
    scenario = dataclasses.replace(healthy(setup, SEED, noise), iterations=3)
    scenario = scenario if setup in ALONE else dataclasses.replace(scenario, tp=2)
    return boundaries.count(simulate_nics(scenario), Settings.load())


@pytest.mark.parametrize("setup", Setup)
def test_operators_are_told_where_they_ran(setup: Setup) -> None:
    counts = counted(setup, WHOLE)
    in_time, right_volume = LIMITS.get(setup, (1.0, 1.0))
    assert counts.begins + counts.back_to_back > 2
    assert counts.begins_in_time >= in_time * counts.begins
    assert counts.ends_in_time >= in_time * counts.ends
    assert counts.by_volume <= 0.5 * counts.begins, "headers add up: volumes alone drift"
    assert counts.right_volume >= right_volume * counts.back_to_back
    assert counts.to_an_epoch == counts.back_to_back
    assert counts.not_complete == counts.without_row == 0


@pytest.mark.parametrize("setup", [Setup.GPT2_70B, Setup.GPT2_70B_DEEP, Setup.MIXTRAL, Setup.NEIGHBOURS])
def test_what_is_lost_moves_few_boundaries_and_keeps_nothing_from_ending(setup: Setup) -> None:
    """Ten times as much as usual; a lost send of an exchange may be taken for the end of the one before."""
    lossy = dataclasses.replace(DEFAULT, lost_calls=0.01, lost_pairs=0.01, dropping_polls=0.02, lost_polls=0.02)
    counts = counted(setup, lossy)
    whole = counted(setup, WHOLE)
    assert counts.begins + counts.back_to_back >= 0.5 * (whole.begins + whole.back_to_back), "most of it is known"
    assert counts.begins_in_time >= 0.85 * counts.begins
    assert counts.ends_in_time >= 0.85 * counts.ends
    assert counts.not_complete == 0


@pytest.mark.parametrize(
    ("scenario", "in_time", "right_volume", "without_row"),
    [(SMALL, 1.0, 0.87, 0.0), (PIPELINE, 1.0, 0.8, 0.0), (EXPERTS, 0.95, 0.5, 0.05)],
    ids=["data", "pipeline", "experts"],
)
def test_small_operators_are_told_as_well(
    scenario: NicScenario, in_time: float, right_volume: float, without_row: float
) -> None:
    counts = boundaries.count(simulate_nics(scenario), Settings.load())
    assert counts.begins_in_time >= in_time * counts.begins
    assert counts.ends_in_time >= in_time * counts.ends
    assert counts.right_volume >= right_volume * counts.back_to_back
    assert counts.to_an_epoch == counts.back_to_back
    assert counts.without_row <= without_row * (counts.begins + counts.back_to_back)
    assert counts.not_complete == 0


def test_the_command_tells_setups_apart() -> None:
    options = ("--repeats", 0, "--healthy", 3, "--only", "healthy/neighbours", "--seeds", SEED, "--processes", 1)
    result = offbeat("bench", "boundaries", *options, "--json")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert (told["runs"], told["seeds"]) == (1, {"from": SEED, "reported": False})
    assert told["all"] == told["setups"]["neighbours"]
    assert told["all"]["boundaries_in_time"]["share"] > 0.9


def test_counts_add_up() -> None:
    one, other = Counts(1, 1, 0, 2, 1, 2, 0, 4, 1, 2), Counts(1, 0, 1, 0, 0, 0, 3, 1, 0, 3)
    assert one + other == Counts(2, 1, 1, 2, 1, 2, 3, 5, 1, 5)
    shares = dict.fromkeys(("boundaries_in_time", "by_volume_alone", "volumes_back_to_back", "or_to_an_epoch"))
    assert Counts().figures() == {**shares, "not_complete": 0, "without_row": 0}
