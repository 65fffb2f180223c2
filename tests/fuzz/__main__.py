"""``python -m tests.fuzz``: every decoder and importer against damaged inputs, or one of them again."""

from __future__ import annotations

import json
import os
import secrets
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from tests.fuzz.campaign import Tried, run, shared_out
from tests.fuzz.target import damaged, outcome
from tests.fuzz.worker import registered

REGISTRY = "tests.fuzz.targets:TARGETS"


def main(
    inputs: Annotated[int, typer.Option(min=1, help="Inputs over all targets.")] = 1_000_000,
    seed: Annotated[int | None, typer.Option(help="Makes the same inputs again; without it, others each time.")] = None,
    target: Annotated[list[str] | None, typer.Option(help="Only these targets.")] = None,
    ordinal: Annotated[int | None, typer.Option(help="Only this input of the one target, in this process.")] = None,
    save: Annotated[Path | None, typer.Option(help="With --ordinal: where the input goes.")] = None,
    processes: Annotated[int, typer.Option(min=1)] = os.cpu_count() or 1,
    within: Annotated[float, typer.Option(help="Seconds that one input may take.")] = 30.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Damage good inputs and feed them to what reads them: it must read or refuse each, soon, and within its memory."""
    known = registered(REGISTRY)
    if unknown := sorted(set(target or ()) - set(known)):
        raise typer.BadParameter(f"there is no target {unknown[0]!r}; there are {', '.join(known)}")
    chosen = {name: known[name] for name in target or known}
    seed = secrets.randbits(32) if seed is None else seed
    if ordinal is not None:
        if len(chosen) != 1:
            raise typer.BadParameter("--ordinal needs one --target")
        _again(next(iter(chosen)), seed, ordinal, save)
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that its processes end with it
    console = Console(stderr=True)
    console.print(f"{inputs} inputs, seed {seed}, {processes} processes")
    tried = run(
        REGISTRY,
        shared_out(chosen, inputs),
        seed=seed,
        processes=processes,
        within_s=within,
        on_done=lambda one: console.print(f"{one.target}: {one.inputs} inputs, {one.failed} failed"),
    )
    if as_json:
        print(json.dumps({"seed": seed, "inputs": sum(t.inputs for t in tried), "targets": list(map(_row, tried))}))
    else:
        _print(tried, seed)
    if any(one.failed for one in tried):
        raise typer.Exit(1)


def _again(name: str, seed: int, ordinal: int, save: Path | None) -> None:
    """Try one input where a debugger sees it; what it raises comes with its traceback."""
    with tempfile.TemporaryDirectory() as folder:
        trial = registered(REGISTRY)[name].make(Path(folder))
        data = damaged(trial, seed, name, ordinal)
        if save is not None:
            save.write_bytes(data)
        print(f"{len(data)} bytes: {data[:200]!r}")
        print(outcome(trial, data))
        trial.feed(data)


def _row(tried: Tried) -> dict[str, object]:
    outcomes = dict(tried.outcomes)  # asdict makes pairs the keys of a Counter
    return {**asdict(replace(tried, outcomes=Counter())), "outcomes": outcomes, "failed": tried.failed}


def _print(tried: Sequence[Tried], seed: int) -> None:
    table = Table("target", "inputs", "read", "refused", "failed", "slowest ms", "grown MiB", "s")
    for one in tried:
        refused = sum(one.outcomes.values()) - one.read
        numbers = (one.inputs, one.read, refused, one.failed, round(1000 * one.slowest_s))
        table.add_row(one.target, *map(str, numbers), str(one.grown_bytes >> 20), f"{one.seconds:.0f}")
    total = (sum(one.inputs for one in tried), sum(one.failed for one in tried))
    console = Console()
    console.print(table)
    for one in tried:
        for failed in one.failures:
            print(f"{one.target}: {failed.count} x {failed.what} at {failed.where or '?'}; the first again: python -m "
                  f"tests.fuzz --seed {seed} --target {one.target!r} --ordinal {failed.ordinal}")  # fmt: skip
    print(f"{total[0]} inputs, {total[1]} failed, seed {seed}")


if __name__ == "__main__":
    typer.run(main)
