"""The store contract, on both engines."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schemas.errors import StoreError
from sinks.clickhouse.query import ask
from sinks.clickhouse.store import MAX_INSERT_ROWS, Parameter, Store

NS = pa.timestamp("ns", "UTC")
EVERY_TYPE = {
    "id": ("Int64", pa.int64()),
    "small": ("Nullable(Int32)", pa.int32()),
    "share": ("Nullable(Float64)", pa.float64()),
    "flag": ("Bool", pa.bool_()),
    "maybe": ("Nullable(Bool)", pa.bool_()),
    "at": ("DateTime64(9, 'UTC')", NS),
    "maybe_at": ("Nullable(DateTime64(9, 'UTC'))", NS),
    "second": ("DateTime('UTC')", pa.timestamp("s", "UTC")),
    "text": ("String", pa.string()),
    "maybe_text": ("Nullable(String)", pa.string()),
    "name": ("LowCardinality(String)", pa.dictionary(pa.int32(), pa.string())),
    "maybe_name": ("LowCardinality(Nullable(String))", pa.dictionary(pa.int32(), pa.string())),
    "ranks": ("Array(Int32)", pa.list_(pa.int32())),
    "sets": ("Array(Array(Nullable(Int32)))", pa.list_(pa.list_(pa.int32()))),
    "names": ("Array(LowCardinality(String))", pa.list_(pa.string())),
    "devices": (
        "Array(Tuple(device String, downside Nullable(Int32)))",
        pa.list_(pa.struct([pa.field("device", pa.string(), nullable=False), pa.field("downside", pa.int32())])),
    ),
    "stage": (
        "Tuple(phase Nullable(String), series Array(Nullable(Int64)))",
        pa.struct([("phase", pa.string()), ("series", pa.list_(pa.int64()))]),
    ),
}
ROW: dict[str, Any] = {
    "id": 0,
    "small": 2**31 - 1,
    "share": 0.1,
    "flag": True,
    "maybe": False,
    "at": 1_700_000_000_123_456_789,
    "maybe_at": 1,
    "second": 1_700_000_000,
    "text": "",
    "maybe_text": "é" * 200,
    "name": "tp0",
    "maybe_name": "",
    "ranks": [1, 2],
    "sets": [[1], [], [2, None]],
    "names": ["a", "b", "a"],
    "devices": [{"device": "gpu:h/0", "downside": None}, {"device": "nic:h/1", "downside": 3}],
    "stage": {"phase": "forward", "series": [1, None, -(2**63)]},
}
EMPTY = {**dict.fromkeys(ROW), "id": 1, "flag": False, "at": 0, "second": 0, "text": "x\n'\\\0", "name": ""}
STORED_EMPTY: dict[str, Any] = {
    **EMPTY,
    **{name: [] for name in ("ranks", "sets", "names", "devices")},
    "stage": {"phase": None, "series": []},
}


@pytest.fixture
def everything(store: Store) -> Store:
    """A store with a table `everything` that has a column of each type we use."""
    columns = ", ".join(f"{name} {type_}" for name, (type_, _) in EVERY_TYPE.items())
    store.execute(
        f"CREATE TABLE everything ({columns}) ENGINE = MergeTree ORDER BY id "
        "SETTINGS non_replicated_deduplication_window = 100"
    )
    return store


def rows_of(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    arrays = []
    for name, (_, type_) in EVERY_TYPE.items():
        plain = type_.value_type if pa.types.is_dictionary(type_) else type_
        values = pa.array([row[name] for row in rows], plain)
        arrays.append(values.dictionary_encode() if pa.types.is_dictionary(type_) else values)
    return pa.RecordBatch.from_arrays(arrays, names=list(EVERY_TYPE))


def in_whole_numbers(table: pa.Table) -> list[dict[str, Any]]:
    """Rows with their times as numbers: Python's datetime would cut the nanoseconds off."""
    for index, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            table = table.set_column(index, field.name, table.column(index).cast(pa.int64()))
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def test_what_is_inserted_is_read_back(everything: Store) -> None:
    everything.insert("everything", rows_of([ROW, EMPTY]), "a")
    answer = everything.query("SELECT * FROM everything ORDER BY id")
    assert in_whole_numbers(answer) == [ROW, STORED_EMPTY]
    plain = {
        name: type_.value_type if pa.types.is_dictionary(type_) else type_ for name, (_, type_) in EVERY_TYPE.items()
    }
    scalars = [name for name in plain if not pa.types.is_nested(plain[name])]
    assert {name: answer.schema.field(name).type for name in scalars} == {name: plain[name] for name in scalars}
    assert not answer.schema.field("at").nullable
    assert answer.schema.field("maybe_name").nullable


