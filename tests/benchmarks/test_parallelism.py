"""The benchmark of parallelism as a command: some layouts, and recorded schedules."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.parallelisms import recorded
from benchmarks.parallelisms.layouts import layouts
from tests.offbeat.command_line import offbeat, refusal
from tests.recordings import sample


def test_communicators_of_some_layouts_are_told_by_all_calls_and_by_each_hosts() -> None:
    result = offbeat("bench", "parallelism", "--layouts", 6, "--processes", 1, "--json")
    assert result.exit_code == 0, result.output
    figures = json.loads(result.stdout)
    assert (figures["layouts"], figures["layouts_right"], figures["layouts_wrong"]) == (6, 6, [])
    for counts in (figures["whole"], figures["by_host"]):
        assert set(counts) == {"dp", "ep", "none", "pp", "tp", "unknown"}
        assert all(leaf["right"] > 0 and leaf["wrong"] == {} for leaf in counts.values())


def test_there_are_many_layouts() -> None:
    found = layouts(0)
    assert len(found) >= 100
    assert max(layout.world for layout in found) == 512
    assert {layout.ep > 1 for layout in found} == {layout.distributed_optimizer for layout in found} == {True, False}
    assert len({layout.seed for layout in found}) == len(found)


@pytest.mark.parametrize(
    ("name", "groups"),
    [
        ("A100_example.csv.gz", {"dp", "ep", "tp"}),
        ("G13B-M1-C02_GPT13B_megatron_tp8_pp1_mbs1_sp.csv", {"dp", "tp"}),
        ("L7B-M1-C04_Llama7B_megatron_tp2_pp1_mbs1.csv", {"dp", "tp"}),
    ],
)
def test_groups_of_recorded_schedules_are_told(name: str, groups: set[str]) -> None:
    assert recorded.identified(sample("aicb") / name) == {(group, group): 1 for group in groups}


def test_sizes_may_have_a_decimal_point(tmp_path: Path) -> None:
    source = sample("aicb") / "L7B-M1-C04_Llama7B_megatron_tp2_pp1_mbs1.csv"
    _, head, *lines = source.read_text().splitlines()
    size = head.split(",").index("msg_size")
    rows = [[*row[:size], f"{row[size]}.0", *row[size + 1 :]] for row in (line.split(",") for line in lines)]
    path = tmp_path / source.name
    path.write_text("\n".join([head, *map(",".join, rows)]))
    assert recorded.identified(path) == recorded.identified(source)


def test_what_is_no_schedule_is_refused(tmp_path: Path) -> None:
    assert "no schedule of AICB" in refusal(offbeat("bench", "parallelism", "--path", tmp_path))
    (tmp_path / "made.csv").write_text("one,two\n1,2\n")
    assert "cannot be read as a schedule" in refusal(offbeat("bench", "parallelism", "--path", tmp_path / "made.csv"))
