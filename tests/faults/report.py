"""What a campaign came to, for people and for programs."""

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from tests.faults.tally import Tally

_COLUMNS = (
    *("jobs", "kills", "outages", "rebalances", "clocks_set", "restarts", "bad_messages", "late_records"),
    *("pages", "pages_lost", "pages_repeated"),
)


def as_json(seed: int, tallies: Sequence[Tally]) -> dict[str, Any]:
    """The figures of all faults together, and of each."""
    whole = Tally.total(tallies).to_row()
    return {"seed": seed, **whole, "fault": None, "faults": [tally.to_row() for tally in tallies]}


def as_table(seed: int, tallies: Sequence[Tally]) -> Table:
    """A row a fault, and one for all."""
    table = Table(title=f"faults, seed {seed}")
    table.add_column("fault")
    for name in ("seconds", *_COLUMNS, "differences"):
        table.add_column(name.replace("_", " "), justify="right")
    for tally in (*tallies, Tally.total(tallies)):
        figures = (getattr(tally, name) for name in _COLUMNS)
        table.add_row(tally.fault, f"{tally.seconds:.0f}", *map(str, figures), str(len(tally.differences)))
    return table
