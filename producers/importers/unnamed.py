"""Completes logs that do not say which communicator a call is on, or whom a send or recv meets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from diagnosis.arrays import Ints
from diagnosis.columns import codes, integers, joint_codes, nullable
from diagnosis.iterations import OperatorPattern
from diagnosis.job import Layout
from diagnosis.pipeline_peers import infer_peers, number_pairs
from diagnosis.unnamed_communicators import Matched, match_streams
from producers.importers.counted import number_by_position
from producers.labels import Labelled, label
from schemas.errors import InputError

_OWN = "/"
"""Parts rank and stream in the name of a communicator that is known on one rank only."""


def require_whole_streams(table: pa.Table, files: Sequence[Path]) -> None:
    """Raise ``InputError`` where streams that stand for communicators cannot: beside names, as each would stay one
    rank's own, and where one has both sends or receives and collectives.
    """
    unnamed = table.filter(table.column("communicator").is_null())
    if not unnamed.num_rows:
        return
    path = files[0] if len(files) == 1 else files[0].parent
    rank, stream = (unnamed.column(name) for name in ("rank", "stream"))
    if unnamed.num_rows < table.num_rows:
        raise InputError(
            f"{path}: operators of rank {rank[0]} name a stream in place of a communicator, and others name "
            "communicators: leave communicators out everywhere, or name each"
        )
    of = joint_codes(integers(table, "rank"), codes(table, "stream")[0])
    between = np.asarray(_between_two(table), dtype=np.bool_)
    shared = np.isin(of, np.intersect1d(of[between], of[~between]))
    if shared.any():
        at = int(shared.argmax())
        raise InputError(
            f"{path}: stream {stream[at]} of rank {rank[at]} has sends or receives as well as collectives: it is not "
            "one communicator; name the communicator of each operator"
        )


def name_streams(table: pa.Table) -> pa.Table:
    """The table with each communicator that is not named called after its rank and stream."""
    named = table.column("communicator")
    if not named.null_count:
        return table
    rank, stream = (table.column(name).cast(pa.string()) for name in ("rank", "stream"))
    own = pc.binary_join_element_wise(rank, stream, _OWN)
    names = pc.coalesce(named.cast(pa.string()), own)
    return _replaced(table, "communicator", names)


@dataclass(frozen=True, slots=True)
class Completed:
    """``labelled`` rows with communicators and peers as far as they can be told.

    ``layout`` is the one by which streams were matched; None: they were not. ``contrary`` is what calls show instead of
    a given one. ``members`` are the ranks of the communicators that this told, those without a log included.
    ``lost_lines`` are missing beyond what holes in the recorded numbers show.
    """

    labelled: Labelled
    layout: Layout | None = None
    members: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    lost_lines: int = 0
    contrary: Layout | None = None


def complete(
    table: pa.Table, layout: Layout | None, ends_with: OperatorPattern | None, source: str | None = None
) -> Completed:
    """Label the rows of a tidy table (labels.py), name the communicators that are only streams so far, and peers.

    ``source`` tells where the labels come from that rows carry already. Raises ``ValueError`` that says what to give
    by hand.
    """

    def labelled(rows: pa.Table) -> Labelled:
        return label(rows, ends_with) if source is None or ends_with is not None else Labelled(rows, source)

    table = _without_peers_of_collectives(table)
    found, lost = labelled(table), 0
    matched = Matched({}, {}, None)
    if _streams_only(table):
        matched = match_streams(found.table, layout)
        if matched.communicator:
            own, names = codes(table, "communicator")
            renamed = pa.array([matched.communicator.get(name, name) for name in names], pa.string())
            found = labelled(_replaced(table, "communicator", renamed.take(pa.array(own))))
    rows = found.table
    if rows.column("seq").null_count:
        rows, lost = number_by_position(rows, inferred=found.iterations_source == "inferred")
    peered = Labelled(_with_peers(rows, matched.members), found.iterations_source)
    return Completed(peered, matched.layout, matched.members, lost, matched.contrary)


def _streams_only(table: pa.Table) -> bool:
    rank, (own, names) = integers(table, "rank"), codes(table, "communicator")
    stream, streams = codes(table, "stream")
    if (stream < 0).any():
        return False
    first = np.unique(own, return_index=True)[1]
    return all(names[own[i]] == f"{rank[i]}{_OWN}{streams[stream[i]]}" for i in first)


def _between_two(table: pa.Table) -> pa.ChunkedArray:
    """Which rows are sends and recvs."""
    return pc.is_in(table.column("op").cast(pa.string()), pa.array(["send", "recv"]))


def _without_peers_of_collectives(table: pa.Table) -> pa.Table:
    """The table without peers of what goes between more than two ranks: they mean nothing, and make no ranks."""
    peer = table.column("peer")
    return _replaced(table, "peer", pc.if_else(_between_two(table), peer, pa.scalar(None, peer.type)))


def _with_peers(table: pa.Table, members: Mapping[str, tuple[int, ...]]) -> pa.Table:
    """The table with the peers of sends and recvs, and with which of these is which, as far as the rows tell."""
    between = _between_two(table)
    if pc.any(pc.and_(between, table.column("peer").is_null())).as_py():
        table = _with_inferred_peers(table, between, members)
    if pc.any(pc.and_(between, table.column("p2p_seq").is_null())).as_py():
        table = _with_numbers(table, "p2p_seq", number_pairs(table))
    return table


def _with_inferred_peers(table: pa.Table, between: pa.ChunkedArray, members: Mapping[str, tuple[int, ...]]) -> pa.Table:
    """Peers where their communicator's ranks tell them: ``members``, where they are known, else those that logged,
    unless one without a log may be among them. ``between``: which rows are sends and recvs.
    """
    rank, (communicator, names) = integers(table, "rank"), codes(table, "communicator")
    pairs = np.unique(np.stack([communicator, rank])[:, between.to_numpy()], axis=1)
    chains: dict[str, list[int]] = {}
    for code, of_rank in pairs.T.tolist():
        chains.setdefault(names[code], []).append(of_rank)
    logged = np.unique(rank)
    believed = chains if len(logged) > logged[-1] else _without_gaps(chains)
    whole = believed | {name: list(members[name]) for name in chains.keys() & members.keys()}
    peers = infer_peers(table, {name: ranks for name, ranks in whole.items() if len(ranks) > 1})
    return _with_numbers(_with_numbers(table, "peer", peers.peer), "p2p_seq", peers.p2p_seq)


def _with_numbers(table: pa.Table, name: str, values: Ints) -> pa.Table:
    """The table with other values in a column; below 0: null."""
    return _replaced(table, name, nullable(values, values >= 0, table.schema.field(name).type))


def _without_gaps(chains: Mapping[str, list[int]]) -> dict[str, list[int]]:
    """The pipelines that are as long as any, and whose stages are all as far from each other.

    One that lacks a stage would pass for a shorter one, and who meets whom there would be mistaken.
    """
    longest = max(map(len, chains.values()), default=0)
    return {name: ranks for name, ranks in chains.items() if len(ranks) == longest and len({*np.diff(ranks)}) == 1}


def _replaced(table: pa.Table, name: str, values: pa.Array | pa.ChunkedArray) -> pa.Table:
    at = table.schema.get_field_index(name)
    field = table.schema.field(at)
    if pa.types.is_dictionary(field.type):
        whole = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
        values = whole.dictionary_encode().cast(field.type)
    return table.set_column(at, field, values)