_texts = st.text(st.characters(codec="utf-8"), max_size=300)
_rows = st.fixed_dictionaries(
    {
        "id": st.integers(0, 2**40),
        "small": st.none() | st.integers(-(2**31), 2**31 - 1),
        "share": st.none() | st.floats(allow_nan=False),
        "flag": st.booleans(),
        "maybe": st.none() | st.booleans(),
        "at": st.integers(-(2**60), 2**62),
        "maybe_at": st.none() | st.integers(0, 2**62),
        "second": st.integers(0, 2**32 - 1),
        "text": _texts,
        "maybe_text": st.none() | _texts,
        "name": _texts,
        "maybe_name": st.none() | _texts,
        "ranks": st.lists(st.integers(0, 100), max_size=3),
        "sets": st.lists(st.lists(st.none() | st.integers(0, 9), max_size=2), max_size=2),
        "names": st.lists(_texts, max_size=2),
        "devices": st.lists(
            st.fixed_dictionaries({"device": _texts, "downside": st.none() | st.integers(0, 9)}), max_size=2
        ),
        "stage": st.fixed_dictionaries(
            {"phase": st.none() | _texts, "series": st.lists(st.none() | st.integers(0, 9), max_size=2)}
        ),
    }
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(_rows, min_size=1, max_size=20), cut=st.integers(0, 19))
def test_any_rows_are_read_back_whatever_slice_they_come_in(
    everything: Store, rows: list[dict[str, Any]], cut: int
) -> None:
    rows = [{**row, "id": number} for number, row in enumerate(rows)]
    everything.execute("TRUNCATE TABLE everything")
    batch = rows_of(rows)
    pieces = [batch.slice(0, cut), batch.slice(cut)]  # a slice shares the whole batch's buffers
    for piece in pieces:
        everything.insert("everything", piece, f"{np.random.default_rng().integers(2**62)}")
    assert in_whole_numbers(everything.query("SELECT * FROM everything ORDER BY id")) == rows


def test_columns_that_hold_almost_only_defaults(store: Store) -> None:
    """ClickHouse stores them sparsely, and sends them so."""
    store.execute(
        "CREATE TABLE sparse (id Int64, n Int64, f Float64, b Bool, s String, at DateTime64(9, 'UTC'),"
        " second DateTime('UTC'), t Tuple(n Int32, s String, b Bool), m Nullable(Int32)) ENGINE = MergeTree ORDER BY id"
    )
    none = {"n": 0, "f": 0.0, "b": False, "s": "", "at": 0, "second": 0, "t": {"n": 0, "s": "", "b": False}, "m": None}
    some = {"n": 7, "f": 0.5, "b": True, "s": "x", "at": 1, "second": 2, "t": {"n": 3, "s": "y", "b": True}, "m": 0}
    rows = [{"id": number, **(some if number % 1000 == 501 else none)} for number in range(5000)]
    types = {"at": NS, "second": pa.timestamp("s", "UTC")}
    columns = {name: pa.array([row[name] for row in rows], types.get(name)) for name in rows[0]}
    store.insert("sparse", pa.table(columns), "a")
    assert in_whole_numbers(store.query("SELECT * FROM sparse ORDER BY id")) == rows


