"""`offbeat simulate --nic` and `offbeat diagnose`: what NICs counted in, who is at fault out."""

import gzip
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from producers.simulation.nic import Fault, Injection, simulate_nics
from producers.simulation.recording import write
from schemas.catalogue import COMM_OPS
from tests.offbeat.command_line import ROOT, offbeat, refusal
from tests.offbeat.test_traffic_in_process import PIPELINES

SCENARIO = "setup=neighbours,seed=30005,iterations=16"
FAULT = "kind=pcie_downgrade,rank=2,at_ms=30,severity=0.4"
NIC = "nic:h2/mlx5_0"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("slow")


@pytest.fixture(scope="module")
def slow(folder: Path) -> Path:
    run = folder / "run"
    made = ("simulate", "--nic", "--out", run, "--scenario", SCENARIO, "--fault", FAULT, "--truth", folder / "truth")
    result = offbeat(*made, "--json")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert told.pop("job").startswith("neighbours-4-")
    assert told == {"ranks": 4, "nics": 4, "shrink": 16, "folder": str(run)}
    return run


def answer(*paths: Path) -> dict[str, Any]:
    result = offbeat("diagnose", *paths, "--json")
    assert result.exit_code == 0, result.output
    told: dict[str, Any] = json.loads(result.stdout)
    return told


def test_the_nic_that_was_made_slow_is_named_with_the_measures_of_the_rule(slow: Path, folder: Path) -> None:
    [fault] = json.loads((folder / "truth").read_text())["faults"]
    told = answer(slow)
    [incident] = told["incidents"]
    assert incident["devices"] == [f"nic:{fault['host']}/{fault['nic']}"] == [NIC]
    assert (incident["cause"], incident["ranks"], incident["methods"]) == ("communication_slow", [2], ["traffic"])
    assert (incident["rule"], sorted(incident["measures"])) == ("actual_rate", ["collectives", "deviation", "ratio"])
    assert 0.3 < incident["measures"]["ratio"] < 0.6
    legend = (ROOT / "docs" / "algorithms.md").read_text("utf-8").partition("### Rules and measures")[2]
    assert all(f"`{name}`" in legend for name in (incident["rule"], *incident["measures"]))
    first, last = incident["iterations"]
    assert set(range(first, last + 1)) <= set(told["iterations"].pop("irregular"))
    assert told["iterations"] == {"count": 16, "judged": 16, "median_ms": None, "pauses": []}
    assert told["coverage"].pop("lines_read") > 0
    assert told["coverage"] == {"ranks_seen": 4, "ranks_expected": 4, "lost_lines": 0, "partial": [], "untold": []}


def test_people_read_it_in_the_words_of_any_incident(slow: Path) -> None:
    shown = offbeat("diagnose", slow).stdout
    assert f"1. communication_slow: rank 2 ({NIC})" in shown
    assert "told by actual_rate: collectives 10, deviation " in shown


