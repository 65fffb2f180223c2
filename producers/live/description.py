"""The description of a job that runs on this host alone, from what its processes registered and first logged."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from diagnosis.job import Communicator, Job, Layout, Place
from producers.importers.job_of_rows import complete_job
from producers.live.live_store import SILENT_AFTER
from producers.live.rank_log import RankLog
from producers.live.registration import told_groups
from schemas.topic import ID

log = logging.getLogger(__name__)


def describe(logs: Sequence[RankLog]) -> Job | None:
    """The job of processes that have begun (``has_begun``); None where not all of its ranks are among them.

    Members of communicators, and the layout, are those that were given, else inferred from the first iteration that is
    not closed; where all are, by an agent before this one, there is nothing to infer from.
    """
    if not is_whole(logs):
        return None
    for rank_log in logs:
        rank_log.ask_again()
    said = _said(logs)
    first = min((rank_log.oldest_open for rank_log in logs if rank_log.oldest_open is not None), default=None)
    if first is None:
        return said
    table = pa.concat_tables([rank_log.rows(first) for rank_log in logs]).unify_dictionaries()
    try:
        return complete_job(table.append_column("host", pa.nulls(table.num_rows, ID)), said.job, said, said.layout)
    except ValueError as error:
        log.warning("%s: the layout is not known: %s", said.job, error)
        return said


def with_news(job: Job, logs: Sequence[RankLog]) -> Job:
    """A job of this host alone, with the communicators that its processes have told of since it was described."""
    if all(group.communicator in job.members for rank_log in logs for group in rank_log.registration.groups):
        return job
    news = (each for each in _said(logs).communicators if each.communicator not in job.members)
    return replace(job, communicators=(*job.communicators, *news))


def has_begun(logs: Sequence[RankLog]) -> bool:
    """Whether a first iteration is over on all ranks: whoever takes part has then been seen with its communicators.

    ``logs`` have been looked at. Ranks that log nothing are not awaited for ever, those that died before not at all.
    """
    waited = [rank_log for rank_log in logs if rank_log.alive or rank_log.oldest_open is not None]
    first = [rank_log.oldest_open for rank_log in waited]
    begun = [oldest for oldest in first if oldest is not None]
    if begun and max(rank_log.newest for rank_log in waited) >= min(begun) + SILENT_AFTER:
        return True
    return bool(begun) and all(
        oldest is not None and rank_log.is_done_with(oldest) for oldest, rank_log in zip(first, waited, strict=True)
    )


def is_whole(logs: Sequence[RankLog]) -> bool:
    """Whether all ranks of the job are here, as far as they say how many there are."""
    world = max((rank_log.registration.world or 0 for rank_log in logs), default=0)
    return {rank_log.rank for rank_log in logs} == set(range(world)) != set()


def _said(logs: Sequence[RankLog]) -> Job:
    """What was registered."""
    said = [rank_log.registration for rank_log in logs]
    places = {one.rank: Place(one.rank, one.host, one.gpu) for one in said}
    given = next((one.layout for one in said if one.layout), None)
    return Job(
        said[0].job,
        tuple(places[rank] for rank in sorted(places)),
        tuple(
            Communicator(group.communicator, tuple(rank for rank in group.ranks if rank in places), group.kind)
            for group in told_groups(said)
        ),
        layout=None if given is None else Layout(**given, source="given"),
        started_ns=min((one.started_ns for one in said if one.started_ns is not None), default=None),
    )
