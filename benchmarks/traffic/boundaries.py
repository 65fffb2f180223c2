"""Where operators begin and end by their NIC's traffic, beside where they truly did."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks.simulated.figures import share
from benchmarks.traffic.detection import hear, rows
from benchmarks.traffic.plan import Case
from offbeat.settings import Settings
from producers.simulation.nic import NicRun, simulate_nics
from producers.simulation.nic.clocks import Clocks
from schemas.catalogue import TRAFFIC_METRICS

LEAST_BYTES = 256 << 10
"""Operators that send less may hold nothing but what the aggregation withholds."""

EPOCHS, OF_VOLUME = 2, 0.01
"""By how much boundaries may be off where there is silence between operators, and volumes where there is none."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Operators of ranks that ended, of those that telemetry covers.

    ``begins``: complete ones with silence before, ``ends``: with silence behind, and of these ``begins_in_time`` and
    ``ends_in_time``, which are within two epochs of the truth, by the clock of their host. ``by_volume``: so would be
    their beginning if the volumes that are expected were all that told it (figure 31). ``back_to_back``: complete ones
    that lack silence on a side, ``right_volume``: theirs is within a hundredth, ``to_an_epoch``: or within what a line
    sends in an epoch, since boundaries lie on epochs, and half of its own. ``not_complete``: told to lack something.
    ``without_row``: nothing was told of them.
    """

    begins: int = 0
    begins_in_time: int = 0
    by_volume: int = 0
    ends: int = 0
    ends_in_time: int = 0
    back_to_back: int = 0
    right_volume: int = 0
    to_an_epoch: int = 0
    not_complete: int = 0
    without_row: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def figures(self) -> dict[str, Any]:
        """As shares."""
        return {
            "boundaries_in_time": share(self.begins_in_time + self.ends_in_time, self.begins + self.ends),
            "by_volume_alone": share(self.by_volume, self.begins),
            "volumes_back_to_back": share(self.right_volume, self.back_to_back),
            "or_to_an_epoch": share(self.to_an_epoch, self.back_to_back),
            "not_complete": self.not_complete,
            "without_row": self.without_row,
        }


@dataclass(frozen=True, slots=True)
class Bounded:
    """What came of a run."""

    case: Case
    counts: Counts


def bounded(case: Case, settings: Settings) -> Bounded:
    """Simulate a run and count."""
    run = simulate_nics(case.scenario())
    return Bounded(case, count(run, settings))


def count(run: NicRun, settings: Settings) -> Counts:
    """How many of a run's operators are where they truly were, as the stream tells them.

    Those that telemetry did not cover (``unknown``), or that did not end, are not looked at.
    """
    metrics = rows(TRAFFIC_METRICS, hear(TRAFFIC_METRICS, run.job, run.messages(), settings))
    told = {(row["rank"], row["communicator"], row["seq"]): row for row in metrics}
    delta_ns = settings.segment.window.segmentation.delta(run.scenario.hardware.epoch_ns)
    return sum((_of_rank(own, told, delta_ns, run) for own in _by_rank(run.truth.operators)), Counts())


def _by_rank(truth: pa.Table) -> Iterator[list[dict[str, Any]]]:
    """The operators of each rank that ended, in order."""
    ended = [row for row in truth.to_pylist() if row["start_ns"] is not None and row["end_ns"] is not None]
    for _, own in groupby(sorted(ended, key=itemgetter("rank", "start_ns")), key=itemgetter("rank")):
        yield list(own)


def _of_rank(own: list[dict[str, Any]], told: Mapping[Any, Mapping[str, Any]], delta_ns: int, run: NicRun) -> Counts:
    start, end, sent = (
        np.array([row[name] for row in own], dtype=np.int64) for name in ("start_ns", "end_ns", "bytes")
    )
    before = np.append(-delta_ns, np.maximum.accumulate(end)[:-1])
    silent_before = start - before >= delta_ns
    silent_behind = np.append(silent_before[1:], True)
    found = [told.get((row["rank"], row["communicator"], row["seq"]), {"state": None}) for row in own]
    large = sent >= LEAST_BYTES
    state = np.array([row["state"] or "" for row in found])
    complete = large & (state == "complete")
    missing = {
        "not_complete": int((large & np.isin(state, ("incomplete", "missing_start"))).sum()),
        "without_row": int((large & (state == "")).sum()),
    }
    if not complete.any():
        return Counts(**missing)
    names = ("start_ns", "end_ns", "sent_bytes")
    began, ended, volume = (np.array([row.get(name) or 0 for row in found], dtype=np.int64) for name in names)
    started_ns = run.job.started_ns or 0
    clocks = Clocks(run.scenario, started_ns)
    host, limit = run.scenario.host_of(own[0]["rank"]), EPOCHS * run.scenario.hardware.epoch_ns
    shown = [clocks.host_ns(host, (times - started_ns) / 1e9) for times in (start, end)]
    begins, ends = complete & silent_before, complete & silent_behind
    back_to_back = complete & ~(begins & ends)
    right = np.abs(volume - sent) <= OF_VOLUME * sent
    epoch_bytes = run.scenario.hardware.line_gbps / 8 * run.scenario.hardware.epoch_ns
    nearly = right | (np.abs(volume - sent) <= np.minimum(epoch_bytes, sent / 2))
    return Counts(
        begins=int(begins.sum()),
        begins_in_time=int((begins & (np.abs(began - shown[0]) <= limit)).sum()),
        by_volume=int((begins & (np.abs(_drift_ns(own, found)) <= limit)).sum()),
        ends=int(ends.sum()),
        ends_in_time=int((ends & (np.abs(ended - shown[1]) <= limit)).sum()),
        back_to_back=int(back_to_back.sum()),
        right_volume=int((back_to_back & right).sum()),
        to_an_epoch=int((back_to_back & nearly).sum()),
        **missing,
    )


def _drift_ns(own: list[dict[str, Any]], found: Sequence[Mapping[str, Any]]) -> npt.NDArray[np.float64]:
    """By how much each of a rank's operators would be taken to begin late, or early, if what was sent on its
    communicator were cut into the expected volumes, in order. Shape (operators,)."""
    start, end, sent = (np.array([row[name] for row in own], dtype=float) for name in ("start_ns", "end_ns", "bytes"))
    expected = np.array([row.get("expected_bytes") or 0 for row in found], dtype=float)
    communicator = np.array([row["communicator"] for row in own])
    drift = np.zeros(len(own))
    for name in np.unique(communicator).tolist():
        rows = np.flatnonzero(communicator == name)
        total = np.append(0.0, np.cumsum(sent[rows]))
        begins = np.append(0.0, np.cumsum(expected[rows])[:-1])
        at = np.minimum(np.searchsorted(total, begins, side="right") - 1, len(rows) - 1)
        part = (begins - total[at]) / np.maximum(sent[rows][at], 1.0)
        drift[rows] = start[rows][at] + part * (end - start)[rows][at] - start[rows]
    return drift


def summarise(found: Iterable[Bounded]) -> dict[str, Any]:
    """By setup, and in all."""
    by_setup: dict[str, Counts] = {}
    for one in found:
        name = one.case.setup.value
        by_setup[name] = by_setup.get(name, Counts()) + one.counts
    return {
        "all": sum(by_setup.values(), Counts()).figures(),
        "setups": {name: counts.figures() for name, counts in sorted(by_setup.items())},
    }
