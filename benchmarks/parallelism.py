"""Which parallelism communicators serve, identified by calls alone (Pulse 5.2): right and wrong, by leaf."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from offbeat import terminal

if TYPE_CHECKING:  # heavy: loaded when it begins
    from collections import Counter

SEEDS = 30_000


def run(
    *,
    layouts: Annotated[int | None, typer.Option(min=1, help="Layouts, spread over all; all, if not given.")] = None,
    samples: Annotated[
        Path | None, typer.Option("--path", metavar="PATH", help="Schedules of AICB as well: a file, or a folder.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=0, help="The first seed.")] = SEEDS,
    processes: Annotated[int, typer.Option(min=1, max=2, help="Layouts at the same time.")] = 2,
) -> dict[str, Any]:
    """Identify what communicators serve in many layouts.

    Jobs of 8 to 512 GPUs are simulated, dense and with experts; what their collectors tell of calls is all that is
    looked at, beside members and hosts. ``whole``: all ranks' calls together; ``by_host``: those of each host alone.
    Context parallelism has no leaf, and is right where it is ``unknown``. The exit code is 1 where anything is wrong.
    """
    from collections import Counter

    from benchmarks.parallelisms import recorded
    from benchmarks.parallelisms.identified import identify
    from benchmarks.parallelisms.layouts import layouts as all_layouts
    from benchmarks.simulated import workers

    schedules = (
        {} if samples is None else {path.name: recorded.identified(path) for path in recorded.schedules(samples)}
    )
    cases = all_layouts(seeds, layouts)
    whole, by_host = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    wrong = []
    with terminal.progress("layouts", len(cases)) as shown:
        for done, one in enumerate(workers.results(identify, cases, processes), start=1):
            whole += one.whole
            by_host += one.by_host
            wrong += [] if one.right else [one.layout]
            shown.advance(done)
    every = [whole, by_host, *schedules.values()]
    return {
        "layouts": len(cases),
        "layouts_right": len(cases) - len(wrong),
        "layouts_wrong": sorted(wrong),
        "gpus": {"from": min(case.world for case in cases), "to": max(case.world for case in cases)},
        "whole": _by_leaf(whole),
        "by_host": _by_leaf(by_host),
        "recorded": {name: _by_leaf(counts) for name, counts in schedules.items()},
        "holds": all(truth == leaf for counts in every for truth, leaf in counts),
    }


def _by_leaf(counts: Counter[tuple[str, str]]) -> dict[str, Any]:
    """Communicators of each leaf: how many are right, and what the others are taken for."""
    told: dict[str, Any] = {}
    for (truth, leaf), count in sorted(counts.items()):
        own = told.setdefault(truth, {"right": 0, "wrong": {}})
        if truth == leaf:
            own["right"] += count
        else:
            own["wrong"][leaf] = count
    return told
