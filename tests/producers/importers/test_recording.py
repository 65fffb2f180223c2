"""A recording as a whole: order, duplicates, losses, labels, and the job that it tells of."""

import gzip
import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

from diagnosis.job import Communicator, Job, Layout, Place
from producers.importers.recording import Recording, load, write
from schemas.catalogue import COMM_OPS
from schemas.errors import InputError
from tests.recordings import EXAMPLE, sample
from tests.training_log import Training

TRAINING = Training(iterations=4)
ROWS: list[dict[str, Any]] = TRAINING.table().to_pylist()


def written(folder: Path, rows: Iterable[dict[str, Any]], name: str = "all.jsonl") -> Path:
    folder.mkdir(exist_ok=True)
    with (folder / name).open("w") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    return folder


def without(rows: Iterable[dict[str, Any]], *names: str) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name not in names} for row in rows]


def test_the_example_is_read_whole(example: Recording) -> None:
    assert example.job.job == "a1_compute_persist_3d"
    assert example.table.schema.names == COMM_OPS.schema.names
    assert (example.table.num_rows, example.lost_lines, example.duplicates) == (20880, 0, 0)
    assert example.iterations_source == "given"
    assert example.layout == Layout(tp=2, pp=2, dp=2, cp=1, ep=1, source="inferred")
    assert example.job.ranks == tuple(range(8))
    assert example.job.members["mp0"] == (0, 1, 4, 5)
    assert all(place.host is None for place in example.job.places)
    assert not example.table.column("position").null_count
    assert not example.table.column("call_order").null_count


@pytest.mark.parametrize("name", ["d1_nic_tbf_3d", "e1_hang_tp_notentered_3d", "healthy_3d_1"])
def test_the_other_samples_are_read_too(name: str) -> None:
    recording = load([sample("gloo") / name])
    assert recording.layout == Layout(tp=2, pp=2, dp=2, cp=1, ep=1, source="inferred")
    assert recording.lost_lines == 0


def test_rows_are_sorted_by_rank_and_call(tmp_path: Path) -> None:
    recording = load([written(tmp_path / "run", reversed(ROWS))])
    assert recording.table.to_pylist() == load([written(tmp_path / "other", ROWS)]).table.to_pylist()
    calls = recording.table.filter(recording.table.column("rank").to_numpy() == 3).column("call_ns").to_pylist()
    assert calls == sorted(calls)


def test_many_files_are_one_recording(tmp_path: Path) -> None:
    for host in range(2):
        written(tmp_path / f"h{host}", [row for row in ROWS if row["rank"] % 2 == host], "log.jsonl")
    both = load([tmp_path / "h0", tmp_path / "h1"])
    assert both.job.job == tmp_path.name
    assert both.table.num_rows == len(ROWS)
    single = load([tmp_path / "h0" / "log.jsonl"])
    assert single.job.job == "h0"


def test_rotated_logs_are_part_of_it_and_others_are_told(tmp_path: Path) -> None:
    half = len(ROWS) // 2
    folder = written(tmp_path / "run", ROWS[half:])
    (folder / "all.jsonl.1.gz").write_bytes(
        gzip.compress("".join(json.dumps(row) + "\n" for row in ROWS[:half]).encode())
    )
    written(folder, ROWS[:3], "all.jsonl.old")
    written(folder, ROWS[:3], "all.jsonl.older")
    recording = load([folder])
    assert recording.table.to_pylist() == load([written(tmp_path / "whole", ROWS)]).table.to_pylist()
    [gone] = recording.gone
    assert gone.startswith(f"{folder / 'all.jsonl.old'} (and 1 more): not read: begins like jsonl, but is none by its")


def test_rows_that_came_twice_are_dropped_and_counted(tmp_path: Path) -> None:
    early = [{**row, "end_ns": None} for row in ROWS[:50]]
    recording = load([written(tmp_path / "run", early + ROWS + ROWS[10:20])])
    assert recording.duplicates == 60
    assert recording.table.equals(load([written(tmp_path / "once", ROWS)]).table)


def test_two_runs_in_one_folder_are_refused(tmp_path: Path) -> None:
    again = [{**row, "call_ns": row["call_ns"] + 10**12, "start_ns": None, "end_ns": None} for row in ROWS]
    with pytest.raises(
        InputError, match="two different operators with number 0 on communicator tp0: if these are the files"
    ):
        load([written(tmp_path / "run", ROWS + without(again, "call_order"))])


