"""Small jobs that the simulation's tests run, and how they read a run's rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from producers.simulation import SILENT, Scenario, SimulatedRun

SMALL: dict[str, Any] = {
    "tp": 2,
    "pp": 2,
    "dp": 2,
    "microbatches": 4,
    "layers": 4,
    "hidden": 4096,
    "iterations": 12,
    "gpus_per_host": 2,
    "compute_ms": 200.0,
}


def small(seed: int = 1, **fields: Any) -> Scenario:
    """Eight ranks on four hosts, under default noise."""
    return Scenario(**{"seed": seed, **SMALL, **fields})


def silent(seed: int = 1, **fields: Any) -> Scenario:
    """Eight ranks on four hosts, without any noise."""
    return small(seed, noise=SILENT, **fields)


def column(run: SimulatedRun, name: str) -> npt.NDArray[Any]:
    """A column of a run's rows; integers with nulls become floats."""
    values = run.table.column(name).combine_chunks()
    return np.asarray(values.to_pylist() if values.type.num_fields or name in {"op", "communicator"} else values)


def meetings(run: SimulatedRun) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
    """Rows of the operators that meet: a collective's by (communicator, seq), a send's with its recv's."""
    together: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in run.table.to_pylist():
        if row["peer"] is None:
            key: tuple[Any, ...] = (row["communicator"], row["seq"])
        else:
            ends = (row["rank"], row["peer"]) if row["op"] == "send" else (row["peer"], row["rank"])
            key = (*ends, row["p2p_seq"], "pair")
        together.setdefault(key, []).append(row)
    return together
