"""`offbeat bench`: modules of benchmarks/ as commands."""

import inspect
import json
import re
import shlex
import sys
from collections.abc import Iterator
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import benchmarks
from offbeat.commands import bench
from tests.offbeat.command_line import ROOT, offbeat, refusal

MODULE = '''
"""A benchmark of nothing."""

from typing import Annotated, Any

import typer


def run(*, size: Annotated[int, typer.Option(help="How large.")] = 3) -> dict[str, Any]:
    """Measure nothing.

    At length.
    """
    return {"size": size, "inner": {"ratio": 0.5, "list": [1]}}
'''


@pytest.fixture
def own_benchmarks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder of benchmarks with one of our own, and a helper that is none."""
    (tmp_path / "nothing.py").write_text(MODULE)
    (tmp_path / "helper.py").write_text("def running() -> None: ...\n")
    monkeypatch.setattr(benchmarks, "__path__", [str(tmp_path)])
    monkeypatch.setattr("offbeat.commands.bench.resources.files", lambda _: tmp_path)
    yield
    sys.modules.pop("benchmarks.nothing", None)


@pytest.mark.usefixtures("own_benchmarks")
class TestOneBenchmark:
    def test_it_is_listed_with_its_summary(self) -> None:
        listed = offbeat("bench", "--help").stdout.partition("Commands:\n")[2]
        assert listed.split("\n")[0].split(maxsplit=1) == ["nothing", "Measure nothing."]
        assert "helper" not in listed

    def test_its_parameters_are_options(self) -> None:
        helped = offbeat("bench", "nothing", "--help").stdout
        assert re.search(r"--size <int>\s+How large\.\s+\[default: 3\]", helped)
        assert "--json" in helped

    def test_programs_read_the_figures(self) -> None:
        figures: dict[str, Any] = json.loads(offbeat("bench", "nothing", "--size", 7, "--json").stdout)
        assert figures == {"size": 7, "inner": {"ratio": 0.5, "list": [1]}}

    def test_people_read_them_indented(self) -> None:
        assert offbeat("bench", "nothing").stdout == "size: 3\ninner:\n  ratio: 0.5\n  list: [1]\n"

    def test_a_wrong_option_is_one_line(self) -> None:
        assert "--size" in refusal(offbeat("bench", "nothing", "--size", "much"))


def test_a_benchmark_that_is_not_there_is_said() -> None:
    assert refusal(offbeat("bench", "nope")).startswith("offbeat bench: No such command 'nope'")


def test_ours_are_all_listed_with_their_summaries() -> None:
    listed = offbeat("bench", "--help").stdout.partition("Commands:\n")[2]
    shown = dict(line.split(maxsplit=1) for line in listed.splitlines())
    assert set(shown) == set(bench.names()) >= {"accuracy", "pipeline"}
    for name, summary in shown.items():
        said = inspect.getdoc(import_module(f"benchmarks.{name}").run) or ""
        assert summary == said.partition("\n")[0] != ""


@pytest.mark.parametrize("name", bench.names())
def test_ours_have_options(name: str) -> None:
    assert "--json" in offbeat("bench", name, "--help").stdout


MAKE_BENCH = re.findall(r"^\t\$\(BIN\)/(offbeat bench .*)$", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)


def test_make_bench_measures_all() -> None:
    wants_more_than_is_set_up = {"gloo"}
    assert {line.split()[2] for line in MAKE_BENCH} == set(bench.names()) - wants_more_than_is_set_up


@pytest.mark.parametrize("line", MAKE_BENCH)
def test_what_make_bench_runs_is_understood(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _, *arguments = shlex.split(line)
    module = import_module(f"benchmarks.{arguments[1]}")
    monkeypatch.setattr(module, "run", wraps(module.run)(lambda **_: {"figure": 1}))
    result = offbeat(*arguments)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == {"figure": 1}
