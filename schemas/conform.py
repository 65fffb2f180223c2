"""From a sender's record batch to a topic's columns and types.

Columns, and the fields of structs, are matched by name: an absent nullable one is null, an unknown one is ignored.
Types may differ where they carry the same information (another width of integer, a plain string for an id); they
may not where Arrow's cast would guess, round, or need far more memory than the record: a list of nulls, or of
structs without fields, holds two thousand million values in no bytes at all.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from schemas.errors import ImpossibleValue, MessageTooLarge, WrongSchema
from schemas.topic import MAX_STRING_BYTES, Topic


def conform(batch: pa.RecordBatch, topic: Topic) -> pa.RecordBatch:
    """The batch with exactly ``topic.schema``.

    Raises ``WrongSchema``, ``MessageTooLarge`` for more values than the topic allows, ``ImpossibleValue`` for a
    string that is too long, and Arrow's errors for a column that contradicts itself.
    """
    arrays = [_column(batch, field, topic) for field in topic.schema]
    return pa.RecordBatch.from_arrays(arrays, schema=topic.schema)


def _column(batch: pa.RecordBatch, field: pa.Field, topic: Topic) -> pa.Array:
    found = batch.schema.get_all_field_indices(field.name)
    where = f"{topic.name}: column {field.name}"
    if len(found) > 1:
        raise WrongSchema(f"{where} appears twice")
    if not found:
        if not field.nullable:
            raise WrongSchema(f"{where} is missing")
        return pa.nulls(batch.num_rows, field.type)
    values = batch.column(found[0])
    _check_extent(values, topic.max_rows, where)
    values.validate(full=True)
    values = _cast(values, field.type, where)
    _check_nulls(values, field, where)
    _check_text(values, topic.max_decoded_bytes, where)
    return values


def _check_extent(values: pa.Array, most: int, where: str) -> None:
    """Refuse more values than rows are allowed, at any depth: a list may claim any number in a few bytes."""
    if len(values) > most:
        raise MessageTooLarge(f"{where} holds {len(values)} values, at most {most} are read")
    kind = values.type
    if _is_list(kind) or pa.types.is_map(kind):
        _check_extent(values.values, most, where)
    elif pa.types.is_struct(kind):
        for index in range(kind.num_fields):
            _check_extent(values.field(index), most, where)
    elif pa.types.is_dictionary(kind):
        _check_extent(values.dictionary, most, where)


def _cast(values: pa.Array, target: pa.DataType, where: str) -> pa.Array:
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), target)
    if not _convertible(values.type, target):
        raise WrongSchema(f"{where} is {values.type}, expected {target}")
    try:
        return _rebuilt(values, target)
    except (pa.ArrowException, ValueError) as error:
        raise WrongSchema(f"{where}: {str(error)[:200]}") from error


def _rebuilt(values: pa.Array, target: pa.DataType) -> pa.Array:
    """The values in the target's type, nested ones piece by piece and empty ones anew.

    Arrow neither checks nor makes the offsets of an empty list: one that starts beyond its elements passes as valid,
    its own cast leaves the offsets out, and whoever flattens either of them ends the process.
    """
    if not len(values):
        return pa.array([], target)
    if pa.types.is_dictionary(target):
        plain = target.value_type
        coded = _distinct(values) if pa.types.is_dictionary(values.type) else values.cast(plain).dictionary_encode()
        return coded if coded.type == target else coded.cast(target)
    if not pa.types.is_nested(target):
        return values if values.type == target else values.cast(target)
    mask = values.is_null() if values.null_count else None
    if pa.types.is_map(target):
        keys, items = _rebuilt(values.keys, target.key_type), _rebuilt(values.items, target.item_type)
        return pa.MapArray.from_arrays(values.offsets, keys, items, type=target, mask=mask)
    if pa.types.is_list(target):
        elements = _rebuilt(values.values, target.value_type)
        return pa.ListArray.from_arrays(values.offsets.cast(pa.int32()), elements, type=target, mask=mask)
    fields = [_field(values, field) for field in target]
    return pa.StructArray.from_arrays(fields, fields=list(target), mask=mask)


def _field(values: pa.StructArray, field: pa.Field) -> pa.Array:
    index = values.type.get_field_index(field.name)
    return pa.nulls(len(values), field.type) if index < 0 else _rebuilt(values.field(index), field.type)


def _convertible(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether a sender's type carries the same information. A dictionary is never spelled out: it could be huge."""
    if source == target:
        return True
    if pa.types.is_dictionary(target):
        return _is_text(source.value_type if pa.types.is_dictionary(source) else source)
    if pa.types.is_integer(target):
        return bool(pa.types.is_integer(source))
    if pa.types.is_floating(target):
        return bool(pa.types.is_floating(source) or pa.types.is_integer(source))
    if pa.types.is_list(target):
        return _is_list(source) and _convertible(source.value_type, target.value_type)
    if pa.types.is_map(target):
        return (
            bool(pa.types.is_map(source))
            and _convertible(source.key_type, target.key_type)
            and _convertible(source.item_type, target.item_type)
        )
    if pa.types.is_struct(target):
        return (
            bool(pa.types.is_struct(source))
            and any(source.get_field_index(field.name) >= 0 for field in target)
            and all(_has(source, field) for field in target)
        )
    return (_is_text(target) and _is_text(source)) or (_is_binary(target) and _is_binary(source))


def _has(source: pa.StructType, field: pa.Field) -> bool:
    found = source.get_all_field_indices(field.name)
    if not found:
        return bool(field.nullable)
    return len(found) == 1 and _convertible(source.field(found[0]).type, field.type)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _distinct(values: pa.DictionaryArray) -> pa.DictionaryArray:
    """The same values over a dictionary without nulls and repetitions, so that equal values have equal codes."""
    dictionary = values.dictionary
    if not dictionary.null_count and pc.count_distinct(dictionary).as_py() == len(dictionary):
        return values
    distinct = dictionary.drop_null().unique()
    codes = pc.index_in(dictionary, value_set=distinct)
    return pa.DictionaryArray.from_arrays(codes.take(values.indices), distinct)


def _check_nulls(values: pa.Array, field: pa.Field, where: str) -> None:
    """Refuse a null where none may be, at any depth; what lies below a null does not count."""
    if not field.nullable and values.null_count:
        raise WrongSchema(f"{where} may not be null")
    if pa.types.is_list(field.type):
        _check_nulls(values.flatten(), field.type.value_field, where)
    elif pa.types.is_struct(field.type):
        for child, inner in zip(values.drop_null().flatten(), field.type, strict=True):
            _check_nulls(child, inner, f"{where}: field {inner.name}")


def _check_text(values: pa.Array, most_spelled_out: int, where: str) -> None:
    spelled = pa.types.is_dictionary(values.type)
    texts = values.dictionary if spelled else values
    if not pa.types.is_string(texts.type) or not len(texts):
        return
    lengths = pc.binary_length(texts)
    longest = pc.max(lengths).as_py() or 0
    if longest > MAX_STRING_BYTES:
        raise ImpossibleValue(f"{where} holds a string of {longest} bytes, at most {MAX_STRING_BYTES} are read")
    if spelled and longest * len(values) > most_spelled_out:
        spelled_out = pc.sum(lengths.take(values.indices)).as_py() or 0
        if spelled_out > most_spelled_out:
            raise MessageTooLarge(f"{where} is {spelled_out} bytes spelled out, at most {most_spelled_out} are read")
