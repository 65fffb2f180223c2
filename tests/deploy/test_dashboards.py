"""grafana/: every query to the store answers with rows, and every query to Prometheus asks for what there is."""

import re
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

from local.debian import program
from schemas.catalogue import COMM_OPS, INCIDENTS
from schemas.metrics import METRICS
from sinks.clickhouse.chdb import ChdbStore
from sinks.clickhouse.migrate import migrate
from sinks.clickhouse.query import ask
from sinks.clickhouse.sink import ClickHouseSink
from tests.deploy.dashboards import METRICS as PROMETHEUS
from tests.deploy.dashboards import STORE, Query, as_sent, boards, file_of, queries
from tests.deploy.dockerfile import ROOT
from tests.deploy.expressions import LABELS, check_names
from tests.services import skipped_where_unavailable
from tests.sinks.clickhouse.samples import JOB, comm_ops, incident, message, story

TO_STORE, TO_PROMETHEUS = list(queries(STORE)), list(queries(PROMETHEUS))
# All that the sample tells of; rows come into the store now.
SINCE, UNTIL = datetime(2020, 1, 1, tzinfo=UTC), datetime(2099, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChdbStore]:
    """A store that holds a small job with a slow GPU and a slow NIC, and another job that had the same GPU."""
    made = ChdbStore(tmp_path_factory.mktemp("store") / "chdb")
    migrate(made)
    sink = ClickHouseSink(made)
    of_the_culprit = [{**row, "rank": 11} for row in comm_ops() if row["rank"] == 3]
    more = [message(COMM_OPS, of_the_culprit, 1), message(INCIDENTS, [incident(id="i-before")], 1, job="llm-13b")]
    for told in (*story(), *more):
        sink.process(told)
    sink.flush()
    yield made
    made.close()


def answer(store: ChdbStore, query: Query, *, job: str = JOB, incident: str = "i-gpu") -> pa.Table:
    interval_s = 86_400 * 365  # a century of minutes would be too many points
    return ask(store, as_sent(query.text, {"job": job, "incident": incident}, SINCE, UNTIL, interval_s)).rows


@pytest.mark.parametrize("query", TO_STORE, ids=str)
def test_a_query_to_the_store_answers(store: ChdbStore, query: Query) -> None:
    rows = answer(store, query)
    assert rows.num_rows > 0
    named = [each["matcher"]["options"] for each in overrides(query)]
    if query.panel.get("type") == "trend":
        axis = rows.column(query.panel["options"]["xField"]).combine_chunks()
        assert pa.types.is_integer(axis.type)
        assert all(one < other for one, other in pairwise(axis.to_pylist())), "a trend's x axis rises"
    if query.target.get("queryType") == "timeseries":
        assert rows.column_names[0] == "time"
        assert pa.types.is_timestamp(rows.schema.field("time").type) or pa.types.is_integer(
            rows.schema.field("time").type
        )
    assert set(named) <= set(rows.column_names), "an override for a column that is not there"


@pytest.mark.parametrize("query", TO_STORE, ids=str)
def test_a_query_to_the_store_takes_what_is_not_there(store: ChdbStore, query: Query) -> None:
    """A job that nobody knows, with an apostrophe: no error, and nothing of anybody else; a total is nothing then."""
    rows = answer(store, query, job="it's", incident="none")
    if re.search(r"\$\{?(job|incident)\b", query.text):
        assert rows.num_rows <= 1
        nothing = {None, 0, "", "nan"}
        assert {str(value) if value else value for row in rows.to_pylist() for value in row.values()} <= nothing
    else:
        assert rows.equals(answer(store, query))


def overrides(query: Query) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = query.panel.get("fieldConfig", {}).get("overrides", [])
    return found


def test_links_lead_to_dashboards_and_carry_what_they_need() -> None:
    links = [
        (query, link["url"])
        for query in TO_STORE
        for override in overrides(query)
        for each in override["properties"]
        if each["id"] == "links"
        for link in each["value"]
    ]
    assert len(links) >= 5
    for query, url in links:
        path, _, parameters = url.partition("?")
        target = file_of(path.removeprefix("/d/"))
        assert target is not None, url
        variables = {variable["name"] for variable in boards()[target.stem]["templating"]["list"]}
        assert set(re.findall(r"var-(\w+)=", parameters)) == variables
        for column in re.findall(r"\$\{__data\.fields\.(\w+)\}", parameters):
            assert re.search(rf"\b{column}\b", query.text), f"{query}: no column {column}"


def test_a_page_s_link_leads_to_its_incident() -> None:
    composition = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    url = composition["services"]["alert"]["environment"]["OFFBEAT_WEBHOOK__EXTERNAL_URL"]
    path, _, parameters = url.partition("?")
    target = file_of(path.rpartition("/")[2])
    assert target is not None
    assert parameters == "var-job={job}&var-incident={incident}"
    home = composition["services"]["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert Path(home).stem in boards()


def test_dashboards_are_whole() -> None:
    assert set(boards()) == {"cluster", "job", "incident", "pipeline"}
    provisioned = yaml.safe_load((ROOT / "grafana" / "provisioning" / "datasources" / "offbeat.yml").read_text())
    sources = {source["uid"]: source["type"] for source in provisioned["datasources"]}
    assert set(sources) == {STORE, PROMETHEUS}
    assert len({board["uid"] for board in boards().values()}) == 4
    for board in boards().values():
        ids = [panel["id"] for panel in board["panels"]]
        assert len(set(ids)) == len(ids)
        assert "id" not in board, "an id of one Grafana"
        for panel in board["panels"]:
            assert panel["title"]
            for target in panel.get("targets", ()):
                assert sources[target["datasource"]["uid"]] == target["datasource"]["type"]
        places = [
            (x, y)
            for panel in board["panels"]
            for place in [panel["gridPos"]]
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        ]
        assert len(set(places)) == len(places), "panels overlap"
        assert max(x for x, _ in places) < 24


@pytest.mark.parametrize("query", TO_PROMETHEUS, ids=str)
def test_a_query_to_prometheus_asks_for_what_there_is(query: Query) -> None:
    asked = check_names(query.text)
    given = LABELS | {label for metric in asked for label in metric.labels}
    assert set(re.findall(r"\{\{(\w+)\}\}", query.target["legendFormat"])) <= given


def test_rules_and_dashboards_together_watch_every_metric() -> None:
    rules = (ROOT / "prometheus" / "rules.yml").read_text()
    texts = [query.text for query in TO_PROMETHEUS] + re.findall(
        r"expr: (?:>-\n)?(.*?)\n\s+(?:for|labels):", rules, re.DOTALL
    )
    watched = {metric.name for text in texts for metric in check_names(text)}
    assert set(METRICS) - watched <= {
        "offbeat_agent_kept_iterations",
        "offbeat_agent_kept_traffic_bytes",
        "offbeat_agent_spool_messages",
    }


def test_prometheus_can_read_every_query(tmp_path: Path) -> None:
    with skipped_where_unavailable():
        promtool = program("promtool", "prometheus")
    expressions = [re.sub(r"\$__(rate_interval|range)", "5m", query.text) for query in TO_PROMETHEUS]
    rules = [{"record": f"query:{number}", "expr": text} for number, text in enumerate(expressions)]
    file = tmp_path / "queries.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
    done = subprocess.run([promtool, "check", "rules", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
