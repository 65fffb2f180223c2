"""What a training process says of itself to its operator log, as its arguments or torchrun's environment have it.

Standard library alone, as the log itself.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Mapping, Sequence
from typing import Any


def degrees(layout: Mapping[str, int] | None) -> dict[str, int]:
    """The degrees of a layout by name; raises ``ValueError`` for what is no mapping."""
    try:
        return dict(layout or {})
    except (TypeError, ValueError) as error:
        raise ValueError(f"the layout is {layout!r}; give degrees by their names, as {{'tp': 2}}") from error


def members(name: str, ranks: Sequence[int]) -> tuple[int, ...]:
    """The ranks of a communicator; raises ``ValueError`` for what are none."""
    try:
        found = tuple(map(operator.index, ranks))
    except TypeError as error:
        raise ValueError(f"the ranks of communicator {name!r} are {ranks!r}; give a list of numbers") from error
    if not found:
        raise ValueError(f"communicator {name!r} has no ranks; leave them out where they are not known")
    return found


def no_number(**given: Any) -> str | None:
    """Which argument is no whole number; None where all are."""
    for name, value in given.items():
        try:
            operator.index(value)
        except TypeError:
            return f"{name} is a {type(value).__name__}; give a whole number"
    return None


def own_rank() -> int:
    """The rank that torchrun gives; raises ``ValueError`` where it gives none."""
    rank = whole("RANK")
    if rank is None:
        raise ValueError("RANK is not set: give rank=, or start the process with torchrun")
    return rank


def own_job() -> str:
    """The job by torchrun's run, and its restart; raises ``ValueError`` where the run has no name."""
    run, restart = os.environ.get("TORCHELASTIC_RUN_ID", "none"), whole("TORCHELASTIC_RESTART_COUNT")
    if run == "none":
        raise ValueError("the run has no name: give job=, or --rdzv-id to torchrun")
    return f"{run}.{restart}" if restart else run


def whole(variable: str) -> int | None:
    """A whole number of the environment; None: it is not set. Raises ``ValueError`` for anything else."""
    text = os.environ.get(variable)
    if text is None:
        return None
    if not text.isdecimal():
        raise ValueError(f"{variable} is {text!r}, not a whole number")
    return int(text)
