"""From the lines of Megatrace logs to rows: communicators by hashes, sequence numbers by opCount, what is lost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from diagnosis.arrays import Ints
from diagnosis.columns import codes, integers, joint_codes, nullable
from producers.importers.megatrace_hashes import communicators, names_nothing, unnamed_streams

Floats = NDArray[np.float64]

_UNKNOWN = -1

_STEADY = 0.7
"""Share of the lines after one of another communicator that count on from it where counts are their stream's."""


class WentBack(ValueError):
    """Numbers go back; ``row`` is the first of the lines given at which they do."""

    def __init__(self, message: str, row: int) -> None:
        super().__init__(message)
        self.row = row


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
    is a lost line. Where one counts on a stream that carries several communicators instead, ``seq`` is not known.
    Lines that were cut before their hash, on a stream that carries several communicators, are lost.

    Raises ``WentBack`` where numbers go back.
    """
    first = _first_copies(lines)
    given, duplicates = np.flatnonzero(first), len(lines) - int(first.sum())
    lines = lines.filter(pa.array(first)) if duplicates else lines
    rank, (stream, streams), (text, hashes) = integers(lines, "rank"), codes(lines, "stream"), codes(lines, "hash")
    call_ns, counts = integers(lines, "call_ns"), integers(lines, "op_count")
    cut = lines.column("cut").combine_chunks().to_numpy(zero_copy_only=False)
    text = np.where(~cut & names_nothing(rank, stream, text, hashes, counts, call_ns), _UNKNOWN, text)
    named, lost = bool((text >= 0).any()), 0
    own = stream
    if named:
        counts = np.where(cut & (text < 0), _UNKNOWN, counts)  # the line may end within the number
        own = communicators(rank, stream, text, hashes)
        own, kept = unnamed_streams(joint_codes(rank, stream), own, len(hashes))
        if not kept.all():
            lost = int((~kept).sum())
            lines = lines.filter(pa.array(kept))
            rank, stream, counts, own = rank[kept], stream[kept], counts[kept], own[kept]
            call_ns, given = call_ns[kept], given[kept]
    of_stream = _counted_by_stream(joint_codes(rank, stream), own, counts, call_ns)
    pair = joint_codes(rank, np.where(of_stream, own.max(initial=-1) + 1 + stream, own))
    seq, skipped, told = _numbered(pair, call_ns, counts, _Place(rank, stream, streams, given))
    if named:
        collective = ~np.isin(*_between(lines))
        whole = collective & (seq >= 0) & (own < len(hashes)) & ~np.isin(own, own[~collective])
        seq[whole] = _alike(own[whole], pair[whole], told[whole], seq[whole])
    lost += int(skipped[of_stream].sum())
    seq = np.where(np.isin(own, own[of_stream]), _UNKNOWN, seq)
    columns: dict[str, pa.Array] = {
        name: lines.column(name).combine_chunks() for name in ("rank", "op", "count", "stream", "call_ns", "host")
    }
    columns["seq"] = nullable(seq, seq >= 0, pa.int64())
    columns["group_call"] = nullable(counts, ((seq >= 0) | of_stream) & (counts >= 0), pa.int64())
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


def _between(lines: pa.Table) -> tuple[Ints, list[int]]:
    """The codes of the lines' operators, and those of sends and receives."""
    op, names = codes(lines, "op")
    return op, [code for code, name in enumerate(names) if name in ("send", "recv")]


def _counted_by_stream(place: Ints, own: Ints, counts: Ints, call_ns: Ints) -> NDArray[np.bool_]:
    """Which lines are of a stream (``place``: a code a rank and stream) whose counts go on from line to line where the
    next one is of another communicator: newer loggers count so.
    """
    order = np.lexsort((call_ns, place))
    order = order[counts[order] >= 0]
    step = np.diff(counts[order])
    turns = (np.diff(place[order]) == 0) & (np.diff(own[order]) != 0)
    at, most = place[order[1:]], int(place.max(initial=0)) + 1
    goes_on = np.bincount(at[turns & (step == 1)], minlength=most)
    by_stream = goes_on > _STEADY * np.bincount(at[turns], minlength=most)
    return by_stream[place] & (counts >= 0)


def _alike(own: Ints, pair: Ints, counts: Ints, seq: Ints) -> Ints:
    """Sequence numbers of collectives of which several share a count, alike on all members of a communicator: a count
    has as many as any member's log has of it, whether that of a member lacks some or begins later.
    """
    order = np.lexsort((seq, pair, counts, own))
    own, pair, counts = own[order], pair[order], counts[order]
    of_count = np.diff(own, prepend=-1).astype(np.bool_) | np.diff(counts, prepend=-1).astype(np.bool_)
    of_member = of_count | np.diff(pair, prepend=-1).astype(np.bool_)
    heads = np.flatnonzero(of_member)
    ordinal = np.arange(len(own)) - np.repeat(heads, np.diff(np.append(heads, len(own))))
    first = np.flatnonzero(of_count)
    most = np.maximum.reduceat(ordinal, first) if len(first) else first
    beyond = np.cumsum(most) - most
    new = np.diff(own[first], prepend=-1) != 0
    beyond -= np.repeat(beyond[new], np.diff(np.append(np.flatnonzero(new), len(first))))
    alike = np.empty_like(seq)
    alike[order] = counts + beyond[np.cumsum(of_count) - 1] + ordinal
    return alike


@dataclass(frozen=True, slots=True)
class _Place:
    """Where lines stand: of which rank and stream they are, and which of those given."""

    rank: Ints
    stream: Ints
    streams: list[str]
    given: Ints

    def of(self, row: int) -> str:
        return f"rank {self.rank[row]}, stream {self.streams[self.stream[row]]}"


def _numbered(pair: Ints, call_ns: Ints, counts: Ints, place: _Place) -> tuple[Ints, Floats, Ints]:
    """Sequence number of each line (-1: not known), how many are skipped right before it, and its count, as it is told
    or follows from others.

    ``pair`` is a code a rank and communicator; members count alike, as group calls are the same on all.
    """
    order = np.lexsort((call_ns, pair))
    pair, counts = pair[order], _filled(pair[order], counts[order])
    new = np.diff(pair, prepend=-1) != 0
    step = np.where(new, 0, np.diff(counts, prepend=0))
    back = np.flatnonzero(step < 0)
    if len(back):
        row = int(order[back[0]])
        raise WentBack(
            f"{place.of(row)}: opCount goes back to {counts[back[0]]}: the stream carries several "
            "communicators (which only groupHash tells apart), or the log holds two runs; diagnose each by itself",
            int(place.given[row]),
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
    at = np.empty_like(order)
    at[order] = np.arange(len(order))
    of_line = np.where(unknown, _UNKNOWN, seq)[at], np.where(unknown, 0, skipped)[at].astype(np.float64)
    return *of_line, counts[at]


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
