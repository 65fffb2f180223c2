"""`offbeat diagnose`: a recording in, an answer out."""

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sinks.clickhouse.chdb import ChdbStore
from tests.offbeat.command_line import EXAMPLE, offbeat, refusal, run_offbeat
from tests.recordings import sample


@pytest.fixture(scope="module")
def answer() -> dict[str, Any]:
    done = run_offbeat("diagnose", EXAMPLE, "--json")
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("healthy") / "run"
    assert offbeat("simulate", "--out", folder, "--scenario", "seed=3,tp=2,pp=2,dp=2,iterations=20").exit_code == 0
    return folder


def test_the_shipped_recording_has_one_slow_rank(answer: dict[str, Any]) -> None:
    [incident] = answer["incidents"]
    assert (incident["cause"], incident["level"], incident["ranks"]) == ("compute_slow", "device", [5])
    first, last = incident["iterations"]
    assert (first, last) == (30, 59)
    assert incident["pattern"] == "persistent_degradation"
    assert incident["devices"] == ["gpu:rank5"]
    assert incident["stage"]["phase"] == "forward"
    assert "rank 5" in incident["explanation"].lower()


ODD: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "ends that are the calls": lambda row: {**row, "start_ns": None, "end_ns": row["call_ns"]},
    "a peer of a collective": lambda row: row | ({"peer": 77} if (row["comm"], row["seq"]) == ("tp1", 40) else {}),
    "iterations by thousands": lambda row: {**row, "iteration": 1000 * row["iteration"]},
}


@pytest.mark.parametrize("odd", ODD)
def test_the_same_rank_is_named_of_the_shipped_recording_written_otherwise(tmp_path: Path, odd: str) -> None:
    for file in EXAMPLE.glob("*.gz"):
        rows = [ODD[odd](json.loads(line)) for line in gzip.decompress(file.read_bytes()).splitlines()]
        (tmp_path / file.stem).write_text("".join(json.dumps(row) + "\n" for row in rows))
    told = json.loads(offbeat("diagnose", tmp_path, "--json").stdout)
    assert [(one["cause"], one["ranks"]) for one in told["incidents"]] == [("compute_slow", [5])]


@pytest.mark.parametrize(
    ("name", "named"),
    [("gloo/healthy_3d_1", []), ("gloo/d1_nic_tbf_3d", [("communication_slow", [6], [30, 59])])],
)
def test_who_is_slow_in_a_real_run_is_named_and_in_a_healthy_one_nobody(
    name: str, named: list[tuple[str, list[int], list[int]]], tmp_path: Path
) -> None:
    """The log alone: the truth that lies beside it stays away."""
    shutil.copytree(sample(name), tmp_path / "run", ignore=shutil.ignore_patterns("*truth*"))
    done = run_offbeat("diagnose", tmp_path / "run", "--json")
    assert done.returncode == 0, done.stderr
    told = [(one["cause"], one["ranks"], one["iterations"]) for one in json.loads(done.stdout)["incidents"]]
    assert told == named


def test_what_tells_nothing_of_the_fabric_is_said(healthy: Path, tmp_path: Path) -> None:
    run = shutil.copytree(healthy, tmp_path / "run")
    described = json.loads((run / "job.json").read_text())
    route = {"source": "nic:h0/n", "destination": "nic:h1/n", "switches": ["spine:7"]}
    (run / "job.json").write_text(json.dumps(described | {"routes": [route]}))
    result = offbeat("diagnose", run)
    assert result.exit_code == 0
    assert result.stderr.splitlines() == ["job.json: routes tell nothing without links"]


def test_the_answer_is_whole(answer: dict[str, Any]) -> None:
    assert list(answer) == ["job", "layout", "iterations", "coverage", "incidents", "notes"]
    assert answer["job"] == "a1_compute_persist_3d"
    assert (answer["iterations"]["count"], answer["iterations"]["judged"]) == (60, 50)
    assert answer["iterations"]["irregular"] == list(range(30, 60))
    assert 900 < answer["iterations"]["median_ms"] < 1300
    assert answer["coverage"] == {
        "ranks_seen": 8,
        "ranks_expected": 8,
        "lines_read": 20880,
        "lost_lines": 0,
        "partial": [],
        "untold": [],
    }
    assert {name: type(value) for name, value in answer["incidents"][0].items()} == {
        "id": str,
        "cause": str,
        "level": str,
        "ranks": list,
        "candidates": list,
        "devices": list,
        "iterations": list,
        "pattern": str,
        "period": type(None),
        "confidence": float,
        "lost_gpu_seconds": float,
        "stage": dict,
        "network": type(None),
        "methods": list,
        "explanation": str,
        "rule": type(None),
        "measures": type(None),
    }


