"""Settings come from the environment alone, and a wrong one is named in a line."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest

from diagnosis.irregularity.monitor_settings import MonitorSettings
from diagnosis.operator_graph.locate import LocateSettings, locate
from offbeat.bounds import numbers
from offbeat.settings import DECISIVE, Settings
from offbeat.settings_page import settings_page
from producers.simulation import FabricShape, Fault, Kind
from schemas.errors import SettingsError
from streams.search import SearchSettings
from tests.diagnosis.answering import answered
from tests.diagnosis.operator_graph.small_jobs import FAULTY, irregularity, run


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("OFFBEAT_"):
            monkeypatch.delenv(name)


def test_thresholds_default_to_those_of_their_rooms() -> None:
    settings = Settings.load()
    assert settings.monitor == MonitorSettings()
    assert settings.search == SearchSettings()


def test_every_level_can_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OFFBEAT_PIVOTS", "8")
    monkeypatch.setenv("OFFBEAT_MONITOR__DELTA", "1.05")
    monkeypatch.setenv("OFFBEAT_SEARCH__LOCATE__ATTRIBUTION__SIGMAS", "2.5")
    monkeypatch.setenv("OFFBEAT_STORE__PATH", "/data/offbeat")
    settings = Settings.load()
    assert settings.pivots == 8
    assert settings.monitor == MonitorSettings(delta=1.05)
    assert settings.search.locate.attribution.sigmas == 2.5
    assert settings.store.path == Path("/data/offbeat")


def test_what_is_given_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OFFBEAT_KAFKA__BOOTSTRAP_SERVERS", "a:1")
    monkeypatch.setenv("OFFBEAT_KAFKA__USERNAME", "me")
    kafka = Settings.load(kafka={"bootstrap_servers": "b:2"}).kafka
    assert (kafka.bootstrap_servers, kafka.username) == ("b:2", "me")


def test_a_model_that_is_set_to_nothing_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OFFBEAT_MODEL", "")
    assert Settings.load().model is None


UNKNOWN, MOMENTS = "there is no such setting", "OFFBEAT_INCIDENTS__MOMENTS__"


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("OFFBEAT_MONITOR__DELTA", "a lot", "OFFBEAT_MONITOR__DELTA: input should be a valid number"),
        ("OFFBEAT_MONITOR__DELTA", "1", "OFFBEAT_MONITOR__DELTA is 1.0; give more than 1"),
        ("OFFBEAT_MONITOR__DELTA", "-1", "OFFBEAT_MONITOR__DELTA is -1.0; give more than 1"),
        ("OFFBEAT_MONITOR__DELTA", "nan", "OFFBEAT_MONITOR__DELTA: input should be a finite number"),
        ("OFFBEAT_MONITOR__WINDOW", "-1", "OFFBEAT_MONITOR__WINDOW is -1; give 1 or more"),
        ("OFFBEAT_SEARCH__LOCATE__MIXED_SHARE", "-1", "OFFBEAT_SEARCH__LOCATE__MIXED_SHARE is -1.0; give 0 or more"),
        (
            "OFFBEAT_MONITOR__DETLA",
            "1.1",
            f"OFFBEAT_MONITOR__DETLA: {UNKNOWN}, but OFFBEAT_MONITOR__DELTA is one",
        ),
        (f"{MOMENTS}CHANSE", "2", f"{MOMENTS}CHANSE: {UNKNOWN}, but {MOMENTS}CHANCE is one; docs/settings.md"),
        ("OFFBEAT_KAFKA__SERVERS", "a:1", "OFFBEAT_KAFKA__SERVERS: there is no such setting"),
        ("OFFBEAT_KAFAK__USERNAME", "me", "OFFBEAT_KAFAK__USERNAME: there is no such setting; after OFFBEAT_ comes"),
        ("OFFBEAT_PIVOT", "3", "OFFBEAT_PIVOT: there is no such setting"),
        ("OFFBEAT_MODEL", "default", "OFFBEAT_MODEL is given, but only Algorithm 1 asks a model: set OFFBEAT_SEARCH__"),
        ("OFFBEAT_PIVOTS", "0", "OFFBEAT_PIVOTS: input should be greater than or equal to 1"),
        ("OFFBEAT_STORE__DATABASE", "a`; DROP", "OFFBEAT_STORE__DATABASE: this cannot name a database: give letters, "),
        ("OFFBEAT_STORE__DATABASE", "a\n", "OFFBEAT_STORE__DATABASE: this cannot name a database: give letters, "),
        ("OFFBEAT_STORE__DATABASE", "", "OFFBEAT_STORE__DATABASE: this cannot name a database: give letters, "),
        ("OFFBEAT_STORE__PORT", "99999", "OFFBEAT_STORE__PORT: input should be less than or equal to 65535"),
        ("OFFBEAT_KAFKA", "a:1", "OFFBEAT_KAFKA is a group of settings: set its fields, as OFFBEAT_KAFKA__FIELD"),
    ],
)
def test_a_wrong_setting_is_named(monkeypatch: pytest.MonkeyPatch, variable: str, value: str, said: str) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(SettingsError) as refused:
        Settings.load()
    assert str(refused.value).startswith(said)


def numbers_of(group: Any, prefix: str) -> Iterator[str]:
    """The variables of a group's numbers."""
    for own in fields(group):
        value = getattr(group, own.name)
        if is_dataclass(value):
            yield from numbers_of(value, f"{prefix}__{own.name.upper()}")
        elif isinstance(value, int | float):
            yield f"{prefix}__{own.name.upper()}"


