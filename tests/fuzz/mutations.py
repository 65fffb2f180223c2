"""Damage to bytes: bits that flip, files that end early, pieces of others, lengths and numbers that cannot be.

The same random numbers make the same damage: an input is named by seed, target and ordinal, and can be made again.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

MOST_BYTES = 256 << 10
"""No input grows beyond: what is large is to be claimed, not sent."""

_EXTREMES = (0, 1, -1, 127, 128, 255, 256, 32767, 65535, 65536, 2**31 - 1, 2**31, 2**32 - 1, 2**50, 2**63 - 1, -(2**63))
_NUMBERS = (
    *(b"%d" % extreme for extreme in _EXTREMES),
    *b"18446744073709551616 1e308 1e999 -0.0 0.5 NaN Infinity -Infinity null true 0x10 00 1_0".split(),
    b"9" * 5000,
)
_PIECES = (
    *b'null true {} [] "" { } [ ] , : " \' \\ = / .. ; % ? * \xff \xc3\x28 \xed\xa0\x80 \xef\xbb\xbf \\ud800'.split(),
    b"\0",
    b"\n",
    b"\r\n",
    b"A" * 4096,
    b"\0" * 64,
    b"[" * 100_000,
    b'{"a":' * 20_000,
)
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
_WORD = re.compile(rb'"[^"\n]{0,200}"|[A-Za-z_]{2,}')

Damage = Callable[[bytearray, random.Random, Sequence[bytes]], None]


def mutated(seeds: Sequence[bytes], chance: random.Random) -> bytes:
    """One of the seeds with one to several damages, of all kinds or of those that leave its form more or less whole."""
    data = bytearray(chance.choice(seeds))
    damages = chance.choice((DAMAGES, IN_PLACE if 0 in data else IN_TEXT))
    for _ in range(1 + min(int(chance.expovariate(0.7)), 7)):
        chance.choice(damages)(data, chance, seeds)
        del data[MOST_BYTES:]
    return bytes(data)


def _stretch(data: bytearray, chance: random.Random) -> tuple[int, int]:
    """Where a block begins and ends: short ones and long ones alike."""
    first = chance.randint(0, len(data))
    return first, min(first + int(2 ** chance.uniform(0, 14)), len(data))


def _flip_bits(data: bytearray, chance: random.Random, _: Sequence[bytes]) -> None:
    for _flip in range(chance.choice((1, 1, 1, 4, 16)) if data else 0):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def _replace_bytes(data: bytearray, chance: random.Random, _: Sequence[bytes]) -> None:
    for _byte in range(chance.choice((1, 1, 4, 16)) if data else 0):
        data[chance.randrange(len(data))] = chance.randrange(256)


def _cut_off(data: bytearray, chance: random.Random, _: Sequence[bytes]) -> None:
    del data[chance.randint(0, len(data)) :]


def _cut_out(data: bytearray, chance: random.Random, _: Sequence[bytes]) -> None:
    first, last = _stretch(data, chance)
    del data[first:last]


def _clear(data: bytearray, chance: random.Random, _: Sequence[bytes]) -> None:
    first, last = _stretch(data, chance)
    data[first:last] = bytes([chance.choice((0, 255))]) * (last - first)


def _repeat(data: bytearray, chance: random.Random, _: Sequence[bytes]) -> None:
    first, last = _stretch(data, chance)
    data[last:last] = data[first:last] * chance.choice((1, 1, 2, 30))


def _swap(data: bytearray, chance: random.Random, _: Sequence[bytes]) -> None:
    (a, b), (c, d) = sorted((_stretch(data, chance), _stretch(data, chance)))
    b = min(b, c)
    data[a:d] = data[c:d] + data[b:c] + data[a:b]


def _splice(data: bytearray, chance: random.Random, seeds: Sequence[bytes]) -> None:
    """A piece of another seed, in the place of one's own or between."""
    other = bytearray(chance.choice(seeds))
    first, last = _stretch(other, chance)
    at, until = _stretch(data, chance)
    data[at : chance.choice((at, until))] = other[first:last]


def _edit_length(data: bytearray, chance: random.Random, _: Sequence[bytes]) -> None:
    """A word that may be a length, an offset or a count, slightly or wholly wrong."""
    size = chance.choice((1, 2, 4, 4, 8, 8))
    if len(data) < size:
        return
    at = chance.randrange(len(data) - size + 1)
    at -= at % size if chance.random() < 0.8 else 0
    order = chance.choice(("little", "little", "little", "big"))
    value = int.from_bytes(data[at : at + size], "little" if order == "little" else "big")
    wrong = chance.choice(
        (value + 1, value - 1, value * 2, -value, value + len(data), len(data), *chance.choices(_EXTREMES, k=4))
    )
    data[at : at + size] = (wrong % (1 << 8 * size)).to_bytes(size, "little" if order == "little" else "big")


def _edit_number(data: bytearray, chance: random.Random, _: Sequence[bytes]) -> None:
    """A number in a text, replaced by another one of the text or by one that cannot be."""
    if found := list(_NUMBER.finditer(data)):
        where = chance.choice(found)
        data[where.start() : where.end()] = (
            chance.choice(_NUMBERS) if chance.random() < 0.7 else chance.choice(found).group()
        )


def _swap_words(data: bytearray, chance: random.Random, _: Sequence[bytes]) -> None:
    """A word of a text in the place of another one: fields under each other's names, twice, or not at all."""
    if found := list(_WORD.finditer(data)):
        where, what = chance.choice(found), chance.choice(found)
        data[where.start() : where.end()] = chance.choice((what.group(), b"", b'""', b"null"))


def _insert(data: bytearray, chance: random.Random, _: Sequence[bytes]) -> None:
    """Something that texts hold, where it does not belong."""
    at = chance.randint(0, len(data))
    data[at:at] = chance.choice(_PIECES)


IN_PLACE: tuple[Damage, ...] = (_flip_bits, _replace_bytes, _clear, _edit_length, _edit_length)
"""Lengths stay as they are, and so does what lies at an offset."""
IN_TEXT: tuple[Damage, ...] = (_edit_number, _edit_number, _swap_words, _swap_words, _repeat, _cut_out)
DAMAGES: tuple[Damage, ...] = (
    *IN_PLACE,
    _cut_off,
    _cut_out,
    _repeat,
    _swap,
    _splice,
    _edit_number,
    _edit_number,
    _swap_words,
    _insert,
)
