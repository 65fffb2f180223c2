"""Secrets show in no log, no traceback, no answer and no command line."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from offbeat.secret_files import SECRETS
from tests.offbeat.command_line import command, offbeat, own_environment, refusal

NOBODY = "127.0.0.1:1"
HUSH = "hush-hush-9f2c"
SETTINGS = {
    "OFFBEAT_LOG_LEVEL": "debug",
    "OFFBEAT_KAFKA__BOOTSTRAP_SERVERS": NOBODY,
    "OFFBEAT_KAFKA__SECURITY_PROTOCOL": "SASL_PLAINTEXT",
    "OFFBEAT_KAFKA__SASL_MECHANISM": "PLAIN",
    "OFFBEAT_KAFKA__USERNAME": "me",
    "OFFBEAT_KAFKA__PASSWORD": HUSH,
    "OFFBEAT_STORE__ENGINE": "clickhouse",
    "OFFBEAT_STORE__HOST": "127.0.0.1",
    "OFFBEAT_STORE__PORT": "1",
    "OFFBEAT_STORE__PASSWORD": HUSH,
    "OFFBEAT_WEBHOOK__URL": f"http://127.0.0.1:1/{HUSH}?key={HUSH}",
    "OFFBEAT_WEBHOOK__SECRETS": f"{HUSH},{HUSH}-older",
    "OFFBEAT_WEBHOOK__AUTHORIZATION": f"Bearer {HUSH}",
    "OFFBEAT_WEBHOOK__ROUTING_KEY": HUSH,
}

CRASH = """
from offbeat import paging, roles, wiring
def crash(settings):
    bus, store = wiring.bus(settings.kafka), wiring.server_address(settings.store)
    with paging.paging(settings.webhook, None, None) as make:
        raise RuntimeError(f"{settings} {bus!r} {store!r}")
roles.run_paging = crash
from prometheus_client import CollectorRegistry
whole = paging.paging
paging.paging = lambda webhook, refusal, registry: whole(webhook, refusal, CollectorRegistry())
from offbeat.cli import main
main()
"""


def told(arguments: list[str], settings: dict[str, str]) -> str:
    done = subprocess.run(
        arguments, env=own_environment(settings), capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode != 0, done.stdout
    return done.stdout + done.stderr


@pytest.mark.parametrize("role", ["alert", "store migrate", "doctor", "doctor --json"])
def test_a_service_that_is_away_is_told_of_without_secrets(role: str) -> None:
    said = told(command(*role.split()), SETTINGS)
    assert "127.0.0.1:1" in said
    assert HUSH not in said


@pytest.mark.parametrize("variable", [name for name, text in SETTINGS.items() if HUSH in text])
def test_a_setting_that_is_refused_is_named_without_its_value(variable: str) -> None:
    """Each secret where a number or a choice belongs, as after a slip."""
    wrong = {**SETTINGS, "OFFBEAT_STORE__PORT": SETTINGS[variable], "OFFBEAT_KAFKA__SASL_MECHANISM": HUSH}
    result = offbeat("alert", settings=wrong)
    assert refusal(result).startswith("OFFBEAT_")
    assert HUSH not in result.output


def test_a_crash_shows_no_secrets() -> None:
    said = told([sys.executable, "-c", CRASH, "alert"], SETTINGS)
    assert "Traceback" in said
    assert "RuntimeError: kafka=KafkaSettings(" in said
    assert HUSH not in said


def options(*names: str) -> set[str]:
    """The options of a command and of all below it, as a reader of its help finds them."""
    helped = offbeat(*names, "--help").stdout
    below = re.findall(r"^  ([a-z][a-z_-]*) ", helped.partition("\nCommands:\n")[2], re.MULTILINE)
    return set(re.findall(r"--([a-z-]+)", helped)).union(*(options(*names, name) for name in below))


def test_no_option_takes_a_secret() -> None:
    """Whoever is on a host may read the command lines of its processes."""
    found = options()
    assert {"bootstrap", "data-dir", "dry-run", "page"} <= found
    assert not {option for option in found if any(secret in option.replace("-", "_") for secret in SECRETS)}
