"""A broker behind TLS and SASL: every command that meets it is let in, and says in a line why it is not."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from pydantic import SecretStr
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

from local.certificates import make_certificates
from local.kafka import SecuredKafka
from offbeat import wiring
from offbeat.setting_groups import KafkaSettings
from producers.publisher import Publisher
from schemas.catalogue import COMM_OPS, DEAD_LETTERS, INCIDENTS, ITERATIONS, LOG_REQUESTS, SILENCES, STATE, TOPICS
from schemas.errors import BusError, DeliveryError
from schemas.message import Message
from streams import topics
from streams.bus import Bus
from streams.follower import Follower
from tests.integration.roles import KINDS, Role
from tests.offbeat.command_line import EXAMPLE, ROOT, offbeat, own_environment, refusal
from tests.services import skipped_where_unavailable

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("logging_as_before")]

WITHIN_S = 90.0
AGENT, STRANGER = "agent", "stranger"
PAGE = (ROOT / "docs" / "security.md").read_text("utf-8")


@pytest.fixture(scope="module")
def broker() -> Iterator[SecuredKafka]:
    with skipped_where_unavailable(), SecuredKafka(others=[AGENT, STRANGER]) as broker:
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
            return published(settings)

        none = retry_if_result(lambda found: found == 0)
        Retrying(retry=none, stop=stop_after_delay(WITHIN_S), wait=wait_fixed(0.2))(judged)
        assert monitor.stop() == 0
    assert broker.password not in monitor.log()
    checks = json.loads(offbeat("doctor", "--json", settings=settings).stdout)
    states = {check["what"]: (check["state"], check["found"]) for check in checks}
    assert states["brokers"] == ("ok", f"{broker.bootstrap_servers} answers")
    assert broker.password not in f"{states}"
    listed = offbeat("dead-letters", "list", settings=settings)
    assert (listed.exit_code, listed.stdout) == (0, "no dead letters\n")


def published(settings: dict[str, str]) -> int:
    """Records of analysis.iterations by now."""
    with Follower(bus_of(settings, SecuredKafka.user), ITERATIONS.name) as follower:
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


def granted_to_agents() -> dict[AclOperation, list[str]]:
    """The topics that the page lets agents read and write."""
    [row] = re.findall(r"^\| agents .*$", PAGE, re.MULTILINE)
    reads, writes = (re.findall(r"`([a-z_.*]+)`", cell) for cell in row.split("|")[2:4])
    return {AclOperation.READ: reads, AclOperation.WRITE: writes}


def allow(broker: SecuredKafka, user: str, granted: dict[AclOperation, list[str]]) -> None:
    rules = [
        AclBinding(
            ResourceType.TOPIC,
            name.removesuffix("*"),
            ResourcePatternType.PREFIXED if name.endswith("*") else ResourcePatternType.LITERAL,
            f"User:{user}",
            "*",
            operation,
            AclPermissionType.ALLOW,
        )
        for operation, names in granted.items()
        for name in names
    ]
    admin = AdminClient(broker.client)
    for done in admin.create_acls(rules).values():
        done.result()


def bus_of(settings: dict[str, str], user: str) -> Bus:
    prefix = "OFFBEAT_KAFKA__"
    given: dict[str, Any] = {name.removeprefix(prefix).lower(): value for name, value in settings.items()}
    password = Path(given.pop("password_file")).read_text().strip()
    return wiring.bus(KafkaSettings(**{**given, "username": user, "password": SecretStr(password)}))


def test_an_agent_needs_no_more_than_the_page_gives_it(broker: SecuredKafka, settings: dict[str, str]) -> None:
    topics.apply(bus_of(settings, broker.user), TOPICS.values())
    allow(broker, AGENT, granted_to_agents())
    producing = ("produce", "--recording", EXAMPLE, "--linger", 0)
    assert offbeat(*producing, settings=settings | {"OFFBEAT_KAFKA__USERNAME": AGENT}).exit_code == 0
    for user, command in (
        (STRANGER, producing),
        (AGENT, ("silences", "add", "--job", "mine")),
        (AGENT, ("dead-letters", "list")),
        (AGENT, ("worker", "monitor")),
    ):
        refused = offbeat(*command, settings=settings | {"OFFBEAT_KAFKA__USERNAME": user})
        assert refused.exit_code == 2, refused.output
        assert len([line for line in refused.stderr.splitlines() if not line.endswith(" ...")]) == 1


def test_an_agent_can_do_no_more_than_the_page_gives_it(broker: SecuredKafka, settings: dict[str, str]) -> None:
    topics.apply(bus_of(settings, broker.user), TOPICS.values())
    allow(broker, AGENT, granted_to_agents())
    agent = bus_of(settings, AGENT)
    allowed = Publisher(agent.librdkafka(), "agent")
    allowed.send(Message(COMM_OPS.name, "mine", b"x", {"job": "mine"}))
    allowed.flush()
    for topic in (LOG_REQUESTS, INCIDENTS, SILENCES, STATE, DEAD_LETTERS):
        publisher = Publisher(agent.librdkafka(), "intruder", flush_within_s=30)
        publisher.send(Message(topic.name, "mine", b"x", {"job": "mine"}))
        with pytest.raises(DeliveryError, match="authorization failed"):
            publisher.flush()
    with Follower(agent, COMM_OPS.name, within_s=30) as follower, pytest.raises(BusError, match="authorization failed"):
        list(follower.catch_up())
