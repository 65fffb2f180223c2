"""From labelled logs to samples and models."""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from diagnosis.irregularity.features import AS_PUBLISHED
from diagnosis.irregularity.forest import ForestDetector, ForestSettings
from diagnosis.irregularity.tuning import tuned_to
from diagnosis.irregularity.window import WindowStatistics
from diagnosis.job import pivots
from offbeat import labels, models, training
from offbeat.training import LABEL_COLUMNS, Counts, LabelledLog, Log
from producers.simulation import Fault, Kind, Scenario, SimulatedRun, simulate, write
from producers.simulation.extent import most_operators
from producers.simulation.noise import DEFAULT, DEFAULT_LARGE, HARD, HARD_LARGE, SILENT, suited
from schemas.errors import InputError, SettingsError
from tests.offbeat.command_line import offbeat, refusal

FAULTY = tuple(range(12, 18))


def scenario(seed: int = 3, rank: int = 5) -> Scenario:
    fault = Fault(Kind.GPU_SLOW, rank, FAULTY, slowdown=1.5)
    return Scenario(seed, tp=2, pp=2, dp=2, microbatches=4, layers=4, hidden=4096, iterations=20, faults=(fault,))


@cache
def run(seed: int = 3, rank: int = 5) -> SimulatedRun:
    return simulate(scenario(seed, rank))


def truth(of: SimulatedRun) -> pa.Table:
    return of.table.filter(pa.array(of.truth.abnormal)).select(LABEL_COLUMNS)


def test_irregular_iterations_bear_the_truth_of_their_operators() -> None:
    of = run()
    parts = training.labelled(Log.of(of.job, of.table), truth(of))
    assert [part.iteration for part in parts] == list(FAULTY)
    iteration, rank = (of.table.column(name).to_numpy() for name in ("iteration", "rank"))
    for part in parts:
        assert part.abnormal.sum() == of.truth.abnormal[iteration == part.iteration].sum() > 0
        assert sorted(part.samples.rank) == sorted(rank[iteration == part.iteration])
        lost = part.samples.duration_ns - part.samples.mean
        assert np.nanmedian(lost[part.abnormal]) > 10 * abs(np.nanmedian(lost[~part.abnormal]))


def test_a_pivot_without_a_log_hides_no_irregular_iteration() -> None:
    of = run()
    gone = pivots(of.job)[1]
    table = of.table.filter(pc.not_equal(of.table.column("rank"), gone))
    assert list(Log.of(of.job, table).irregular) == list(FAULTY)


def test_a_log_that_begins_late_is_warmed_up_when_it_begins() -> None:
    of = run()
    at = of.table.schema.get_field_index("iteration")
    later = pc.add(of.table.column("iteration"), pa.scalar(1000, of.table.schema.field(at).type))
    log = Log.of(of.job, of.table.set_column(at, of.table.schema.field(at), later))
    assert list(log.irregular) == [1000 + iteration for iteration in FAULTY]
    assert log.regular[0] == 1005


def test_usual_is_what_was_before_the_run_and_after_warm_up() -> None:
    of = run()
    first, *_, last = training.labelled(Log.of(of.job, of.table), truth(of))
    assert np.nanmax(first.samples.count) == FAULTY[0] - 5
    assert np.nanmax(last.samples.count) == FAULTY[0] - 5
    ratio = last.samples.iteration_ns[0] / last.samples.usual_iteration_ns[0]
    assert ratio == pytest.approx(of.truth.slowdowns[last.iteration], rel=0.1)


def test_a_detector_learns_beside_what_a_search_is_served_with() -> None:
    """The monitor's last 20 regular iterations, however many there were, and no irregular ones among them."""
    early, late = (30, 31), (60, 61)
    faults = tuple(Fault(Kind.GPU_SLOW, rank, faulty, slowdown=1.5) for rank, faulty in ((2, early), (5, late)))
    of = simulate(replace(scenario(), iterations=65, faults=faults))
    log = Log.of(of.job, of.table)
    assert log.irregular == {30: 30, 31: 30, 60: 60, 61: 60}
    for part in training.labelled(log, truth(of)):
        first = log.irregular[part.iteration]
        window = [i for i in range(5, first) if i not in early][-20:]
        assert np.nanmax(part.samples.count) == 20
        assert part.samples.usual_iteration_ns[0] == pytest.approx(np.mean(log.lengths_ns[window]), abs=1)


