"""Real training jobs over Gloo: whom the diagnosis names where a rank's GPU or NIC is slow, and where none is."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer

from offbeat import terminal
from schemas.errors import InputError


def run(
    *,
    shapes: Annotated[
        list[str] | None, typer.Option("--shape", metavar="NAME", help="A kind of job; left out, all there are.")
    ] = None,
    faults: Annotated[
        list[str] | None,
        typer.Option(
            "--fault",
            metavar="NAME",
            help="healthy, gpu, gpu_spikes and so on, as docs/algorithms.md lists them; left out, all there are.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Draws which rank is slow, and how long computing takes.")] = 1,
    keep: Annotated[
        Path | None, typer.Option(metavar="DIR", help="A new folder for the recordings, a folder in it for each job.")
    ] = None,
    kept: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Diagnose what --keep left there by the same seed, whichever jobs these are."),
    ] = None,
) -> dict[str, Any]:
    """Train small jobs for real, and name who is slow.

    Four or eight ranks, each a process in a network namespace of its own, communicate through torch.distributed, in
    several parallelisms and ways of overlap, and log their operators as any training loop may; computing is sleep. Of
    one rank the computing is slower, from the middle on, for a while, now and then, more and more or in one phase, or
    its line is throttled. What they logged is diagnosed as by ``offbeat diagnose``; nothing tells the diagnosis the
    layout.
    Needs root, iproute2 and PyTorch, and a machine that does nothing else meanwhile; with ``--kept`` none of these.
    """
    from benchmarks.real_jobs.judged import Judged, counted, judge
    from benchmarks.real_jobs.plan import FAULTS, SHAPES, planned
    from benchmarks.real_jobs.recorded import record

    kinds = {name: SHAPES[name] for name in _known("shape", shapes, list(SHAPES))}
    wrong = _known("fault", faults, list(FAULTS))
    plans = [(fault, planned(shape, fault, seed)) for shape in kinds.values() for fault in wrong]
    if kept is not None:
        plans = [(fault, plan) for fault, plan in plans if (kept / plan.name).is_dir()]
        if not plans:
            raise InputError(f"--kept {kept}: none of these jobs is there; --keep {kept} would record them")
    judged: dict[str, list[Judged]] = {fault: [] for fault in wrong if fault in dict(plans)}
    with TemporaryDirectory(prefix="offbeat-gloo-") as made, terminal.progress("jobs", len(plans)) as shown:
        for done, (fault, plan) in enumerate(plans, start=1):
            folder = (kept or keep or Path(made)) / plan.name
            if kept is None:
                record(plan, folder)
            judged[fault].append(judge(plan, folder))
            shown.advance(done)
    return {
        "seed": seed,
        "by_fault": {fault: counted(of) for fault, of in judged.items()},
        "right": sum(one.right for of in judged.values() for one in of),
        "each": [one.to_dict() for of in judged.values() for one in of],
    }


def _known(what: str, wanted: list[str] | None, known: list[str]) -> list[str]:
    for name in wanted or ():
        if name not in known:
            raise InputError(f"--{what} {name}: there is no such {what}; there are {', '.join(known)}")
    return wanted or known
