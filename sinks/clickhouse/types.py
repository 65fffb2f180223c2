"""ClickHouse's data types: read from their names, and the Arrow types that carry their values."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa

_PLAIN = {
    "Int8": pa.int8(),
    "Int16": pa.int16(),
    "Int32": pa.int32(),
    "Int64": pa.int64(),
    "UInt8": pa.uint8(),
    "UInt16": pa.uint16(),
    "UInt32": pa.uint32(),
    "UInt64": pa.uint64(),
    "Float32": pa.float32(),
    "Float64": pa.float64(),
    "Bool": pa.bool_(),
    "Date": pa.date32(),
    "Date32": pa.date32(),
    "Nothing": pa.null(),
    "String": pa.string(),
    "FixedString": pa.string(),
    "Enum8": pa.string(),
    "Enum16": pa.string(),
    "UUID": pa.string(),
    "IPv4": pa.string(),
    "IPv6": pa.string(),
}
_UNITS = ("s", "ms", "us", "ns")
_DECIMAL_DIGITS = {"Decimal32": 9, "Decimal64": 18, "Decimal128": 38, "Decimal256": 76}

_TOKEN = re.compile(r"'(?:[^'\\]|\\.)*'|`(?:[^`\\]|\\.)*`|[(),]|[^'`(),]+", re.DOTALL)
_LITERAL = re.compile(r"'.*'(\s*=\s*-?\d+)?|-?\d+", re.DOTALL)
_ELEMENT = re.compile(r"(`.*?`|\w+)\s+(\w.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Type:
    """A type taken apart: ``Tuple(device String, rank Int32)`` has two arguments and their two names."""

    name: str
    arguments: tuple[Type, ...] = ()
    names: tuple[str, ...] = ()
    literals: tuple[str, ...] = ()

    @property
    def nullable(self) -> bool:
        """Whether a value of it may be null."""
        return self.name == "Nullable" or (self.name == "LowCardinality" and self.arguments[0].nullable)


@lru_cache(maxsize=1024)
def parse(text: str) -> Type:
    """Take the name of a type apart. Raises ``ValueError`` where it is none."""
    name, parenthesis, rest = text.strip().partition("(")
    if not name.isidentifier() or (parenthesis and not rest.endswith(")")):
        raise ValueError(f"{text!r} is not the name of a ClickHouse type")
    arguments: list[Type] = []
    names: list[str] = []
    literals: list[str] = []
    for argument in _arguments(rest[:-1]):
        element = _ELEMENT.fullmatch(argument)
        if _LITERAL.fullmatch(argument):
            literals.append(argument)
        elif element is not None:
            names.append(element[1].strip("`"))
            arguments.append(parse(element[2]))
        else:
            arguments.append(parse(argument))
    return Type(name, tuple(arguments), tuple(names), tuple(literals))


def arrow_type(type_: Type) -> pa.DataType:
    """The Arrow type that carries the values of a ClickHouse type.

    Raises ``ValueError`` for one that none of ours can carry (an aggregation state, a Variant...).
    """
    if type_.name in _PLAIN:
        return _PLAIN[type_.name]
    if type_.name in _DECIMAL_DIGITS:
        return _decimal(_DECIMAL_DIGITS[type_.name], int(type_.literals[0]))
    match type_.name:
        case "Nullable" | "LowCardinality":
            return arrow_type(type_.arguments[0])
        case "DateTime":
            return pa.timestamp("s", _timezone(type_.literals))
        case "DateTime64":
            unit = _UNITS[-(-int(type_.literals[0]) // 3)]
            return pa.timestamp(unit, _timezone(type_.literals[1:]))
        case "Decimal":
            return _decimal(int(type_.literals[0]), int(type_.literals[1]))
        case "Array":
            return pa.list_(_field("item", type_.arguments[0]))
        case "Map":
            return pa.map_(arrow_type(type_.arguments[0]), _field("value", type_.arguments[1]))
        case "Tuple":
            names = type_.names or tuple(str(n) for n in range(1, len(type_.arguments) + 1))
            return pa.struct([_field(name, of) for name, of in zip(names, type_.arguments, strict=True)])
    raise ValueError(f"values of type {type_.name} have no Arrow form")


def _field(name: str, type_: Type) -> pa.Field:
    return pa.field(name, arrow_type(type_), nullable=type_.nullable)


def _decimal(precision: int, scale: int) -> pa.DataType:
    return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)


def _timezone(literals: tuple[str, ...]) -> str:
    return literals[0].strip("'") if literals else "UTC"


def _arguments(text: str) -> Iterator[str]:
    depth = 0
    argument = ""
    for token in _TOKEN.findall(text):
        depth += {"(": 1, ")": -1}.get(token, 0)
        if token == "," and depth == 0:
            yield argument.strip()
            argument = ""
        else:
            argument += token
    if argument.strip():
        yield argument.strip()
