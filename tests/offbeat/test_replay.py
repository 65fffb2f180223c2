"""`offbeat replay`: the same settings say the same, others say what differs, and what is gone is told."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from offbeat import past as pasts
from offbeat import replay, result_sets, terminal, wiring
from offbeat.commands.replay import _print as print_replayed
from offbeat.comparison import Difference, Said, compare
from offbeat.overrides import overridden
from offbeat.past import Missing, Past, Window, folders_of_jobs, past_of, require_known
from offbeat.reading import Reading, read_all
from offbeat.replay import Replayed
from offbeat.settings import Settings
from producers.importers.job_of_rows import write_job_file
from producers.kept_logs import Room
from producers.row_query import RowQuery
from producers.simulation import Fault, Kind, Scenario, SimulatedRun, simulate
from producers.simulation.recording import write
from schemas import catalogue
from schemas.errors import BusError, InputError, SettingsError
from schemas.message import Message, decode, encode
from schemas.topic import Topic
from sinks.clickhouse.folder_lock import FolderHeld
from streams.bus import Bus
from streams.control_view import Jobs
from tests.offbeat.command_line import EXAMPLE, offbeat, own_environment, refusal
from tests.producers.importers import kept_log
from tests.streams.examples import Listener

SLOW = tuple(range(14, 22))
JOB = "sim-3"


@cache
def slow_run() -> SimulatedRun:
    """A small job with a slow GPU, rank 1."""
    fault = Fault(Kind.GPU_SLOW, 1, SLOW, slowdown=1.6)
    return simulate(Scenario(3, tp=2, pp=1, dp=2, layers=2, microbatches=2, iterations=30, faults=(fault,)))


@cache
def published() -> tuple[Message, ...]:
    """What it left on the topics."""
    run = slow_run()
    listener = Listener(tuple(catalogue.TOPICS.values()))
    # Of four ranks two are pivots: the others' logs travel when they are asked for.
    wiring.run_in_process(run.job, run.table, Settings(pivots=2), [listener])
    return tuple(listener.heard)


def of(*topics: Topic) -> list[Message]:
    names = {topic.name for topic in topics}
    return [message for message in published() if message.topic in names]


def past(
    since_ns: int = 0,
    logs: Sequence[Message] | None = None,
    jobs: Collection[str] = (JOB,),
    room: Room | None = None,
    kept: Path | None = None,
) -> Past:
    known = Jobs()
    for message in of(catalogue.JOBS):
        if message.job in jobs:
            known.process(message)
    travelled = of(catalogue.LOG_REQUESTS, catalogue.COMM_OPS, catalogue.OPERATOR_WINDOWS) if logs is None else logs
    said = of(catalogue.FINDINGS, catalogue.INCIDENTS)
    folders = None if kept is None else folders_of_jobs(kept)
    return past_of(known, of(catalogue.ITERATION_SUMMARIES), travelled, said, since_ns, None, room, folders)


def again(of_past: Past, *changed: str) -> Replayed:
    return replay.again(of_past, overridden(Settings(pivots=2), changed)[0])


def counts(replayed: Replayed) -> dict[str, dict[str, int]]:
    return {what: {v: n for v, n in found.items() if n} for what, found in replayed.counts.items()}


@dataclass
class Topics:
    """Topics that hold these records, in the place of a broker."""

    records: Sequence[Message]

    def catch_up(self) -> list[Message]:
        return of(catalogue.JOBS)

    def __enter__(self) -> Topics:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to close."""

    def held(self, _: Bus, topic: Topic, since_ns: int, until_ns: int, *__: object, now_ns: int) -> Held:
        found = [m for m in self.records if m.topic == topic.name and since_ns <= m.timestamp_ns < until_ns]
        return Held(found)


class Held(list[Message]):
    """What they hold of a window."""

    gone_before_ns: int | None = None


MINUTE_NS = 60 * 10**9
BEGIN_NS, END_NS = 600 * MINUTE_NS, 660 * MINUTE_NS
NOW_NS = END_NS + 240 * MINUTE_NS


