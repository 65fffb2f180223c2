"""From recorded files to an answer, in this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from diagnosis.operators import Operators
from diagnosis.standstill import standstill
from offbeat import tables, terminal, wiring
from offbeat.answer import Gathered, Verdicts, as_json
from offbeat.reading import Reading, Recorded, read_all
from offbeat.settings import Settings
from producers.importers.traffic_messages import messages
from schemas.processor import Processor


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The answer as ``--json`` prints it, and why parts of the telemetry could not be used."""

    answer: dict[str, Any]
    refused: tuple[str, ...]


def diagnose(
    paths: Sequence[Path], reading: Reading, settings: Settings, data_dir: Path | None = None, name: str | None = None
) -> Diagnosis:
    """Read a recording and diagnose it; what is found is kept in the chDB folder ``data_dir`` as well.

    ``name`` is what the job is called, instead of what the recording tells. What that holds tells which way evidence
    goes: operators through the search, NIC traffic through the comparison.
    Raises ``InputError`` where the recording cannot be read.
    """
    read = read_all(paths, reading)
    recorded, silent_ns = read.ended(settings.segment.late_ns), read.silent_ns
    if name is not None:
        recorded = replace(recorded, job=replace(recorded.job, job=name))
    job, operators = recorded.job, recorded.operators
    iterations = None if operators is None else pc.count_distinct(operators.table.column("iteration")).as_py()
    with terminal.progress(f"diagnosing {job.job}, {_extent(recorded)}", iterations) as shown:
        gathered = Gathered(on_iteration=shown.advance)
        with _stored_in(data_dir, settings, recorded) as sinks:
            run(recorded, settings, [gathered, *sinks])
    joining = settings.in_steps(recorded.step).incidents
    verdicts = Verdicts.of(settings.monitor, joining, of_operators=operators is not None)
    answer = as_json(
        job,
        gathered,
        verdicts,
        ranks_seen=recorded.ranks_seen,
        lines_read=recorded.lines_read,
        lost_lines=recorded.lost_lines,
        untold=recorded.untold,
        partial=recorded.partial,
        stands=None if operators is None else standstill(Operators.from_arrow(operators.table), job),
        silent_ns=silent_ns if silent_ns is not None and silent_ns >= settings.compare.course.hang_ns else None,
    )
    return Diagnosis(answer, tuple(gathered.refused))


def _extent(recorded: Recorded) -> str:
    told = []
    if recorded.operators is not None:
        told.append(terminal.counted(recorded.operators.table.num_rows, "operator"))
    if recorded.traffic is not None:
        told.append(terminal.counted(recorded.traffic.nic_epochs.num_rows, "poll") + " of NICs")
    return " and ".join(told)


def run(recorded: Recorded, settings: Settings, readers: Sequence[Processor]) -> None:
    """Move what was recorded through the whole pipeline in this process."""
    job, operators, settings = recorded.job, recorded.operators, settings.in_steps(recorded.step)
    if recorded.traffic is None and operators is not None:
        wiring.run_in_process(job, operators.table, settings, readers)
    elif recorded.traffic is not None:
        hosts = [] if operators is None else wiring.log_agents(job, operators.table, settings)
        wiring.run_traffic_in_process(job, messages(job, recorded.traffic), settings, readers, hosts)


@contextmanager
def _stored_in(folder: Path | None, settings: Settings, recorded: Recorded) -> Iterator[list[Processor]]:
    if folder is None:
        yield []
        return
    of_folder = settings.store.in_folder(folder)
    with wiring.opened(of_folder) as store:
        one_run = wiring.one_run(store, of_folder, recorded.job.job)
        _warn_of_another_run(folder, tables.stored_span_ns(store, recorded.job.job), recorded, one_run.replaces)
        yield [one_run]
        one_run.keep()


def _warn_of_another_run(folder: Path, stored: tuple[int, int] | None, recorded: Recorded, replaces: bool) -> None:
    """Say that what is stored of a job is of another time: of two runs under one name only one can be told of."""
    calls = [] if recorded.operators is None else [recorded.operators.table]
    calls += [] if recorded.traffic is None else [recorded.traffic.op_calls]
    chunks = [chunk for table in calls for chunk in table.column("call_ns").chunks]
    called = pc.min_max(pa.chunked_array(chunks, pa.int64())).as_py()
    if stored is None or called["min"] is None or (stored[0] <= called["max"] and called["min"] <= stored[1]):
        return
    since = f"{datetime.fromtimestamp(stored[0] // 10**9, UTC):%Y-%m-%d %H:%M} UTC"
    told = (
        "this one replaces what is stored of it"
        if replaces
        else "not all of that came of recordings, so it stays, and this one is mixed with it"
    )
    terminal.note(
        f"{folder} holds another run of {recorded.job.job}, of {since}: {told}; give it a name of its own with --job"
    )
