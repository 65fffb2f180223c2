"""Which of many alike are looked at or told of: the first few, then ever fewer."""

from __future__ import annotations


def is_doubled(ordinal: int) -> bool:
    """Whether it is 1, 2, 4, 8 and so on."""
    return ordinal > 0 and ordinal & (ordinal - 1) == 0
