"""Jobs that come, go, and come back; producers that start anew; records that come too late."""

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from local.service import LocalService
from offbeat.options import scenario
from producers.simulation import simulate, write
from schemas.catalogue import COMM_OPS, ITERATION_SUMMARIES
from schemas.message import Message, decode, encode
from tests.faults.kills import kill
from tests.faults.site import Site
from tests.integration.recordings import Recorded
from tests.offbeat.command_line import EXAMPLE

_OTHER_LAYOUT = "seed=6,tp=4,pp=1,dp=2,gpus_per_host=4,microbatches=2,layers=2,iterations=30"
_OTHER_FAULT = "kind=gpu_slow,rank=6,iterations=10-18,slowdown=1.5"
_LATE_BY = 8
"""Iterations."""


def restart_producer(site: Site) -> None:
    """Start the log agents anew amid a job, in order and after SIGKILL: they number their messages from 0 again."""
    for end in ("stop", "kill"):
        with site.diagnosing(site.recording()):
            site.amid(3.0, 9.0)
            [producer] = site.pipeline.producers
            if end == "stop":
                producer.stop()
            else:
                kill(site, producer)
            _await_start(site, producer)


def _await_start(site: Site, producer: LocalService) -> None:
    site.pipeline.awaited(lambda: producer.running, "new start of the log agents")


def return_under_a_new_id(site: Site) -> None:
    """Run a job to its end, and then another on the same hosts with another layout."""
    site.diagnose(site.recording())
    site.diagnose(site.recording(_other_layout(site)))


def run_two_jobs(site: Site) -> None:
    """Run three jobs at the same time, one of them with another layout."""
    site.diagnose(site.recording(), site.recording(_other_layout(site)), site.recording(EXAMPLE))


def send_late_records(site: Site) -> None:
    """Tell of iterations again that are long judged, as slow ones, and answer requests again that are long answered."""
    recorded = site.recording()
    with site.diagnosing(recorded):
        for _ in range(3):
            judged = len(site.pipeline.stored(recorded).iterations)
            site.pipeline.awaited(partial(_has_judged_more, site, recorded, judged), "further iteration")
            late = list(_too_late(site, recorded))
            site.pipeline.send(late)
            site.tally.late_records += len(late)
        site.expect(site.tally.late_records > 0, "no record was late")


def _other_layout(site: Site) -> Path:
    folder = site.folder / "other-layout"
    if not folder.exists():
        write(simulate(scenario(_OTHER_LAYOUT, [_OTHER_FAULT])), folder)
    return folder


def _has_judged_more(site: Site, recorded: Recorded, before: int) -> bool:
    return len(site.pipeline.stored(recorded).iterations) > max(before, 4 * _LATE_BY)


def _too_late(site: Site, recorded: Recorded) -> Iterator[Message]:
    """Summaries of iterations that were judged a while ago, ten times as long, and answers, each as it was."""
    judged = max(iteration for iteration, _ in site.pipeline.stored(recorded).iterations)
    for message in _of(recorded, site.pipeline.seen(ITERATION_SUMMARIES)):
        batch = decode(message, ITERATION_SUMMARIES)
        if pc.max(batch["iteration"]).as_py() <= judged - _LATE_BY:
            headers = {"host": message.headers["host"]}
            slow = _ten_times_as_long(batch)
            yield encode(
                ITERATION_SUMMARIES, slow, job=recorded.job, watermark_ns=message.watermark_ns, headers=headers
            )
    for message in _of(recorded, site.pipeline.seen(COMM_OPS)):
        if "request_id" in message.headers:
            yield message


def _of(recorded: Recorded, messages: Iterable[Message]) -> list[Message]:
    return [message for message in messages if message.job == recorded.job]


def _ten_times_as_long(batch: pa.RecordBatch) -> pa.RecordBatch:
    longer = pc.add(batch["start_ns"], pc.multiply(pc.subtract(batch["end_ns"], batch["start_ns"]), 10))
    return batch.set_column(batch.schema.get_field_index("end_ns"), "end_ns", longer)