def test_whose_traffic_it_is_need_not_be_described(slow: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    shutil.copytree(slow, bare, ignore=shutil.ignore_patterns("job.json"))
    told, described = answer(bare), answer(slow)
    assert (told["job"], told["layout"]) == ("bare", None)
    [one], [other] = told["incidents"], described["incidents"]
    assert {name: one[name] for name in ("cause", "ranks", "devices", "iterations", "measures")} == {
        name: other[name] for name in ("cause", "ranks", "devices", "iterations", "measures")
    }


def test_calls_that_are_missing_are_counted(slow: Path, tmp_path: Path) -> None:
    rows = offbeat_lines(slow / "h1.op_calls.jsonl.gz")
    shutil.copytree(slow, tmp_path / "run", ignore=shutil.ignore_patterns("h1.op_calls*"))
    (tmp_path / "run" / "h1.op_calls.jsonl").write_text("".join(rows[:20] + rows[23:]))
    assert answer(tmp_path / "run")["coverage"]["lost_lines"] == 3


def offbeat_lines(path: Path) -> list[str]:
    return gzip.decompress(path.read_bytes()).decode().splitlines(keepends=True)


def test_a_healthy_run_has_nothing_wrong_whether_or_not_it_is_described(tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert (
        offbeat("simulate", "--nic", "--out", run, "--scenario", "setup=neighbours,iterations=12,noise=quiet").exit_code
        == 0
    )
    told = answer(run)
    assert (told["incidents"], told["notes"]) == ([], [])
    (run / "job.json").unlink()
    told = answer(run)
    assert (told["incidents"], told["notes"], told["iterations"]["count"]) == ([], [], 12)


def test_what_lasts_to_the_end_is_told_to_the_end(slow: Path) -> None:
    [incident] = answer(slow)["incidents"]
    assert incident["iterations"][1] == 15
    assert incident["pattern"] == "persistent_degradation"
    assert incident["lost_gpu_seconds"] > 0
    assert "to 15: the job lost" in incident["explanation"]


def test_what_is_slow_from_the_beginning_has_lost_nobody_knows_how_much(tmp_path: Path) -> None:
    fault = "kind=pcie_downgrade,rank=2,at_ms=0,severity=0.4"
    made = ("simulate", "--nic", "--out", tmp_path / "run", "--scenario", SCENARIO, "--fault", fault)
    assert offbeat(*made).exit_code == 0
    [incident] = answer(tmp_path / "run")["incidents"]
    assert (incident["cause"], incident["ranks"]) == ("communication_slow", [2])
    assert (incident["pattern"], incident["lost_gpu_seconds"]) == (None, None)
    assert "irregular iterations: not known" in offbeat("diagnose", tmp_path / "run").stdout
    first, last = incident["iterations"]
    assert f"between iterations {first} and {last}. Check" in incident["explanation"]


def test_of_a_host_that_recorded_nothing_nobody_is_named_and_the_others_are_diagnosed(
    slow: Path, tmp_path: Path
) -> None:
    part = tmp_path / "part"
    shutil.copytree(slow, part, ignore=shutil.ignore_patterns("h0.*"))
    result = offbeat("diagnose", part, "--json")
    told = json.loads(result.stdout)
    assert "h0: recorded nothing; what its ranks send is not known" in result.stderr
    assert [(one["cause"], one["ranks"]) for one in told["incidents"]] == [("communication_slow", [2])]
    assert told["coverage"]["ranks_seen"] == 3
    assert told["coverage"]["untold"] == ["h0: recorded nothing; what its ranks send is not known"]
    (part / "h1.nic_epochs.jsonl.gz").unlink()
    assert "h1: recorded no epochs; what its ranks" in offbeat("diagnose", part).stderr


def test_where_the_culprit_recorded_too_little_it_is_said_whose_telemetry_is_missing(
    slow: Path, tmp_path: Path
) -> None:
    shutil.copytree(slow, tmp_path / "part", ignore=shutil.ignore_patterns("h2.queue_pairs*"))
    told = answer(tmp_path / "part")
    assert told["coverage"]["ranks_seen"] == 3
    assert told["coverage"]["untold"] == ["h2: recorded no queue pairs; what its ranks send is not known"]
    assert told["incidents"] == []
    assert told["notes"] == ["slow at times, and nobody could be named: there is no telemetry of rank 2"]
    shutil.copytree(slow, tmp_path / "calls", ignore=shutil.ignore_patterns("*.queue_pairs*"))
    assert answer(tmp_path / "calls")["notes"] == [
        "nothing can be told: of no rank were calls, queue pairs and epochs recorded"
    ]


def test_a_compressed_file_that_ends_early_is_told(slow: Path, tmp_path: Path) -> None:
    shutil.copytree(slow, tmp_path / "part")
    calls = tmp_path / "part" / "h2.op_calls.jsonl.gz"
    whole = calls.read_bytes()
    calls.write_bytes(whole[: len(whole) // 2])
    [line] = answer(tmp_path / "part")["coverage"]["untold"]
    assert line.startswith(f"{calls}: the compressed data ends early")


def test_ranks_of_which_only_others_tell_recorded_nothing(slow: Path, tmp_path: Path) -> None:
    shutil.copytree(slow, tmp_path / "part", ignore=shutil.ignore_patterns("job.json", "h0.*"))
    said = "rank 0: recorded nothing, and no job.json tells of them; what they send is not known"
    [line] = answer(tmp_path / "part")["coverage"]["untold"]
    assert line.startswith(said)


def test_folders_that_are_not_of_a_host_by_their_names_are_told(slow: Path, tmp_path: Path) -> None:
    part = tmp_path / "part"
    shutil.copytree(slow, part)
    for name, read in (("h3", False), ("host=h3", True)):
        (part / name).mkdir()
        for path in sorted(part.rglob("h3.*")):
            path.rename(part / name / path.name)
        told = answer(part)["coverage"]
        assert (told["ranks_seen"] == 4, told["untold"] == []) == (read, read)
        assert read or any(line.endswith("not read: h3; those of hosts are named host=NAME") for line in told["untold"])


def test_queue_pairs_of_a_nic_that_nothing_was_counted_of_are_told(slow: Path, tmp_path: Path) -> None:
    shutil.copytree(slow, tmp_path / "part")
    (path,) = (tmp_path / "part").glob("h2.queue_pairs*")
    rows = [json.loads(line) | {"nic": "mlx5_9"} for line in offbeat_lines(path)]
    path.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))
    said = "h2: has queue pairs of mlx5_9, but no epochs; what goes through it is not seen"
    assert answer(tmp_path / "part")["coverage"]["untold"] == [said]


def test_a_job_that_hangs_is_not_well_because_nobody_can_be_named(tmp_path: Path) -> None:
    fault = "kind=nic_down,rank=2,at_ms=60"
    made = ("simulate", "--nic", "--out", tmp_path / "run", "--scenario", SCENARIO, "--fault", fault)
    assert offbeat(*made).exit_code == 0
    [incident] = answer(tmp_path / "run")["incidents"]
    assert (incident["cause"], incident["ranks"]) == ("hang_hardware", [2])
    assert "; hangs in " in offbeat("diagnose", tmp_path / "run").stdout
    for path in (tmp_path / "run").glob("h[0-2].queue_pairs*"):
        path.unlink()
    told = answer(tmp_path / "run")
    assert told["incidents"] == []
    assert "the job hangs, unless it was over" in told["notes"][0]
    assert told["notes"][0].endswith("h2: recorded no queue pairs; what its ranks send is not known")


def test_of_a_host_whose_calls_end_early_it_is_said(slow: Path, tmp_path: Path) -> None:
    shutil.copytree(slow, tmp_path / "part")
    (path,) = (tmp_path / "part").glob("h1.op_calls*")
    rows = [json.loads(line) for line in offbeat_lines(path)]
    times = ("call_ns", "group_start_ns", "group_end_ns")
    earlier = [row | {name: row[name] - 4_000_000_000 for name in times if row.get(name)} for row in rows]
    path.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in earlier).encode()))
    assert "h1: its calls end 4 s before those of others" in offbeat("diagnose", tmp_path / "part").stderr


