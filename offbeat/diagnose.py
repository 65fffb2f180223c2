"""From recorded files to an answer, in this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from offbeat import terminal, wiring
from offbeat.answer import Gathered, Verdicts, as_json
from offbeat.reading import Reading, read
from offbeat.settings import Settings
from schemas.processor import Processor


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The answer as ``--json`` prints it, and why parts of the telemetry could not be used."""

    answer: dict[str, Any]
    refused: tuple[str, ...]


def diagnose(paths: Sequence[Path], reading: Reading, settings: Settings, data_dir: Path | None = None) -> Diagnosis:
    """Read a recording and diagnose it; what is found is kept in the chDB folder ``data_dir`` as well.

    Raises ``InputError`` where the recording cannot be read.
    """
    recording = read(paths, reading)
    table = recording.table
    iterations = pc.count_distinct(table.column("iteration")).as_py()
    with terminal.progress(
        f"diagnosing {recording.job.job}, {terminal.counted(table.num_rows, 'operator')}", iterations
    ) as shown:
        gathered = Gathered(on_iteration=shown.advance)
        with _stored_in(data_dir, settings) as sinks:
            wiring.run_in_process(recording.job, table, settings, [gathered, *sinks])
    ranks_seen = pc.count_distinct(table.column("rank")).as_py()
    verdicts = Verdicts.of(settings.monitor, settings.incidents)
    answer = as_json(recording.job, gathered, verdicts, ranks_seen=ranks_seen, lost_lines=recording.lost_lines)
    return Diagnosis(answer, tuple(gathered.refused))


@contextmanager
def _stored_in(folder: Path | None, settings: Settings) -> Iterator[list[Processor]]:
    if folder is None:
        yield []
        return
    of_folder = settings.store.in_folder(folder)
    with wiring.opened(of_folder) as store:
        yield [wiring.store_sink(store, of_folder)]
