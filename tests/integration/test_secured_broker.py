"""A broker behind TLS and SASL: every command that meets it is let in, and says in a line why it is not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

from local.certificates import make_certificates
from local.kafka import SecuredKafka
from schemas.catalogue import ITERATIONS, TOPICS
from streams.bus import Bus
from streams.follower import Follower
from tests.integration.roles import KINDS, Role
from tests.offbeat.command_line import EXAMPLE, ROOT, offbeat, own_environment, refusal
from tests.services import skipped_where_unavailable

pytestmark = pytest.mark.kafka

WITHIN_S = 90.0


@pytest.fixture(scope="module")
def broker() -> Iterator[SecuredKafka]:
    with skipped_where_unavailable(), SecuredKafka() as broker:
        yield broker


@pytest.fixture
def settings(broker: SecuredKafka, tmp_path: Path) -> dict[str, str]:
    (tmp_path / "password").write_text(f"{broker.password}\n")
    return {
        "OFFBEAT_KAFKA__BOOTSTRAP_SERVERS": broker.bootstrap_servers,
        "OFFBEAT_KAFKA__SECURITY_PROTOCOL": "SASL_SSL",
        "OFFBEAT_KAFKA__SASL_MECHANISM": broker.mechanism,
        "OFFBEAT_KAFKA__CA_FILE": str(broker.ca_file),
        "OFFBEAT_KAFKA__USERNAME": broker.user,
        "OFFBEAT_KAFKA__PASSWORD_FILE": str(tmp_path / "password"),
    }


def test_every_client_is_let_in(broker: SecuredKafka, settings: dict[str, str], tmp_path: Path) -> None:
    """confluent-kafka's clients as well as Faust's: a worker judges what was produced, and buries nothing."""
    applied = offbeat("topics", "apply", settings=settings)
    assert (applied.exit_code, len(applied.stdout.splitlines())) == (0, len(TOPICS))
    environment = {**own_environment(settings), "PYTHONPATH": str(ROOT)}
    with Role(KINDS["monitor"], environment, tmp_path / "monitor") as monitor:
        produced = offbeat("produce", "--recording", EXAMPLE, "--linger", 0, "--json", settings=settings)
        assert produced.exit_code == 0, produced.output
        assert json.loads(produced.stdout)["messages"] > 0

        def judged() -> int:
            if not monitor.running:
                pytest.fail(monitor.last_words())
            return published(broker, settings)

        none = retry_if_result(lambda found: found == 0)
        Retrying(retry=none, stop=stop_after_delay(WITHIN_S), wait=wait_fixed(0.2))(judged)
        assert monitor.stop() == 0
    assert broker.password not in monitor.log()
    listed = offbeat("dead-letters", "list", settings=settings)
    assert (listed.exit_code, listed.stdout) == (0, "no dead letters\n")


def published(broker: SecuredKafka, settings: dict[str, str]) -> int:
    """Records of analysis.iterations by now."""
    bus = Bus(
        broker.bootstrap_servers,
        security_protocol="SASL_SSL",
        ca_file=settings["OFFBEAT_KAFKA__CA_FILE"],
        sasl_mechanism="SCRAM-SHA-512",
        username=broker.user,
        password=broker.password,
    )
    with Follower(bus, ITERATIONS.name) as follower:
        return len(list(follower.catch_up()))


@pytest.mark.parametrize("command", ["topics apply", "worker monitor", "dead-letters list"])
def test_a_wrong_password_is_one_line(
    broker: SecuredKafka, settings: dict[str, str], tmp_path: Path, command: str
) -> None:
    (tmp_path / "password").write_text("not-it-3c1f")
    line = refusal(offbeat(*command.split(), settings=settings))
    assert line.startswith(f"no broker answers at {broker.bootstrap_servers}: SASL authentication error: ")
    assert line.endswith("; set OFFBEAT_KAFKA__SASL_MECHANISM, __USERNAME and __PASSWORD to what the brokers know")
    assert "not-it-3c1f" not in line


def test_a_broker_of_another_authority_is_not_trusted(
    broker: SecuredKafka, settings: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "others").mkdir()
    stranger = make_certificates(tmp_path / "others")
    settings["OFFBEAT_KAFKA__CA_FILE"] = str(stranger.authority)
    line = refusal(offbeat("dead-letters", "list", settings=settings))
    assert "certificate verify failed" in line
    assert line.endswith("OFFBEAT_KAFKA__CA_FILE to the authority that signed their certificates")
