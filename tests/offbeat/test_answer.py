"""The answer, gathered from what the pipeline publishes."""

from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from diagnosis.incidents.joining import JoiningSettings
from diagnosis.irregularity.monitor import IterationMonitor
from diagnosis.irregularity.monitor_settings import MonitorSettings
from diagnosis.job import Communicator, Job, Layout, Place
from diagnosis.operator_graph.leaf import OperatorRef
from diagnosis.partial_logs import PartialLog
from diagnosis.standstill import Standstill
from offbeat import wiring
from offbeat.answer import Gathered, Verdicts
from offbeat.answer import as_json as answered
from offbeat.report import print_answer
from offbeat.settings import Settings
from producers.simulation import Fault, Kind, Scenario, simulate
from schemas import catalogue
from schemas.errors import WrongSchema
from schemas.message import Message, encode
from streams.dead_letters import dead_letter

VERDICTS = Verdicts(regular_before=10, joining=JoiningSettings())
JOB = Job("j", tuple(Place(rank) for rank in range(4)), (Communicator("c", (0, 1, 2, 3)),), Layout(2, 2, 1))


def iteration(number: int, durations_ms: list[int | None], irregular: bool | None = False) -> Message:
    rows = [
        {
            "iteration": number,
            "pivot": pivot,
            "start_ns": 0,
            "duration_ns": None if ms is None else ms * 1_000_000,
            "delta": 1.1,
            "irregular": irregular,
        }
        for pivot, ms in enumerate(durations_ms)
    ]
    return encode(catalogue.ITERATIONS, catalogue.ITERATIONS.from_rows(rows), job="j")


def incident(**changes: Any) -> Message:
    row = {
        "id": "i1",
        "revision": 1,
        "state": "open",
        "cause": "compute_slow",
        "level": "device",
        "ranks": [2],
        "candidates": [],
        "devices": [{"device": "gpu:h0/2", "kind": "gpu", "downside_nics": 0}],
        "first_iteration": 4,
        "last_iteration": 9,
        "pattern": "persistent_degradation",
        "confidence": 0.97,
        "lost_ns": 1_500_000_000,
        "lost_gpu_seconds": 6.0,
        "stage": {"phase": "forward", "pipeline_stage": 1, "microbatch": None, "op": "all_reduce"},
        "methods": ["operator_graph"],
        "explanation": "Rank 2 computes slowly.",
        "opened_ns": 1,
        "updated_ns": 1,
        "findings": ["f"],
    }
    return encode(catalogue.INCIDENTS, catalogue.INCIDENTS.from_rows([row | changes]), job="j")


def as_json(
    job: Job, told: Gathered, *, ranks_seen: int, lost_lines: int, stands: Standstill | None = None
) -> dict[str, Any]:
    seen = range(ranks_seen)
    return answered(job, told, VERDICTS, ranks_seen=seen, lines_read=90, lost_lines=lost_lines, stands=stands)


def gathered(*messages: Message) -> Gathered:
    listener = Gathered()
    for message in messages:
        assert list(listener.process(message)) == []
    return listener


def test_the_answer_has_the_documented_shape() -> None:
    told = gathered(iteration(0, [10, 12, 11]), iteration(1, [30, None, 32], irregular=True), incident())
    assert as_json(JOB, told, ranks_seen=3, lost_lines=7) == {
        "job": "j",
        "layout": {"tp": 2, "pp": 2, "dp": 1, "source": "inferred"},
        "iterations": {"count": 2, "judged": 2, "median_ms": 20.5, "irregular": [1], "pauses": []},
        "coverage": {
            "ranks_seen": 3,
            "ranks_expected": 4,
            "lines_read": 90,
            "lost_lines": 7,
            "partial": [],
            "untold": [],
        },
        "incidents": [
            {
                "id": "i1",
                "cause": "compute_slow",
                "level": "device",
                "ranks": [2],
                "candidates": [],
                "devices": ["gpu:h0/2"],
                "iterations": [4, 9],
                "pattern": "persistent_degradation",
                "period": None,
                "confidence": 0.97,
                "lost_gpu_seconds": 6.0,
                "stage": {"phase": "forward", "pipeline_stage": 1, "microbatch": None, "op": "all_reduce"},
                "network": None,
                "methods": ["operator_graph"],
                "explanation": "Rank 2 computes slowly.",
                "rule": None,
                "measures": None,
            }
        ],
        "notes": [],
    }