@pytest.mark.parametrize("keys", [1, 255, 256, 257, 65_535, 65_536, 70_000])
def test_dictionaries_of_every_size(store: Store, keys: int) -> None:
    store.execute(
        "CREATE TABLE named (id Int64, a LowCardinality(String), b LowCardinality(Nullable(String))) ENGINE = Memory"
    )
    words = [f"k{number}" for number in range(keys)]
    encoded = pa.array(words).dictionary_encode()
    batch = pa.record_batch({"id": pa.array(range(keys)), "a": encoded, "b": encoded})
    store.insert("named", batch, "a")
    answer = store.query("SELECT a, b FROM named ORDER BY id")
    assert answer.column("a").to_pylist() == answer.column("b").to_pylist() == words


def test_a_dictionary_may_repeat_a_word_and_hold_a_null(store: Store) -> None:
    store.execute("CREATE TABLE named (id Int64, a LowCardinality(Nullable(String))) ENGINE = Memory")
    odd = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, None, 3]), pa.array(["x", "x", None, "y"]))
    store.insert("named", pa.record_batch({"id": pa.array(range(5)), "a": odd}), "a")
    assert store.query("SELECT a FROM named ORDER BY id").column("a").to_pylist() == ["x", "x", None, None, "y"]


def test_batches_with_dictionaries_of_their_own_are_one_insert(store: Store) -> None:
    store.execute("CREATE TABLE named (a LowCardinality(String)) ENGINE = Memory")
    table = pa.concat_tables(
        [pa.table({"a": pa.array(words).dictionary_encode()}) for words in (["p", "q"], ["q", "r"])]
    )
    store.insert("named", table, "a")
    assert sorted(store.query("SELECT a FROM named").column("a").to_pylist()) == ["p", "q", "q", "r"]


@pytest.mark.parametrize("column", ["id", "flag", "at", "text", "name"])
def test_a_null_where_none_is_known_is_refused_and_nothing_is_stored(everything: Store, column: str) -> None:
    with pytest.raises(ValueError, match=f"column {column} cannot be written as .*1 nulls"):
        everything.insert("everything", rows_of([ROW, {**ROW, column: None}]), "a")
    everything.insert("everything", rows_of([ROW]), "b")
    assert everything.query("SELECT count() AS n FROM everything").to_pylist() == [{"n": 1}]


def test_an_insert_of_nothing_is_nothing(everything: Store) -> None:
    everything.insert("everything", rows_of([]), "a")
    assert everything.query("SELECT * FROM everything").num_rows == 0


def test_an_insert_is_one_block_or_is_refused(store: Store) -> None:
    store.execute("CREATE TABLE numbered (n Int64) ENGINE = MergeTree ORDER BY n")
    store.insert("numbered", pa.table({"n": pa.array(np.arange(MAX_INSERT_ROWS))}), "a")
    parts = "SELECT count() AS parts, sum(rows) AS rows FROM system.parts WHERE active AND table = 'numbered'"
    found = store.query(f"{parts} AND database = currentDatabase()").to_pylist()
    assert found == [{"parts": 1, "rows": MAX_INSERT_ROWS}]
    with pytest.raises(ValueError, match="split it"):
        store.insert("numbered", pa.table({"n": pa.array(np.arange(MAX_INSERT_ROWS + 1))}), "b")


def test_a_token_is_stored_once(everything: Store) -> None:
    for token in ("it's/0-9", "it's/0-9", "it's/10-19"):
        everything.insert("everything", rows_of([ROW]), token)
    assert everything.query("SELECT count() AS n FROM everything").to_pylist() == [{"n": 2}]


@pytest.mark.parametrize(
    ("type_", "value", "expected"),
    [
        ("String", "it's\ta\\ 'test'\n{x:Int32} é\0", "it's\ta\\ 'test'\n{x:Int32} é\0"),
        ("Int64", -(2**63), -(2**63)),
        ("Float64", 0.1, 0.1),
        ("Float64", float("inf"), float("inf")),
        ("Bool", True, True),
        ("Nullable(String)", None, None),
        ("Nullable(String)", "NULL", "NULL"),
        ("Nullable(Int32)", 3, 3),
        ("Array(Int32)", [1, 2], [1, 2]),
        ("Array(String)", ["it's", "\\", "a\tb", ""], ["it's", "\\", "a\tb", ""]),
        ("Array(Nullable(Int32))", [1, None], [1, None]),
        ("Array(Int32)", [], []),
        (
            "DateTime64(6, 'UTC')",
            datetime(2026, 1, 2, 3, 4, 5, 678901, UTC),
            datetime(2026, 1, 2, 3, 4, 5, 678901, UTC),
        ),
    ],
)
def test_parameters(store: Store, type_: str, value: Parameter, expected: object) -> None:
    assert store.query(f"SELECT {{p:{type_}}} AS p", {"p": value}).column("p").to_pylist() == [expected]


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(st.characters(codec="utf-8")))
def test_any_text_is_a_parameter(store: Store, text: str) -> None:
    answer = store.query("SELECT {p:String} AS p, {a:Array(String)} AS a", {"p": text, "a": [text]})
    assert answer.to_pylist() == [{"p": text, "a": [text]}]


