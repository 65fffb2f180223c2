"""prometheus/: promtool takes configuration and rules, each alert fires where it should, and names what there is."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from local.debian import program
from offbeat.doctor.bus import roles
from offbeat.settings import Settings
from tests.deploy.dockerfile import ROOT
from tests.deploy.expressions import check_names
from tests.services import skipped_where_unavailable

FOLDER = ROOT / "prometheus"
RULES = [rule for group in yaml.safe_load((FOLDER / "rules.yml").read_text())["groups"] for rule in group["rules"]]


@pytest.fixture(scope="module")
def promtool() -> Path:
    with skipped_where_unavailable():
        return program("promtool", "prometheus")


@pytest.mark.parametrize(
    "arguments",
    [("check", "config", "prometheus.yml"), ("check", "rules", "rules.yml"), ("test", "rules", "rules_test.yml")],
    ids=" ".join,
)
def test_promtool_is_content(promtool: Path, arguments: tuple[str, ...]) -> None:
    done = subprocess.run([promtool, *arguments], cwd=FOLDER, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("rule", RULES, ids=[rule["alert"] for rule in RULES])
def test_an_alert_asks_for_what_there_is_and_says_what_to_do(rule: dict[str, object]) -> None:
    check_names(str(rule["expr"]))
    labels, annotations = rule["labels"], rule["annotations"]
    assert isinstance(labels, dict)
    assert isinstance(annotations, dict)
    assert labels["severity"] in {"warning", "critical"}
    assert set(annotations) == {"summary", "description"}


def test_every_role_of_the_pipeline_is_missed() -> None:
    [missing] = [str(rule["expr"]) for rule in RULES if rule["alert"] == "OffbeatRoleMissing"]
    commands = {command for command, _ in roles(Settings()).values()}
    assert {
        f"offbeat {role}" for role in re.findall(r'absent\(offbeat_build_info{role="([^"]+)"}\)', missing)
    } == commands


def test_every_alert_is_seen_to_fire() -> None:
    tests = yaml.safe_load((FOLDER / "rules_test.yml").read_text())["tests"]
    samples = "".join(
        each["labels"] for test in tests for expected in test["promql_expr_test"] for each in expected["exp_samples"]
    )
    assert [rule["alert"] for rule in RULES if f'alertname="{rule["alert"]}"' not in samples] == []
