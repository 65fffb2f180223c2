"""The job that recorded NIC traffic tells of, and on which of its hosts each row was told."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from statistics import median_high
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from diagnosis.job import Communicator, Job, Layout, Place
from producers.importers.traffic import TOGETHER_NS, Traffic
from schemas.catalogue import OP_CALLS, QUEUE_PAIRS
from schemas.errors import InputError
from schemas.topic import ID

_KINDS = {"calls": "op_calls", "queue pairs": "queue_pairs", "epochs": "nic_epochs"}
"""What it takes to compare ranks, in words, and the tables that hold it."""


def complete(traffic: Traffic, name: str, described: Job | None, layout: Layout | None) -> tuple[Job, Traffic]:
    """The job of recorded traffic, and the traffic with the host of each row.

    What ``described`` and ``layout`` say is taken first. Ranks, hosts, NICs and communicators that are not described
    are those that called and have queue pairs; degrees of parallelism are not inferred. Raises ``InputError`` for a
    contradiction, and for rows of which nothing tells the host.
    """
    job = described or Job(name, (), ())
    calls, pairs = traffic.op_calls, traffic.queue_pairs
    hosts = {place.rank: place.host for place in job.places if place.host is not None}
    for table, topic, column in ((calls, OP_CALLS, "rank"), (pairs, QUEUE_PAIRS, "source_rank")):
        for rank, host in _distinct(table, column, "host"):
            if host is not None and hosts.setdefault(rank, host) != host:
                where = traffic.place_of(topic, **{column: rank, "host": host})
                raise InputError(f"{where}rank {rank} is on two hosts, {hosts[rank]} and {host}; correct one of them")
    nics: dict[int, set[str]] = {}
    for rank, nic in _distinct(pairs, "source_rank", "nic"):
        nics.setdefault(rank, set()).add(str(nic))
    places = dict(job.place)
    for rank in {*_ranks(traffic), *places}:
        known = places.get(rank, Place(rank))
        own = known.nics or tuple(sorted(nics.get(rank, ())))
        places[rank] = replace(known, host=hosts.get(rank), nics=own)
    members = {c.communicator for c in job.communicators}
    started = job.started_ns if job.started_ns is not None else pc.min(calls.column("call_ns")).as_py()
    job = replace(
        job,
        places=tuple(places[rank] for rank in sorted(places)),
        communicators=(
            *job.communicators,
            *(one for one in _communicators(traffic, set(places)) if one.communicator not in members),
        ),
        started_ns=started,
        layout=layout or job.layout,
    )
    world = None if job.layout is None else job.layout.world
    if world is not None and world != len(places):
        beyond = max(places)
        if beyond >= world:
            told = ((OP_CALLS, "rank"), (QUEUE_PAIRS, "source_rank"), (QUEUE_PAIRS, "destination_rank"))
            where = next((at for topic, name in told if (at := traffic.place_of(topic, **{name: beyond}))), "")
            raise InputError(f"{where}rank {beyond} is none of the layout's {world}; correct the rank, or the layout")
        raise InputError(f"the layout has {world} ranks, the recording {len(places)}; correct the layout")
    of_rank = {rank: place.host for rank, place in job.place.items()}
    placed = replace(
        traffic,
        op_calls=_placed(calls, [of_rank.get(rank) for rank in calls.column("rank").to_pylist()]),
        queue_pairs=_placed(pairs, [of_rank.get(rank) for rank in pairs.column("source_rank").to_pylist()]),
        nic_epochs=_placed(traffic.nic_epochs, _hosts_of(traffic.nic_epochs.column("nic").to_pylist(), job)),
    )
    return job, placed


def untold(job: Job, traffic: Traffic) -> list[str]:
    """Which of the job's hosts recorded nothing, or not what it takes to compare their ranks: a line a host, or
    a NIC."""
    lines = []
    for host, ns in _apart(traffic.polled_ns).items():
        beyond = f"{host}: its polls end {ns / 1e9:.0f} s after those of others; see host_minus_nic_ns, and its clock"
        lines.append(f"{host}: recorded nothing of the last {-ns / 1e9:.0f} s" if ns < 0 else beyond)
    early = {host: -ns for host, ns in _apart(traffic.called_ns).items() if ns < 0}
    lines += [f"{host}: its calls end {ns / 1e9:.0f} s before those of others" for host, ns in early.items()]
    for host, missing in _lacking(job, traffic).items():
        what = "nothing" if len(missing) == len(_KINDS) else "no " + ", no ".join(missing)
        lines.append(f"{host}: recorded {what}; what its ranks send is not known")
    nowhere = [str(place.rank) for place in job.places if place.host is None]
    if nowhere:
        unknown = "what they send is not known, nor their hosts and communicators, and iterations may be told wrong"
        lines.append(f"rank {', '.join(nowhere)}: recorded nothing, and no job.json tells of them; {unknown}")
    counted, connected = (_nics(table) for table in (traffic.nic_epochs, traffic.queue_pairs))
    for host, nic in sorted(connected - counted):
        if any(host == other for other, _ in counted):
            lines.append(f"{host}: has queue pairs of {nic}, but no epochs; what goes through it is not seen")
    return lines


def _apart(last: dict[str, int]) -> dict[str, int]:
    """By how much what hosts told ended after most others', of those that are a second apart; negative: before."""
    usual = median_high(last.values()) if last else 0
    return {host: at - usual for host, at in sorted(last.items()) if abs(at - usual) > TOGETHER_NS}