@pytest.mark.parametrize(
    ("expression", "type_", "value"),
    [
        (
            "toDateTime('2026-01-02 03:04:05', 'UTC')",
            pa.timestamp("s", "UTC"),
            datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        ),
        ("toStartOfHour(toDateTime64('2026-01-02 03:04:05', 9, 'UTC'))", pa.timestamp("s", "UTC"), None),
        ("CAST('a', 'Enum8(\\'a\\' = 1, \\'b\\' = 2)')", pa.string(), "a"),
        ("toUUID('61f0c404-5cb3-11e7-907b-a6006ad3dba0')", pa.string(), "61f0c404-5cb3-11e7-907b-a6006ad3dba0"),
        ("toIPv4('10.0.0.1')", pa.string(), "10.0.0.1"),
        ("toIPv6('::1')", pa.string(), "::1"),
        ("toFixedString('ab', 4)", pa.string(), "ab"),
        ("toUInt32(7)", pa.uint32(), 7),
        ("toNullable(toInt8(-7))", pa.int8(), -7),
        ("toDecimal64(1.5, 3)", pa.decimal128(18, 3), None),
        ("toDate('2026-01-02')", pa.date32(), None),
        ("map('a', [1])", None, [("a", [1])]),
        ("(1, 'a')", None, {"1": 1, "2": "a"}),
        ("[(1, 'a')]", None, [{"1": 1, "2": "a"}]),
        ("[toDateTime('2026-01-02 03:04:05', 'UTC')]", None, [datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)]),
        ("NULL", pa.null(), None),
        ("emptyArrayInt32()", None, []),
    ],
)
def test_answers_are_typed(store: Store, expression: str, type_: pa.DataType | None, value: object) -> None:
    answer = store.query(f"SELECT {expression} AS x, {expression} AS x -- twice under one name")
    assert answer.num_columns == 2
    if type_ is not None:
        assert answer.schema.field(0).type == type_
    if value is not None:
        assert answer.column(1).to_pylist() == [value]


def test_an_answer_without_rows_keeps_its_columns(everything: Store) -> None:
    empty = everything.query("SELECT * FROM everything")
    everything.insert("everything", rows_of([ROW]), "a")
    assert empty.schema.equals(everything.query("SELECT * FROM everything").schema)
    assert empty.num_rows == 0


def test_a_statement_without_an_answer_has_no_columns(store: Store) -> None:
    assert store.query("CREATE TABLE made (n Int32) ENGINE = Memory").num_columns == 0


@pytest.mark.parametrize("sql", ["SELECT nothing", "SELECT 1 FROM nowhere", "SELEKT 1", "SELECT {p:Int32}"])
def test_a_wrong_statement_is_a_store_error_and_the_store_goes_on(store: Store, sql: str) -> None:
    with pytest.raises(StoreError, match=r"ClickHouse at|chDB folder"):
        store.query(sql)
    assert store.query("SELECT 1 AS one").to_pylist() == [{"one": 1}]


def test_an_insert_that_finds_no_room_is_a_store_error(store: Store) -> None:
    store.execute(
        "CREATE TABLE cramped (n Int64) ENGINE = MergeTree ORDER BY n "
        f"SETTINGS min_free_disk_bytes_to_perform_insert = {1 << 60}"
    )
    for _ in range(2):
        with pytest.raises(StoreError, match=r"(?i)space"):
            store.insert("cramped", pa.table({"n": [1, 2]}), "a")
    store.execute("ALTER TABLE cramped RESET SETTING min_free_disk_bytes_to_perform_insert")
    store.insert("cramped", pa.table({"n": [1, 2]}), "a")
    assert store.query("SELECT sum(n) AS sum FROM cramped").to_pylist() == [{"sum": 3}]