def test_what_passes_for_regular_beside_a_small_fault_is_not_what_is_usual() -> None:
    """Of 25 regular iterations 4 were nearly irregular and held back: a search compares with the latest 20 others."""
    lengths = [100.0] * 10 + [100.0, 100.0, 109.0, 100.0, 100.0] * 4 + [113.0]
    run_of = simulate(replace(scenario(), iterations=len(lengths), faults=()))
    log = replace(Log.of(run_of.job, run_of.table), lengths_ns=np.array(lengths))
    assert list(log.irregular) == [30]
    samples = log.samples(30)
    assert np.nanmax(samples.count) == 20
    assert set(samples.usual_iteration_ns) == {100.0}


def test_what_dips_in_a_degradation_is_not_regular() -> None:
    lengths = [100.0] * 30 + [150.0] * 60 + [105.0] + [150.0] * 60 + [100.0] * 4 + [150.0]
    log = replace(Log.of(run().job, run().table), lengths_ns=np.array(lengths))
    assert 90 not in log.irregular
    assert log.regular.tolist() == [*range(5, 30), *range(151, 155)]


def test_levels_are_those_of_regular_iterations_on_the_pivots() -> None:
    log = Log.of(run().job, run().table)
    levels = log.levels()
    assert levels is not None
    regular = [length for i, length in enumerate(run().truth.durations_ns) if i >= 5 and i not in FAULTY]
    assert levels.mean["iteration"] == pytest.approx(np.mean(regular), rel=0.03)
    own = np.isin(log.operators.rank, pivots(log.job)) & np.isin(log.operators.iteration, (*range(5, 12), 18, 19))
    assert levels.mean["elapsed"] == pytest.approx(np.nanmean(log.duration_ns[own]), rel=0.02)


@pytest.mark.parametrize("number", [1, 3, 4, 6, 8])
def test_a_model_of_a_job_is_tuned_with_any_number_of_pivots(tmp_path: Path, number: int) -> None:
    log = Log.of(run().job, run().table)
    parts = [training.labelled_run(LabelledLog.of(run()))]
    made = training.train(parts, "one run", ForestSettings(features=AS_PUBLISHED, trees=2), log.levels())
    models.save(made, tmp_path / "m.skops")
    forest = models.load(str(tmp_path / "m.skops")).detector
    assert forest.levels == made.detector.levels
    own = np.isin(log.operators.rank, pivots(log.job, number)) & np.isin(log.operators.iteration, log.regular)
    usual = WindowStatistics.of_operators(log.operators.take(own), log.duration_ns[own])
    iteration_ns = float(np.nanmean(log.lengths_ns[log.regular]))
    for tuned, ahead_ns in (
        (tuned_to(forest, usual, iteration_ns), 0),
        (tuned_to(forest, replace(usual, mean=usual.mean + 5e6), iteration_ns), 5e6),
    ):
        assert isinstance(tuned, ForestDetector)
        assert tuned.levels is not None
        assert tuned.levels.ranks == pivots(log.job, number)
        assert tuned.trees is not None
        assert forest.trees is not None
        moved = (tuned.trees.threshold - forest.trees.threshold)[forest.trees.feature == AS_PUBLISHED.index("elapsed")]
        assert moved.tolist() == pytest.approx([ahead_ns] * len(moved), abs=1)
        assert len(moved)


def test_where_a_pivot_has_no_log_its_numbers_of_pivots_have_no_levels() -> None:
    of = run()
    gone = pivots(of.job, 3)[1]
    levels = Log.of(of.job, of.table.filter(pc.not_equal(of.table.column("rank"), gone))).levels()
    assert levels is not None
    assert levels.of_ranks(pivots(of.job, 2)) is not None
    assert levels.of_ranks(pivots(of.job, 3)) is None


