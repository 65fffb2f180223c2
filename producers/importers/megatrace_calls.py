"""From the lines of Megatrace logs to rows: communicators by hashes, sequence numbers by opCount, what is lost."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from diagnosis.arrays import Ints
from diagnosis.columns import codes, integers, joint_codes, nullable

Floats = NDArray[np.float64]

_UNKNOWN = -1


@dataclass(frozen=True)
class Calls:
    """Rows of telemetry.comm_ops as columns; ``lost_lines`` beyond what holes in ``seq`` show. Copies of lines are
    ``duplicates``.
    """

    columns: Mapping[str, pa.Array]
    rows: int
    lost_lines: int
    duplicates: int


def number(lines: pa.Table) -> Calls:
    """Rows from lines (``megatrace.RAW``, dictionaries unified), in the lines' order.

    opCount counts on each communicator, and operators of one group call share it; on a communicator of one rank it
    stays 0, and means nothing. A row's ``seq`` is opCount where nothing shares one; each number that is skipped
    is a lost line. Lines that were cut before their hash, on a stream that carries several communicators, are lost.

    Raises ``ValueError`` where numbers go back.
    """
    first = _first_copies(lines)
    duplicates = len(lines) - int(first.sum())
    lines = lines.filter(pa.array(first)) if duplicates else lines
    rank, (stream, streams), (text, hashes) = integers(lines, "rank"), codes(lines, "stream"), codes(lines, "hash")
    named, lost = bool(hashes), 0
    counts = integers(lines, "op_count")
    own = stream
    if named:
        cut = lines.column("cut").combine_chunks().to_numpy(zero_copy_only=False)
        counts = np.where(cut & (text < 0), _UNKNOWN, counts)  # the line may end within the number
        own = _communicators(rank, stream, text, hashes)
        own, kept = _unnamed_streams(joint_codes(rank, stream), own, len(hashes))
        if not kept.all():
            lost = int((~kept).sum())
            lines = lines.filter(pa.array(kept))
            rank, stream, counts, own = rank[kept], stream[kept], counts[kept], own[kept]
    call_ns = integers(lines, "call_ns")
    seq, skipped = _numbered(joint_codes(rank, own), call_ns, counts, _Place(rank, stream, streams))
    columns: dict[str, pa.Array] = {
        name: lines.column(name).combine_chunks() for name in ("rank", "op", "count", "stream", "call_ns", "host")
    }
    columns["seq"] = nullable(seq, seq >= 0, pa.int64())
    columns["group_call"] = nullable(counts, (seq >= 0) & (counts >= 0), pa.int64())
    if named:
        known = pa.array(own, pa.int32(), mask=own >= len(hashes))
        columns["communicator"] = pa.DictionaryArray.from_arrays(known, hashes)
    missing = _missing_flushes(rank, call_ns, integers(lines, "save_count"))
    shown = np.bincount(rank, weights=skipped, minlength=len(missing))
    return Calls(columns, lines.num_rows, lost + int(np.maximum(missing - shown, 0).sum()), duplicates)


def _first_copies(lines: pa.Table) -> NDArray[np.bool_]:
    """Which lines are not copies of earlier ones, of a log that was collected twice: a rank calls once at a time."""
    stream, _ = codes(lines, "stream")
    op, _ = codes(lines, "op")
    told = (op, stream, *(integers(lines, name) for name in ("op_count", "count", "call_ns", "rank")))
    order = np.lexsort(told)
    again = np.zeros(len(lines), dtype=np.bool_)
    again[order[1:]] = np.logical_and.reduce([np.diff(column[order]) == 0 for column in told])
    return ~again


def _communicators(rank: Ints, stream: Ints, text: Ints, hashes: list[str]) -> Ints:
    """The code of the communicator's hash of each line, as far as it is known; -1 where that cannot be told.

    Of a rank's stream the longest hash counts, where the others begin it. One that begins a longer one of another rank
    is that one cut short, unless the rank has that on another stream. A line that lacks its hash is of its stream.
    """
    triples, of_line = np.unique(np.stack([rank, stream, text]), axis=1, return_inverse=True)
    places = triples.T.tolist()
    whole = _whole_hashes(hashes)
    on_stream: dict[tuple[int, int], set[int]] = {}
    for r, s, h in places:
        if h >= 0:
            on_stream.setdefault((r, s), set()).add(h)
    longest = {place: {h for h in seen if not _begins(h, seen, hashes)} for place, seen in on_stream.items()}
    on_rank: dict[int, set[int]] = {}
    for (r, _), known in longest.items():
        on_rank.setdefault(r, set()).update(h for h in known if whole[h] == {h})
    resolved = []
    for r, s, h in places:
        own = longest.get((r, s), set())
        if len(own) > 1 and h >= 0:
            own = {o for o in own if hashes[o].startswith(hashes[h])}
        code = min(own) if len(own) == 1 else _UNKNOWN
        if code >= 0 and code not in whole[code]:
            others = whole[code] - on_rank.get(r, set())
            code = code if not others else min(others) if len(others) == 1 else _UNKNOWN
        resolved.append(code)
    return np.array(resolved, dtype=np.int64)[of_line.reshape(-1)]


def _begins(one: int, others: Collection[int], hashes: list[str]) -> bool:
    return any(other != one and hashes[other].startswith(hashes[one]) for other in others)


def _unnamed_streams(place: Ints, own: Ints, free: int) -> tuple[Ints, NDArray[np.bool_]]:
    """Codes from ``free`` on for streams that bear no name at all, and which lines belong to something known."""
    named = np.bincount(place[own >= 0], minlength=int(place.max(initial=0)) + 1) > 0
    alone = ~named[place]
    return np.where(alone, free + place, own), (own >= 0) | alone


def _whole_hashes(hashes: list[str]) -> list[set[int]]:
    """For each hash those that it begins and that begin no other."""
    order = sorted(range(len(hashes)), key=hashes.__getitem__)
    whole: list[set[int]] = [set() for _ in hashes]
    open_: list[int] = []
    for i, h in enumerate(order):
        while open_ and not hashes[h].startswith(hashes[open_[-1]]):
            open_.pop()
        open_.append(h)
        following = order[i + 1] if i + 1 < len(order) else None
        if following is None or not hashes[following].startswith(hashes[h]):
            for shorter in open_:
                whole[shorter].add(h)
    return whole


@dataclass(frozen=True, slots=True)
class _Place:
    rank: Ints
    stream: Ints
    streams: list[str]

    def of(self, row: int) -> str:
        return f"rank {self.rank[row]}, stream {self.streams[self.stream[row]]}"


def _numbered(pair: Ints, call_ns: Ints, counts: Ints, place: _Place) -> tuple[Ints, Floats]:
    """Sequence number of each line (-1: not known), and how many are skipped right before it.

    ``pair`` is a code a rank and communicator; members count alike, as group calls are the same on all.
    """
    order = np.lexsort((call_ns, pair))
    pair, counts = pair[order], _filled(pair[order], counts[order])
    new = np.diff(pair, prepend=-1) != 0
    step = np.where(new, 0, np.diff(counts, prepend=0))
    if (step < 0).any():
        row = int(order[np.flatnonzero(step < 0)[0]])
        raise ValueError(
            f"{place.of(row)}: opCount goes back to {counts[np.flatnonzero(step < 0)[0]]}: the stream carries several "
            "communicators (which only groupHash tells apart), or the log holds two runs; diagnose each by itself"
        )
    heads = np.flatnonzero(new)
    size = np.diff(np.append(heads, len(pair)))
    skipped = np.maximum(step - 1, 0)
    running = np.cumsum(skipped)
    ordinal = np.arange(len(pair)) - np.repeat(heads, size)
    seq = np.repeat(counts[heads] - running[heads], size) + running + ordinal
    last = np.repeat(counts[heads + size - 1], size) if len(heads) else counts
    still = (np.repeat(size, size) > 1) & (last == 0)
    unknown = still | (counts < 0)
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    return np.where(unknown, _UNKNOWN, seq)[back], np.where(unknown, 0, skipped)[back].astype(np.float64)


def _filled(pair: Ints, counts: Ints) -> Ints:
    """Counts with unknown ones taken for those after their predecessor's, up to the next known one; the first ones of
    a communicator for those before their successor's.
    """
    at, known = np.arange(len(counts)), counts >= 0
    last = np.maximum.accumulate(np.where(known, at, -1))
    following = np.minimum.accumulate(np.where(known, at, len(at))[::-1])[::-1]
    after = (last >= 0) & (pair[last] == pair)
    within = following < len(at)
    following = np.where(within, following, 0)
    before = within & (pair[following] == pair)
    counted = np.where(after, counts[last] + at - last, np.maximum(counts[following] - (following - at), 0))
    counted = np.where(before, np.minimum(counted, counts[following]), counted)
    return np.where(known, counts, np.where(after | before, counted, _UNKNOWN))


def _missing_flushes(rank: Ints, call_ns: Ints, save_count: Ints) -> Ints:
    """Values that save_count skips, by rank: at least a line each was lost with them."""
    missing = np.zeros(int(rank.max(initial=-1)) + 1, dtype=np.int64)
    order = np.lexsort((call_ns, rank))
    order = order[save_count[order] >= 0]
    step = np.diff(save_count[order])
    same = np.diff(rank[order]) == 0
    np.add.at(missing, rank[order][1:][same], np.maximum(step[same] - 1, 0))
    return missing
