"""demo, diagnose, simulate: no services needed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from offbeat import terminal
from offbeat.commands.parameters import (
    NIC_SCENARIO,
    SCENARIO,
    FormatName,
    IterationOp,
    Json,
    LayoutText,
    NicFaults,
    settings_with,
)
from offbeat.errors import ExitCode

if TYPE_CHECKING:
    from diagnosis.job import Job
    from producers.simulation.recording import Recordable


def diagnose(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH", help="Files and folders of one recorded run.")],
    format_name: FormatName = None,
    layout: LayoutText = None,
    iteration_op: IterationOp = None,
    as_json: Json = False,
    fail_on_incident: Annotated[
        bool, typer.Option("--fail-on-incident", help="Exit with 1 where there is an incident.")
    ] = False,
    data_dir: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep what is found in this chDB folder as well.")
    ] = None,
    job: Annotated[
        str | None, typer.Option(metavar="NAME", help="What the job is called, instead of the folder's name.")
    ] = None,
) -> None:
    """Name what makes a recorded run slow, and why."""
    from offbeat import options, report
    from offbeat.diagnose import diagnose as run
    from offbeat.reading import Reading

    if job == "":
        raise typer.BadParameter("give a name", param_hint="--job")
    settings = settings_with()
    reading = Reading(format_name, None if layout is None else options.layout(layout), iteration_op)
    diagnosis = run(paths, reading, settings, data_dir, job)
    for line in report.refusals(diagnosis.refused):
        terminal.note(line)
    if as_json:
        terminal.print_json(diagnosis.answer)
    else:
        report.print_answer(diagnosis.answer, terminal.console())
    if fail_on_incident and diagnosis.answer["incidents"]:
        raise typer.Exit(ExitCode.FOUND)


def demo(
    ranks: Annotated[int, typer.Option(help="GPUs of the job: a multiple of 16, at most 128.")] = 64,
    seed: Annotated[int, typer.Option(min=0, help="Places the faults, and draws everything else.")] = 1,
    data_dir: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The chDB folder to fill; a new temporary one if none is given.")
    ] = None,
    page: Annotated[bool, typer.Option("--page", help="Page the incidents to the receiver that is set.")] = False,
    as_json: Json = False,
) -> None:
    """Name the slow GPU and the slow NIC of a simulated job."""
    from offbeat import demo as demonstration

    shown = demonstration.run(settings_with(), ranks=ranks, seed=seed, data_dir=data_dir, page=page)
    if as_json:
        terminal.print_json(shown.answer)
    else:
        demonstration.print_end(shown.answer, terminal.console())
    if shown.unpaged is not None:
        raise shown.unpaged


def simulate(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Write the recording here: *.jsonl.gz and job.json.")],
    scenario: Annotated[str, typer.Option(metavar="NAME=VALUE,...", help=f"{SCENARIO} {NIC_SCENARIO}")] = "",
    fault: NicFaults = None,
    nic: Annotated[
        bool, typer.Option("--nic", help="What NICs count and ranks call, instead of logs of operators.")
    ] = False,
    truth: Annotated[Path | None, typer.Option(metavar="FILE", help="Write what was injected here.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a recording that was simulated before.")] = False,
    as_json: Json = False,
) -> None:
    """Simulate a training job and write it as a recording."""
    from offbeat import options
    from producers.simulation.recording import require_room

    if nic:
        from producers.simulation.nic import simulate_nics

        down_to_nics = options.nic_scenario(scenario, fault or [])
        require_room(out, truth, replace=force)
        with _simulating(down_to_nics.world, down_to_nics.iterations):
            sent = simulate_nics(down_to_nics)
        _write(sent, out, truth, replace=force)
        told = {"nics": down_to_nics.world, "shrink": down_to_nics.shrink}
        _say_written(sent.job, out, told, terminal.counted(down_to_nics.world, "NIC"), as_json=as_json)
        noise = down_to_nics.noise
        if not as_json:
            lost = f"{noise.lost_polls:.1%} of the polls and {noise.lost_calls:.1%} of the calls"
            scale = f"volumes are divided by {down_to_nics.shrink}"
            terminal.console().print(f"{scale}; {lost} are left out on purpose: lost lines")
        begun = len(sent.truth.faults)
        for late in sorted(down_to_nics.faults, key=lambda one: one.at_s)[begun:]:
            terminal.note(
                f"the run was over before {late.injection} of rank {late.rank} at {late.at_s * 1e3:g} ms: nothing was "
                "done to it; give an earlier at_ms, or more iterations"
            )
        return

    from producers.simulation import simulate as run

    job = options.scenario(scenario, fault or [])
    require_room(out, truth, replace=force)
    with _simulating(job.world, job.iterations):
        simulated = run(job)
    rows = simulated.table.num_rows
    _write(simulated, out, truth, replace=force)
    _say_written(simulated.job, out, {"operators": rows}, terminal.counted(rows, "operator"), as_json=as_json)
    if (share := job.noise.lost_share) and not as_json:
        stretch = ", and by some seeds a stretch of one rank's," if job.noise.ring_gap_probability else ""
        terminal.console().print(
            f"{share:.1%} of the lines{stretch} are left out on purpose, as logs have gaps: lost lines"
        )


@contextmanager
def _simulating(ranks: int, iterations: int) -> Iterator[None]:
    size = f"{terminal.counted(ranks, 'rank')}, {terminal.counted(iterations, 'iteration')}"
    with _if_stopped("nothing was written"), terminal.progress(f"simulating {size}"):
        yield


def _write(run: Recordable, out: Path, truth: Path | None, *, replace: bool) -> None:
    from offbeat.signals import cleaned_up_on_sigterm
    from producers.simulation.recording import write
    from schemas.errors import SettingsError

    stopped = _if_stopped(f"what was written to {out} is removed again")
    with cleaned_up_on_sigterm(), stopped, terminal.progress(f"writing {out}"):
        try:
            write(run, out, truth, replace=replace)
        except OSError as error:
            raise SettingsError(f"{error.filename or out}: {error.strerror}; give a folder to write to") from error


def _say_written(job: Job, out: Path, told: dict[str, int], what: str, *, as_json: bool) -> None:
    ranks = len(job.ranks)
    if as_json:
        terminal.print_json({"job": job.job, "ranks": ranks, **told, "folder": str(out)})
    else:
        terminal.console().print(f"{job.job}: {what} of {terminal.counted(ranks, 'rank')} in {out}")


@contextmanager
def _if_stopped(left: str) -> Iterator[None]:
    """Tell what Ctrl-C has ``left``."""
    try:
        yield
    except KeyboardInterrupt:
        terminal.note(f"stopped: {left}")
        raise


def convert(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH", help="Files and folders of one recorded run.")],
    out: Annotated[Path, typer.Option(metavar="FILE.parquet", help="Write the recording here.")],
    format_name: FormatName = None,
    layout: LayoutText = None,
    iteration_op: IterationOp = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    as_json: Json = False,
) -> None:
    """Write a recorded run as Parquet, with what was inferred."""
    from offbeat import options
    from offbeat.reading import Reading, read
    from producers.importers import parquet
    from producers.importers.recording import write
    from producers.simulation.recording import require_writable
    from schemas.errors import SettingsError

    if out.suffix != parquet.SUFFIX:
        raise SettingsError(f"{out}: give a file whose name ends in {parquet.SUFFIX}")
    require_writable(out)
    if out.exists() and not force:
        raise SettingsError(f"{out} is there already; give another file, or replace it with --force")
    given = Reading(format_name, None if layout is None else options.layout(layout), iteration_op)
    recording = read(paths, given)
    if out.resolve() in {file.resolve() for file in recording.files}:
        raise SettingsError(f"{out} is a part of what shall be converted; give another file")
    rows = recording.table.num_rows
    with terminal.progress(f"writing {terminal.counted(rows, 'operator')}"):
        try:
            write(recording, out)
        except OSError as error:
            raise SettingsError(f"{out}: {error.strerror or error}; give a file to write") from error
    ranks = len(recording.job.ranks)
    if as_json:
        terminal.print_json({"job": recording.job.job, "ranks": ranks, "operators": rows, "file": str(out)})
    else:
        terminal.console().print(
            f"{recording.job.job}: {terminal.counted(rows, 'operator')} of {terminal.counted(ranks, 'rank')} in {out}"
        )