def later(after_ns: int, first: int = 0) -> list[dict[str, Any]]:
    """The same run once more from an iteration on, with other communicators."""
    known = without(ROWS, "call_order", "position", "start_ns", "end_ns", "seq")
    return [
        {**row, "communicator": f"new {row['communicator']}", "call_ns": row["call_ns"] + after_ns}
        for row in known
        if row["iteration"] >= first
    ]


@pytest.mark.parametrize("unknown", ["iteration", "seq"])
def test_a_run_of_other_communicators_is_another_one(tmp_path: Path, unknown: str) -> None:
    """A day later, or as iterations begin anew."""
    again = without(later(90_000 * 10**9 if unknown == "iteration" else 10**10), unknown)
    with pytest.raises(
        InputError, match=r"run: rank 0 uses none of its communicators after .*: are these the files of"
    ):
        load([written(tmp_path / "run", without(ROWS, unknown) + again)])


def test_a_warm_up_with_communicators_of_its_own_is_no_other_run(tmp_path: Path) -> None:
    warm_up = [row for row in later(-(10**10)) if row["iteration"] < 2]
    assert load([written(tmp_path / "run", warm_up + ROWS)]).table.num_rows == len(warm_up) + len(ROWS)


def test_a_job_that_was_resumed_from_a_checkpoint_is_one_run(tmp_path: Path) -> None:
    table = load([written(tmp_path / "run", ROWS + later(10**10, first=2))]).table
    assert table.num_rows == len(ROWS) + len(later(0, first=2))


def test_iterations_that_start_again_are_numbered_on(tmp_path: Path) -> None:
    whole = Training(iterations=8).table().to_pylist()
    again = [{**row, "iteration": row["iteration"] % 4} for row in whole]
    recording = load([written(tmp_path / "run", again)])
    assert recording.table.equals(load([written(tmp_path / "whole", whole)]).table)
    assert recording.gone == (
        "iterations are numbered from 0 again after 3: those that follow are numbered on, from 4",
    )


TIMES = ("call_ns", "start_ns", "end_ns")


