"""`offbeat diagnose` of a recording that lacks logs: what they would have shown is unknown, and blamed on nobody."""

import json
import re
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from offbeat.diagnose import diagnose
from offbeat.reading import Reading
from offbeat.settings import Settings
from producers.importers.recording import load
from producers.simulation import Fault, Kind, Scenario, simulate
from tests.offbeat.command_line import EXAMPLE, offbeat, refusal
from tests.producers.importers.megatrace_log import COUNTED, HASHED, PLAIN, write
from tests.recordings import sample


@pytest.mark.parametrize(
    ("missing", "named"),
    [((5,), []), ((4, 5), []), ((1, 5), []), ((4, 5, 6, 7), []), ((4,), [5]), ((2, 6, 7), [5])],
)
def test_the_slow_rank_or_nobody(tmp_path: Path, missing: tuple[int, ...], named: list[int]) -> None:
    """Rank 5 is slow. Its tensor, data and model-parallel groups show only victims where its log is missing."""
    shutil.copytree(EXAMPLE, tmp_path / "run")
    for rank in missing:
        (tmp_path / "run" / f"rank{rank}.jsonl.gz").unlink()
    answer = told_of(tmp_path / "run")
    assert [rank for incident in answer["incidents"] for rank in incident["ranks"]] == named
    assert answer["coverage"]["ranks_seen"] == 8 - len(missing)
    assert answer["coverage"]["ranks_expected"] == 8
    assert answer["iterations"]["irregular"] == list(range(30, 60))


def told_of(folder: Path) -> dict[str, Any]:
    diagnosis = diagnose([folder], Reading(), Settings())
    assert not diagnosis.refused
    return diagnosis.answer


def named(answer: dict[str, Any]) -> list[int]:
    return sorted({rank for incident in answer["incidents"] for rank in incident["ranks"]})


def hide(folder: Path, missing: Collection[int]) -> None:
    for rank in missing:
        (folder / f"rank_{rank}.log").unlink()


@pytest.mark.parametrize("variant", [COUNTED, PLAIN])
@pytest.mark.parametrize(("missing", "slow"), [([5], []), ([7], [5]), ([2, 6, 7], [5])])
def test_communicators_without_names_survive_it_too(
    tmp_path: Path, missing: list[int], slow: list[int], variant: str
) -> None:
    folder = write(tmp_path / "run", load([EXAMPLE]).table, variant)
    hide(folder, missing)
    told = told_of(folder)
    assert named(told) == slow
    assert told["layout"] == {"tp": 2, "pp": 2, "dp": 2, "source": "inferred"}
    assert (told["coverage"]["ranks_seen"], told["coverage"]["ranks_expected"]) == (8 - len(missing), 8)


def simulated(folder: Path, shape: tuple[int, int, int], culprit: int, variant: str) -> Path:
    """The logs of a simulated job of which a GPU is slow in iterations 12 to 18."""
    tp, pp, dp = shape
    fault = Fault(kind=Kind.GPU_SLOW, rank=culprit, iterations=tuple(range(12, 19)), slowdown=1.5)
    scenario = Scenario(seed=5, tp=tp, pp=pp, dp=dp, iterations=21, microbatches=4, layers=2 * pp, faults=(fault,))
    return write(folder, simulate(scenario).table, variant)


@pytest.mark.parametrize(
    ("shape", "culprit", "variant"), [((2, 4, 1), 5, COUNTED), ((1, 4, 2), 2, PLAIN), ((4, 1, 2), 6, COUNTED)]
)
def test_in_no_simulated_job_is_a_healthy_rank_named(
    tmp_path: Path, shape: tuple[int, int, int], culprit: int, variant: str
) -> None:
    tp, pp, dp = shape
    folder = simulated(tmp_path / "run", shape, culprit, variant)
    for missing, slow in ((0, [culprit]), (culprit, []), (7, [culprit])):
        hidden = (folder / f"rank_{missing}.log").rename(tmp_path / "hidden")
        told = told_of(folder)
        hidden.rename(folder / f"rank_{missing}.log")
        assert named(told) in ([], slow) if missing // tp == culprit // tp else named(told) == slow
        assert told["layout"] == {"tp": tp, "pp": pp, "dp": dp, "source": "inferred"}
        assert told["coverage"]["ranks_expected"] == 8


