"""Where along a ring a collective is slow (a step beyond Holmes 4.3.2).

A ring hands its chunks on from member to member, and no faster than its slowest link. Whoever is at that link ends
last; with each hop from it, in either direction, members are done by a chunk sooner, since chunks for them come, and
room is made for theirs, as much earlier. So the times until members end go around the ring in one wave, whose crest is
at the slow NIC, while what slows a ring as a whole adds the same to all of them.
"""

from __future__ import annotations

import numpy as np

from diagnosis.arrays import Floats, Ints

LEAST_MEMBERS = 4
"""Three points are on some wave whatever they are."""


def crest(slowed: Floats, chance: Floats, *, sigmas: float, explained: float, reach: float) -> Ints:
    """Which members of a ring are at the crest of a wave: their positions, ascending; none where there is no wave.

    ``slowed`` is for how long (ns) each member waited beyond the usual, in the ring's order, ``chance`` its standard
    deviation. A wave exceeds ``sigmas`` of what chance makes of it, and explains a part ``explained`` of what members
    differ by. Its crest reaches as far as ``reach`` hops to both sides, and as its position is uncertain: a ring that
    goes one way peaks in the middle of the slow link, several that go both ways at the NIC that they share.
    """
    count = len(slowed)
    if count < LEAST_MEMBERS or not (np.isfinite(slowed).all() and np.isfinite(chance).all()):
        return np.empty(0, np.int64)
    wave = np.fft.rfft(slowed)[1]
    noise = np.sqrt(np.square(chance).mean() * count / 2)  # of a sum of so many cosines
    differ = np.square(slowed - slowed.mean()).sum()
    if not abs(wave) > sigmas * noise or 2 * abs(wave) ** 2 / count < explained * differ:
        return np.empty(0, np.int64)
    a_radian = count / (2 * np.pi)
    apart = np.abs((np.arange(count) + np.angle(wave) * a_radian + count / 2) % count - count / 2)
    return np.flatnonzero(apart <= reach + a_radian * noise / abs(wave))