def test_people_read_the_same(answer: dict[str, Any]) -> None:
    result = offbeat("diagnose", EXAMPLE)
    assert result.exit_code == 0
    assert "irregular iterations: 30-59" in result.stdout
    assert "1. compute_slow: rank 5 (gpu:rank5)" in result.stdout
    assert answer["incidents"][0]["explanation"] in result.stdout


def test_the_same_files_give_the_same_answer_whatever_they_are_called(answer: dict[str, Any], tmp_path: Path) -> None:
    for number, file in enumerate(sorted(EXAMPLE.glob("*.gz"), reverse=True)):
        (tmp_path / f"{number}.jsonl").write_bytes(gzip.decompress(file.read_bytes()))
    renamed = json.loads(offbeat("diagnose", *tmp_path.iterdir(), "--json").stdout)
    for incident in (*renamed["incidents"], *answer["incidents"]):
        assert incident["id"]
    same = [{k: v for k, v in one["incidents"][0].items() if k != "id"} for one in (renamed, answer)]
    assert same[0] == same[1]
    assert renamed["iterations"] == answer["iterations"]


def test_a_healthy_run_has_nothing_wrong(healthy: Path) -> None:
    result = offbeat("diagnose", healthy)
    assert result.exit_code == 0
    assert result.stdout.endswith("\nnothing wrong\n")
    found = json.loads(offbeat("diagnose", healthy, "--json", "--fail-on-incident").stdout)
    assert (found["incidents"], found["notes"]) == ([], [])
    assert found["layout"] == {"tp": 2, "pp": 2, "dp": 2, "source": "given"}


@pytest.mark.parametrize(("first", "last", "judged"), [(0, 0, 0), (0, 2, 0), (26, 33, 0), (18, 29, 2)])
def test_a_short_recording_is_not_called_well(tmp_path: Path, first: int, last: int, judged: int) -> None:
    _cut(tmp_path, first, last)
    count = last - first + 1
    said = (
        f"too few iterations to tell whether anything is wrong: {judged} of {count} could be judged; "
        "10 regular ones come before the first that can be"
    )
    assert offbeat("diagnose", tmp_path).stdout.endswith(f"\n\n{said}\n")
    told = json.loads(offbeat("diagnose", tmp_path, "--json").stdout)
    assert (told["iterations"]["judged"], told["iterations"]["count"], told["notes"]) == (judged, count, [said])


def test_a_log_that_ends_while_ranks_wait_is_not_called_well(tmp_path: Path, healthy: Path) -> None:
    """In the last iteration rank 3 calls no more after its first operators, and each other rank waits in its next."""
    for file in healthy.glob("*.gz"):
        rows = [json.loads(line) for line in gzip.decompress(file.read_bytes()).splitlines()]
        last = max(row["iteration"] for row in rows)
        *kept, latest = [row for row in rows if row["iteration"] < last or row["position"] == 0]
        if latest["rank"] != 3:
            kept.append({**latest, "end_ns": None})
        (tmp_path / file.stem).write_text("".join(json.dumps(row) + "\n" for row in kept))
    told = json.loads((healthy / "job.json").read_text())
    (tmp_path / "job.json").write_text(json.dumps({**told, "ended_ns": None}))
    result = offbeat("diagnose", tmp_path)
    assert "nothing wrong" not in result.stdout
    note, *_ = json.loads(offbeat("diagnose", tmp_path, "--json").stdout)["notes"]
    assert "7 ranks wait for rank 3" in note


def _cut(folder: Path, first: int, last: int) -> None:
    """Some iterations of the example, of which those from 30 on are slow."""
    for file in EXAMPLE.glob("*.gz"):
        lines = gzip.decompress(file.read_bytes()).splitlines(keepends=True)
        kept = [line for line in lines if first <= json.loads(line)["iteration"] <= last]
        (folder / file.stem).write_bytes(b"".join(kept))


@pytest.mark.parametrize(("first", "since", "last"), [(28, 33, 39), (30, 35, 40), (30, 35, 38)])
def test_a_recording_that_is_slow_from_the_first_lines_on_names_the_rank(
    tmp_path: Path, first: int, since: int, last: int
) -> None:
    """Also of nine iterations, of which none can be judged by those before it."""
    _cut(tmp_path, first, last)
    result = offbeat("diagnose", tmp_path)
    judged = max(last - first + 1 - 10, 0)
    told = "none beside the first" if judged else "not known, as there were too few regular ones before"
    assert f"\nirregular iterations: {told}\n" in result.stdout
    assert "\n1. compute_slow: rank 5 (gpu:rank5)\n" in result.stdout
    said = json.loads(offbeat("diagnose", tmp_path, "--json").stdout)
    [incident] = said["incidents"]
    assert said["iterations"]["judged"] == judged
    assert (incident["ranks"], incident["iterations"], incident["methods"]) == ([5], [since, last], ["like_ranks"])