def of_window(monkeypatch: pytest.MonkeyPatch, when_ns: Mapping[str, int], *more: Message) -> Past:
    """What was published, each topic's at once; of a topic that has no time in the window."""
    records = [replace(message, timestamp_ns=when_ns.get(message.topic, BEGIN_NS)) for message in published()]
    topics = Topics([*records, *more])
    monkeypatch.setattr("streams.window.Held", topics.held)
    monkeypatch.setattr("streams.follower.Follower", lambda *_: topics)
    return pasts.of_topics(Bus("nowhere"), Window(BEGIN_NS, END_NS, 30 * MINUTE_NS), now_ns=NOW_NS)


def test_what_a_pipeline_that_was_behind_said_hours_later_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    late = (catalogue.FINDINGS, catalogue.INCIDENTS, catalogue.LOG_REQUESTS, catalogue.OPERATOR_WINDOWS)
    of_past = of_window(monkeypatch, {topic.name: NOW_NS - 1 for topic in late})
    replayed = again(of_past)
    assert counts(replayed) == {"finding": {"same": 4}, "incident": {"same": 1}}
    assert replayed.gone == ()


def test_late_answers_are_read_and_rows_of_later_iterations_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [message for message in of(catalogue.COMM_OPS) if "request_id" in message.headers]
    unasked = [message for message in of(catalogue.COMM_OPS) if "request_id" not in message.headers]
    assert answers
    assert unasked
    whole = of_window(monkeypatch, {}).logs.room.held_bytes
    again = {"producer": "started again"}
    late = [
        replace(message, timestamp_ns=NOW_NS - 1, offset=9, headers={**message.headers, **again})
        for message in (*answers, *unasked)
    ]
    times = {catalogue.COMM_OPS.name: END_NS + pasts.LOGGED_LATER_NS - 1}
    assert of_window(monkeypatch, times).logs.room.held_bytes == whole
    taken = of_window(monkeypatch, times, *late).logs.room.held_bytes - whole
    assert taken == sum(len(message.value or b"") + 1024 for message in answers)


def test_what_was_asked_of_later_iterations_takes_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request for what the window has is taken, however late, and so is its answer; others' are not."""
    asked = [
        row for message in of(catalogue.LOG_REQUESTS) for row in decode(message, catalogue.LOG_REQUESTS).to_pylist()
    ]
    row = next(row for row in asked if row["what"] == "rows")
    answered = [m for m in of(catalogue.COMM_OPS) if m.headers.get("request_id") == row["request_id"]]
    times = {catalogue.ITERATION_SUMMARIES.name: END_NS - 1}
    whole = of_window(monkeypatch, times).logs.room.held_bytes

    def taken(**asked: int) -> int:
        renamed = {"request_id": "late"}
        rows = catalogue.LOG_REQUESTS.from_rows([{**row, **renamed, **asked}])
        late = [encode(catalogue.LOG_REQUESTS, rows, job=JOB)]
        late += [replace(message, headers={**message.headers, **renamed}) for message in answered]
        more = [replace(message, timestamp_ns=NOW_NS - 1, offset=9) for message in late]
        return of_window(monkeypatch, times, *more).logs.room.held_bytes - whole

    assert answered
    assert taken() > sum(len(message.value or b"") for message in answered)
    assert taken(iteration_from=30, iteration_to=31) == 0


def test_an_incident_that_was_opened_long_before_and_not_revised_since_is_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    replayed = again(of_window(monkeypatch, {catalogue.INCIDENTS.name: MINUTE_NS}))
    assert counts(replayed)["incident"] == {"same": 1}


def test_what_was_said_is_held_within_a_bound_and_the_rest_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("offbeat.comparison.MOST_SAID", 3)
    replayed = again(past())
    assert counts(replayed)["finding"] == {"same": 3}
    assert replayed.gone == tuple(
        f"not compared: 1 more finding of {word}; give a shorter window, or fewer jobs" for word in ("then", "now")
    )


