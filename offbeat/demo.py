"""The demonstration: a simulated job with a slow GPU and a slow NIC, the whole pipeline, the store, the ranking."""

from __future__ import annotations

import math
import random
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from diagnosis.ranking.devices import RankingSettings
from offbeat import report, tables, terminal, wiring
from offbeat.answer import Gathered, Row, Verdicts, as_json, incident_json
from offbeat.setting_groups import WebhookSettings
from offbeat.settings import Settings
from producers.importers.tidy import tidy
from producers.simulation import Fault, Kind, Scenario, SimulatedRun, simulate
from schemas.catalogue import INCIDENTS
from schemas.errors import MessageError, ReceiverError, SettingsError
from schemas.message import Message, decode, encode
from schemas.processor import Processor, Sink
from schemas.topic import Topic

if TYPE_CHECKING:
    from rich.console import Console

ITERATIONS = 60
ONSETS = ((12, 18), (36, 42))
"""Where the first and the second fault begin, and how long they last."""
LASTS = 16
SLOWDOWNS = (1.15, 1.5)
"""What a fault does to the iterations: so many times as long."""

_GPUS_PER_HOST = 8
_STAGES = 4
_PAGING_PATIENCE_S = 15.0
_TIMES = ("opened_ns", "updated_ns", "resolved_ns")
_LOOK_FURTHER = (
    "SELECT * FROM time_lost_by_device ORDER BY job, lost_gpu_seconds DESC",
    "SELECT * FROM iteration_history WHERE irregular ORDER BY job, iteration",
)


@dataclass(frozen=True, slots=True)
class Demonstrated:
    """The answer of the diagnosis with what was ``injected``, the ``ranking`` and the ``data_dir``.

    ``unpaged`` is why the receiver was not told; None: it was, or was not to be.
    """

    answer: dict[str, Any]
    unpaged: ReceiverError | None


def run(settings: Settings, *, ranks: int, seed: int, data_dir: Path | None, page: bool) -> Demonstrated:
    """Simulate a job, diagnose it and store what is found; incidents are told on stderr as they open and end.

    With ``page`` the receiver that is set hears of them as well. Raises ``OffbeatError``.
    """
    scenario = demo_scenario(seed, ranks)
    with _paging(settings.webhook, page=page) as pages_of:
        with terminal.progress(f"simulating {ranks} GPUs on {ranks // _GPUS_PER_HOST} hosts, {ITERATIONS} iterations"):
            simulated = simulate(scenario)
        pages = pages_of(simulated)
        folder = data_dir or Path(tempfile.mkdtemp(prefix="offbeat-demo-"))
        of_folder = settings.store.in_folder(folder)
        with wiring.opened(of_folder) as store:
            gathered = _watched(simulated, settings, [wiring.store_sink(store, of_folder), *pages])
            ranking = tables.rows_of(tables.device_ranking(store, RankingSettings(), simulated.job.job))
    verdicts = Verdicts.of(settings.monitor, settings.incidents)
    lost_lines = tidy(simulated.table).lost_lines
    answer = as_json(
        simulated.job,
        gathered,
        verdicts,
        ranks_seen=simulated.job.ranks,
        lines_read=simulated.table.num_rows,
        lost_lines=lost_lines,
    )
    whole = {**answer, "injected": _injected(simulated), "ranking": ranking, "data_dir": str(folder)}
    return Demonstrated(whole, next((page.failure for page in pages), None))


def demo_scenario(seed: int, ranks: int) -> Scenario:
    """A job whose faults are placed by the seed: which GPU, which NIC, which first, from when, how bad.

    Raises ``SettingsError`` for a number of ranks that cannot be laid out.
    """
    draws = random.Random(seed)
    tp = 4 if ranks >= 32 else 2
    if ranks % (tp * _STAGES) or not 16 <= ranks <= 128:
        raise SettingsError(f"--ranks {ranks}: give 16, or a multiple of 16 up to 128")
    kinds = draws.sample([Kind.GPU_SLOW, Kind.NIC_SLOW], 2)
    places = draws.sample(range(ranks), 2)
    faults = []
    for kind, rank, onset in zip(kinds, places, ONSETS, strict=True):
        first = draws.randint(*onset)
        faults.append(Fault(kind, rank, tuple(range(first, first + LASTS)), slowdown=draws.uniform(*SLOWDOWNS)))
    dp = ranks // tp // _STAGES
    return Scenario(seed, tp=tp, pp=_STAGES, dp=dp, iterations=ITERATIONS, faults=tuple(faults))