def test_a_slow_job_with_missing_logs_is_not_called_well(tmp_path: Path) -> None:
    shutil.copy(EXAMPLE / "rank0.jsonl.gz", tmp_path)
    told = json.loads(offbeat("diagnose", tmp_path, "--json").stdout)
    assert told["incidents"] == []
    assert told["iterations"]["irregular"]
    assert told["notes"] == ["slow at times, and nobody could be named: there is no telemetry of rank 4"]


def test_a_script_can_tell_by_the_exit_code(healthy: Path) -> None:
    assert offbeat("diagnose", EXAMPLE, "--fail-on-incident").exit_code == 1
    assert offbeat("diagnose", healthy, "--fail-on-incident").exit_code == 0


def test_a_rank_without_a_log_is_missed_in_the_coverage(tmp_path: Path) -> None:
    for file in EXAMPLE.glob("*.gz"):
        if "rank7" not in file.name:
            shutil.copy(file, tmp_path)
    coverage = json.loads(offbeat("diagnose", tmp_path, "--json").stdout)["coverage"]
    assert (coverage["ranks_seen"], coverage["ranks_expected"]) == (7, 8)


@pytest.mark.parametrize(("first", "last"), [(35, 59), (0, 24)])
def test_what_a_log_covers_is_told_and_nobody_is_blamed_for_a_rank_that_is_not_known(
    tmp_path: Path, first: int, last: int
) -> None:
    """Rank 5 is slow from iteration 30 on, of which its log lacks the baseline, or all."""
    for file in EXAMPLE.glob("*.gz"):
        lines = gzip.decompress(file.read_bytes()).splitlines(keepends=True)
        kept = [line for line in lines if "rank5" not in file.name or first <= json.loads(line)["iteration"] <= last]
        (tmp_path / file.stem).write_bytes(b"".join(kept))
    told = json.loads(offbeat("diagnose", tmp_path, "--json").stdout)
    assert told["coverage"]["partial"] == [{"ranks": [5], "iterations": [first, last]}]
    assert (told["coverage"]["ranks_seen"], told["incidents"]) == (8, [])
    [note] = told["notes"]
    assert note.startswith("slow at times, and nobody could be named: ")
    assert note.endswith("; and the log of rank 5 covers a part of the iterations alone")
    line = f"\nrank 5 logged iterations {first}-{last} alone: what went on there in others is not known\n"
    assert line in offbeat("diagnose", tmp_path).stdout


def test_a_setting_changes_what_is_irregular() -> None:
    found = offbeat("diagnose", EXAMPLE, "--json", settings={"OFFBEAT_MONITOR__DELTA": "5"})
    assert json.loads(found.stdout)["iterations"]["irregular"] == []


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ('{"rank": 0', ":1: not a JSON object"),
        (
            '{"rank": 0, "communicator": "c", "op": "jump", "call_ns": 1}',
            ':1: field op is "jump"; known are all_reduce',
        ),
        ('{"rank": -1, "communicator": "c", "op": "send", "call_ns": 1}', ":1: field rank is -1"),
        ('{"rank": 0, "communicator": "c", "op": "send"}', ":1: field call_ns is missing"),
        ("", ": holds no operator"),
    ],
)
def test_a_bad_line_is_named_with_its_place(tmp_path: Path, lines: str, said: str) -> None:
    file = tmp_path / "rank0.jsonl"
    file.write_text(lines)
    assert refusal(offbeat("diagnose", file)).startswith(f"{file}{said}")


def test_folders_in_a_folder_are_not_read_and_that_is_said(tmp_path: Path, healthy: Path) -> None:
    inner = tmp_path / "monday"
    shutil.copytree(healthy, inner)
    (tmp_path / "figures").mkdir()
    line = refusal(offbeat("diagnose", tmp_path))
    assert line == f"{tmp_path}: folders in a folder are not read; name one of them, as {inner}"
    shutil.copytree(healthy, tmp_path, dirs_exist_ok=True)
    result = offbeat("diagnose", tmp_path)
    assert result.stderr.splitlines()[0] == f"{tmp_path}: folders in a folder are not read: monday"
    assert "8 of 8 ranks" in result.stdout


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    known = "no telemetry in a known format; known are jsonl"
    assert known in refusal(offbeat("diagnose", tmp_path))
    assert known in refusal(offbeat("diagnose", tmp_path / "notes.txt"))
    assert refusal(offbeat("diagnose", tmp_path / "nowhere")).endswith("nowhere: no such file or folder")
    assert refusal(offbeat("diagnose", EXAMPLE, "--format", "excel")).startswith("unknown format 'excel'; known are")