@pytest.mark.parametrize(("unit", "ns"), [("microseconds", 10**3), ("milliseconds", 10**6), ("seconds", 10**9)])
def test_times_in_another_unit_are_refused(tmp_path: Path, unit: str, ns: int) -> None:
    began = min(row["call_ns"] for row in ROWS)
    faster = [{**row, **{name: began + (row[name] - began) // 5 for name in TIMES if row[name]}} for row in ROWS]
    folder = tmp_path / "run"
    for rank in range(8):
        rows = [row for row in faster if row["rank"] == rank]
        wrong = [{**row, **{name: row[name] // ns for name in TIMES if row[name]}} for row in rows]
        written(folder, wrong if rank == 3 else rows, f"rank{rank}.jsonl")
    told = rf"run/rank3\.jsonl: field call_ns of rank 3 is {began // ns}[0-9]*, {unit} since the epoch, it seems"
    with pytest.raises(InputError, match=told):
        load([folder])


@pytest.mark.parametrize("ranks", [{5}, set(range(8))])
@pytest.mark.parametrize("at_ns", [0, 1_795_223_388_871_302_600])
def test_clocks_that_stand_are_refused(tmp_path: Path, ranks: set[int], at_ns: int) -> None:
    folder, first = tmp_path / "run", min(ranks)
    for rank in range(8):
        rows = [row for row in ROWS if row["rank"] == rank]
        standing = [{**row, "call_ns": at_ns, "start_ns": None, "end_ns": None} for row in rows]
        written(folder, standing if rank in ranks else rows, f"rank{rank}.jsonl")
    calls = sum(row["rank"] == first for row in ROWS)
    told = f"field call_ns of rank {first} is {at_ns}, at {calls} of its {calls} calls: no clock; give the time of each"
    with pytest.raises(InputError, match=rf"run/rank{first}\.jsonl: {told}"):
        load([folder])


def test_a_clock_that_mostly_stands_is_refused_and_a_few_calls_at_once_are_not(tmp_path: Path) -> None:
    known = without(ROWS, "start_ns", "end_ns", "call_order")
    mostly = [{**row, "call_ns": 0 if row["seq"] % 3 else row["call_ns"]} for row in known]
    with pytest.raises(InputError, match=r"field call_ns of rank 0 is 0, at .* calls: no clock; give the time of each"):
        load([written(tmp_path / "run", mostly)])
    coarse = [{**row, "call_ns": row["call_ns"] // 10**6 * 10**6} for row in known]
    assert load([written(tmp_path / "coarse", coarse)]).table.num_rows == len(ROWS)


@pytest.mark.parametrize("up_s", [0.8, 30 * 60, 20 * 86_400])
def test_clocks_may_count_from_the_start_of_the_host(tmp_path: Path, up_s: float) -> None:
    """So far as microseconds, milliseconds and seconds since the epoch are in 1995, 2027 and 2024."""
    back = min(row["call_ns"] for row in ROWS) - int(up_s * 1e9)
    rows = [{**row, **{name: row[name] - back for name in TIMES if row[name]}} for row in ROWS]
    assert load([written(tmp_path / "run", rows)]).table.num_rows == len(ROWS)


def test_times_that_may_be_microseconds_are_said_once(tmp_path: Path) -> None:
    rows = [{**row, **{name: row[name] // 1000 for name in TIMES if row[name]}} for row in ROWS]
    recording = load([written(tmp_path / "run", rows)])
    [told] = recording.gone
    assert told.startswith(
        "times of rank 0 are read as nanoseconds of a clock that began 20 days before: if they are mic"
    )
    assert "(2023-11-14)" in told
    write(recording, tmp_path / "run.parquet")
    assert load([tmp_path / "run.parquet"]).gone == (told,)


def test_lost_lines_are_holes_in_the_numbering(tmp_path: Path) -> None:
    kept = [row for i, row in enumerate(ROWS) if row["iteration"] != 1 or i % 10 != 5]
    recording = load([written(tmp_path / "run", kept)])
    assert recording.lost_lines == len(ROWS) - len(kept)


def test_iterations_that_nobody_recorded_are_no_lost_lines(tmp_path: Path) -> None:
    whole = [row for row in Training(iterations=8).table().to_pylist() if row["iteration"] % 3 == 0]
    kept = [row for row in whole if (row["rank"], row["communicator"], row["seq"] % 16) != (0, "tp0", 5)]
    recording = load([written(tmp_path / "run", kept)])
    assert recording.lost_lines == len(whole) - len(kept) == 3
    [told] = recording.gone
    assert told.startswith("one iteration in 3 was recorded, as far as their numbers tell: each is taken to")
    [told] = load([written(tmp_path / "calls", without(kept, "start_ns", "end_ns"))]).gone
    assert told.endswith("and no ends of operators: how long an iteration took is not known")
    tens = [{**row, "iteration": 10 * row["iteration"]} for row in ROWS]
    assert load([written(tmp_path / "tens", tens)]).gone == ()


def test_positions_are_not_shifted_by_lost_lines(tmp_path: Path) -> None:
    whole = load([written(tmp_path / "whole", ROWS)]).table.to_pylist()
    kept = [row for i, row in enumerate(ROWS) if i % 97 != 5]
    key = ("rank", "communicator", "seq")
    expected = {tuple(row[k] for k in key): row["position"] for row in whole}
    for row in load([written(tmp_path / "run", kept)]).table.to_pylist():
        assert row["position"] == expected[tuple(row[k] for k in key)]


def test_a_recorded_call_order_counts_more_than_the_clock(tmp_path: Path) -> None:
    back = [{**row, "call_ns": row["call_ns"] - row["seq"], "start_ns": None, "end_ns": None} for row in ROWS]
    stepped = [{**row, "call_ns": row["call_ns"] - (10**9 if row["call_order"] > 100 else 0)} for row in back]
    recording = load([written(tmp_path / "run", reversed(stepped))])
    first = recording.table.filter(recording.table.column("rank").to_numpy() == 0)
    assert first.column("call_order").to_pylist() == sorted(first.column("call_order").to_pylist())


def test_iterations_are_inferred_where_they_are_missing(tmp_path: Path) -> None:
    recording = load([written(tmp_path / "run", without(ROWS, "iteration", "phase", "microbatch", "position"))])
    assert recording.iterations_source == "inferred"
    assert recording.table.column("iteration").to_pylist() == [row["iteration"] for row in ROWS]
    assert recording.layout == Layout(tp=2, pp=2, dp=2, cp=1, ep=1, source="inferred")


def test_ranks_that_carry_no_iterations_get_the_numbers_of_those_that_do(tmp_path: Path) -> None:
    rows = [{**row, "iteration": None if row["rank"] == 3 else row["iteration"] + 1000} for row in ROWS]
    recording = load([written(tmp_path / "run", rows)])
    assert recording.iterations_source == "inferred"
    assert recording.table.column("iteration").to_pylist() == [row["iteration"] + 1000 for row in ROWS]


def test_what_precedes_iteration_0_is_in_none(tmp_path: Path) -> None:
    """One rank counts its third cycle as iteration 0; cycles before it are no part of that."""
    first, *others = sorted({row["rank"] for row in ROWS})
    rows = [{**row, "iteration": row["iteration"] - 2} for row in ROWS if row["rank"] == first]
    rows = [row if row["iteration"] >= 0 else {**row, "iteration": None} for row in rows]
    rows += without([row for row in ROWS if row["rank"] in others], "iteration")
    table = load([written(tmp_path / "run", rows)]).table
    assert set(table.column("iteration").to_pylist()) == {None, 0, 1}
    assert table.filter(pc.equal(table.column("iteration"), 0)).num_rows == len(ROWS) // TRAINING.iterations


def test_the_operator_that_ends_an_iteration_can_be_named(tmp_path: Path) -> None:
    folder = written(tmp_path / "run", without(ROWS, "iteration"))
    recording = load([folder], iteration_end="op=all_reduce,bytes=4")
    assert recording.iterations_source == "inferred"
    last_of_step = [row for row in recording.table.to_pylist() if row["communicator"] == "mp0" and row["rank"] == 0]
    assert [row["iteration"] for row in last_of_step] == [0, 1, 2, 3]
    with pytest.raises(
        InputError, match=f"{folder}: 'all_reduce' names no operator; the form is op=all_reduce,bytes=4"
    ):
        load([folder], iteration_end="all_reduce")


def test_what_cannot_be_inferred_says_what_to_give(tmp_path: Path) -> None:
    few = without([row for row in ROWS if row["iteration"] == 1], "iteration")
    with pytest.raises(InputError, match="cannot tell where the iterations of rank 0 begin; name the operator"):
        load([written(tmp_path / "run", few)])


def test_hosts_come_from_the_rows(tmp_path: Path) -> None:
    rows = [{**row, "host": f"h{row['rank'] // 4}"} for row in ROWS if row["rank"] != 7]
    job = load([written(tmp_path / "run", rows)]).job
    assert [place.host for place in job.places] == ["h0"] * 4 + ["h1"] * 3 + [None]


def test_a_rank_on_two_hosts_is_refused(tmp_path: Path) -> None:
    rows = [{**row, "host": f"h{row['seq'] % 2}"} for row in ROWS]
    with pytest.raises(InputError, match="rank 0 is on two hosts, h0 and h1"):
        load([written(tmp_path / "run", rows)])


def described() -> Job:
    communicators = tuple(Communicator(name, ranks, "named") for name, ranks in TRAINING.groups().items())
    places = tuple(Place(r, "h0", r, (f"mlx5_{r}",)) for r in range(8))
    return Job("described", places, communicators, Layout(tp=2, pp=2, dp=2, source="given"), started_ns=5)


def test_a_job_file_tells_what_rows_cannot(tmp_path: Path) -> None:
    folder = written(tmp_path / "run", ROWS)
    (folder / "job.json").write_text(json.dumps(described().to_row()))
    assert load([folder]).job == described()


def test_a_job_file_may_tell_hosts_alone(tmp_path: Path) -> None:
    folder = written(tmp_path / "run", ROWS)
    inferred = load([folder]).job
    places = [
        {"rank": rank, "host": f"h{rank // 4}", "gpu": rank % 4, "nics": [f"mlx5_{rank % 4}"]} for rank in range(8)
    ]
    (folder / "job.json").write_text(json.dumps({"ranks": places}))
    job = load([folder]).job
    assert (job.job, job.layout, job.communicators) == ("run", inferred.layout, inferred.communicators)
    assert job.places == tuple(Place(rank, f"h{rank // 4}", rank % 4, (f"mlx5_{rank % 4}",)) for rank in range(8))


def test_a_job_file_of_one_of_several_folders_is_the_job_s(tmp_path: Path) -> None:
    for host, ranks in (("a", (0, 1, 2, 3)), ("b", (4, 5, 6, 7))):
        folder = written(tmp_path / host, [row for row in ROWS if row["rank"] in ranks])
        (folder / "job.json").write_text(json.dumps(described().to_row()))
    assert load([tmp_path / "b", tmp_path / "a"]).job.job == described().job
    (tmp_path / "b" / "job.json").write_text("{}")
    with pytest.raises(InputError, match=r"b/job\.json: not a row of control\.jobs"):
        load([tmp_path / "a", tmp_path / "b"])


def test_two_ranks_on_one_gpu_are_refused(tmp_path: Path) -> None:
    folder = written(tmp_path / "run", ROWS)
    places: list[dict[str, Any]] = [{"rank": rank, "host": f"h{rank // 4}", "gpu": rank % 4} for rank in range(8)]
    places[6]["gpu"] = 1
    (folder / "job.json").write_text(json.dumps({"ranks": places}))
    with pytest.raises(InputError, match=r"run/job.json: ranks 5 and 6 are both on GPU 1 of host h1; leave out"):
        load([folder])
    places[6]["gpu"] = None
    (folder / "job.json").write_text(json.dumps({"ranks": places}))
    assert load([folder]).job.gpu(5).device == "gpu:h1/1"


def test_a_job_file_without_a_layout_leaves_it_to_be_inferred(tmp_path: Path) -> None:
    folder = written(tmp_path / "run", ROWS)
    (folder / "job.json").write_text(json.dumps(replace(described(), layout=None).to_row()))
    assert load([folder]).layout == Layout(tp=2, pp=2, dp=2, cp=1, ep=1, source="inferred")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[]", "not a JSON object"),
        ("{", "not a row of control.jobs"),
        ('{"communicators": []}', "job.json: not a row of control.jobs: .*'ranks'"),
        ('{"job": "x", "ranks": [{"host": "h"}], "communicators": []}', "not a row of control.jobs"),
        ('{"job": "x", "ranks": 3, "communicators": []}', "not a row of control.jobs"),
        ('{"ranks": [3]}', "not a row of control.jobs"),
        ('{"job": 5, "ranks": []}', "job.json: not a row of control.jobs: field job is 5; give text$"),
        ('{"ranks": [{"rank": 0}, {"rank": "1"}]}', 'field ranks.1.rank is "1"; give a whole number$'),
        ('{"ranks": [{"rank": 0, "nics": ["a", 3]}]}', "field ranks.0.nics.1 is 3; give text$"),
        ('{"ranks": [], "training": {"tp": "2"}}', 'field training.tp is "2"; give a whole number$'),
        ('{"ranks": [], "training": 5}', "field training is 5; give an object$"),
        ('{"ranks": [], "monitoring": "no"}', 'field monitoring is "no"; give true or false$'),
        ('{"ranks": [{"rank": 3, "nics": "mlx5_1"}]}', "nics is the text 'mlx5_1'; give a list"),
        ('{"ranks": [], "paths": [{"tor": "t", "spines": "ab"}]}', "spines is the text 'ab'; give a list"),
        (
            '{"ranks": [], "routes": [{"source": "a", "destination": "b", "switches": "ab"}]}',
            "switches is the text 'ab'",
        ),
        ('{"job": "x", "ranks": [{"rank": 18446744073709551616}], "communicators": []}', "not a row of control.jobs"),
        ('{"job": "x", "ranks": [{"rank": 0}, {"rank": 0}], "communicators": []}', "a rank is listed twice"),
        (
            '{"job": "x", "ranks": [{"rank": 0}], "communicators": [{"communicator": "tp0", "ranks": [0]}]}',
            "rank 1 uses communicator tp0, which job.json gives to others",
        ),
    ],
)
def test_a_bad_job_file_is_refused(tmp_path: Path, text: str, why: str) -> None:
    folder = written(tmp_path / "run", ROWS)
    (folder / "job.json").write_text(text)
    with pytest.raises(InputError, match=why):
        load([folder])


def test_a_layout_given_by_hand_is_checked(tmp_path: Path) -> None:
    folder = written(tmp_path / "run", ROWS)
    given = Layout(tp=1, pp=2, dp=4, source="given")
    assert load([folder], layout=given).layout == given
    with pytest.raises(InputError, match=f"{folder}: layout tp=2,pp=1,dp=2 has 4 ranks, but there is a rank 7"):
        load([folder], layout=Layout(tp=2, pp=1, dp=2, source="given"))
    with pytest.raises(InputError, match="puts ranks 0 and 4 into no common pipeline"):
        load([folder], layout=Layout(tp=8, pp=1, dp=1, source="given"))


def test_a_layout_given_by_hand_tells_how_many_ranks_there_are(tmp_path: Path) -> None:
    given = Layout(tp=2, pp=2, dp=2, source="given")
    recording = load([written(tmp_path / "run", (row for row in ROWS if row["rank"] not in {0, 7}))], layout=given)
    assert (recording.job.ranks, recording.layout) == (tuple(range(8)), given)
    assert recording.job.members["tp1"] == (2, 3)
    assert not recording.job.members.keys() & {"tp0", "tp3"}  # of which members are missing
    with pytest.raises(InputError, match="layout tp=2048,pp=2,dp=512 has 2097152 ranks, and no job has more than"):
        load([tmp_path / "run"], layout=Layout(tp=2048, pp=2, dp=512, source="given"))


def test_a_layout_of_other_ranks_than_the_job_file_lists_is_refused(tmp_path: Path) -> None:
    folder = written(tmp_path / "run", ROWS)
    (folder / "job.json").write_text(json.dumps(described().to_row()))
    with pytest.raises(InputError, match="layout tp=2,pp=2,dp=4 has 16 ranks, but rank 8 is not in the log"):
        load([folder], layout=Layout(tp=2, pp=2, dp=4, source="given"))


def test_no_rows_are_no_recording(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no operator"):
        load([written(tmp_path / "run", [])])


def test_a_file_given_by_name_is_a_recording(tmp_path: Path) -> None:
    one = load([EXAMPLE / "rank0.jsonl.gz"])
    assert set(one.table.column("rank").to_pylist()) == {0}
    assert one.job.ranks == (0, 4)  # its peer in the pipeline
    assert one.layout is None


def test_groups_that_share_a_name_are_refused(tmp_path: Path) -> None:
    """A real run, in which each rank calls its own tensor group so."""
    rows = [
        json.loads(line)
        for file in sorted(EXAMPLE.glob("*.gz"))
        for line in gzip.decompress(file.read_bytes()).splitlines()
    ]
    own = [{**row, "comm": "tp"} if row["comm"].startswith("tp") else row for row in rows]
    said = (
        r"ranks \d and \d call the operators of communicator tp at times .*: give each group of ranks a name of its own"
    )
    with pytest.raises(InputError, match=said):
        load([written(tmp_path / "run", own)])
    load([written(tmp_path / "other", without(own, "end_ns"))])


def test_ends_of_the_host_are_unknown(tmp_path: Path) -> None:
    queued = [{**row, "bytes": 64 << 20, "start_ns": None, "end_ns": row["call_ns"] + 6_000} for row in ROWS]
    recording = load([written(tmp_path / "run", queued)])
    assert recording.table.column("end_ns").null_count == len(ROWS)
    told = "ends are the host's, which only queues the work, and taken for unknown: in the median 67.1 MB in 6 us"
    assert told in recording.gone


@pytest.mark.parametrize("size", [64 << 20, 1 << 10])
def test_ends_that_may_be_the_gpus_stay(tmp_path: Path, size: int) -> None:
    lasts_ns = 60_000 if size > 1 << 20 else 6_000
    rows = [{**row, "bytes": size, "start_ns": None, "end_ns": row["call_ns"] + lasts_ns} for row in ROWS]
    recording = load([written(tmp_path / "run", rows)])
    assert recording.table.column("end_ns").null_count == 0
    assert recording.gone == ()


def test_ends_that_are_the_times_of_calls_are_unknown(tmp_path: Path) -> None:
    calls = [{**row, "start_ns": None, "end_ns": row["call_ns"]} for row in ROWS]
    recording = load([written(tmp_path / "run", calls)])
    assert recording.table.equals(load([written(tmp_path / "calls", without(ROWS, "start_ns", "end_ns"))]).table)
    assert recording.gone == ("ends of rank 0 (and of 7 more) are the times of calls, and taken for unknown",)
    mixed = [calls[at] if row["rank"] == 5 else row for at, row in enumerate(ROWS)]
    recording = load([written(tmp_path / "mixed", mixed)])
    assert recording.table.filter(pc.is_null(recording.table.column("end_ns"))).column("rank").unique().to_pylist() == [
        5
    ]
    assert recording.gone == ("ends of rank 5 are the times of calls, and taken for unknown",)


def test_peers_of_collectives_mean_nothing(tmp_path: Path) -> None:
    rows = [row if row["op"] in {"send", "recv"} else {**row, "peer": 77, "p2p_seq": 5} for row in ROWS]
    recording, plain = load([written(tmp_path / "run", rows)]), load([written(tmp_path / "plain", ROWS)])
    assert (recording.job.ranks, recording.job.members) == (plain.job.ranks, plain.job.members)
    assert recording.table.column("peer").equals(plain.table.column("peer"))
