"""Settings of what tells irregular iterations from regular ones."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from diagnosis.irregularity.fluctuation import FluctuationSettings


@dataclass(frozen=True, slots=True)
class MonitorSettings:
    """How the iterations of a job are judged by how long they take (Holmes 3.1, 4.2.2).

    The baseline is made of the latest regular iterations; its mean is what the next one is expected to take.
    """

    delta: float = field(default=1.1, metadata={"above": 1})
    """An iteration is irregular if it takes more than ``delta`` times the expected duration; a lower value finds
    smaller slowdowns, and takes more noise for one."""
    learns: Literal["regular", "all"] = "regular"
    """What enters the baseline: ``regular`` iterations only, or ``all``, as Holmes 3.1 words it, so that a slowdown
    longer than ``window`` iterations comes to pass for usual."""
    least_excess_ns: int = 0
    """Nanoseconds by which an irregular iteration must exceed the expected duration as well, whatever ``delta`` says
    (Pulse 7.2.1: 500 ms); 0 leaves it to ``delta``."""
    window: int = field(default=20, metadata={"least": 1})
    """Number of iterations in the baseline; a larger window gives a steadier mean that follows changes of the job more
    slowly."""
    least_baseline: int = field(default=5, metadata={"least": 1})
    """Number of iterations that the baseline must hold before any is judged (``window``, if that is less)."""
    warm_up: int = 5
    """Number of iterations at the start that neither enter the baseline nor are judged."""
    degradation_after: int = 5
    """Number of irregular iterations in a row that make a run a persistent degradation."""
    closed_after: int = 2
    """Number of regular iterations in a row that end a run; a fluctuation may pause for longer
    (``fluctuation.closed_after_periods``)."""
    quiet_after: int = 100
    """Number of regular iterations in a row after which everything found before is over (Holmes correlates over a span
    of 100); a degradation as well that has eased to less than ``delta``."""
    step_delta: float = 1.2
    """An iteration that takes more than ``step_delta`` times what the iterations of its run take on average is a step,
    as if a second fault had come on top, and is looked at as the beginning of a run is; a higher value finds fewer of
    them."""
    plain_share: float = 0.5
    """How much of a slowdown an iteration within ``delta`` may show and still be plain: beyond this part of the open
    run's mean excess it is not learned and does not end a degradation, beyond this part of a searched iteration's
    excess it is not compared with where enough others are; 1 comes closest to Holmes, who compares with all of the
    baseline."""
    held_share: float = 0.5
    """A regular iteration that exceeds the expected duration by more than this part of what it may, and by more than
    others scatter (``held_scatter``), is held back: such are learned once there are ``window`` of them among twice as
    many iterations without an irregular one, and never otherwise. So a slowdown of about ``delta`` is not learned
    before one of its iterations is found; 1 holds back none."""
    held_scatter: float = 2.0
    """An iteration is held back only if it exceeds the expected duration by more than this times what one in ten of the
    baseline does."""
    close_by: int = 5
    """Two irregular iterations at most this far apart make those between them suspect of the same fault, so that they
    are not compared with where enough others are, unless it is a fluctuation, which pauses; 1 suspects none."""
    reach: int = 100
    """Number of iterations that agents' logs are sure to reach back: a step found as long as that after the oldest
    iteration that it would be compared with is compared with the iterations of its run below it instead; one of a run
    that is no degradation with the latest regular ones."""
    pause_share: float = 0.5
    """Part of the expected duration by which a pause of all pivots after an iteration must exceed the usual one to be
    that of a checkpoint or an evaluation, which nobody is to blame for: what exceeds it is not judged then, unless the
    iteration before it ended with such a pause as well; NIC traffic tells of no pauses."""
    fluctuation: FluctuationSettings = field(default_factory=FluctuationSettings)