def test_of_a_host_whose_clock_is_not_told_it_is_said_and_not_of_the_others(slow: Path, tmp_path: Path) -> None:
    shutil.copytree(slow, tmp_path / "part")
    (path,) = (tmp_path / "part").glob("h1.nic_epochs*")
    rows = [json.loads(line) for line in offbeat_lines(path)]
    later = [row | {"host_minus_nic_ns": row["host_minus_nic_ns"] + 9_000_000_000} for row in rows]
    path.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in later).encode()))
    [line] = answer(tmp_path / "part")["coverage"]["untold"]
    assert line == "h1: its polls end 9 s after those of others; see host_minus_nic_ns, and its clock"


def test_folders_of_hosts_are_to_be_named_together(slow: Path, tmp_path: Path) -> None:
    for path in slow.glob("h*.*"):
        folder = tmp_path / "all" / path.name.partition(".")[0]
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, folder)
    refused = offbeat("diagnose", tmp_path / "all")
    assert refused.exit_code == 2
    assert "if they are of one job's hosts, name all of them" in refused.stderr
    named = sorted((tmp_path / "all").iterdir())
    assert [one["ranks"] for one in answer(*named)["incidents"]] == [[2]]


def test_of_a_host_that_stopped_recording_it_is_said_when(slow: Path, tmp_path: Path) -> None:
    shutil.copytree(slow, tmp_path / "part")
    (path,) = (tmp_path / "part").glob("h3.nic_epochs*")
    rows = [json.loads(line) for line in offbeat_lines(path)]
    earlier = [row | {name: row[name] - 3_000_000_000 for name in ("poll_from_ns", "poll_to_ns")} for row in rows]
    path.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in earlier).encode()))
    assert "h3: recorded nothing of the last 3 s" in offbeat("diagnose", tmp_path / "part").stderr


