"""The essence of what ClickHouse says of a failure; messages as both engines write them."""

import pytest

from schemas.errors import StoreError
from sinks.clickhouse.reason import reason
from sinks.clickhouse.store import Store


@pytest.mark.parametrize(
    ("message", "essence"),
    [
        (
            (
                "Code: 60. DB::Exception: Unknown table expression identifier 'absent'. "
                "In scope SELECT * FROM absent. (UNKNOWN_TABLE)"
            ),
            "Unknown table expression identifier 'absent'",
        ),
        (
            (
                "DB::Exception: Unknown expression identifier `nope`. Maybe you meant: ['nopes']. In scope "
                "SELECT\n nope. Stack trace:\n\n0. ? @ 0x000000001d967133\n1. start_thread @ 0x00000000000891f5\n"
            ),
            "Unknown expression identifier `nope`. Maybe you meant: ['nopes']",
        ),
        (
            (
                "Code: 62. DB::Exception: Syntax error: failed at position 7 (1): 1. Expected one of: token, Dot, "
                "OR, AND, end of query. (SYNTAX_ERROR)"
            ),
            "Syntax error: failed at position 7 (1): 1",
        ),
        (
            (
                "Code: 43. DB::Exception: Illegal types String and UInt8 of arguments of function plus: In scope "
                "SELECT 'a' + 1. (ILLEGAL_TYPE_OF_ARGUMENT)"
            ),
            "Illegal types String and UInt8 of arguments of function plus",
        ),
        (
            (
                "Code: 73. DB::Exception: Code: 73. DB::Exception: Unknown format x. (UNKNOWN_FORMAT) "
                "(version 26.9.2.1). (UNKNOWN_FORMAT)"
            ),
            "Unknown format x",
        ),
        (
            "DB::ErrnoException. DB::ErrnoException: Cannot stat /x\n(in /x). Stack trace:\n\n0.",
            "Cannot stat /x (in /x)",
        ),
        ("IO error", "IO error"),
        ("", ""),
    ],
)
def test_the_essence_is_kept_in_a_line(message: str, essence: str) -> None:
    assert reason(message) == essence


@pytest.mark.parametrize(
    ("sql", "essence"),
    [
        ("SELECT *\nFROM absent", "Unknown table expression identifier 'absent'"),
        ("SELEC 1", "Syntax error: failed at position 7 (1): 1"),
        ("SELECT lenght('a')", "Function with name `lenght` does not exist. Maybe you meant: ['length']"),
    ],
)
def test_both_engines_say_what_and_where_in_a_line(store: Store, sql: str, essence: str) -> None:
    with pytest.raises(StoreError) as told:
        store.query(sql)
    place, _, what = str(told.value).partition(": ")
    assert place.startswith(("chDB folder /", "ClickHouse at ")), place
    assert str(told.value).endswith(f": {essence}"), what