def test_a_layout_that_cannot_be_is_said() -> None:
    assert refusal(offbeat("diagnose", EXAMPLE, "--layout", "tp=2")) == (
        "--layout tp=2: pp is missing; give tp, pp and dp"
    )
    assert refusal(offbeat("diagnose", EXAMPLE, "--layout", "")).startswith("--layout : tp is missing")
    assert refusal(offbeat("diagnose", EXAMPLE, "--layout", "tp=3,pp=2,dp=2")) == (
        f"{EXAMPLE}: layout tp=3,pp=2,dp=2 puts ranks 0 and 4 into no common pipeline, but they send to each other, "
        "and has 12 ranks; give degrees whose product is the number of the job's ranks, logged or not, or none to have "
        "them inferred"
    )


def test_two_runs_of_one_name_are_told_apart_by_job(tmp_path: Path) -> None:
    for seed, folder, iterations in ((1, "a", 16), (2, "b", 12)):
        scenario = f"seed={seed},tp=1,pp=1,dp=4,iterations={iterations}"
        assert offbeat("simulate", "--out", tmp_path / folder / "logs", "--scenario", scenario).exit_code == 0
        (tmp_path / folder / "logs" / "job.json").unlink()
    store = tmp_path / "store"

    def diagnosed(folder: str, *options: str) -> str:
        result = offbeat("diagnose", tmp_path / folder / "logs", "--data-dir", store, *options)
        assert result.exit_code == 0, result.output
        return result.stderr

    for _ in range(2):  # the same run again replaces only itself
        assert "another run" not in diagnosed("a")
    assert "another run" not in diagnosed("b", "--job", "b")
    said = f"{store} holds another run of logs, of "
    assert said in (note := diagnosed("b"))
    assert "this one replaces what is stored of it" in note

    def stored(job: str) -> list[dict[str, Any]]:
        asked = f"SELECT * EXCEPT job FROM iterations FINAL WHERE job = '{job}' ORDER BY ALL"
        rows: list[dict[str, Any]] = json.loads(offbeat("sql", "--data-dir", store, asked, "--json").stdout)
        return rows

    assert stored("logs") == stored("b") != []
    opened = ChdbStore(store)
    opened.execute("TRUNCATE TABLE recorded_jobs")  # as if a sink had told of the jobs
    opened.close()
    assert "it stays, and this one is mixed with it" in diagnosed("a")


def test_a_wrong_setting_is_said() -> None:
    result = offbeat("diagnose", EXAMPLE, settings={"OFFBEAT_PIVOTS": "many"})
    assert refusal(result).startswith("OFFBEAT_PIVOTS: input should be a valid integer")


def test_pauses_of_all_ranks_change_nothing(tmp_path: Path) -> None:
    """Checkpoints of 2 s every fourth iteration, and an evaluation of ten minutes amid the fault."""
    scenario = "seed=2,tp=2,pp=2,dp=2,iterations=36,layers=4"
    fault = "kind=gpu_slow,rank=5,iterations=15-35,slowdown=1.3"
    assert offbeat("simulate", "--out", tmp_path / "run", "--scenario", scenario, "--fault", fault).exit_code == 0

    pauses: list[list[int]] = []

    def incidents() -> list[tuple[str, list[int], list[int], float]]:
        done = offbeat("diagnose", tmp_path / "run", "--json")
        assert done.exit_code == 0, done.output
        told = json.loads(done.stdout)
        pauses.append([pause["after"] for pause in told["iterations"]["pauses"]])
        return [
            (one["cause"], one["ranks"], one["iterations"], round(one["lost_gpu_seconds"], 1))
            for one in told["incidents"]
        ]

    without = incidents()
    assert [(cause, ranks) for cause, ranks, *_ in without] == [("compute_slow", [5])]
    for file in (tmp_path / "run").glob("*.jsonl.gz"):
        rows = [json.loads(line) for line in gzip.decompress(file.read_bytes()).splitlines()]
        for row in rows:
            pause_ns = row["iteration"] // 4 * 2 * 10**9 + (row["iteration"] >= 30) * 600 * 10**9
            row |= {name: row[name] + pause_ns for name in ("call_ns", "start_ns", "end_ns") if row.get(name)}
        file.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))
    assert incidents() == without
    assert pauses == [[], [*range(3, 29, 4), 29, 31]]


def test_slow_nvlinks_are_named_though_other_groups_cross_them_too(tmp_path: Path) -> None:
    scenario = "seed=3,tp=4,pp=1,dp=4,microbatches=2,layers=4,gpus_per_host=8,iterations=30"
    fault = "kind=nvlink_slow,rank=9,iterations=15-29,slowdown=1.5"
    told = offbeat("simulate", "--out", tmp_path / "run", "--scenario", scenario, "--fault", fault)
    assert told.exit_code == 0, told.output
    done = offbeat("diagnose", tmp_path / "run", "--json")
    [incident] = json.loads(done.stdout)["incidents"]
    assert (incident["cause"], incident["devices"]) == ("communication_slow", ["nvlink:h1"])