def print_end(answer: dict[str, Any], out: Console) -> None:
    """Print the answer, what was injected beside what was named, the ranking, and how to look further."""
    report.print_answer(answer, out)
    if lost := answer["coverage"]["lost_lines"]:
        out.print(f"\nthe {terminal.counted(lost, 'lost line')} are simulated as well: logs have gaps")
    named = {device for incident in answer["incidents"] for device in incident["devices"]}
    out.print("\ninjected:")
    for fault in answer["injected"]:
        first, last = fault["iterations"]
        found = "named" if fault["device"] in named else "not named"
        alike = f", as one of {len(fault['alike']) + 1} with the same traffic" if fault["alike"] else ""
        longer = f"{fault['slowdown']:.2f} times as long"
        out.print(f"   {fault['device']} in iterations {first}-{last}, {longer}: {found}{alike}")
    meant = {device for fault in answer["injected"] for device in (fault["device"], *fault["alike"])}
    out.print(f"   named beyond these: {', '.join(sorted(named - meant)) or 'nothing'}")
    out.print("\ndevices by the evidence against them (SQL view device_ranking):")
    tables.print_aligned(answer["ranking"])
    out.print("look further:")
    for query in _LOOK_FURTHER:
        out.print(f'   offbeat sql --data-dir {answer["data_dir"]} "{query}"')


def _watched(simulated: SimulatedRun, settings: Settings, sinks: list[Processor]) -> Gathered:
    rows = simulated.table.num_rows
    with terminal.progress(
        f"diagnosing {simulated.job.job}, {terminal.counted(rows, 'operator')}", ITERATIONS
    ) as shown:
        told: dict[str, int] = {}

        def tell(row: Row) -> None:
            if told.get(row["id"]) != row["revision"]:
                told[row["id"]] = row["revision"]
                state = "resolved" if row["state"] == "resolved" else "opened" if row["revision"] == 1 else "changed"
                what = report.headline(incident_json(row))
                shown.say(f"iteration {max(gathered.durations_ns)}: {state}: {what}, {row['pattern']}")

        gathered = Gathered(on_iteration=shown.advance, on_incident=tell)
        wiring.run_in_process(simulated.job, simulated.table, settings, [gathered, *sinks])
    for line in report.refusals(gathered.refused):
        terminal.note(line)
    return gathered


def _injected(simulated: SimulatedRun) -> list[dict[str, Any]]:
    return [
        {
            "kind": fault.kind,
            "device": fault.device,
            "alike": [device for device in fault.inseparable if device != fault.device],
            "rank": fault.rank,
            "iterations": [fault.iterations[0], fault.iterations[-1]],
            "slowdown": round(sum(fault.slowdowns) / len(fault.slowdowns), 3),
        }
        for fault in simulated.truth.faults
    ]


class _Pages:
    """Pages until the receiver fails: the diagnosis goes on without it, and ``failure`` tells why at its end.

    Incidents are delivered as they come, or a receiver would hear of their ends alone; and ``later_ns`` after they
    were simulated, or it would take them for long past.
    """

    def __init__(self, sink: Sink, later_ns: int) -> None:
        self.name, self.reads, self.writes = sink.name, sink.reads, sink.writes
        self.failure: ReceiverError | None = None
        self._sink = sink
        self._later_ns = later_ns

    def process(self, message: Message) -> Iterable[Message]:
        told = self._sink.process(_later(message, self._later_ns))
        self.flush()
        return told

    def tick(self, now_ns: int) -> Iterable[Message]:
        return self._sink.tick(now_ns)

    def safe_offsets(self) -> Mapping[Topic, int]:
        return self._sink.safe_offsets()

    def flush(self) -> None:
        if self.failure is not None:
            return
        try:
            self._sink.flush()
        except ReceiverError as error:
            why = error.__cause__ or error  # no topic keeps the pages here, as the sink says of a deployed one
            self.failure = ReceiverError(
                f"not every incident was paged: {why}; mend what it names, or leave --page out"
            )


@contextmanager
def _paging(webhook: WebhookSettings, *, page: bool) -> Iterator[Callable[[SimulatedRun], list[_Pages]]]:
    """Makes the sink that pages the receiver that is set as if the run had ended just now; none unasked: who is on call
    must not hear of a simulation."""
    if not page:
        yield lambda _: []
        return
    from prometheus_client import CollectorRegistry

    from offbeat.paging import paging
    from sinks.webhook.retry import RetryPolicy

    policy = RetryPolicy(patience_s=_PAGING_PATIENCE_S, flush_s=math.inf)
    with paging(webhook, _refused, CollectorRegistry(), policy=policy) as make:

        def pages_of(simulated: SimulatedRun) -> list[_Pages]:
            job = simulated.job
            assert job.ended_ns is not None  # no simulated run is left open
            return [_Pages(make({job.job: job}), time.time_ns() - job.ended_ns)]

        yield pages_of


def _later(message: Message, by_ns: int) -> Message:
    """A record of incidents as if all of it had happened later."""
    rows = decode(message, INCIDENTS).to_pylist()
    moved = [{**row, **{name: row[name] + by_ns for name in _TIMES if row[name] is not None}} for row in rows]
    return replace(message, value=encode(INCIDENTS, INCIDENTS.from_rows(moved), job=message.job).value)


def _refused(_: Message, error: MessageError) -> NoReturn:
    raise error
