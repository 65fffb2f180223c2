"""Questions of people to the store: nothing can be changed by one, and an answer stays small."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pyarrow as pa

from schemas.errors import StoreError
from sinks.clickhouse.store import Parameters, Store

DEFAULT_MAX_ROWS = 10_000

_QUESTIONS = re.compile(r"(?:SELECT|WITH|SHOW|DESCRIBE|EXISTS|EXPLAIN)\b|\(")
_WRITES = re.compile(r"\bINTO\s+(?:OUTFILE|FUNCTION|TABLE)\b|\bINSERT\s+INTO\b", re.IGNORECASE)
_QUOTED = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`(?:[^`\\]|\\.)*`""", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Answer:
    """The rows of an answer; ``more`` tells that there were others beyond the limit."""

    rows: pa.Table
    more: bool


def ask(store: Store, sql: str, params: Parameters | None = None, *, max_rows: int = DEFAULT_MAX_ROWS) -> Answer:
    """Ask a question that can change nothing; at most ``max_rows`` rows come back.

    The engine's own parser writes the statement anew, without comments and with plain quotes, and that is what is
    judged and asked: to chDB, which is its own client, a read-only session may still write a file.

    Raises ``StoreError`` where the statement is wrong or would write.
    """
    parsed = store.query("SELECT formatQuery({sql:String}) AS sql", {"sql": sql})
    [statement] = parsed.column("sql").to_pylist()
    if not _QUESTIONS.match(statement) or _WRITES.search(_QUOTED.sub(" ", statement)):
        raise StoreError(
            "only SELECT, WITH, SHOW, DESCRIBE, EXISTS and EXPLAIN are allowed, one at a time and into no file: "
            "nothing can be changed this way"
        )
    settings = {"readonly": 2, "limit": max_rows + 1}  # readonly 2: a question may bring settings of its own
    rows = store.query(statement, params, settings)
    return Answer(rows.slice(0, max_rows), rows.num_rows > max_rows)
