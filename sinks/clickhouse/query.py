"""Questions of people to the store: nothing can be changed by one, and an answer stays small."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pyarrow as pa

from schemas.errors import StoreError
from sinks.clickhouse.store import Parameters, Store

DEFAULT_MAX_ROWS = 10_000

# The engine of chDB is its own client: to it, a read-only session may still write an answer into a file.
_OUTFILE = re.compile(r"\bINTO\s+OUTFILE\b", re.IGNORECASE)
_ANOTHER = re.compile(r";\s*\S")
_QUOTED = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`(?:[^`\\]|\\.)*`|--[^\n]*|/\*.*?\*/""", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Answer:
    """The rows of an answer; ``more`` tells that there were others beyond the limit."""

    rows: pa.Table
    more: bool


def ask(store: Store, sql: str, params: Parameters | None = None, *, max_rows: int = DEFAULT_MAX_ROWS) -> Answer:
    """Ask a question that can change nothing; at most ``max_rows`` rows come back.

    Raises ``StoreError`` where the statement is wrong or would write.
    """
    bare = _QUOTED.sub(" ", sql)
    if _OUTFILE.search(bare) or _ANOTHER.search(bare):
        raise StoreError("ask one question at a time and take its answer from here, without INTO OUTFILE")
    settings = {"readonly": 2, "limit": max_rows + 1}  # readonly 2: a question may bring settings of its own
    rows = store.query(sql, params, settings)
    return Answer(rows.slice(0, max_rows), rows.num_rows > max_rows)
