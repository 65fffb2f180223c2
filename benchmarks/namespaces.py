"""A check on real traffic: operators and a throttled rank, found in packets between network namespaces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

import typer

from offbeat import terminal

if TYPE_CHECKING:  # heavy: loaded when it begins
    from benchmarks.real_traffic.judged import Boundary, Judged
    from benchmarks.real_traffic.plan import Plan


def run(
    *,
    ranks: Annotated[int, typer.Option(min=3, max=16, help="Ranks, each in a namespace of its own.")] = 4,
    iterations: Annotated[int, typer.Option(min=1, help="An all-reduce and an all-to-all each.")] = 3,
    runs: Annotated[int, typer.Option(min=1, help="Runs with a throttled rank, and as many without.")] = 4,
    throttle: Annotated[float, typer.Option(min=0.05, max=0.95, help="What the throttled line keeps.")] = 0.5,
) -> dict[str, Any]:
    """Find operators, and a throttled rank, in real traffic.

    Ranks in network namespaces run ring all-reduces and all-to-alls over TCP, on lines of 200 Mb/s, one of them
    throttled. Packets are captured and counted in epochs of 32 ms, then told, segmented and compared as what NICs
    count. Boundaries of operators are held against the ranks' own logs, within 2 epochs. Needs root and iproute2.
    Where a boundary is off, the throttled rank is not the one that is named, or anybody is named where none is
    throttled, the exit code is 1.
    """
    from benchmarks.real_traffic.experiment import recorded
    from benchmarks.real_traffic.judged import judge
    from benchmarks.real_traffic.plan import Plan

    plans = [
        Plan(ranks=ranks, iterations=iterations, throttled=throttled, throttle=throttle, seed=seed)
        for seed in range(runs)
        for throttled in (seed % ranks, None)
    ]
    told: list[dict[str, Any]] = []
    found: list[Boundary] = []
    with terminal.progress("runs", len(plans)) as shown:
        for done, plan in enumerate(plans, start=1):
            recording = recorded(plan)
            judged = judge(recording)
            told.append(_figures(plan, judged, recording.packets.dropped))
            found += judged.boundaries
            shown.advance(done)
    throttled, healthy = ([row for row in told if (row["throttled"] is None) is none] for none in (False, True))
    boundaries = _boundaries(found)
    right = sum(row["right"] for row in throttled)
    return {
        "holds": right == len(throttled) and all(row["right"] for row in healthy) and boundaries["off"] == 0,
        "line_mbps": plans[0].line_mbps,
        "throttle": throttle,
        "epoch_ms": plans[0].epoch_ns / 1e6,
        "ranks": ranks,
        "iterations": iterations,
        "boundaries": boundaries,
        "throttled": {"runs": len(throttled), "right": right, "each": throttled},
        "healthy": {"runs": len(healthy), "named": sum(bool(row["named"]) for row in healthy), "each": healthy},
    }


def _figures(plan: Plan, judged: Judged, dropped: int) -> dict[str, Any]:
    """One run. ``right``: exactly the throttled rank is named, of slow communication."""
    blamed = [
        {"ranks": list(verdict.ranks), "cause": verdict.cause, "by": verdict.method} for verdict in judged.verdicts
    ]
    culprits = [] if plan.throttled is None else [((plan.throttled,), "communication_slow")]
    return {
        "throttled": plan.throttled,
        "ring": list(plan.ring),
        "named": blamed,
        "right": sorted({(verdict.ranks, verdict.cause) for verdict in judged.verdicts}) == culprits,
        "all_reduce": _over_others(judged, plan.throttled, "all_reduce", ("duration_ns", "actual_time_ns")),
        "all_to_all": _over_others(judged, plan.throttled, "custom", ("actual_rate_bytes_per_s",)),
        "packets_dropped": dropped,
        "boundaries_off": [asdict(one) for one in judged.boundaries if one.apart and not one.right],
    }


def _over_others(judged: Judged, rank: int | None, op: str, names: Sequence[str]) -> Mapping[str, float] | None:
    """What a rank's operators took over the others' median: of an all-reduce all wait, but not all send."""
    rows = [row for row in judged.metrics.to_pylist() if row["op"] == op and row["start_ns"] is not None]
    own = [row for row in rows if row["rank"] == rank]
    others = [row for row in rows if row["rank"] != rank]
    if not own or not others:
        return None
    return {name: round(median(row[name] for row in own) / median(row[name] for row in others), 3) for name in names}


def _boundaries(found: Sequence[Boundary]) -> dict[str, Any]:
    """Operators of all ranks whose boundaries silences of delta set apart; how far off these are, in epochs."""
    apart = [boundary for boundary in found if boundary.apart]
    off = [
        abs(epochs)
        for boundary in apart
        for epochs in (boundary.start_epochs, boundary.end_epochs)
        if epochs is not None
    ]
    return {
        "operators": len(found),
        "set_apart": len(apart),
        "off": sum(not boundary.right for boundary in apart),
        "epochs_off_median": round(median(off), 2) if off else None,
        "epochs_off_most": max(off, default=None),
    }
