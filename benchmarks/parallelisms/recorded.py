"""Communication schedules that others recorded (AICB): what one rank calls, and for which group."""

from __future__ import annotations

import csv
import gzip
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

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


def identified(path: Path) -> Counter[tuple[str, str]]:
    """Groups of a schedule by what they are for and what is identified, by one rank's calls."""
    rows = list(_rows(path))
    sizes = {row["comm_group"]: int(row["comm_group_size"]) for row in rows if row["comm_group_size"].isdigit()}
    members = {row["comm_group"]: _members(row["comm_group"], sizes) for row in rows}
    tree = Parallelisms(members, lambda one, other: one // _GPUS_A_HOST == other // _GPUS_A_HOST)
    told = tree.identify(Calls.from_arrow(_op_calls(rows, members)))
    return Counter((group.partition("_")[0], leaf) for group, leaf in told.items())


def _members(group: str, sizes: Mapping[str, int]) -> range:
    """Ranks of the group that rank 0 is in: tensor parallelism is fastest, all else steps over it."""
    tensor = sizes.get("tp_group", 1)
    step = 1 if group == "tp_group" else tensor
    return range(0, sizes.get(group, 1) * step, step)


def _rows(path: Path) -> Iterator[dict[str, str]]:
    """Operators of a schedule; fields without what kind of value they are."""
    try:
        with _text(path) as file:
            lines = (line for line in file if not line.startswith("["))  # which ranks it is of
            for row in csv.DictReader(lines):
                tidy = {name: (value or "").rpartition(".")[2] for name, value in row.items() if name}
                if tidy["comm_type"] in OPS:
                    yield tidy | {"_elapsed_time": row["_elapsed_time"]}
    except (OSError, KeyError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(
            f"{path}: cannot be read as a schedule of AICB: {error!r}; give one of its CSV files"
        ) from error


def _text(path: Path) -> IO[str]:
    return gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8")


def _op_calls(rows: list[dict[str, str]], members: Mapping[str, range]) -> pa.Table:
    """As a collector tells them: what is passed of a buffer is a part of it. One after the other, where no times are
    recorded a millisecond each."""
    parts = [len(members[row["comm_group"]]) if row["comm_type"] in _SPLIT else 1 for row in rows]
    took = [_ms(row["_elapsed_time"]) for row in rows]
    seen: Counter[str] = Counter()
    seq = []
    for row in rows:
        seq.append(seen[row["comm_group"]])
        seen[row["comm_group"]] += 1
    columns = {
        "rank": np.zeros(len(rows), dtype=np.int32),
        "call_id": np.arange(len(rows)),
        "communicator": [row["comm_group"] for row in rows],
        "communicator_rank": np.zeros(len(rows), dtype=np.int32),
        "seq": seq,
        "op": [row["comm_type"] for row in rows],
        "dtype": ["uint8"] * len(rows),
        "count": [int(row["msg_size"]) // part for row, part in zip(rows, parts, strict=True)],
        "call_ns": (np.cumsum(took) * _NS_PER_MS).astype(np.int64),
    }
    return pa.Table.from_batches([OP_CALLS.batch(columns)])


def _ms(text: str) -> float:
    return float(text) if text and text != "None" else 1.0
