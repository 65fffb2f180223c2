"""What README.md and the pages of docs/ show is so: output, commands, settings, fields, spellings, topics, links."""

import json
import re
import shlex
import subprocess
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from offbeat import wiring
from offbeat.settings import Settings
from producers.importers.columns import ALIASES, PHASES
from producers.importers.files import Limits
from producers.importers.job_of_rows import read_job_file
from producers.importers.jsonl import JsonLines
from schemas import catalogue
from schemas.tables import TABLES
from sinks.webhook.sink import WebhookSink
from tests.offbeat.command_line import EXAMPLE, ROOT, offbeat

README = (ROOT / "README.md").read_text("utf-8")
PAGES = {path: path.read_text("utf-8") for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))}


RECORDINGS = PAGES[ROOT / "docs" / "recordings.md"]


@cache
def diagnosed() -> str:
    return offbeat("diagnose", EXAMPLE).stdout


def blocks(page: str = README) -> list[str]:
    """The indented blocks, without their indentation."""
    found = re.findall(r"(?:^    .*\n|^\n(?=    ))+", page, re.MULTILINE)
    return [re.sub(r"^    ", "", block, flags=re.MULTILINE).strip("\n") for block in found]


def commands() -> list[str]:
    shown = [block for page in PAGES.values() for block in blocks(page)]
    lines = [line.removeprefix("$ ").partition("#")[0].strip() for block in shown for line in block.splitlines()]
    spans = [span for page in PAGES.values() for span in re.findall(r"`(offbeat [^`]+)`", page)]
    return sorted({line for line in (*lines, *spans) if line.startswith("offbeat ")})


def test_the_output_shown_is_the_output() -> None:
    [shown] = [block for block in blocks() if block.startswith("$ offbeat diagnose")]
    assert shown.partition("\n")[2] == diagnosed().rstrip("\n")


@pytest.mark.parametrize("command", commands())
def test_every_command_shown_exists_with_its_options(command: str) -> None:
    arguments = shlex.split(command)[1:]
    names = [argument for argument in arguments if re.fullmatch(r"[a-z][a-z_-]*", argument)]
    options = [argument for argument in arguments if argument.startswith("-")]
    for depth in (2, 1):
        helped = offbeat(*names[:depth], "--help")
        if helped.exit_code == 0 and len(names) >= depth:
            break
    assert helped.exit_code == 0, helped.output
    for option in options:
        assert re.search(rf" {option}[ ,]", helped.stdout), f"{command}: {option}"


def leaves(*names: str) -> list[tuple[str, ...]]:
    """The commands below one, as a reader of its help finds them; a step's name is part of `worker`."""
    listed = offbeat(*names, "--help").stdout.partition("\nCommands:\n")[2]
    below = re.findall(r"^  ([a-z][a-z_-]*) ", listed, re.MULTILINE)
    return [leaf for name in below for leaf in leaves(*names, name)] if below else [names]


def test_every_command_is_shown() -> None:
    shown, known = [tuple(shlex.split(command)) for command in commands()], leaves()
    assert len(known) > 20
    assert [leaf for leaf in known if not any(one[1 : len(leaf) + 1] == leaf for one in shown)] == []


def test_every_benchmark_is_among_what_is_measured() -> None:
    rows = re.findall(r"^\| `offbeat bench (\w+)", PAGES[ROOT / "docs" / "architecture.md"], re.MULTILINE)
    assert set(rows) == {leaf[1] for leaf in leaves("bench")}


def test_every_setting_shown_exists_and_all_groups_are_shown() -> None:
    known = {name.upper(): field.default for name, field in Settings.model_fields.items()}
    for variable in re.findall(r"OFFBEAT_([A-Z_]+[A-Z])", README):
        name, _, field = variable.partition("__")
        assert name in known, variable
        assert not field or field in names_of(known[name]), variable
    rows = dict(re.findall(r"^\| `([A-Z_]+)` \|(.*)$", README, re.MULTILINE))
    assert set(rows) == {name for name, default in known.items() if names_of(default)}
    for name, row in rows.items():
        shown = set(re.findall(r"`([A-Z][A-Z_]*)`", row))
        assert shown <= names_of(known[name]), name
        if isinstance(known[name], BaseModel):
            assert shown == names_of(known[name]), name


def names_of(default: Any) -> set[str]:
    if isinstance(default, BaseModel):
        return {name.upper() for name in type(default).model_fields}
    return {field.name.upper() for field in fields(default)} if is_dataclass(default) else set()


def test_every_field_of_the_answer_is_explained() -> None:
    answer = json.loads(offbeat("diagnose", EXAMPLE, "--json").stdout)
    table = README.partition("| field | meaning |")[2].partition("\n\n")[0]
    explained = set(re.findall(r"`(?:incidents\[\]\.)?([a-z_]+)`", table))
    assert {*answer, *answer["incidents"][0]} - {"incidents"} <= explained