def test_the_same_settings_say_the_same() -> None:
    replayed = again(past())
    assert counts(replayed) == {"finding": {"same": 4}, "incident": {"same": 1}}
    assert (replayed.gone, replayed.iterations) == ((), 30)
    assert replayed.unjudged == (f"job {JOB}: iterations 0-9: what is usual was not known yet",)
    assert replayed.refused == ()


def test_a_higher_threshold_finds_nothing_any_more() -> None:
    replayed = again(past(), "monitor.delta=3")
    assert counts(replayed) == {"finding": {"gone": 4}, "incident": {"gone": 1}}
    assert all(difference.now is None for difference in replayed.differences)


def test_fewer_findings_that_must_agree_open_an_incident_earlier() -> None:
    replayed = again(past(), "incidents.confirmations=1", "search.last_ordinal=1")
    assert counts(replayed)["finding"] == {"same": 1, "gone": 3}
    [incident] = [difference for difference in replayed.differences if difference.what == "incident"]
    assert incident.verdict in {"same", "changed"}
    assert incident.row["ranks"] == [1]


def test_what_did_not_travel_then_is_gone_and_told() -> None:
    """Without the answers only the pivots' logs are left."""
    unasked = [message for message in of(catalogue.COMM_OPS) if "request_id" not in message.headers]
    replayed = again(past(logs=unasked))
    [told] = [line for line in replayed.gone if "(of a rank and an iteration)" in line]
    assert told.startswith(f"job {JOB}: ")
    assert "are not kept whole: ranks " in told
    assert counts(replayed)["finding"].get("same", 0) < 4


def test_answers_whose_request_is_no_longer_known_are_not_taken_for_whole() -> None:
    replayed = again(past(logs=of(catalogue.COMM_OPS, catalogue.OPERATOR_WINDOWS)))
    assert any("are not kept" in line for line in replayed.gone)


def test_a_request_for_what_others_asked_for_is_answered_from_it() -> None:
    """A search that asks for less than one did then finds the rows in that one's answers."""
    again(whole := past())
    kept = whole.logs[JOB]
    asked = of(catalogue.LOG_REQUESTS)[0]
    rows, outcomes = kept.rows([0, 1, 2, 3], RowQuery(14, 14))
    assert outcomes == dict.fromkeys(range(4), "complete"), asked
    assert set(rows.column("rank").to_pylist()) == {0, 1, 2, 3}
    assert kept.rows([1], RowQuery(0, 3)).outcomes[1] in {"overwritten", "complete"}  # complete where it is a pivot


def test_only_the_window_is_compared() -> None:
    summaries = of(catalogue.ITERATION_SUMMARIES)
    replayed = again(past(since_ns=summaries[25].timestamp_ns))
    assert replayed.iterations == 5
    assert counts(replayed)["finding"] == {}


def test_a_job_that_is_no_longer_described_is_told() -> None:
    replayed = again(past(jobs=()))
    assert replayed.gone == (
        f"job {JOB} is no longer described in control.jobs",
        "no iteration of the window is kept: there was nothing to diagnose",
    )
    assert (replayed.iterations, replayed.refused) == (0, ())


def test_records_that_cannot_be_read_are_told_and_passed_over() -> None:
    bad = [replace(message, value=b"\0", offset=77) for message in of(catalogue.COMM_OPS)[:1]]
    replayed = again(past(logs=[*of(catalogue.LOG_REQUESTS, catalogue.COMM_OPS, catalogue.OPERATOR_WINDOWS), *bad]))
    [told] = [line for line in replayed.gone if "offset 77" in line]
    assert told.startswith("telemetry.comm_ops partition 0 offset 77")
    assert counts(replayed)["finding"] == {"same": 4}


