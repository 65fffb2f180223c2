"""Writes operators as Megatrace's logger would: what it knows of them, in any of its variants, and nothing else."""

from __future__ import annotations

import gzip
import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

FUNCTIONS = {
    "all_reduce": "AllReduce",
    "all_gather": "AllGather",
    "reduce_scatter": "ReduceScatter",
    "broadcast": "Broadcast",
    "reduce": "Reduce",
    "all_to_all": "AllToAll",
    "barrier": "AllReduce",
    "send": "Send",
    "recv": "Recv",
}
PLAIN, COUNTED, HASHED = "plain", "counted", "hashed"
VARIANTS = (PLAIN, COUNTED, HASHED)
MOST_CHARACTERS = 128
LINES_A_FLUSH = 500


def write(folder: Path, table: pa.Table, variant: str = COUNTED, *, ending: str = "log", keep: Any = None) -> Path:
    """Write ``rank_<r>.log`` of every rank of a table of telemetry.comm_ops, sorted by rank and call order.

    ``keep(rank, lines)`` may take lines out; ``ending`` "log.gz" compresses.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for rank, text in lines(table, variant).items():
        kept = text if keep is None else keep(rank, text)
        data = "".join(f"{line}\n" for line in kept).encode()
        (folder / f"rank_{rank}.{ending}").write_bytes(gzip.compress(data, 1) if ending.endswith("gz") else data)
    return folder


def lines(table: pa.Table, variant: str) -> dict[int, list[str]]:
    """The lines of each rank's log."""
    names = ("rank", "communicator", "seq", "op", "count", "peer", "call_ns")
    written: dict[int, list[str]] = {}
    op_counts: Counter[tuple[int, str]] = Counter()
    seqs: dict[tuple[int, str], int] = {}
    before: Mapping[str, Any] = {}
    for row in _rows(table.select(names)):
        pair = (row["rank"], row["communicator"])
        if not _same_group(before, row):
            op_counts[pair] += row["seq"] - seqs.get(pair, -1)  # lines that are lost were counted
        seqs[pair] = row["seq"]
        log = written.setdefault(row["rank"], [])
        log.append(_line(row, op_counts[pair] - 1, len(log) // LINES_A_FLUSH + 1, variant))
        before = row
    return written


def _rows(table: pa.Table) -> Iterable[Mapping[str, Any]]:
    columns = [column.to_pylist() for column in table.columns]
    return (dict(zip(table.column_names, values, strict=True)) for values in zip(*columns, strict=True))


def _same_group(before: Mapping[str, Any], row: Mapping[str, Any]) -> bool:
    """A stage's send and the recv from the same peer right after it are one group call."""
    return (
        row["op"] == "recv"
        and before.get("op") == "send"
        and (before["rank"], before["communicator"], before["peer"]) == (row["rank"], row["communicator"], row["peer"])
    )


def _line(row: Mapping[str, Any], op_count: int, save_count: int, variant: str) -> str:
    seconds, nanoseconds = divmod(row["call_ns"], 1_000_000_000)
    stream = f"0x55{int(_digest(row['communicator'], row['rank']) % (1 << 40)):010x}"
    text = f"[{seconds}.{nanoseconds:09}] [Rank {row['rank']}] Fun {FUNCTIONS[row['op']]} Data {row['count'] or 0}"
    text += f" stream {stream}"
    if variant == PLAIN:
        return text
    text = f"[save_count {save_count}] {text} opCount {op_count}"
    if variant == HASHED:
        text += f" groupHash {_digest(row['communicator']) - (1 << 63)}"
    return text[:MOST_CHARACTERS]


def _digest(*parts: object) -> int:
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:8])
