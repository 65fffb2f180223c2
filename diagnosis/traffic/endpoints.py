"""Numbers that hold for one NIC, made to hold for several that are looked at together.

What a step of time costs hardly depends on how much there is to find, so the NICs of a host share it: queue pairs and
ranks go by numbers that say on which NIC they are. On the first NIC, or the only one, they are the plain numbers.
"""

from __future__ import annotations

from typing import TypeVar, overload

from diagnosis.arrays import Ints

Numbers = TypeVar("Numbers", int, Ints)

_QPN_BITS = 24
_RANK_BITS = 20
_DESTINATION_BITS = 32
"""No queue pair and no rank has a higher number."""

MOST_NICS = 1 << 10
"""NICs whose numbers fit, together with two ranks, in 63 bits."""


def flow_of(nic: Ints | int, qpn: Ints) -> Ints:
    """The number of a queue pair on one of several NICs."""
    return qpn | (nic << _QPN_BITS)


def qpn_of(flow: Ints) -> Ints:
    """A queue pair's own number."""
    return flow & ((1 << _QPN_BITS) - 1)


@overload
def sender_of(nic: int, rank: int) -> int: ...
@overload
def sender_of(nic: Ints | int, rank: Ints) -> Ints: ...
def sender_of(nic: Ints | int, rank: Ints | int) -> Ints | int:
    """The number of a rank that sends by one of several NICs."""
    return rank | (nic << _RANK_BITS)


def rank_of(sender: Numbers) -> Numbers:
    """A sender's rank."""
    return sender & ((1 << _RANK_BITS) - 1)


def nic_of(sender: Numbers) -> Numbers:
    """The NIC that a sender sends by."""
    return sender >> _RANK_BITS


def pair_of(sender: Numbers, destination: Numbers) -> Numbers:
    """A sender and a rank that it sends to, as one number."""
    return sender << _DESTINATION_BITS | destination


def ends_of(pair: Numbers) -> tuple[Numbers, Numbers]:
    """The sender and the rank that it sends to."""
    return pair >> _DESTINATION_BITS, pair & ((1 << _DESTINATION_BITS) - 1)
