"""Random streams of a run: a pure function of (seed, purpose, place, time).

A fault changes nothing of them. Only what proxies and lines draw goes on from event to event, and so differs once a
fault has changed the events.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np


class Purpose(IntEnum):
    """What a stream is for; part of its key, so the values must never change."""

    SPEED = 101
    SERIES = 102
    COMMON = 103
    SEGMENTS = 104
    ROUTING = 105
    RINGS = 106
    PROXIES = 107
    LOSS = 108
    PHASE = 109
    BACKGROUND = 110
    PORTS = 111
    CLOCKS = 112
    POLLS = 113
    NUMBERS = 114
    NAMES = 115
    NUMA = 116
    START = 117
    LAUNCH = 118
    FAULT = 119
    SEQUENCES = 120
    LINES = 121
    DROPS = 122
    LEAVES = 123


def stream(seed: int, purpose: Purpose, place: int = 0, time: int = 0) -> np.random.Generator:
    """The stream of a purpose at a place (a rank, a NIC, a host) and time (an iteration, a second)."""
    return np.random.Generator(np.random.Philox(key=seed, counter=[0, time, place, int(purpose)]))
