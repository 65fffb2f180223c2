"""docker-compose.yml: it parses, everything in it is there, and it starts in an order that works."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from compose_spec import PyCompose

from local.kafka.jars import kafka_version
from schemas.metrics import ROLES
from tests.deploy.command_lines import check_command, loaded
from tests.deploy.dockerfile import ROOT
from tests.offbeat.command_line import offbeat
from tests.services import CLICKHOUSE_IMAGE

FILE = ROOT / "docker-compose.yml"
IMAGE = "offbeat:local"
LOOPBACK = "127.0.0.1"


def interpolated(text: str) -> str:
    """With every ``${NAME:-default}`` replaced by its default, as when nothing is set."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    text = interpolated(FILE.read_text())
    assert "${" not in text, "a variable without a default"
    found: dict[str, Any] = yaml.safe_load(text)["services"]
    return found


@pytest.fixture(scope="module")
def ours(services: dict[str, Any]) -> dict[str, Any]:
    return {name: service for name, service in services.items() if service["image"] == IMAGE}


def test_it_is_a_compose_file() -> None:
    whole = yaml.safe_load(interpolated(FILE.read_text()))
    PyCompose.from_json(json.dumps(whole)).validate()
    whole["services"]["kafka"]["helthcheck"] = {}
    with pytest.raises(ValueError, match="helthcheck"):
        PyCompose.from_json(json.dumps(whole))


def test_commands_and_settings_are_ours(ours: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    commands = {name: check_command(service["command"]) for name, service in ours.items()}
    assert set(commands.values()) == {*ROLES, "topics apply", "store migrate", "produce"} - {"agent"}
    for service in ours.values():
        settings = loaded(service["environment"], monkeypatch)
        assert settings.kafka.bootstrap_servers in {"kafka:9092", "127.0.0.1:9092"}


def test_variables_of_the_environment_are_settings_only_where_they_are_ours(services: dict[str, Any]) -> None:
    others = {name for name, service in services.items() if service["image"] != IMAGE}
    assert not [
        variable
        for name in others
        for variable in services[name].get("environment", {})
        if variable.startswith("OFFBEAT_")
    ]


def test_ours_have_no_privileges(ours: dict[str, Any]) -> None:
    for name, service in ours.items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["tmpfs"] == ["/tmp"], name
        assert "volumes" not in service, name


def test_whatever_runs_on_has_a_health_check_and_comes_back(services: dict[str, Any]) -> None:
    for name, service in services.items():
        runs_on = "restart" in service
        assert runs_on == ("healthcheck" in service), name
        if not runs_on:
            assert check_command(service["command"]) in {"topics apply", "store migrate", "produce"}


def test_what_is_awaited_can_come(services: dict[str, Any]) -> None:
    for name, service in services.items():
        for other, awaited in service.get("depends_on", {}).items():
            once = "restart" not in services[other]
            expected = "service_completed_successfully" if once else "service_healthy"
            assert awaited["condition"] == expected, f"{name} awaits {other}"


def test_nothing_begins_before_its_topics_and_tables(ours: dict[str, Any]) -> None:
    for name, service in ours.items():
        command, awaited = check_command(service["command"]), service["depends_on"]
        if command in ROLES:
            assert "topics" in awaited, name
        if command == "sink":
            assert "migrations" in awaited


def test_the_health_check_asks_where_the_role_answers(ours: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for service in ours.values():
        if "healthcheck" in service:
            worker = loaded(service["environment"], monkeypatch).worker
            assert f"http://127.0.0.1:{worker.health_port}/live" in service["healthcheck"]["test"][-1]
            assert worker.health_host == "0.0.0.0"


def test_prometheus_asks_every_role_where_it_answers(ours: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    [job] = yaml.safe_load((ROOT / "prometheus" / "prometheus.yml").read_text())["scrape_configs"]
    answering = {
        f"{name}:{loaded(service['environment'], monkeypatch).worker.health_port}"
        for name, service in ours.items()
        if check_command(service["command"]) in ROLES
    }
    assert set(job["static_configs"][0]["targets"]) == answering


def test_ports_are_open_to_this_machine_alone(services: dict[str, Any]) -> None:
    ports = [port for service in services.values() for port in service.get("ports", ())]
    assert len(ports) > 3
    assert all(port.startswith(f"{LOOPBACK}:") for port in ports)


def test_images_are_pinned_and_are_what_the_tests_run(services: dict[str, Any]) -> None:
    for name, service in services.items():
        assert re.search(r":v?\d+\.\d+|:local$", service["image"]), name
    assert services["kafka"]["image"] == f"apache/kafka:{kafka_version()}"
    assert services["clickhouse"]["image"] == CLICKHOUSE_IMAGE


def test_the_broker_takes_messages_as_large_as_the_tests_do(services: dict[str, Any]) -> None:
    tested = (ROOT / "local" / "kafka" / "server.properties").read_text()
    kafka = services["kafka"]["environment"]
    for name in ("message.max.bytes", "replica.fetch.max.bytes", "auto.create.topics.enable"):
        assert f"{name}={kafka['KAFKA_' + name.upper().replace('.', '_')]}" in tested


def test_files_that_are_mounted_are_there(services: dict[str, Any]) -> None:
    mounted = [volume.split(":") for service in services.values() for volume in service.get("volumes", ())]
    files = [volume for volume in mounted if volume[0].startswith(".")]
    assert len(files) == 4
    for source, _, mode in files:
        assert (ROOT / source).exists(), source
        assert mode == "ro"
    declared = set(yaml.safe_load(FILE.read_text())["volumes"])
    assert {volume[0] for volume in mounted} - {volume[0] for volume in files} == declared


def test_grafana_is_given_every_variable_that_its_provisioning_names(services: dict[str, Any]) -> None:
    provisioned = Path(ROOT / "grafana" / "provisioning").rglob("*.yml")
    named = {name for file in provisioned for name in re.findall(r"\$(\w+)", file.read_text())}
    assert named
    assert named <= set(services["grafana"]["environment"])


@pytest.mark.parametrize(
    ("service", "expected"),
    [("healthy-job", []), ("slow-job", [("compute_slow", [13]), ("communication_slow", [21])])],
)
def test_the_simulated_jobs_show_what_they_are_said_to(
    ours: dict[str, Any], service: str, expected: list[tuple[str, list[int]]], tmp_path: Path
) -> None:
    _, _, scenario, *others = ours[service]["command"]
    faults = others[: others.index("--linger")]
    made = offbeat("simulate", "--scenario", scenario, *faults, "--out", tmp_path / "run")
    assert made.exit_code == 0, made.output
    incidents = json.loads(offbeat("diagnose", tmp_path / "run", "--json").stdout)["incidents"]
    assert [(incident["cause"], incident["ranks"]) for incident in incidents] == expected
