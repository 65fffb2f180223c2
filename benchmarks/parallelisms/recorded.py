"""Communication schedules that others recorded (AICB): what one rank calls, and for which group."""

from __future__ import annotations

import csv
import gzip
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
import pyarrow as pa

from diagnosis.traffic.calls import Calls
from diagnosis.traffic.parallelism import Parallelisms
from schemas.catalogue import OP_CALLS
from schemas.comm_ops import OPS
from schemas.errors import InputError

_SPLIT = ("all_gather", "reduce_scatter", "all_to_all")
_NS_PER_MS = 1_000_000
_GPUS_A_HOST = 8


def schedules(path: Path) -> list[Path]:
    """The schedules in a folder, or the one that a path names. Raises ``InputError`` where there is none."""
    found = sorted(path.glob("*.csv*")) if path.is_dir() else [path] if path.is_file() else []
    if not found:
        raise InputError(f"{path}: no schedule of AICB (*.csv, *.csv.gz) is there; give a file, or a folder of them")
    return found


class _Operator(NamedTuple):
    """A line of a schedule; ``ranks`` and ``ms`` are None where they are not recorded."""

    op: str
    group: str
    ranks: int | None
    bytes: int
    ms: float | None


def identified(path: Path) -> Counter[tuple[str, str]]:
    """Groups of a schedule by what they are for and what is identified, by one rank's calls."""
    schedule = list(_operators(path))
    sizes = {operator.group: operator.ranks for operator in schedule if operator.ranks}
    members = {operator.group: _members(operator.group, sizes) for operator in schedule}
    tree = Parallelisms(members, lambda one, other: one // _GPUS_A_HOST == other // _GPUS_A_HOST)
    told = tree.identify(Calls.from_arrow(_op_calls(schedule, members)))
    return Counter((group.partition("_")[0], leaf) for group, leaf in told.items())


def _members(group: str, sizes: Mapping[str, int]) -> range:
    """Ranks of the group that rank 0 is in: tensor parallelism is fastest, all else steps over it."""
    tensor = sizes.get("tp_group", 1)
    step = 1 if group == "tp_group" else tensor
    return range(0, sizes.get(group, 1) * step, step)


def _operators(path: Path) -> Iterator[_Operator]:
    try:
        with _text(path) as file:
            lines = (line for line in file if not line.startswith("["))  # which ranks it is of
            for row in csv.DictReader(lines):
                op, group = (row[name].rpartition(".")[2] for name in ("comm_type", "comm_group"))
                if op in OPS:
                    size, ranks, ms = (_number(row[name]) for name in ("msg_size", "comm_group_size", "_elapsed_time"))
                    yield _Operator(op, group, None if ranks is None else round(ranks), round(size or 0), ms)
    except (OSError, KeyError, AttributeError, ValueError, OverflowError, csv.Error) as error:
        raise InputError(
            f"{path}: cannot be read as a schedule of AICB: {error!r}; give one of its CSV files"
        ) from error


def _number(text: str | None) -> float | None:
    return float(text) if text and text != "None" else None


def _text(path: Path) -> IO[str]:
    return gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8")


def _op_calls(schedule: Sequence[_Operator], members: Mapping[str, range]) -> pa.Table:
    """As a collector tells them: what is passed of a buffer is a part of it. One after the other, where no times are
    recorded a millisecond each."""
    parts = [len(members[operator.group]) if operator.op in _SPLIT else 1 for operator in schedule]
    took = [1.0 if operator.ms is None else operator.ms for operator in schedule]
    seen: Counter[str] = Counter()
    seq = []
    for operator in schedule:
        seq.append(seen[operator.group])
        seen[operator.group] += 1
    columns = {
        "rank": np.zeros(len(schedule), dtype=np.int32),
        "call_id": np.arange(len(schedule)),
        "communicator": [operator.group for operator in schedule],
        "communicator_rank": np.zeros(len(schedule), dtype=np.int32),
        "seq": seq,
        "op": [operator.op for operator in schedule],
        "dtype": ["uint8"] * len(schedule),
        "count": [operator.bytes // part for operator, part in zip(schedule, parts, strict=True)],
        "call_ns": (np.cumsum(took) * _NS_PER_MS).astype(np.int64),
    }
    return pa.Table.from_batches([OP_CALLS.batch(columns)])
