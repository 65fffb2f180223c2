"""docs/telemetry.md is what the catalogue says."""

from pathlib import Path

import pyarrow as pa
import pytest

from schemas.catalogue import TOPICS
from schemas.documentation import telemetry, type_name
from schemas.topic import ID, Topic

FILE = Path(__file__).parents[2] / "docs" / "telemetry.md"


def test_the_file_is_up_to_date() -> None:
    assert FILE.read_text() == telemetry(), "run: python -m schemas.documentation > docs/telemetry.md"


@pytest.mark.parametrize("topic", TOPICS.values(), ids=lambda topic: topic.name)
def test_every_column_has_a_row_of_its_own(topic: Topic) -> None:
    section = telemetry().split(f"\n## {topic.name}\n")[1].split("\n## ")[0]
    for column in topic.columns:
        (row,) = [line for line in section.splitlines() if line.startswith(f"| `{column.name}` |")]
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert cells[1:4] == [type_name(column.type), column.unit, "yes" if column.nullable else ""]
        assert column.doc in cells[4]
        assert all(f"`{choice}`" in cells[4] for choice in column.choices)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (pa.int32(), "int32"),
        (ID, "*string*"),
        (pa.list_(pa.list_(pa.int32())), "list of list of int32"),
        (pa.map_(pa.string(), pa.int8()), "map of string to int8"),
        (pa.struct([pa.field("a", pa.int8(), nullable=False), pa.field("b", pa.string())]), "{a int8, b string?}"),
    ],
)
def test_types_are_named_as_a_reader_wants_them(kind: pa.DataType, name: str) -> None:
    assert type_name(kind) == name
