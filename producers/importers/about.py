"""What a recording says of itself beside its rows: it travels in the metadata of the table's schema.

Parquet keeps that metadata, so that a converted recording says the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

_KEY = b"offbeat"
_FOREIGN = f"its metadata {_KEY.decode()!r} is not what offbeat convert writes; convert the run anew, or leave it out"


@dataclass(frozen=True, slots=True)
class About:
    """``lost_lines`` are known to be missing beyond what holes in the sequence numbers show.

    ``job`` is a row of control.jobs. ``iterations_source`` is set where the rows have been labelled already; then
    ``name`` is the recording's own and ``duplicates`` were dropped from it. ``gone`` says in words what else is
    missing.
    """

    lost_lines: int = 0
    duplicates: int = 0
    job: Mapping[str, Any] | None = None
    iterations_source: str | None = None
    gone: Sequence[str] = ()


def described(table: pa.Table, about: About) -> pa.Table:
    """The table with what is said of it."""
    return table.replace_schema_metadata({**(table.schema.metadata or {}), _KEY: json.dumps(asdict(about)).encode()})


def joined(parts: Sequence[About]) -> About:
    """What parts of one recording, which tell of the same job, say together; what all of them say alike was said of the
    whole before it was parted.
    """
    if parts and all(part == parts[0] for part in parts):
        return parts[0]
    return About(
        lost_lines=sum(part.lost_lines for part in parts),
        duplicates=sum(part.duplicates for part in parts),
        job=parts[0].job if parts else None,
        iterations_source=parts[0].iterations_source if parts else None,
        gone=[line for part in parts for line in part.gone],
    )


def about(schema: pa.Schema) -> About:
    """What a schema's metadata says; nothing where it says nothing. Raises ``ValueError`` for what cannot be."""
    text = (schema.metadata or {}).get(_KEY)
    if text is None:
        return About()
    try:
        found = About(**json.loads(text))
        whole = all(type(count) is int and count >= 0 for count in (found.lost_lines, found.duplicates))
        sourced = found.iterations_source in {None, "given", "inferred"}
        told = isinstance(found.gone, (list, tuple)) and all(isinstance(line, str) for line in found.gone)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(_FOREIGN) from error
    if not (whole and sourced and told and (found.job is None or isinstance(found.job, dict))):
        raise ValueError(_FOREIGN)
    return found