def test_an_insert_into_nowhere_is_a_store_error(store: Store) -> None:
    with pytest.raises(StoreError, match="nowhere"):
        store.insert("nowhere", rows_of([ROW]), "a")


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO kept SELECT 2",
        "DROP TABLE kept",
        "TRUNCATE TABLE kept",
        "ALTER TABLE kept DELETE WHERE 1",
        "CREATE TABLE other (n Int32) ENGINE = Memory",
        "SET readonly = 0",
        "SELECT * FROM kept SETTINGS readonly = 0",
        "SELECT 1; DROP TABLE kept",
    ],
)
def test_a_question_changes_nothing(store: Store, sql: str) -> None:
    store.execute("CREATE TABLE kept (n Int32) ENGINE = MergeTree ORDER BY n")
    store.execute("INSERT INTO kept SELECT 1")
    with pytest.raises(StoreError):
        ask(store, sql)
    assert store.query("SELECT n FROM kept").to_pylist() == [{"n": 1}]
    store.execute("INSERT INTO kept SELECT 2")  # the guard held for the question alone


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1 INTO OUTFILE '{path}'",
        "SELECT 1 into\n outfile '{path}' FORMAT CSV",
        "SELECT $$'$$ INTO OUTFILE '{path}'",
        "SELECT 1 # '\n INTO OUTFILE '{path}'",
        "EXPLAIN SELECT 1 INTO OUTFILE '{path}'",
        "INSERT INTO FUNCTION file('{path}', 'CSV') SELECT 1",
        "WITH 1 AS one INSERT INTO FUNCTION file('{path}', 'CSV') SELECT one",
        "CREATE TABLE made ENGINE = File(CSV, '{path}') AS SELECT 1",
        "SELECT 1; SELECT 2 INTO OUTFILE '{path}'",
    ],
)
def test_a_question_writes_no_file(store: Store, tmp_path: Path, sql: str) -> None:
    path = tmp_path / "answer.csv"
    with pytest.raises(StoreError, match=r"one at a time and into no file|Multi-statements"):
        ask(store, sql.format(path=path))
    assert not path.exists()


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        (
            "SELECT 'INTO OUTFILE; x' AS `a; b`, 2 AS \"into outfile\" -- ; no\n;",
            {"a; b": "INTO OUTFILE; x", "into outfile": 2},
        ),
        ("WITH 1 AS one SELECT one", {"one": 1}),
        ("FROM (SELECT 3 AS n) SELECT n", {"n": 3}),
        ("EXISTS TABLE nowhere", {"result": 0}),
    ],
)
def test_a_question_may_be_asked_in_many_ways(store: Store, sql: str, rows: dict[str, object]) -> None:
    assert ask(store, sql).rows.to_pylist() == [rows]


def test_several_threads_may_share_a_store(store: Store) -> None:
    with ThreadPoolExecutor(4) as threads:
        asked = [threads.submit(store.query, "SELECT {n:Int32} AS n, sleep(0.01)", {"n": n}) for n in range(20)]
        assert [answer.result().column("n").to_pylist() for answer in asked] == [[n] for n in range(20)]


def test_an_answer_stays_within_its_rows(store: Store) -> None:
    answer = ask(store, "SELECT number FROM numbers({n:UInt64})", {"n": 1000}, max_rows=10)
    assert answer.rows.column(0).to_pylist() == list(range(10))
    assert answer.more
    assert not ask(store, "SELECT number FROM numbers(10)", max_rows=10).more
    assert ask(store, "SHOW TABLES").rows.num_rows == 0
    assert ask(store, "SELECT number FROM numbers(5) SETTINGS max_threads = 1;").rows.num_rows == 5


def test_closing_twice_does_nothing(store: Store) -> None:
    store.close()
    store.close()
