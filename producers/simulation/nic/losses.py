"""What telemetry loses on its way, of healthy and faulty alike: polls, counts, lines of calls, queue pairs."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from producers.simulation.nic.draws import Purpose, stream
from producers.simulation.nic.scenario import NicScenario
from producers.simulation.nic.slices import Ints

Bools = npt.NDArray[np.bool_]

_GAP_SHARE = (0.01, 0.03)
"""Part of a rank's lines that are gone where its ring was written over."""

_DROPPING_SHARE = (0.05, 0.5)
"""Part of a poll in which a NIC that cannot keep up loses counts, and of the counts within it that are lost."""


class Losses:
    """What is lost of a run; pure functions of its seed."""

    def __init__(self, scenario: NicScenario) -> None:
        self._seed, self._noise, self._world = scenario.seed, scenario.noise, scenario.world
        chance = stream(self._seed, Purpose.LINES, scenario.world)
        happens, self._gap_at, length = chance.random(3)
        rank = int(chance.integers(scenario.world))
        self._gap_rank = rank if happens < self._noise.call_gap else -1
        self._gap_share = _GAP_SHARE[0] + (_GAP_SHARE[1] - _GAP_SHARE[0]) * length

    def poll(self, host: int, poll: int) -> bool:
        """Whether what a host's NICs counted does not arrive."""
        return bool(stream(self._seed, Purpose.POLLS, host + 1, poll).random() < self._noise.lost_polls)

    def calls(self, rank: int, made: int) -> Bools:
        """Which lines of a rank's calls are lost, in their order; shape (made,)."""
        lost = stream(self._seed, Purpose.LINES, rank).random(made) < self._noise.lost_calls
        if rank == self._gap_rank:
            first = int(self._gap_at * made)
            lost[first : first + int(np.ceil(self._gap_share * made))] = True
        return lost

    def pairs(self, host: int, told: int) -> Bools:
        """Which records of a host's queue pairs are lost; shape (told,)."""
        return stream(self._seed, Purpose.DROPS, self._world + host).random(told) < self._noise.lost_pairs

    def counts(self, nic: int, poll: int, epoch: Ints) -> Bools:
        """Which counts of a NIC's poll it loses, by their epochs within it; shape as given."""
        chance = stream(self._seed, Purpose.DROPS, nic, poll)
        if chance.random() >= self._noise.dropping_polls or not len(epoch):
            return np.zeros(len(epoch), dtype=np.bool_)
        begin, length, share = chance.random(), *chance.uniform(*_DROPPING_SHARE, size=2)
        during = np.abs(epoch / max(int(epoch.max()), 1) - begin) < length / 2
        return np.asarray(during & (chance.random(len(epoch)) < share))
