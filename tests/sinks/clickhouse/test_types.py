"""Names of ClickHouse types, taken apart and given an Arrow type."""

import pyarrow as pa
import pytest

from sinks.clickhouse.types import Type, arrow_type, parse


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Int32", pa.int32()),
        ("Nullable(Bool)", pa.bool_()),
        ("LowCardinality(Nullable(String))", pa.string()),
        ("DateTime", pa.timestamp("s", "UTC")),
        ("DateTime('Asia/Tokyo')", pa.timestamp("s", "Asia/Tokyo")),
        ("DateTime64(0)", pa.timestamp("s", "UTC")),
        ("DateTime64(3, 'UTC')", pa.timestamp("ms", "UTC")),
        ("DateTime64(4, 'UTC')", pa.timestamp("us", "UTC")),
        ("DateTime64(9,'UTC')", pa.timestamp("ns", "UTC")),
        ("Decimal(9, 2)", pa.decimal128(9, 2)),
        ("Decimal(60, 2)", pa.decimal256(60, 2)),
        ("Enum8('a, (b' = -1, 'it\\'s' = 2)", pa.string()),
        ("FixedString(4)", pa.string()),
        ("SimpleAggregateFunction(max, Int64)", None),
        ("Array(Array(Nullable(Int32)))", pa.list_(pa.field("item", pa.list_(pa.int32()), nullable=False))),
        (
            "Tuple(device String, `odd name` Nullable(Int32))",
            pa.struct([pa.field("device", pa.string(), nullable=False), pa.field("odd name", pa.int32())]),
        ),
        (
            "Tuple(UInt8, LowCardinality(Nullable(String)))",
            pa.struct([pa.field("1", pa.uint8(), nullable=False), pa.field("2", pa.string())]),
        ),
        ("Map(String, UInt8)", pa.map_(pa.string(), pa.field("value", pa.uint8(), nullable=False))),
        ("Variant(Int32, String)", None),
    ],
)
def test_the_arrow_type_of_a_type(text: str, expected: pa.DataType | None) -> None:
    if expected is None:
        with pytest.raises(ValueError, match="have no Arrow form"):
            arrow_type(parse(text))
    else:
        assert arrow_type(parse(text)) == expected


def test_a_nested_type_taken_apart() -> None:
    assert parse("Array(Tuple(device String, n Nullable(Int32)))") == Type(
        "Array",
        (Type("Tuple", (Type("String"), Type("Nullable", (Type("Int32"),))), ("device", "n")),),
    )


@pytest.mark.parametrize("text", ["", "Array(Int32", "Array(Int32))x", "1", "Array(In t32)(", "Tuple(,)"])
def test_what_is_no_type_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not the name of a ClickHouse type"):
        parse(text)
