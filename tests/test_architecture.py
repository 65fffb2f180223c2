"""The import rules of pyproject.toml: they hold, each can be broken, and no package escapes them."""

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
CONFIGURATION: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
PACKAGES = {"offbeat", "diagnosis", "schemas", "producers", "streams", "sinks", "benchmarks", "local"}

ONE_WAY = "Imports go one way"
LOCAL_ALONE = "The local services know nothing of ours"
LOCAL_UNNEEDED = "No room needs the local services"
SIMULATION = "The simulation shares no code with the diagnosis it is judged by"
PURE = "Diagnosis is pure: no bus, no store, no files, no clock, no threads"
TESTS = "Nothing imports the tests"


def lint_imports(folder: Path) -> str:
    """What import-linter says of the packages in `folder`."""
    lint = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
    command = [sys.executable, "-c", lint]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False).stdout


@pytest.fixture
def skeleton(tmp_path: Path) -> Path:
    """Empty packages of our names under our rules."""
    modules = [f"{package}/__init__.py" for package in PACKAGES]
    modules += ["diagnosis/job.py", "diagnosis/clocks.py", "producers/simulation/__init__.py"]
    for module in modules:
        (tmp_path / module).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / module).touch()
    (tmp_path / "pyproject.toml").write_bytes((ROOT / "pyproject.toml").read_bytes())
    return tmp_path


def test_the_rules_hold() -> None:
    report = lint_imports(ROOT)
    contracts = CONFIGURATION["importlinter"]["contracts"]
    assert f"Contracts: {len(contracts)} kept, 0 broken." in report, report


def test_what_is_allowed_breaks_no_rule(skeleton: Path) -> None:
    (skeleton / "producers/simulation/cluster.py").write_text("import diagnosis.job\nimport schemas\n")
    (skeleton / "diagnosis/job.py").write_text("import diagnosis.clocks\nimport numpy\nimport pyarrow\n")
    (skeleton / "sinks/store.py").write_text("import diagnosis, schemas, time, pathlib\n")
    (skeleton / "benchmarks/pipeline.py").write_text("import local, offbeat, streams, sinks\n")
    (skeleton / "offbeat/cli.py").write_text("import benchmarks, producers\n")
    report = lint_imports(skeleton)
    assert " 0 broken." in report, report


@pytest.mark.parametrize(
    ("module", "imported", "contract"),
    [
        ("diagnosis", "schemas", ONE_WAY),
        ("schemas", "diagnosis", ONE_WAY),
        ("schemas", "offbeat", ONE_WAY),
        ("streams", "sinks", ONE_WAY),
        ("producers", "streams", ONE_WAY),
        ("sinks", "benchmarks", ONE_WAY),
        ("local", "schemas", LOCAL_ALONE),
        ("streams", "local", LOCAL_UNNEEDED),
        ("producers.simulation", "diagnosis.clocks", SIMULATION),
        ("diagnosis", "time", PURE),
        ("diagnosis", "confluent_kafka", PURE),
        ("offbeat", "tests", TESTS),
    ],
)
def test_an_import_against_a_rule_breaks_it(skeleton: Path, module: str, imported: str, contract: str) -> None:
    (skeleton / module.replace(".", "/") / "culprit.py").write_text(f"import {imported}\n")
    report = lint_imports(skeleton)
    assert f"{contract} BROKEN" in report, report
    assert f"{module}.culprit -> {imported} (l.1)" in report, report


def test_no_package_escapes_the_rules() -> None:
    assert {folder.parent.name for folder in ROOT.glob("*/__init__.py")} - {"tests"} == PACKAGES
    assert set(CONFIGURATION["importlinter"]["root_packages"]) == PACKAGES
    assert set(CONFIGURATION["mypy"]["files"]) == PACKAGES | {"tests"}
    wheel = CONFIGURATION["hatch"]["build"]["targets"]["wheel"]
    assert set(wheel["packages"]) == PACKAGES