def test_what_is_not_known_is_null() -> None:
    answer = as_json(Job("j", (), ()), gathered(iteration(0, [None], irregular=None)), ranks_seen=0, lost_lines=0)
    assert answer["layout"] is None
    assert answer["iterations"] == {"count": 1, "judged": 0, "median_ms": None, "irregular": [], "pauses": []}
    assert answer["incidents"] == []


def test_a_log_that_ends_while_all_wait_may_be_of_a_hang() -> None:
    stands = Standstill(7, (1, 2), (3,), OperatorRef(1, "tp0", 4, "all_reduce"))
    seen = gathered(*(iteration(number, [10]) for number in range(20)))
    [note] = as_json(JOB, seen, ranks_seen=4, lost_lines=0, stands=stands)["notes"]
    assert note == (
        "the log ends while 2 ranks wait for rank 3, not known to have called the all_reduce of tp0 in iteration 7 "
        "that rank 1 called: a hang, unless the log was copied or the job stopped just then"
    )


def notes(judged: int, unjudged: int = 0, *, irregular: int = 0, ranks_seen: int = 4) -> list[str]:
    """Of ranks that log so many iterations that cannot be judged, and so many that can, the last ones irregular."""
    early = [iteration(number, [10], irregular=None) for number in range(unjudged)]
    later = [iteration(unjudged + number, [10], irregular=number >= judged - irregular) for number in range(judged)]
    told: list[str] = as_json(JOB, gathered(*early, *later), ranks_seen=ranks_seen, lost_lines=0)["notes"]
    return told


def test_where_too_little_could_be_judged_the_notes_say_so() -> None:
    assert notes(10, 10) == []
    assert notes(9, 10) == [
        (
            "too few iterations to tell whether anything is wrong: 9 of 19 could be judged; "
            "10 regular ones come before the first that can be"
        )
    ]
    assert notes(0, 3)[0].startswith("too few iterations to tell whether anything is wrong: 0 of 3 could be judged")


def test_where_no_iteration_is_known_to_have_lasted_the_notes_say_so() -> None:
    unknown = gathered(*(iteration(number, [None], irregular=None) for number in range(20)))
    [note] = as_json(JOB, unknown, ranks_seen=4, lost_lines=0)["notes"]
    assert note == "nothing can be told: of no iteration is it known how long it took"


def test_where_nobody_could_be_named_the_notes_say_why() -> None:
    slow = "slow at times, and nobody could be named: "
    assert notes(20, irregular=1) == [f"{slow}no search found a culprit"]
    assert notes(20, irregular=1, ranks_seen=3) == [f"{slow}there is no telemetry of rank 3"]
    assert notes(20, irregular=1, ranks_seen=1) == [f"{slow}there is no telemetry of ranks 1-3"]
    assert len(notes(2, 10, irregular=2, ranks_seen=1)) == 2


def test_of_very_many_partial_logs_the_first_are_told() -> None:
    logs = [PartialLog((0, 1), None, None), *(PartialLog((rank,), 0, rank) for rank in range(2, 14))]
    answer = answered(JOB, gathered(), VERDICTS, ranks_seen=range(4), lines_read=1, lost_lines=0, partial=logs)
    assert answer["coverage"]["partial"][:2] == [
        {"ranks": [0, 1], "iterations": None},
        {"ranks": [2], "iterations": [0, 2]},
    ]
    console = Console(width=200)
    with console.capture() as printed:
        print_answer(answer, console)
    _, _, _, *lines = printed.get().splitlines()
    assert lines[0] == "ranks 0-1 logged no iteration: what went on there is not known"
    assert lines[1] == "rank 2 logged iterations 0-2 alone: what went on there in others is not known"
    assert lines[10] == "and 3 more ranks logged a part of the iterations alone"


@pytest.mark.parametrize(
    ("joining", "said"),
    [
        (JoiningSettings(confirmations=9), "it takes findings on 9 iterations that agree (confirmations)"),
        (
            JoiningSettings(least_confidence=1.0),
            "findings that agree leave more doubt than 1 allows (least_confidence)",
        ),
    ],
)
def test_the_rule_that_held_an_incident_back_is_named(joining: JoiningSettings, said: str) -> None:
    """As a whole pipeline comes to it."""
    fault = Fault(Kind.GPU_SLOW, 1, tuple(range(14, 20)), slowdown=1.6)
    run = simulate(Scenario(3, tp=2, pp=1, dp=2, layers=2, microbatches=2, iterations=26, faults=(fault,)))
    told = Gathered()
    wiring.run_in_process(run.job, run.table, Settings(incidents=joining), [told])
    answer = answered(
        run.job, told, Verdicts.of(MonitorSettings(), joining), ranks_seen=range(4), lines_read=0, lost_lines=0
    )
    assert answer["notes"] == [f"slow at times, and nobody could be named: {said}"]