@pytest.mark.parametrize(
    ("shape", "culprit", "missing"), [((2, 4, 1), 5, 5), ((2, 4, 1), 5, 4), ((1, 4, 2), 2, 2), ((1, 4, 2), 2, 4)]
)
def test_a_pipeline_with_a_name_that_lacks_a_stage_does_not_pass_for_a_shorter_one(
    tmp_path: Path, shape: tuple[int, int, int], culprit: int, missing: int
) -> None:
    tp, pp, dp = shape
    folder = simulated(tmp_path / "run", shape, culprit, HASHED)
    hide(folder, [missing])
    told = told_of(folder)
    assert named(told) in ([], [culprit])
    assert told["layout"] == {"tp": tp, "pp": pp, "dp": dp, "source": "inferred"}


def eight_gpus(folder: Path, missing: Collection[int], variant: str) -> Path:
    """The recording of eight GPUs, of which rank 2 is slow, without some logs."""
    import gzip

    folder.mkdir()
    for file in sample("megatrace-8ranks-rank2-slow").glob("rank_*.log.gz"):
        text = gzip.decompress(file.read_bytes()).decode()
        if variant == PLAIN:
            text = re.sub(r"^\[save_count \d+\] (.*) opCount \d+$", r"\1", text, flags=re.MULTILINE)
        (folder / file.stem).write_text(text)
    hide(folder, missing)
    return folder


GIVEN = ("--layout", "tp=2,pp=4,dp=1")


@pytest.mark.parametrize(
    ("missing", "slow", "variant", "options"),
    [
        ([5], [2], COUNTED, ()),
        ([5], [2], COUNTED, GIVEN),
        ([7], [2], COUNTED, ()),
        ([0, 4], [2], COUNTED, ()),
        ([2], [], COUNTED, ()),
        ([2], [], COUNTED, GIVEN),
        ([], [2], PLAIN, ()),  # neither are numbers to be had, nor half a minute that the logger lost
        ([5], [2], PLAIN, ()),
        ([7], [2], PLAIN, GIVEN),
        ([2], [], PLAIN, ()),
    ],
)
def test_the_slow_one_of_eight_gpus_or_nobody(
    tmp_path: Path, missing: list[int], slow: list[int], variant: str, options: tuple[str, ...]
) -> None:
    folder = eight_gpus(tmp_path / "run", missing, variant)
    told = json.loads(offbeat("diagnose", folder, "--json", *options).stdout)
    assert named(told) == slow
    assert told["layout"] == {"tp": 2, "pp": 4, "dp": 1, "source": "given" if options else "inferred"}
    assert (told["coverage"]["ranks_seen"], told["coverage"]["ranks_expected"]) == (8 - len(missing), 8)


def test_a_last_stage_without_logs_takes_a_given_layout(tmp_path: Path) -> None:
    folder = eight_gpus(tmp_path / "run", [6, 7], COUNTED)
    blind = json.loads(offbeat("diagnose", folder, "--json").stdout)
    assert (named(blind), blind["layout"]) == ([], None)
    told = json.loads(offbeat("diagnose", folder, "--json", *GIVEN).stdout)
    assert (named(told), told["coverage"]["ranks_expected"]) == ([2], 8)


def test_a_given_layout_that_the_calls_contradict_is_said(tmp_path: Path) -> None:
    folder = write(tmp_path / "run", load([EXAMPLE]).table, PLAIN)
    said = "the calls show tp=2,pp=2,dp=2, not the layout tp=4,pp=2,dp=1 that is given: by a wrong one nobody is found"
    assert said in offbeat("diagnose", folder, "--layout", "tp=4,pp=2,dp=1").stderr
    assert "the calls show" not in offbeat("diagnose", folder, "--layout", "tp=2,pp=2,dp=2").stderr


def test_a_layout_that_is_too_small_is_refused(tmp_path: Path) -> None:
    folder = eight_gpus(tmp_path / "run", [5], COUNTED)
    assert refusal(offbeat("diagnose", folder, "--layout", "tp=2,pp=3,dp=1")) == (
        f"{folder}: layout tp=2,pp=3,dp=1 has 6 ranks, but there is a rank 7; give degrees whose product is the number "
        "of the job's ranks, logged or not, or none to have them inferred"
    )