NUMBERS_OF_ROOMS = [
    variable for group in DECISIVE for variable in numbers_of(getattr(Settings.model_construct(), group), group.upper())
]
BOUNDS = {
    "MONITOR__DELTA": "more than 1",
    "MONITOR__WINDOW": "1 or more",
    "MONITOR__LEAST_BASELINE": "1 or more",
    "MONITOR__FLUCTUATION__SHORTEST_PERIOD": "2 or more",
    "LIKE_RANKS__DELTA": "more than 1",
    "LIKE_RANKS__IN_A_ROW": "1 or more",
    "SEGMENT__STEP_NS": "1000000 or more",
    "COMPARE__SLOW__DELTA": "more than 1",
    "COMPARE__SLOW__WINDOW": "1 or more",
    "COMPARE__SLOW__LEAST_BASELINE": "1 or more",
    "COMPARE__SLOW__FLUCTUATION__SHORTEST_PERIOD": "2 or more",
    "COMPARE__COURSE__RECURRENCES": "2 or more",
    "COMPARE__COURSE__RECENT": "1 or more",
    "SEARCH__LOCATE__BASELINE_ITERATIONS": "3 or more",
    "SEARCH__LOCATE__LARGE_BASELINE_ITERATIONS": "3 or more",
    "SEARCH__LOCATE__ATTRIBUTION__MOST_RANKS": "1 or more",
    "SEARCH__LOCATE__ATTRIBUTION__MOST_CHANNELS": "1 or more",
    "SEARCH__LOCATE__ATTRIBUTION__MOST_OPERATORS": "1 or more",
    "SEARCH__LOCATE__SEPARATION__MOST_OPERATORS": "1 or more",
    "SEARCH__LOCATE__HOST__LEAST_MATES": "1 or more",
    "SEARCH__LOCATE__HOST__LEAST_OPERATORS": "1 or more",
    "SEARCH__LOCATE__SWITCH__LEAST_HOSTS": "2 or more",
    "SEARCH__LOCATE__SWITCH__LEAST_APART": "1 or more",
    "SEARCH__LOCATE__SWITCH__COMPARABLE_SPINES": "0 or more, at most 1",
}


