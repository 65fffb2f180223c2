"""The command line as such: help, usage errors, exit codes, what is loaded when."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from offbeat.errors import ExitCode, told_in_one_line
from schemas.errors import InputError
from tests.offbeat.command_line import EXAMPLE, ROOT, command, offbeat, refusal, run_offbeat

COMMANDS = (
    "demo",
    "diagnose",
    "simulate",
    "convert",
    "train",
    "produce",
    "agent",
    "preload",
    "worker",
    "sink",
    "alert",
    "replay",
    "sql",
    "rank",
    "doctor",
    "bench",
    "topics apply",
    "dead-letters list",
    "dead-letters replay",
    "store migrate",
)


def test_help_names_every_command() -> None:
    shown = offbeat("--help").stdout
    for name in COMMANDS:
        assert f"\n  {name.split()[0]} " in shown


def test_without_a_command_it_is_shown_as_an_error() -> None:
    result = offbeat()
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", offbeat("--help").stdout)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name: str) -> None:
    result = offbeat(*name.split(), "--help")
    assert result.exit_code == 0
    assert f"offbeat {name} " in result.stdout
    assert "..." not in offbeat("--help").stdout.partition("Commands:")[2], "a summary is too long for its line"


@pytest.mark.parametrize(("arguments", "shown"), [(("--help",), "diagnose"), (("bench", "--help"), "accuracy")])
def test_help_loads_nothing_heavy(arguments: tuple[str, ...], shown: str) -> None:
    heavy = ["pyarrow", "numpy", "sklearn", "scipy", "chdb", "faust", "confluent_kafka", "httpx"]
    if "bench" not in arguments:  # typer reads the options of a benchmark with it
        heavy.append("pydantic")
    script = (
        "import sys\n"
        "from offbeat.cli import main\n"
        f"sys.argv = {['offbeat', *arguments]!r}\n"
        "try:\n    main()\n"
        "except SystemExit as ended:\n    assert ended.code == 0\n"
        f"print([name for name in {heavy!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"
    assert shown in done.stdout


def test_version_is_the_packages() -> None:
    assert offbeat("--version").stdout == "0.1.0\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("diagnoze",), "offbeat: No such command 'diagnoze'. Did you mean 'diagnose'; see `offbeat --help`"),
        (("diagnose",), "offbeat diagnose: Missing argument 'PATH'; see `offbeat diagnose --help`"),
        (("topics",), "offbeat topics: Missing command; see `offbeat topics --help`"),
        (
            ("worker", "foo"),
            (
                "offbeat worker: Invalid value for 'name': 'foo' is not one of 'monitor', 'search', 'segment', "
                "'compare', 'incidents'; see `offbeat worker --help`"
            ),
        ),
        (("sql", "SELECT 1", "--nope"), "offbeat sql: No such option: --nope; see `offbeat sql --help`"),
    ],
)
def test_bad_usage_is_one_line(arguments: tuple[str, ...], said: str) -> None:
    assert refusal(offbeat(*arguments)) == said


def test_the_process_exits_as_the_command_says() -> None:
    refused = run_offbeat("diagnose", "/nowhere")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == "/nowhere: no such file or folder\n"
    assert run_offbeat("--version").returncode == 0


def test_an_error_of_several_lines_is_told_in_one(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended, told_in_one_line():
        raise InputError("a.jsonl:3: bad\n  indented")
    assert ended.value.code == ExitCode.REFUSED
    assert capsys.readouterr().err == "a.jsonl:3: bad indented\n"


def test_a_mistake_of_ours_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError), told_in_one_line():
        _ = 1 / 0


@pytest.mark.parametrize("with_stderr", [False, True])
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--help",), ExitCode.DONE),
        (("diagnose", EXAMPLE, "--json"), ExitCode.DONE),
        (("diagnose", EXAMPLE, "--fail-on-incident"), ExitCode.FOUND),
        (("diagnose", "nothing-there"), ExitCode.REFUSED),
    ],
)
def test_a_reader_that_has_seen_enough_does_not_change_the_exit_code(
    arguments: tuple[object, ...], code: ExitCode, with_stderr: bool
) -> None:
    reader, pipe = os.pipe()
    os.close(reader)
    try:
        errors = pipe if with_stderr else subprocess.PIPE
        run = subprocess.run(command(*arguments), stdout=pipe, stderr=errors, text=True, cwd=ROOT, check=False)
    finally:
        os.close(pipe)
    assert run.returncode == code
    assert "Traceback" not in (run.stderr or "")
    assert "Broken pipe" not in (run.stderr or "")


@pytest.mark.parametrize("arguments", [(EXAMPLE,), (EXAMPLE, "--json"), ("--help",)])
def test_output_that_cannot_be_written_is_refused(arguments: tuple[object, ...]) -> None:
    with Path("/dev/full").open("wb") as full:
        run = subprocess.run(
            command("diagnose", *arguments), stdout=full, stderr=subprocess.PIPE, text=True, cwd=ROOT, check=False
        )
    assert run.returncode == ExitCode.REFUSED
    said = "the output cannot be written: No space left on device; send it where there is room for it"
    assert run.stderr.splitlines()[-1] == said
    assert "Traceback" not in run.stderr


def test_what_is_told_beside_an_answer_may_be_closed() -> None:
    shell = f"{shlex.join(command('diagnose', EXAMPLE, '--json'))} 2>&-"
    run = subprocess.run(["bash", "-c", shell], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == ExitCode.DONE
    assert json.loads(run.stdout)["incidents"]


def test_output_that_is_closed_is_refused() -> None:
    shell = f"{shlex.join(command('--version'))} >&-"
    run = subprocess.run(["bash", "-c", shell], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == ExitCode.REFUSED
    assert run.stderr.startswith("the output cannot be written: it is closed; ")
