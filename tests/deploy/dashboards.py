"""The dashboards' panels and queries, with what Grafana puts into a query before it sends it."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.deploy.dockerfile import ROOT

FOLDER = ROOT / "grafana" / "dashboards"
STORE, METRICS = "offbeat-store", "offbeat-metrics"


@dataclass(frozen=True)
class Query:
    """One query of a panel, or of a variable (then ``panel`` is empty)."""

    board: str
    title: str
    text: str
    source: str
    panel: Mapping[str, Any]
    target: Mapping[str, Any]

    def __str__(self) -> str:
        return " ".join([f"{self.board}: {self.title}", self.target.get("refId", "")]).strip()


def boards() -> dict[str, dict[str, Any]]:
    """The dashboards by file name."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}


def queries(source: str) -> Iterator[Query]:
    """Every query of every dashboard to one data source."""
    for name, board in boards().items():
        for variable in board["templating"]["list"]:
            if variable["datasource"]["uid"] == source:
                yield Query(name, f"${variable['name']}", variable["query"], source, {}, {})
        for panel in board["panels"]:
            for target in panel.get("targets", ()):
                if target["datasource"]["uid"] == source:
                    text = target["rawSql" if source == STORE else "expr"]
                    yield Query(name, panel["title"], text, source, panel, target)


def as_sent(query: str, variables: Mapping[str, str], since: datetime, until: datetime, interval_s: int = 60) -> str:
    """A ClickHouse query with the macros of Grafana's data source (4.x) and the variables filled in.

    Fails for a macro or a variable that is not known.
    """
    start, end = (f"toDateTime({int(time.timestamp())})" for time in (since, until))
    sent = re.sub(r"\$__timeFilter\(([^()]+)\)", rf"\1 >= {start} AND \1 <= {end}", query)
    sent = re.sub(
        r"\$__timeInterval\(([^()]+)\)", rf"toStartOfInterval(toDateTime(\1), INTERVAL {interval_s} second)", sent
    )
    sent = sent.replace("$__fromTime", start).replace("$__toTime", end)
    for name, value in variables.items():
        sent = sent.replace(f"${{{name}:sqlstring}}", "'" + value.replace("'", "''") + "'")
    assert "$" not in sent, f"a macro or a variable that is not known: {sent}"
    return sent


def file_of(uid: str) -> Path | None:
    """The dashboard with an id."""
    return next((FOLDER / f"{name}.json" for name, board in boards().items() if board["uid"] == uid), None)
