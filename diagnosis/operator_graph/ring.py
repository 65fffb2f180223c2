"""Where along a ring a collective is slow (a step beyond Holmes 4.3.2).

A ring hands its chunks on from member to member, and no faster than its slowest link. Whoever waits for that link ends
last, and with each hop from it members are done by a chunk sooner. So the times until members end go around the ring in
one wave, whose crest is near the slow NIC, while what slows the ring as a whole adds the same to all of them. Over Gloo
the crest was seen within a hop of the NIC; where members buffer more it should be downstream of it, which was not
measured.
"""

from __future__ import annotations

import numpy as np

from diagnosis.arrays import Floats, Ints

LEAST_MEMBERS = 6
"""What scatters makes a wave of fewer."""


def crest(slowed: Floats, before: Floats, *, sigmas: float, height: float, explained: float, reach: float) -> Ints:
    """Which members of a ring are near the crest of a wave: their positions, ascending; none where there is no wave.

    ``slowed`` is for how long (ns) each member waited beyond the usual, in the ring's order; ``before`` the same in
    usual iterations, shape (iterations, members). A wave is higher than ``sigmas`` of those that these make and than a
    part ``height`` of what members waited, and explains a part ``explained`` of what they differ by. Near the crest is
    who is not further from it than a part ``reach`` of the ring, or one hop, and than its position is uncertain.
    """
    count = len(slowed)
    if count < LEAST_MEMBERS or len(before) < 2 or not (np.isfinite(slowed).all() and np.isfinite(before).all()):
        return np.empty(0, np.int64)
    wave = np.fft.rfft(slowed)[1]
    noise = np.sqrt(np.square(np.abs(np.fft.rfft(before)[:, 1])).mean() / 2)
    differ = np.square(slowed - slowed.mean()).sum()
    high = max(sigmas * noise, height * slowed.mean() * count / 2)
    if not abs(wave) > high > 0 or 2 * abs(wave) ** 2 / count < explained * differ:
        return np.empty(0, np.int64)
    a_radian = count / (2 * np.pi)
    apart = np.abs((np.arange(count) + np.angle(wave) * a_radian + count / 2) % count - count / 2)
    return np.flatnonzero(apart <= max(1.0, reach * count) + a_radian * noise / abs(wave))