def test_without_ends_nothing_is_known_of_levels() -> None:
    log = Log.of(run().job, run().table)
    assert replace(log, duration_ns=np.full(len(log.operators), np.nan)).levels() is None


def test_of_a_run_that_is_too_large_some_ranks_are_looked_at_wherever_the_fault_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    large = Scenario(3, tp=2, pp=2, dp=4, microbatches=4, layers=4, hidden=4096, iterations=20, gpus_per_host=4)
    monkeypatch.setattr(training, "MOST_OPERATORS", 1000)
    monkeypatch.setattr(training, "MOST_LOOKED_AT", 8 * most_operators(large) // large.world)
    looked_at = []
    for slow in (1, 12):
        told = training.simulated_run(replace(large, faults=(Fault(Kind.GPU_SLOW, slow, FAULTY, slowdown=1.5),)))
        looked_at.append(set(told.table.column("rank").to_pylist()))
        [first, *_] = parts = training.labelled_run(told)
        assert {part.iteration for part in parts} <= set(FAULTY)
        lost = first.samples.duration_ns - first.samples.mean
        assert first.abnormal.any()
        assert np.nanmedian(lost[first.abnormal]) > 10 * abs(np.nanmedian(lost[~first.abnormal]))
    assert looked_at[0] == looked_at[1] > set(pivots(told.job))
    assert len(looked_at[0]) == 8


def test_a_run_whose_pivots_alone_log_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "MOST_OPERATORS", 1000)
    monkeypatch.setattr(training, "MOST_LOOKED_AT", 1000)
    with pytest.raises(SettingsError, match=r"4 ranks x about \d+ operators are more than the 1000 that"):
        training.simulated_run(scenario())


def test_thousands_of_ranks_have_the_noise_that_suits_them() -> None:
    assert [suited(profile, ranks) for profile in (DEFAULT, HARD, SILENT) for ranks in (128, 2048)] == [
        *(DEFAULT, DEFAULT_LARGE, HARD, HARD_LARGE, SILENT, SILENT)
    ]


def test_of_a_run_a_few_iterations_are_enough() -> None:
    assert [part.iteration for part in training.labelled_run(LabelledLog.of(run()))] == [12, 13, 15, 17]


def test_a_forest_learns_who_waits_and_knows_how_well() -> None:
    made = [run(seed, rank) for seed, rank in ((3, 5), (4, 2), (5, 7), (6, 0), (7, 3))]
    runs = [training.labelled_run(LabelledLog.of(one)) for one in made]
    levels = Log.of(run().job, run().table).levels()
    model = training.train([*runs, []], "small runs", ForestSettings(trees=10), levels)
    assert model.figures["learned_from"]["runs"] == 4
    assert model.figures["held_out"]["runs"] == 1
    assert model.figures["f1"] > 0.8
    assert model.detector.levels == levels
    counts = training.counted(runs[:1], model.detector)
    assert counts.f1 > 0.9


def test_nothing_is_learned_from_nothing() -> None:
    with pytest.raises(InputError, match="0 labelled irregular iterations: there are no samples"):
        training.fitted([[]], ForestDetector())


def test_counts() -> None:
    said = Counts.of(np.array([True, True, True, False, False]), np.array([True, True, False, True, False]))
    assert said == (2, 1, 1)
    assert said.plus(said) == (4, 2, 2)
    assert (said.precision, said.recall, said.f1) == pytest.approx((2 / 3, 2 / 3, 2 / 3))
    assert Counts().f1 == Counts().precision == Counts().recall == 0


def test_runs_of_a_job_differ_in_noise_and_fault_alone() -> None:
    job = replace(scenario(), faults=())
    first, second = training.job_scenarios(job, 2, 3_000_000)
    assert len(first.faults) == len(second.faults) == 1
    assert replace(first, seed=0, faults=()) == replace(second, seed=0, faults=())
    assert first.seed != second.seed


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recording")
    write(run(), folder)
    return folder