def test_an_incident_needs_no_excuse() -> None:
    told = gathered(iteration(0, [10], irregular=None), iteration(1, [30], irregular=True), incident())
    assert as_json(JOB, told, ranks_seen=1, lost_lines=0)["notes"] == []


def test_where_hosts_are_not_known_several_devices_may_be_one_host() -> None:
    def noted(*others: Message, hosts: tuple[str | None, ...] = (None,) * 4) -> list[str]:
        job = replace(JOB, places=tuple(Place(rank, host) for rank, host in enumerate(hosts)))
        told: list[str] = as_json(job, gathered(incident(), *others), ranks_seen=4, lost_lines=0)["notes"]
        return told

    beside = {"id": "i2", "ranks": [3], "cause": "communication_slow", "first_iteration": 9, "last_iteration": 12}
    [note] = noted(incident(**beside))
    assert note == (
        "several of the incidents may be one slow host: which ranks share one is not known; give hosts in job.json"
    )
    assert noted(incident(**beside | {"first_iteration": 10})) == []
    assert noted(incident(**beside | {"cause": "hang_not_entered"})) == []
    assert noted(incident(**beside), hosts=("h0", "h0", "h1", "h1")) == []


def test_how_many_iterations_come_before_the_first_judged_is_the_monitors_to_say() -> None:
    for settings in (MonitorSettings(), MonitorSettings(warm_up=2, window=3), MonitorSettings(warm_up=0, window=1)):
        monitor = IterationMonitor(settings)
        judged = [monitor.judge(number, 10).irregular is not None for number in range(20)]
        assert judged.index(True) == Verdicts.of(settings, JoiningSettings()).regular_before


def test_degrees_beyond_three_are_shown_where_there_are_any() -> None:
    job = Job("j", (), (), Layout(tp=2, pp=2, dp=4, cp=2, ep=4, source="given"))
    shown = as_json(job, gathered(), ranks_seen=0, lost_lines=0)["layout"]
    assert shown == {"tp": 2, "pp": 2, "dp": 4, "cp": 2, "ep": 4, "source": "given"}


def test_the_newest_record_of_an_incident_counts() -> None:
    told = gathered(incident(), incident(revision=2, state="resolved", last_iteration=30), incident(id="i2"))
    incidents = as_json(JOB, told, ranks_seen=4, lost_lines=0)["incidents"]
    assert [(i["id"], i["iterations"]) for i in incidents] == [("i1", [4, 30]), ("i2", [4, 9])]


def test_an_iteration_that_is_told_again_counts_once() -> None:
    told = gathered(iteration(3, [10], irregular=True), iteration(3, [10], irregular=True))
    assert as_json(JOB, told, ranks_seen=4, lost_lines=0)["iterations"]["irregular"] == [3]


def test_it_says_why_telemetry_was_refused() -> None:
    bad = Message("telemetry.comm_ops", "j", b"", {"job": "j"}, offset=3)
    told = gathered(dead_letter(bad, WrongSchema("a column is missing"), "search"))
    assert told.refused == ["a column is missing"]


def test_listeners_are_called_as_it_goes() -> None:
    counts: list[int] = []
    causes: list[str] = []
    listener = Gathered(on_iteration=counts.append, on_incident=lambda row: causes.append(row["cause"]))
    for message in (iteration(0, [1]), iteration(1, [1]), incident()):
        list(listener.process(message))
    assert counts == [1, 2]
    assert causes == ["compute_slow"]


def test_it_publishes_nothing_and_holds_nothing_back() -> None:
    listener = gathered(incident())
    assert (list(listener.tick(0)), dict(listener.safe_offsets()), listener.writes) == ([], {}, ())


@pytest.mark.parametrize("topic", Gathered.reads)
def test_it_reads_what_the_catalogue_holds(topic: object) -> None:
    assert topic in catalogue.TOPICS.values()
