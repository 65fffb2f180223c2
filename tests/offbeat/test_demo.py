"""`offbeat demo`: simulated, diagnosed, stored, paged and ranked, in one process."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NoReturn

import pytest
from pydantic import SecretStr
from typer.testing import Result

from offbeat.demo import ITERATIONS, LASTS, _paging, demo_scenario
from offbeat.setting_groups import WebhookSettings
from producers.simulation import Kind, Scenario, simulate
from tests.offbeat.command_line import offbeat, refusal
from tests.sinks.webhook.local_receiver import LocalReceiver

RANKS, SEED = 64, 1
"""Of `offbeat demo` as the README shows it: without an option."""


@pytest.fixture(scope="module")
def receiver() -> Iterator[LocalReceiver]:
    receiver = LocalReceiver()
    yield receiver
    receiver.away()


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory, receiver: LocalReceiver) -> Result:
    folder = tmp_path_factory.mktemp("demo") / "data"
    configured = {"OFFBEAT_WEBHOOK__URL": receiver.url}
    result = offbeat("demo", "--data-dir", folder, "--page", settings=configured)
    assert result.exit_code == 0, result.output
    return result


def test_both_faults_are_named_and_nothing_else(shown: Result) -> None:
    faults = demo_scenario(SEED, RANKS).faults
    assert f"sim-{SEED}: {RANKS} ranks " in shown.stdout
    injected = [line for line in shown.stdout.splitlines() if " times as long: " in line]
    assert len(injected) == len(faults) == 2
    assert all(line.endswith(" times as long: named") for line in injected)
    assert "   named beyond these: nothing\n" in shown.stdout
    headlines = [line for line in shown.stdout.splitlines() if line.startswith(("1. ", "2. ", "3. "))]
    cause = {Kind.GPU_SLOW: "compute_slow", Kind.NIC_SLOW: "communication_slow"}
    expected = [f"{cause[fault.kind]}: rank {fault.rank} " for fault in faults]
    assert [line[len("1. ") :].partition("(")[0] for line in headlines] == expected


def test_incidents_are_told_as_they_open(shown: Result) -> None:
    opened = [line for line in shown.stderr.splitlines() if ": opened: " in line]
    assert len(opened) == 2
    faults = demo_scenario(SEED, RANKS).faults
    for line, fault in zip(opened, faults, strict=True):
        iteration = int(line.removeprefix("iteration ").partition(":")[0])
        assert iteration in fault.iterations


def test_the_ranking_comes_from_the_store(shown: Result) -> None:
    ranking = shown.stdout.partition("(SQL view device_ranking):\n")[2]
    header, _, *devices = ranking.partition("look further:")[0].splitlines()
    assert header.split() == "place device kind job score findings irregularity_rate ambiguity_set".split()
    assert {line.split()[2] for line in devices[:2]} == {"gpu", "nic"}


def test_how_to_look_further_works(shown: Result) -> None:
    lines = shown.stdout.partition("look further:\n")[2].splitlines()
    assert len(lines) == 2
    for line in lines:
        _, arguments = line.strip().split("offbeat sql --data-dir ")
        folder, query = arguments.split(" ", maxsplit=1)
        result = offbeat("sql", "--data-dir", Path(folder), query.strip('"'), "--json")
        assert result.exit_code == 0, result.output
        assert json.loads(result.stdout)


def test_every_incident_was_paged_as_it_opened_and_as_it_ended(shown: Result, receiver: LocalReceiver) -> None:
    assert shown.exit_code == 0
    told: dict[str, list[str]] = {}
    for page in receiver.received:
        told.setdefault(page.json["groupLabels"]["incident"], []).append(page.json["status"])
    assert len(told) == 2
    for statuses in told.values():
        assert statuses[0] == "firing"
        assert statuses[-1] == "resolved"
        assert set(statuses[:-1]) == {"firing"}


def test_pages_tell_of_a_run_that_ended_just_now(shown: Result, receiver: LocalReceiver) -> None:
    assert shown.exit_code == 0
    now = datetime.now(UTC)
    for page in receiver.received:
        [alert] = page.json["alerts"]
        times = [alert["startsAt"]] + [alert["endsAt"]] * (page.json["status"] == "resolved")
        assert all(now - timedelta(minutes=30) < _read(time) <= now for time in times)


def test_alertmanager_is_told_of_alerts_that_last_and_then_of_their_end(tmp_path: Path) -> None:
    receiver = LocalReceiver()
    configured = {"OFFBEAT_WEBHOOK__URL": receiver.url, "OFFBEAT_WEBHOOK__RECEIVER": "alertmanager"}
    result = offbeat("demo", "--ranks", 16, "--data-dir", tmp_path / "data", "--page", settings=configured)
    receiver.away()
    assert result.exit_code == 0, result.output
    now = datetime.now(UTC)
    lasts: dict[str, list[bool]] = {}
    for page in receiver.received:
        [alert] = json.loads(page.body)
        assert _read(alert["startsAt"]) < _read(alert["endsAt"])
        lasts.setdefault(alert["labels"]["incident"], []).append(_read(alert["endsAt"]) > now)
    assert lasts
    for firing in lasts.values():
        assert firing[0]
        assert not firing[-1]


def test_a_seed_places_the_faults() -> None:
    scenarios = [demo_scenario(seed, 64) for seed in range(40)]
    assert scenarios[7] == demo_scenario(7, 64)
    placed = {(fault.kind, fault.rank) for scenario in scenarios for fault in scenario.faults}
    assert len(placed) > 40
    for scenario in scenarios:
        assert {fault.kind for fault in scenario.faults} == {Kind.GPU_SLOW, Kind.NIC_SLOW}
        assert len({fault.rank for fault in scenario.faults}) == 2
        assert all(len(fault.iterations) == LASTS for fault in scenario.faults)
        assert max(fault.iterations[-1] for fault in scenario.faults) < ITERATIONS
    assert {scenario.faults[0].kind for scenario in scenarios} == {Kind.GPU_SLOW, Kind.NIC_SLOW}


@pytest.mark.parametrize("ranks", [16, 32, 48, 64, 128])
def test_a_job_of_so_many_ranks_can_be_laid_out(ranks: int) -> None:
    assert demo_scenario(1, ranks).world == ranks


@pytest.mark.parametrize("ranks", [0, 8, 20, 144])
def test_other_numbers_of_ranks_are_refused(ranks: int) -> None:
    line = refusal(offbeat("demo", "--ranks", ranks))
    assert line == f"--ranks {ranks}: give 16, or a multiple of 16 up to 128"


def test_a_receiver_that_is_away_costs_only_the_pages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("offbeat.demo._PAGING_PATIENCE_S", 0.1)
    away = {"OFFBEAT_WEBHOOK__URL": "http://127.0.0.1:1/hook"}
    result = offbeat("demo", "--ranks", 16, "--data-dir", tmp_path / "data", "--page", settings=away)
    assert result.exit_code == 2
    for part in ("1. ", "\ninjected:\n", "named beyond these: ", "(SQL view device_ranking):\n", "look further:\n"):
        assert part in result.stdout
    last = result.stderr.splitlines()[-1]
    assert last.startswith("not every incident was paged: http://127.0.0.1:1: ConnectError: ")
    assert last.endswith("; mend what it names, or leave --page out")


def test_without_page_a_receiver_that_is_set_hears_nothing() -> None:
    webhook = WebhookSettings(url=SecretStr("http://127.0.0.1:1/hook"))
    simulated = simulate(Scenario(1, tp=2, pp=1, dp=1, layers=1, microbatches=1, iterations=2))
    with _paging(webhook, page=False) as pages_of:
        assert pages_of(simulated) == []
    with _paging(webhook, page=True) as pages_of:
        assert len(pages_of(simulated)) == 1


def test_paging_nobody_is_refused_before_anything_is_simulated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("offbeat.demo.simulate", _unexpected)
    line = refusal(offbeat("demo", "--ranks", 16, "--data-dir", tmp_path / "data", "--page"))
    assert line == "OFFBEAT_WEBHOOK__URL is not set: it names who is told of incidents"


def _unexpected(_: Scenario) -> NoReturn:
    raise AssertionError("simulated in vain")


def _read(time: str) -> datetime:
    return datetime.fromisoformat(f"{time[:26]}+00:00")
