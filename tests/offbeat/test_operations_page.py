"""What docs/operations.md and docs/security.md tell people to type and to look at is there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from offbeat.settings import Settings
from offbeat.settings_page import settings_page
from schemas import metrics
from tests.offbeat.command_line import ROOT, offbeat

PAGES = {name: (ROOT / "docs" / f"{name}.md").read_text("utf-8") for name in ("operations", "security")}
QUERIES = sorted(set(re.findall(r"`(offbeat sql [^`]+)`", PAGES["operations"])))
SETTINGS = set(re.findall(r"`(OFFBEAT_\w+)`", settings_page()))
METRICS = {name for made in vars(metrics).values() if isinstance(made, metrics.Metric) for name in made.samples}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store")
    made = offbeat("store", "migrate", "--data-dir", folder)
    assert made.exit_code == 0, made.output
    return folder


def test_there_are_queries() -> None:
    assert len(QUERIES) >= 5


@pytest.mark.parametrize("query", QUERIES)
def test_every_query_runs(query: str, store: Path) -> None:
    asked = offbeat(*shlex.split(query)[1:], "--data-dir", store)
    assert asked.exit_code == 0, asked.output


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_every_setting_and_metric_named_is_there(page: str) -> None:
    named = {name for name in re.findall(r"OFFBEAT_[A-Z_]+[A-Z]", page) if "__" in name}
    assert named
    assert named <= SETTINGS
    figures = set(re.findall(r"`(offbeat_[a-z_]+)`", page)) - {"offbeat_migrate", "offbeat_sink", "offbeat_reader"}
    assert figures <= METRICS


def test_the_thresholds_told_are_those_of_the_code() -> None:
    told, settings = PAGES["operations"], Settings()
    assert f"`OFFBEAT_MONITOR__DELTA` ({settings.monitor.delta:g}:" in told
    rules = settings.compare.rules
    assert f"`OFFBEAT_COMPARE__SLOW__DELTA` ({settings.compare.slow.delta:g}:" in told
    assert f"`OFFBEAT_COMPARE__RULES__MARGIN` ({rules.margin:g} beyond" in told
    assert f"`OFFBEAT_COMPARE__RULES__CUSTOM_MARGIN` ({rules.custom_margin:g})" in told
    assert f"`OFFBEAT_COMPARE__RULES__SPREAD` ({rules.spread:g} times" in told
    assert f"`OFFBEAT_COMPARE__RULES__LATE_NS` ({rules.late_ns / 1e6:g} ms)" in told
    assert f"`OFFBEAT_COMPARE__RULES__LONGER` ({rules.longer:g})" in told
    assert f"`OFFBEAT_COMPARE__COURSE__HANG_NS` ({settings.compare.course.hang_ns / 1e9:g} s)" in told
    assert f"`OFFBEAT_SEGMENT__LATE_NS` ({settings.segment.late_ns / 1e6:g} ms:" in told
    assert f"`OFFBEAT_SEGMENT__PATIENCE_NS` ({settings.segment.patience_ns / 1e9:g} s:" in told
    assert f"`OFFBEAT_LIVE__KEEP_BYTES` ({settings.live.keep_bytes >> 30} GiB)" in told
    assert f"`OFFBEAT_LIVE__SPOOL_BYTES` ({settings.live.spool_bytes >> 20} MiB)" in told
    assert f"(`OFFBEAT_PIVOTS`, {settings.pivots};" in told