def test_of_many_records_that_cannot_be_read_some_are_told_and_the_others_counted() -> None:
    missing = Missing()
    nonsense = [replace(of(catalogue.FINDINGS)[0], value=b"", offset=offset) for offset in range(50)]
    pasts.take(Jobs(), [replace(message, topic=catalogue.JOBS.name) for message in nonsense], missing)
    assert len(missing.lines) == pasts.MOST_TOLD + 1
    assert missing.lines[-1] == "30 more records of control.jobs cannot be read"


def test_a_record_that_names_no_job_is_told_as_one_that_cannot_be_read() -> None:
    nameless = replace(of(catalogue.ITERATION_SUMMARIES)[0], headers={}, offset=88)
    of_past = past()
    of_past.summaries = [nameless, *of_past.summaries]
    [told] = again(of_past).gone
    assert told.startswith("telemetry.iteration_summaries partition 0 offset 88: ")


def test_what_finds_no_room_in_memory_is_gone_and_told() -> None:
    logs = of(catalogue.LOG_REQUESTS, catalogue.COMM_OPS, catalogue.OPERATOR_WINDOWS)
    room = Room(sum(len(message.value or b"") for message in logs) // 2)
    replayed = again(past(room=room))
    assert any("records of logs found no room in memory: give a shorter window" in line for line in replayed.gone)
    assert any("are not kept whole: ranks" in line for line in replayed.gone)
    assert room.held_bytes <= room.most_bytes
    assert counts(replayed)["finding"].get("same", 0) < 4


def test_summaries_are_read_a_little_ahead_of_the_diagnosis(monkeypatch: pytest.MonkeyPatch) -> None:
    """However few: the same is found, and no more of them are held."""
    monkeypatch.setattr(
        pasts, "LOOK_AHEAD_BYTES", 3 * max(len(m.value or b"") for m in of(catalogue.ITERATION_SUMMARIES))
    )
    of_past, read = past(), 0

    def counted() -> Iterator[Message]:
        nonlocal read
        for message in of(catalogue.ITERATION_SUMMARIES):
            read += 1
            yield message

    of_past.summaries = counted()
    source = pasts.Summaries(of_past)
    assert source.advance() == (of(catalogue.ITERATION_SUMMARIES)[0],)
    assert 3 <= read < 10
    of_past = past()
    assert counts(again(of_past)) == {"finding": {"same": 4}, "incident": {"same": 1}}


def test_logs_that_did_not_travel_are_found_where_agents_keep_them(tmp_path: Path) -> None:
    kept_log.write(tmp_path / "host0" / "jobs" / JOB, slow_run().table, [0, 1])
    kept_log.write(tmp_path / "host1" / "jobs" / JOB, slow_run().table, [2, 3])
    unasked = [message for message in of(catalogue.COMM_OPS) if "request_id" not in message.headers]
    replayed = again(past(logs=unasked, kept=tmp_path))
    assert counts(replayed) == {"finding": {"same": 4}, "incident": {"same": 1}}
    [told] = replayed.gone  # a line was lost when it was logged
    assert told.endswith("are not kept whole: ranks 2, iterations 16")


def test_of_what_agents_keep_what_is_damaged_or_overwritten_is_told(tmp_path: Path) -> None:
    kept_log.write(tmp_path / JOB, slow_run().table, first=16)
    (tmp_path / JOB / "0.frames").write_bytes(b"nonsense")
    replayed = again(past(logs=[], kept=tmp_path))
    assert any("0.frames: its last 8 bytes are damaged" in line for line in replayed.gone)
    [told] = [line for line in replayed.gone if "are not kept" in line]
    assert told.endswith("-15")
    with pytest.raises(InputError, match="holds nothing that an agent keeps"):
        folders_of_jobs(Path(__file__).parent)


def test_of_what_agents_keep_the_hosts_that_are_missing_are_told(tmp_path: Path) -> None:
    kept_log.write(tmp_path / JOB, slow_run().table, [0, 1], first=2)
    write_job_file(tmp_path / JOB, slow_run().job)
    replayed = replay.of_recording(read_all([tmp_path], Reading(), noting=False), Settings(), Settings())
    assert counts(replayed) == {"finding": {"same": 4}, "incident": {"same": 1}}
    assert replayed.gone[0] == f"iterations 0-1 are no longer kept in {tmp_path / JOB}"
    assert replayed.gone[-1] == "of ranks 2-3 there is no log"


def test_a_job_that_nobody_has_described_is_refused_by_name() -> None:
    with pytest.raises(SettingsError, match=r"job 'nope' is not described in control\.jobs; there are: a, b"):
        require_known(["a", "nope"], ["b", "a"])


def answer(*arguments: object) -> dict[str, Any]:
    result = offbeat("replay", *arguments, "--json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def stored(folder: Path, query: str) -> Any:
    result = offbeat("sql", query, "--data-dir", folder, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_a_recording_is_replayed_into_a_result_set_of_its_own(tmp_path: Path) -> None:
    recording, live = tmp_path / "run", tmp_path / "data"
    write(slow_run(), recording)
    told = answer(recording, "--as", "strict", "--set", "monitor.delta=5", "--data-dir", live)
    assert (told["result_set"], told["settings"]) == ("strict", {"monitor.delta": "5"})
    assert (told["incidents"], told["refused"]) == ({"same": 0, "changed": 0, "gone": 1, "new": 0}, [])
    [incident] = [each for each in told["differences"] if each["what"] == "incident"]
    assert (incident["verdict"], incident["then"]["ranks"], incident["now"]) == ("gone", [1], None)
    assert not live.exists()
    query = (
        "SELECT about, (SELECT count() FROM iteration_history) AS n, (SELECT count() FROM incidents) AS m FROM replay"
    )
    [row] = stored(tmp_path / "data-strict", query)
    assert (json.loads(row["about"])["settings"], row["n"], row["m"]) == ({"monitor.delta": "5"}, 30, 0)

    taken = refusal(offbeat("replay", recording, "--as", "strict", "--data-dir", live))
    assert "there is a result set strict already: name another, or give --replace" in taken
    options = ("--as", "strict", "--replace", "--set", "incidents.confirmations=9", "--data-dir", live)
    shown = offbeat("replay", recording, *options)
    assert shown.exit_code == 0, shown.output
    [line] = [line for line in shown.stdout.splitlines() if line.startswith("gone incident")]
    assert "compute_slow: rank 1" in line
    assert "30 iterations replayed; kept as result set strict" in shown.stdout


def test_nothing_but_a_result_set_is_replaced(tmp_path: Path) -> None:
    assert offbeat("store", "migrate", "--data-dir", tmp_path / "data-other").exit_code == 0
    options = ("--as", "other", "--replace", "--data-dir", tmp_path / "data")
    assert "is no result set of a replay: name another" in refusal(offbeat("replay", EXAMPLE, *options))
    foreign = tmp_path / "data-photos"
    foreign.mkdir()
    (foreign / "cat.png").touch()
    options = ("--as", "photos", "--replace", "--data-dir", tmp_path / "data")
    assert "is no result set of a replay: name another" in refusal(offbeat("replay", EXAMPLE, *options))
    assert [path.name for path in foreign.rglob("*")] == ["cat.png"]


def test_a_result_set_that_is_not_filled_to_its_end_goes_again(tmp_path: Path) -> None:
    live = Settings().store.in_folder(tmp_path / "data")

    def stopped() -> None:
        with result_sets.made(live, "x", {}, replace=False):
            assert (tmp_path / "data-x").is_dir()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert not list(tmp_path.iterdir())


FILLING = """
import sys
from pathlib import Path
from offbeat import result_sets
from offbeat.settings import Settings
from offbeat.signals import cleaned_up_on_sigterm
live = Settings().store.in_folder(Path(sys.argv[1]))
with cleaned_up_on_sigterm(), result_sets.made(live, "x", {}, replace=False):
    print("filling", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGTERM, 143), (signal.SIGKILL, -signal.SIGKILL)])
def test_a_signal_leaves_no_set_that_could_be_taken_for_a_whole_one(
    tmp_path: Path, sent: signal.Signals, code: int
) -> None:
    live = Settings().store.in_folder(tmp_path / "data")
    command = [sys.executable, "-c", FILLING, str(live.path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=own_environment()) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"filling\n"
        with pytest.raises(FolderHeld, match=f"process {process.pid} holds it"):
            result_sets.require_free(live, "x", replace=True)
        process.send_signal(sent)
        assert process.wait() == code
    if sent == signal.SIGTERM:
        assert not list(tmp_path.iterdir())
        return
    with pytest.raises(SettingsError, match=r"result set x is unfinished: .* or give --replace"):
        result_sets.require_free(live, "x", replace=False)
    with result_sets.made(live, "x", {"source": "again"}, replace=True) as store:
        assert store.query("SELECT about FROM replay").num_rows == 0
    with wiring.opened(result_sets.place(live, "x")) as store:
        assert store.query("SELECT about FROM replay").column(0).to_pylist() == ['{"source": "again"}']
    with pytest.raises(SettingsError, match="there is a result set x already"):
        result_sets.require_free(live, "x", replace=False)


def test_what_was_killed_before_it_had_a_table_is_replaced(tmp_path: Path) -> None:
    live = Settings().store.in_folder(tmp_path / "data")
    with wiring.opened(result_sets.place(live, "x")):
        """The engine has made its folder, and nothing in it."""
    with pytest.raises(SettingsError, match="result set x is unfinished"):
        result_sets.require_free(live, "x", replace=False)
    result_sets.require_free(live, "x", replace=True)


def test_what_changed_is_shown_by_the_columns_that_differ(capsys: pytest.CaptureFixture[str]) -> None:
    said = Said()
    for message in of(catalogue.INCIDENTS):
        said.process(message)
    [(key, then)] = said.incidents.items()
    now = {**then, "ranks": [1, 2], "candidates": [[1], [2]], "devices": [], "last_iteration": 30, "state": "open"}
    differences = [*compare(said, Said(incidents={key: now})), Difference("incident", "gone", JOB, then, None)]
    print_replayed(Replayed(differences, 30, ("a",), ("b",), ("c",)), "x")
    shown = capsys.readouterr().out
    assert [line for line in shown.splitlines() if line.startswith(("gone:", "not "))] == [
        "gone: a",
        "not judged: b",
        "not used: c",
    ]
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    assert f"changed incident {JOB} 14-30 ranks: 1 ranks: 1-2" in lines
    assert "candidates: none candidates: 1 or 2" in lines
    assert f"devices: {then['devices'][0]['device']} devices: none" in lines
    assert any(line.startswith(f"gone incident {JOB} 14-") and "compute_slow: rank 1" in line for line in lines)
    assert lines[-1] == DOUBT


DOUBT = "What differs may come from what is gone, not from the settings."


def test_differences_are_doubted_only_where_one_diagnosis_had_more_to_go_by(
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = Said()
    for message in of(catalogue.INCIDENTS):
        said.process(message)
    same, differs = compare(said, said), compare(said, Said())
    for replayed, doubtful in (
        (Replayed(differs, 30, ("a",)), True),
        (Replayed(differs, 30, ("a",), alike=True), False),
        (Replayed(differs, 30), False),
        (Replayed(same, 30, ("a",)), False),
    ):
        assert replayed.doubtful == doubtful
        print_replayed(replayed, "x")
        assert (DOUBT in capsys.readouterr().out) == doubtful


def test_of_a_recording_it_is_told_which_diagnosis_is_under_way(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told = []

    @contextmanager
    def progress(what: str) -> Iterator[None]:
        told.append(what)
        yield

    write(slow_run(), tmp_path)
    recording = read_all([tmp_path], Reading(), noting=False)
    monkeypatch.setattr(terminal, "progress", progress)
    assert replay.of_recording(recording, Settings(), Settings()).alike
    assert told == [
        f"diagnosing {JOB} with the settings of the environment (then)",
        f"diagnosing {JOB} with the settings that were given (now)",
    ]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--as", "A b"), "'A b' cannot name a result set: give small letters"),
        (("--as", "x", "--set", "store.user=me"), "store.user cannot be set here; what can begins with monitor"),
        (("--as", "x", "--set", "monitor.delta"), "--set monitor.delta: give it as monitor.delta=1.2"),
        (("--as", "x", "--set", "monitor.delta=0.5"), "OFFBEAT_MONITOR__DELTA is 0.5; give more than 1"),
        (("--as", "x", "--set", "monitor.delta=inf"), "OFFBEAT_MONITOR__DELTA: input should be a finite number"),
        (("--as", "x", "--set", "monitor.colour=1"), "OFFBEAT_MONITOR__COLOUR: there is no such setting"),
        (("--as", "x", "--set", "monitor=1", "--set", "monitor.delta=2"), "is given beside settings of its own group"),
    ],
)
def test_what_cannot_be_asked_for_is_refused(tmp_path: Path, options: Sequence[str], says: str) -> None:
    assert says in refusal(offbeat("replay", EXAMPLE, *options, "--data-dir", tmp_path / "data"))
    assert not list(tmp_path.iterdir())


def test_settings_come_from_a_file_and_the_command_line_counts_more(tmp_path: Path) -> None:
    file = tmp_path / "other.env"
    file.write_text('# stricter\n\nOFFBEAT_MONITOR__DELTA=1.5\nexport OFFBEAT_INCIDENTS__CONFIRMATIONS="3"\n')
    settings, given = overridden(Settings(), ["monitor.delta=1.7"], file)
    assert given == {"monitor.delta": "1.7", "incidents.confirmations": "3"}
    assert (settings.monitor.delta, settings.incidents.confirmations) == (1.7, 3)
    file.write_text("MONITOR__DELTA=1.5\n")
    says = refusal(offbeat("replay", EXAMPLE, "--as", "x", "--settings", file, "--data-dir", tmp_path / "data"))
    assert says.endswith("other.env:1: give lines as OFFBEAT_MONITOR__DELTA=1.2")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ((), "give --since, or a recording"),
        (("--since", "2026-01-01T00:00:00", "--until", "2026-01-01T00:00:00"), "nothing between --since and --until"),
        ((EXAMPLE, "--job", "a"), "--job and --logs are of topics"),
    ],
)
def test_windows_of_nothing_are_refused(tmp_path: Path, options: Sequence[object], says: str) -> None:
    refused = offbeat("replay", "--as", "x", *options, "--data-dir", tmp_path / "data")
    assert refused.exit_code == 2
    assert says in " ".join(refused.stderr.replace("│", " ").split())
    assert not list(tmp_path.iterdir())


def test_of_topics_settings_of_nic_traffic_change_nothing_which_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def away(bus: Bus) -> Bus:
        raise BusError("no broker")

    monkeypatch.setattr("offbeat.commands.replay._checked", away)
    asked = ("--as", "x", "--since", "2026-01-01T00:00:00", "--set", "compare.metric=busy_epochs")
    asked_for = offbeat("replay", *asked, "--set", "monitor.delta=1.2", "--data-dir", tmp_path / "data")
    note, error = asked_for.stderr.splitlines()
    assert note == "NIC traffic is replayed of recordings alone: compare.metric changes nothing here"
    assert (asked_for.exit_code, error) == (2, "no broker")


def test_without_a_broker_one_line_says_so(tmp_path: Path) -> None:
    asked = ("--as", "x", "--since", "2026-01-01T00:00:00", "--bootstrap", "127.0.0.1:1")
    said = refusal(offbeat("replay", *asked, "--data-dir", tmp_path / "data"))
    assert "no broker answers at 127.0.0.1:1" in said
    assert not list(tmp_path.iterdir())