def test_two_recordings_are_two_jobs_unless_they_describe_one(slow: Path, tmp_path: Path) -> None:
    both = tmp_path / "first", tmp_path / "second"
    for path, others in zip(both, ("h[01].*", "h[23].*"), strict=True):
        shutil.copytree(slow, path, ignore=shutil.ignore_patterns(others))
    assert [one["ranks"] for one in answer(*both)["incidents"]] == [[2]]
    described = json.loads((both[1] / "job.json").read_text())
    (both[1] / "job.json").write_text(json.dumps(described | {"job": "other"}))
    told = refusal(offbeat("diagnose", *both))
    assert "several jobs" in told
    assert told.endswith("second: other; diagnose one at a time")


def test_operators_and_traffic_are_looked_at_together(tmp_path: Path) -> None:
    fault = Fault(Injection.PCIE_DOWNGRADE, 2, at_s=0.1, severity=0.1)
    run = simulate_nics(replace(PIPELINES, seed=30012, faults=(fault,)))
    write(run, tmp_path / "traffic")
    pq.write_table(run.operators.select(COMM_OPS.schema.names), tmp_path / "operators.parquet")
    told = answer(tmp_path / "operators.parquet", tmp_path / "traffic")
    assert told["iterations"]["count"] == 9
    assert told["iterations"]["median_ms"] is not None
    assert [(one["cause"], one["ranks"]) for one in told["incidents"]] == [("communication_slow", [2])]
    assert told["layout"] == {"tp": 2, "pp": 2, "dp": 2, "source": "given"}
    alone = answer(tmp_path / "traffic")
    assert [one["measures"] for one in alone["incidents"]] == [one["measures"] for one in told["incidents"]]


def test_what_is_said_of_the_job_beside_its_traffic_alone_counts(tmp_path: Path) -> None:
    """Calls do not say on which host they were told, nor do operators."""
    run = simulate_nics(replace(PIPELINES, seed=30012, iterations=4))
    write(run, tmp_path / "traffic")
    for path in (tmp_path / "traffic").glob("*.op_calls.jsonl.gz"):
        rows = [json.loads(line) for line in offbeat_lines(path)]
        bare = [{name: value for name, value in row.items() if name != "host"} for row in rows]
        path.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in bare).encode()))
    pq.write_table(run.operators.select(COMM_OPS.schema.names), tmp_path / "operators.parquet")
    told = answer(tmp_path / "operators.parquet", tmp_path / "traffic")
    assert told["coverage"]["ranks_seen"] == len(run.job.places)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--format", "jsonl"), "holds NIC traffic alone, which is known by its names; leave --format out"),
        (("--iteration-op", "op=all_reduce"), "NIC traffic itself tells where its iterations end"),
        (("--layout", "tp=4,pp=4,dp=1"), "the layout has 16 ranks, the recording 4"),
    ],
)
def test_what_does_not_go_with_traffic_is_said(slow: Path, arguments: tuple[str, str], said: str) -> None:
    assert said in refusal(offbeat("diagnose", slow, *arguments))