def label_lines(of: SimulatedRun, form: str) -> str:
    rows = truth(of).to_pylist()
    if form == "csv":
        return "\n".join([",".join(LABEL_COLUMNS), *(",".join(str(v) for v in row.values()) for row in rows)])
    return "\n".join(str(row).replace("'", '"') for row in rows)


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_a_recording_with_labels_trains_a_model(recording: Path, tmp_path: Path, form: str) -> None:
    (tmp_path / f"labels.{form}").write_text(label_lines(run(), form))
    given = (str(recording), "--labels", str(tmp_path / f"labels.{form}"), "--out", str(tmp_path / "m.skops"))
    done = offbeat("train", *given)
    assert done.exit_code == 0
    assert "trained on 6 labelled iterations of" in done.stdout
    assert (tmp_path / "m.skops").stat().st_size < 1 << 20


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "neither JSON lines nor CSV"),
        ('{"rank": 1}', "labels.jsonl:1: field communicator is missing"),
        (
            '{"rank": 1, "communicator": "?", "iteration": 12, "position": 0}',
            "communicator '?' is not in the recording",
        ),
        (
            '{"rank": null, "communicator": "?", "iteration": 12, "position": 0}',
            "labels.jsonl:1: field rank is missing",
        ),
        ('{"rank": "r", "communicator": "?", "iteration": 12, "position": 0}', 'labels.jsonl:1: field rank is "r"'),
    ],
)
def test_labels_that_cannot_be_are_refused(recording: Path, tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "labels.jsonl"
    path.write_text(text)
    with pytest.raises(InputError, match=message.replace("?", r"\?")):
        labels.labelled_recording([recording], path)


def test_labels_of_regular_iterations_teach_nothing(recording: Path, tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    row = {**truth(run()).to_pylist()[0], "iteration": 7}
    path.write_text(str(row).replace("'", '"'))
    with pytest.raises(InputError, match="none of the labels is an operator of an irregular iteration"):
        labels.labelled_recording([recording], path)


@pytest.mark.parametrize(
    ("strangers", "others"), [([{"position": 900}], ""), ([{"position": 900}, {"rank": 7_000}, {"iteration": 99}], "2")]
)
def test_a_label_that_names_no_operator_is_refused(
    recording: Path, tmp_path: Path, strangers: list[dict[str, int]], others: str
) -> None:
    """What it was meant for would be taken for normal."""
    path, [good, *_] = tmp_path / "labels.jsonl", truth(run()).to_pylist()
    path.write_text("".join(f"{json.dumps(row)}\n" for row in (good, *({**good, **other} for other in strangers))))
    with pytest.raises(InputError) as caught:
        labels.labelled_recording([recording], path)
    place = f"rank {good['rank']}, communicator {good['communicator']}, iteration {good['iteration']}, position 900"
    beyond = f", nor is that of {others} other labels" if others else ""
    assert str(caught.value) == f"{path}:2: {place} is no operator of the recording{beyond}; correct or remove it"


def test_labels_of_regular_iterations_beside_others_are_counted(recording: Path, tmp_path: Path) -> None:
    path, rows = tmp_path / "labels.jsonl", truth(run()).to_pylist()
    idle = [{**row, "iteration": 7} for row in rows if row["iteration"] == FAULTY[0]][:3]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in (*idle, *rows)))
    done = offbeat("train", str(recording), "--labels", str(path), "--out", str(tmp_path / "m.skops"))
    assert done.exit_code == 0
    assert "3 labels in iterations that are not irregular: not learned from" in done.stderr
    assert "trained on 6 labelled iterations of" in done.stdout


def test_one_source_of_labels_is_asked_for() -> None:
    assert "give either PATH with --labels, or --simulated, or --default" in refusal(offbeat("train"))
    assert "give --out MODEL" in refusal(offbeat("train", "--simulated"))
    assert "--criterion x: give gini or entropy" in refusal(offbeat("train", "--default", "--criterion", "x"))
