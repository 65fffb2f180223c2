"""`offbeat bench`: modules of benchmarks/ as commands."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import benchmarks
from tests.offbeat.command_line import offbeat, refusal

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


@pytest.mark.parametrize("name", ["accuracy"])
def test_ours_have_options(name: str) -> None:
    assert "--json" in offbeat("bench", name, "--help").stdout