def test_a_replay_tells_what_other_rules_would_have_said(slow: Path, tmp_path: Path) -> None:
    rules = ("--set", "compare.rules.custom_margin=0.9", "--set", "segment.step_ns=250000000")
    bare = tmp_path / "bare"  # it does not say when it ended
    shutil.copytree(slow, bare, ignore=shutil.ignore_patterns("job.json"))
    again = offbeat("replay", bare, "--as", "lax", *rules, "--data-dir", tmp_path / "data", "--json")
    assert again.exit_code == 0, again.output
    told = json.loads(again.stdout)
    assert (told["iterations"], told["gone"], told["unjudged"]) == (16, [], [])
    assert told["incidents"] == {"same": 0, "changed": 0, "gone": 1, "new": 0}
    assert told["doubtful"] is False


def test_what_takes_operators_alone_says_so(slow: Path, tmp_path: Path) -> None:
    labels = tmp_path / "labels.jsonl"
    labels.touch()
    for command in (("convert", slow), ("train", slow, "--labels", labels)):
        said = refusal(offbeat(*command, "--out", tmp_path / "made.parquet"))
        assert said.startswith(f"{slow}: holds NIC traffic alone, and this command takes operators; ")


@pytest.mark.parametrize(
    ("option", "text", "said"),
    [
        ("--scenario", "setup=llama", "there is no setup 'llama'; give one of gpt2_70b"),
        ("--scenario", "hidden=12", "there is no 'hidden'; known are seed"),
        ("--scenario", "setup=neighbours,dp=3", "neighbours need rows of two"),
        ("--scenario", "dp=100000", "1600000 ranks x 10 iterations are more than 4096"),
        ("--scenario", "line_gbps=0", "line_gbps is 0.0; give 0.1 to 10,000"),
        ("--fault", "kind=nic_down,rank=1,at_ms=-5", "give 0 or more"),
        ("--fault", "kind=gpu_slow,rank=1,at_ms=3", "there is no kind 'gpu_slow'; give one of gpu_error"),
        ("--fault", "kind=nic_down,rank=1", "at_ms is missing"),
        ("--fault", "kind=gpu_throttling,rank=1,at_ms=3,severity=0.5", "give 100.0 to 700.0"),
        ("--fault", "kind=nic_down,rank=1,at_ms=3,severity=0.5", "nic_down has no severity; leave it out"),
        ("--fault", "kind=nic_down,rank=99,at_ms=3", "scenario: the job has no rank 99; give 0 to 63"),
        ("--fault", "kind=congestion,rank=1,at_ms=3,peer=99", "scenario: the job has no rank 99; give 0 to 63"),
    ],
)
def test_what_cannot_be_simulated_is_said(tmp_path: Path, option: str, text: str, said: str) -> None:
    assert said in refusal(offbeat("simulate", "--nic", "--out", tmp_path / "run", option, text))
    assert not list(tmp_path.iterdir())


def test_a_fault_that_begins_after_the_end_is_told(tmp_path: Path) -> None:
    faults = ("--fault", "kind=nic_down,rank=2,at_ms=300000", "--fault", "kind=pcie_downgrade,rank=1,at_ms=5")
    made = offbeat(
        "simulate", "--nic", "--out", tmp_path / "run", "--scenario", "setup=neighbours,iterations=2", *faults
    )
    assert made.exit_code == 0, made.output
    lines = [line for line in made.stderr.splitlines() if "the run was over before" in line]
    assert len(lines) == 1
    assert "before nic_down of rank 2 at 300000 ms: nothing was done to it" in lines[0]


def test_a_recording_of_another_kind_is_replaced_by_force_alone(slow: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(slow, run)
    smaller = ("simulate", "--out", run, "--scenario", "tp=2,pp=1,dp=1,iterations=2")
    assert "replace it with --force" in refusal(offbeat(*smaller))
    assert offbeat(*smaller, "--force").exit_code == 0
    assert sorted(file.name for file in run.iterdir()) == ["job.json", "rank0.jsonl.gz", "rank1.jsonl.gz"]