def compared(job: Job, traffic: Traffic) -> set[int]:
    """The ranks that called, on hosts that recorded all it takes to compare them."""
    lacking = _lacking(job, traffic)
    return {rank for rank in _called(traffic) if job.clock(rank) not in lacking}


def _lacking(job: Job, traffic: Traffic) -> dict[str, list[str]]:
    """What hosts of the job recorded nothing of; without those that recorded all."""
    having = {kind: set(pc.unique(getattr(traffic, name).column("host")).to_pylist()) for kind, name in _KINDS.items()}
    lacking = {host: [kind for kind in _KINDS if host not in having[kind]] for host in sorted(job.ranks_of_host)}
    return {host: kinds for host, kinds in lacking.items() if kinds}


def _nics(table: pa.Table) -> set[tuple[str, str]]:
    rows = table.select(["host", "nic"]).group_by(["host", "nic"]).aggregate([]).to_pylist()
    return {(row["host"], row["nic"]) for row in rows}


def _hosts_of(nics: Iterable[str], job: Job) -> list[str | None]:
    """The host of each NIC, where one alone has a NIC of that name."""
    having: dict[str, set[str | None]] = {}
    for place in job.places:
        for nic in place.nics:
            having.setdefault(nic, set()).add(place.host)
    alone = {nic: next(iter(hosts)) for nic, hosts in having.items() if len(hosts) == 1}
    return [alone.get(nic) for nic in nics]


def _placed(table: pa.Table, hosts: list[str | None]) -> pa.Table:
    """The rows with their host: what they say themselves, or else ``hosts``."""
    at = table.column_names.index("host")
    host = pc.coalesce(table.column("host").cast(pa.string()), pa.array(hosts, pa.string()))
    if host.null_count:
        row = table.slice(pc.index(pc.is_null(host), True).as_py(), 1).select([0]).to_pylist()[0]
        what = ", ".join(f"{name} {value}" for name, value in row.items())
        raise InputError(
            f"nothing tells on which host {what} is; give rows a field host, put files into a folder host=NAME, or "
            "give ranks theirs in job.json"
        )
    return table.set_column(at, "host", host.cast(ID))


def _communicators(traffic: Traffic, ranks: set[int]) -> list[Communicator]:
    """Communicators with the members that have called; of ``ranks`` one may be a member that has not."""
    members: dict[str, dict[int, int]] = {}
    keys = ["communicator", "communicator_rank", "rank"]
    for row in traffic.op_calls.select(keys).group_by(keys).aggregate([]).to_pylist():
        members.setdefault(row["communicator"], {})[row["communicator_rank"]] = row["rank"]
    beside = _beside(traffic.queue_pairs, ranks - _called(traffic))
    return [Communicator(name, _in_order(places, beside)) for name, places in sorted(members.items())]


def _beside(pairs: pa.Table, silent: set[int]) -> set[int]:
    """The ranks that have a queue pair with one that never called: it may belong to any communicator of theirs."""
    ends = _distinct(pairs, "source_rank", "destination_rank")
    return {rank for pair in ends if silent & {*pair} for rank in pair}


def _in_order(places: dict[int, int], beside: set[int]) -> tuple[int, ...]:
    """The ranks in a communicator's places; none where a place, or a rank's own, is not known, or one of the ranks is
    ``beside`` another that may follow."""
    ranks = tuple(rank for _, rank in sorted(places.items()))
    known = max(places) == len(places) - 1 and len(set(ranks)) == len(ranks) and not beside & set(ranks)
    return ranks if known else ()


def _called(traffic: Traffic) -> set[int]:
    return set(pc.unique(traffic.op_calls.column("rank")).to_pylist())


def _ranks(traffic: Traffic) -> set[int]:
    columns = [traffic.op_calls.column(name) for name in ("rank", "peer")]
    columns += [traffic.queue_pairs.column(name) for name in ("source_rank", "destination_rank")]
    return {rank for column in columns for rank in pc.unique(column).to_pylist() if rank is not None}


def _distinct(table: pa.Table, one: str, other: str) -> list[tuple[int, Any]]:
    rows = table.select([one, other]).group_by([one, other]).aggregate([]).to_pylist()
    return sorted(((row[one], row[other]) for row in rows), key=lambda pair: (pair[0], str(pair[1] or "")))
