"""train: models that tell abnormal operators."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from offbeat import terminal
from offbeat.commands.parameters import SCENARIO, FormatName, IterationOp, Json, LayoutText

if TYPE_CHECKING:
    from diagnosis.irregularity.drift import Levels
    from offbeat.training import Labelled
    from producers.simulation import Scenario

DEFAULT_RUNS = 50
JOB_RUNS = 20

FIRST_SEED = 3_000_000
"""Seeds from here on are for training alone."""

ITERATIONS = 40


def train(
    paths: Annotated[
        list[Path] | None, typer.Argument(metavar="PATH", help="Files and folders of one recorded run, with --labels.")
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="MODEL", help="Write the model here.")] = None,
    labels: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The abnormal operators of PATH, JSON lines or CSV: rank, communicator, iteration, position.",
        ),
    ] = None,
    simulated: Annotated[
        bool, typer.Option("--simulated", help="Train on simulated runs of the job that --scenario describes.")
    ] = False,
    scenario: Annotated[str, typer.Option(metavar="NAME=VALUE,...", help=SCENARIO)] = "",
    default: Annotated[
        bool, typer.Option("--default", help="Make the model that ships: simulated runs of many jobs.")
    ] = False,
    runs: Annotated[int | None, typer.Option(min=2, help="Simulated runs; 20 of a job, 50 of many.")] = None,
    criterion: Annotated[str, typer.Option(metavar="gini|entropy", help="How the trees split.")] = "gini",
    features: Annotated[
        str,
        typer.Option(
            metavar="scale_free|published|every", help="What the trees look at; a search tunes what is in ns."
        ),
    ] = "scale_free",
    format_name: FormatName = None,
    layout: LayoutText = None,
    iteration_op: IterationOp = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    as_json: Json = False,
) -> None:
    """Train the forest that tells abnormal operators.

    On labelled logs of a job, or on simulated runs of it; or make the model that ships anew.
    """
    from diagnosis.irregularity.features import LISTS
    from diagnosis.irregularity.forest import ForestSettings
    from offbeat import models, options, training
    from producers.simulation.recording import require_writable
    from schemas.errors import SettingsError

    if sum((bool(paths), simulated, default)) != 1 or bool(paths) != (labels is not None):
        raise SettingsError("train: give either PATH with --labels, or --simulated, or --default")
    if out is None and not default:
        raise SettingsError("train: give --out MODEL, the file to write the model to")
    if criterion not in {"gini", "entropy"}:
        raise SettingsError(f"--criterion {criterion}: give gini or entropy")
    if features not in LISTS:
        raise SettingsError(f"--features {features}: give one of {', '.join(LISTS)}")
    path = out or models.default_path()
    require_writable(path)
    if out is not None and out.exists() and not force:
        raise SettingsError(f"{out} is there already; give another file, or replace it with --force")
    settings = ForestSettings(features=LISTS[features], criterion="entropy" if criterion == "entropy" else "gini")
    levels: Levels | None
    if paths and labels is not None:
        from offbeat.labels import labelled_recording
        from offbeat.reading import Reading

        given = Reading(format_name, None if layout is None else options.layout(layout), iteration_op)
        parts, levels, idle = labelled_recording(paths, labels, given)
        if idle:
            terminal.note(f"{terminal.counted(idle, 'label')} in iterations that are not irregular: not learned from")
        learned = [[part] for part in parts]
        source = f"{terminal.counted(len(parts), 'labelled iteration')} of {paths[0].resolve().name}"
    else:
        job = None if default else options.scenario(_long_enough(scenario), [])
        learned, levels = _simulated(job, runs or (DEFAULT_RUNS if default else JOB_RUNS))
        about = "many jobs" if job is None else f"a job of {terminal.counted(job.world, 'rank')}"
        source = f"{terminal.counted(len(learned), 'simulated run')} of {about}"
    with terminal.progress("training"):
        model = training.train(learned, source, settings, levels)
    models.save(model, path)
    figures = {"model": str(path), "bytes": path.stat().st_size, "source": source, **model.figures}
    if as_json:
        terminal.print_json(figures)
    else:
        held_out = "on what was held out F1 {f1}, precision {precision}, recall {recall}".format(**model.figures)
        if model.figures["f1"] is None:
            held_out = f"nothing was held out to measure it on: that takes {training.HELD_OUT} runs or iterations"
        terminal.console().print(f"{path}: trained on {source}; {held_out}")


def _simulated(job: Scenario | None, runs: int) -> tuple[list[list[Labelled]], Levels | None]:
    """Labelled runs of a job, and where its features stand; or of many jobs, each of which has levels of its own."""
    from offbeat import training

    if job is None:
        scenarios = training.many_jobs(runs, FIRST_SEED, ITERATIONS)
    else:
        scenarios = training.job_scenarios(job, runs, FIRST_SEED)
    learned, levels = [], None
    with terminal.progress(f"simulating {terminal.counted(runs, 'run')}", runs) as shown:
        for run in map(training.simulated_run, scenarios):
            learned.append(training.labelled_run(run))
            if job is not None and levels is None:
                levels = training.Log.of(run.job, run.table).levels()
            shown.advance(len(learned))
    return learned, levels


def _long_enough(scenario: str) -> str:
    """The scenario with as many iterations as training takes, unless it names a number."""
    return scenario if "iterations=" in scenario else ",".join(filter(None, (scenario, f"iterations={ITERATIONS}")))