@pytest.mark.parametrize("target", sorted(set(re.findall(r"(?:^    |`)make ([a-z]+)", README, re.MULTILINE))))
def test_every_make_target_shown_exists(target: str) -> None:
    assert re.search(rf"^{target}:.*##", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)


def test_make_explains_all_its_commands() -> None:
    text = (ROOT / "Makefile").read_text("utf-8")
    command = ["make", "--no-print-directory", "help"]  # the tests may themselves be run by make
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    [targets] = re.findall(r"^\.PHONY: (.*)$", text, re.MULTILINE)
    assert [line.split()[0] for line in shown.splitlines()] == re.findall(r"^([a-z]+):", text, re.MULTILINE)
    assert {line.split()[0] for line in shown.splitlines()} == set(targets.split())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target, _, heading in (link.partition("#") for link in re.findall(r"\]\(([^)]+)\)", PAGES[page])):
        file = page.parent / target if target else page
        assert file.is_file(), target
        assert not heading or heading in anchors(file.read_text("utf-8")), f"{target}#{heading}"


def anchors(text: str) -> set[str]:
    """What a link can name of a page: its headings, as they are shown on the web."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_spellings_shown_are_those_that_are_read() -> None:
    rows = re.findall(r"^\| (field|phase) `(\w+)` \| \1 `(\w+)` \|$", RECORDINGS, re.MULTILINE)
    assert {written: read for kind, written, read in rows if kind == "field"} == ALIASES
    assert {written: read for kind, written, read in rows if kind == "phase"} == PHASES


def test_the_line_shown_is_read(tmp_path: Path) -> None:
    line, _, _ = [block for block in blocks(RECORDINGS) if block.startswith("{")]
    (tmp_path / "log.jsonl").write_text(line)
    [row] = JsonLines().read([tmp_path / "log.jsonl"], Limits()).to_pylist()
    assert (row["communicator"], row["phase"]) == ("dp1", "gradient")
    known = {ALIASES.get(name, name): PHASES.get(value, value) for name, value in json.loads(line).items()}
    assert {name: value for name, value in row.items() if value is not None} == known


def test_the_job_file_shown_is_read(tmp_path: Path) -> None:
    _, text, routes = [block for block in blocks(RECORDINGS) if block.startswith("{")]
    (tmp_path / "job.json").write_text(json.dumps(json.loads(text) | json.loads(routes)))
    job = read_job_file(tmp_path, "run")
    assert job is not None
    assert [job.gpu(rank).device for rank in job.ranks] == ["gpu:node17/0", "gpu:node17/1"]
    assert job.row["routes"][0]["switches"] == ["tor:pod0/rail0", "spine:3", "tor:pod2/rail0"]


def test_the_incident_shown_is_that_of_the_recording() -> None:
    [shown] = re.findall(r"^```json\n(.*?)^```", PAGES[ROOT / "docs" / "algorithms.md"], re.MULTILINE | re.DOTALL)
    [incident] = json.loads(offbeat("diagnose", EXAMPLE, "--json").stdout)["incidents"]
    expected = json.loads(shown)
    assert {name: incident[name] for name in expected} == expected


@pytest.mark.parametrize("folder", sorted(set(re.findall(r"^\| `(\w+)/`", README, re.MULTILINE))))
def test_every_folder_shown_is_there(folder: str) -> None:
    assert (ROOT / folder / "__init__.py").is_file() or (ROOT / folder).is_dir()


def architecture_topics() -> dict[str, tuple[str, str]]:
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    rows = re.findall(r"^\| `([a-z_.]+)` \| ([^|]+) \| ([^|]+) \|", text, re.MULTILINE)
    return {topic: (written, read) for topic, written, read in rows}


def test_the_architecture_tells_every_topic() -> None:
    assert set(architecture_topics()) == set(catalogue.TOPICS)


def test_the_architecture_tells_who_reads_and_writes() -> None:
    topics = architecture_topics()
    steps: tuple[Any, ...] = (*wiring.steps({}, Settings.load()).values(), WebhookSink)
    for step in steps:
        for topic in step.writes:
            assert step.name in topics[topic.name][0]
        for topic in step.reads:
            assert step.name in topics[topic.name][1]
    stored = {table.topic.name for table in TABLES.values()}
    assert stored == {topic for topic, (_, read) in topics.items() if "store" in read}


def test_the_architecture_names_files_that_exist() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    rows = [re.findall(r"`([a-z_0-9/]+\.py)`", line) for line in text.splitlines()]
    for names in rows:
        folder = ROOT
        for name in names:
            path = ROOT / name if "/" in name else folder / name
            assert path.is_file(), name
            folder = path.parent