@pytest.mark.parametrize("variable", NUMBERS_OF_ROOMS)
def test_every_number_of_a_room_has_its_bound(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    bound = BOUNDS.get(variable, "0 or more")
    low, _, most = bound.partition(", at most ")
    least = int(low.removeprefix("more than ").removesuffix(" or more"))
    below = least if bound.startswith("more") else least - 1
    monkeypatch.setenv(f"OFFBEAT_{variable}", str(below))
    with pytest.raises(SettingsError) as refused:
        Settings.load()
    assert re.fullmatch(rf"OFFBEAT_{variable} is {below}(\.0)?; give {bound}", str(refused.value))
    monkeypatch.setenv(f"OFFBEAT_{variable}", str(below + 1))
    Settings.load()
    if most:
        monkeypatch.setenv(f"OFFBEAT_{variable}", str(int(most) + 1))
        with pytest.raises(SettingsError, match=f"give {bound}"):
            Settings.load()


def test_every_bound_is_tried_above() -> None:
    assert BOUNDS.keys() <= set(NUMBERS_OF_ROOMS)


def test_a_bound_of_another_name_is_not_passed_over() -> None:
    @dataclass
    class Room:
        window: int = field(default=20, metadata={"leest": 1})

    with pytest.raises(TypeError, match="leest"):
        list(numbers(Room(), "room"))


NUMBERS = re.findall(r"^\| `(OFFBEAT_\w+)` \| [^|]+ \| number \|", settings_page(), re.MULTILINE)


def test_numbers_of_groups_and_of_rooms_are_among_those_tried_below() -> None:
    assert {
        "OFFBEAT_MONITOR__DELTA",
        "OFFBEAT_WEBHOOK__WINDOW_S",
        "OFFBEAT_SEARCH__LOCATE__ATTRIBUTION__SIGMAS",
    } <= set(NUMBERS)


@pytest.mark.parametrize("value", ["inf", "-Infinity", "1e309", "nan"])
@pytest.mark.parametrize("variable", NUMBERS)
def test_no_number_is_infinite(monkeypatch: pytest.MonkeyPatch, variable: str, value: str) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(SettingsError) as refused:
        Settings.load()
    assert str(refused.value) == f"{variable}: input should be a finite number"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"SASL_MECHANISM": "PLAIN"}, "SASL_MECHANISM is set, but OFFBEAT_KAFKA__SECURITY_PROTOCOL is PLAINTEXT: "),
        (
            {"SASL_MECHANISM": "PLAIN", "SECURITY_PROTOCOL": "SSL"},
            (
                "SASL_MECHANISM is set, but OFFBEAT_KAFKA__SECURITY_PROTOCOL is SSL: "
                "set that to SASL_SSL or SASL_PLAINTEXT"
            ),
        ),
        ({"CA_FILE": "/ca.pem"}, "CA_FILE is set, but OFFBEAT_KAFKA__SECURITY_PROTOCOL is PLAINTEXT: set that to SSL"),
        (
            {"SECURITY_PROTOCOL": "SASL_SSL", "SASL_MECHANISM": "PLAIN", "USERNAME": "me"},
            "SECURITY_PROTOCOL is SASL_SSL: set OFFBEAT_KAFKA__PASSWORD as well",
        ),
    ],
)
def test_what_the_protocol_does_not_use_or_lacks_is_named(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str], said: str
) -> None:
    for name, value in given.items():
        monkeypatch.setenv(f"OFFBEAT_KAFKA__{name}", value)
    with pytest.raises(SettingsError) as refused:
        Settings.load()
    assert str(refused.value).startswith(f"OFFBEAT_KAFKA__{said}")


@pytest.mark.parametrize("variable", ["OFFBEAT_SAMPLES", "OFFBEAT_TEST_KAFKA"])
def test_variables_of_the_tests_are_no_settings(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "x")
    assert Settings.load() == Settings.load()


SECRETS: dict[str, Any] = {
    "OFFBEAT_KAFKA__PASSWORD": lambda s: s.kafka.password,
    "OFFBEAT_STORE__PASSWORD": lambda s: s.store.password,
    "OFFBEAT_WEBHOOK__URL": lambda s: s.webhook.url,
    "OFFBEAT_WEBHOOK__SECRETS": lambda s: s.webhook.secrets,
    "OFFBEAT_WEBHOOK__AUTHORIZATION": lambda s: s.webhook.authorization,
    "OFFBEAT_WEBHOOK__ROUTING_KEY": lambda s: s.webhook.routing_key,
}


@pytest.mark.parametrize("variable", SECRETS)
def test_secrets_are_never_shown(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "hush-hush")
    settings = Settings.load()
    assert SECRETS[variable](settings).get_secret_value() == "hush-hush"
    assert "hush-hush" not in f"{settings!r}{settings}{settings.model_dump_json()}"


def test_a_wrong_value_is_not_repeated_it_may_be_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OFFBEAT_STORE__PORT", "hush-hush")
    with pytest.raises(SettingsError) as refused:
        Settings.load()
    assert "hush-hush" not in str(refused.value)


@pytest.mark.parametrize("variable", list(numbers_of(LocateSettings(), "OFFBEAT_SEARCH__LOCATE")))
def test_a_search_ends_at_the_least_that_a_setting_may_be(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "0")
    try:
        settings = Settings.load()
    except SettingsError as refused:
        least = re.fullmatch(rf"{variable} is 0; give (\d+) or more", str(refused))
        assert least
        monkeypatch.setenv(variable, least[1])
        settings = Settings.load()
    fabric = FabricShape(hosts_per_pod=2, spines=2)
    for kind, ends in ((Kind.CPU_SLOW, False), (Kind.LINK_SLOW, True)):
        fault = Fault(kind, 4, FAULTY, slowdown=1.4)
        faulty = run(fault, ends=ends, dp=4, gpus_per_host=4, fabric=fabric)
        location, _ = answered(locate(faulty.job, irregularity(faulty), settings.search.locate), faulty.table)
        assert location.coverage > 0.9  # lines are lost
