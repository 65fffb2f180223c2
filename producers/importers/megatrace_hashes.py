"""Which communicator a line of a Megatrace log is on, by the group's hash that it bears, whole or cut short."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from diagnosis.arrays import Ints
from diagnosis.columns import joint_codes

_UNKNOWN = -1


def names_nothing(
    rank: Ints, stream: Ints, text: Ints, hashes: list[str], counts: Ints, call_ns: Ints
) -> NDArray[np.bool_]:
    """Which lines bear a hash that names no communicator: 0, which a logger writes that did not see it made, and one
    under which streams of a rank count each by itself.
    """
    told = (text >= 0) & (counts >= 0)
    back = _falls(joint_codes(rank, text), counts, call_ns) & told
    several = np.unique(text[back & ~_has_fallen(joint_codes(rank, text, stream), counts, call_ns)])
    none = [code for code, written in enumerate(hashes) if written and not written.strip("0x-")]
    return (text >= 0) & np.isin(text, np.concatenate([several, none]).astype(np.int64))


def _has_fallen(group: Ints, counts: Ints, call_ns: Ints) -> NDArray[np.bool_]:
    """Which lines are of a group whose counts go back at some line."""
    falls = _falls(group, counts, call_ns)
    return np.isin(group, group[falls])


def _falls(group: Ints, counts: Ints, call_ns: Ints) -> NDArray[np.bool_]:
    """Which lines have a lower count than the line before them of their group, in the order of calls."""
    falls = np.zeros(len(group), dtype=np.bool_)
    order = np.lexsort((call_ns, group))
    order = order[counts[order] >= 0]
    falls[order[1:]] = (np.diff(group[order]) == 0) & (np.diff(counts[order]) < 0)
    return falls


def communicators(rank: Ints, stream: Ints, text: Ints, hashes: list[str]) -> Ints:
    """The code of the communicator's hash of each line, as far as it is known; -1 where that cannot be told.

    Of a rank's stream the longest hash counts, where the others begin it. One that begins a longer one of another rank
    is that one cut short, unless the rank has that on another stream. A line that lacks its hash is of its stream.
    """
    triples, of_line = np.unique(np.stack([rank, stream, text]), axis=1, return_inverse=True)
    places = triples.T.tolist()
    whole = _whole_hashes(hashes)
    on_stream: dict[tuple[int, int], set[int]] = {}
    for r, s, h in places:
        if h >= 0:
            on_stream.setdefault((r, s), set()).add(h)
    longest = {place: {h for h in seen if not _begins(h, seen, hashes)} for place, seen in on_stream.items()}
    on_rank: dict[int, set[int]] = {}
    for (r, _), known in longest.items():
        on_rank.setdefault(r, set()).update(h for h in known if whole[h] == {h})
    resolved = []
    for r, s, h in places:
        own = longest.get((r, s), set())
        if len(own) > 1 and h >= 0:
            own = {o for o in own if hashes[o].startswith(hashes[h])}
        code = min(own) if len(own) == 1 else _UNKNOWN
        if code >= 0 and code not in whole[code]:
            others = whole[code] - on_rank.get(r, set())
            code = code if not others else min(others) if len(others) == 1 else _UNKNOWN
        resolved.append(code)
    return np.array(resolved, dtype=np.int64)[of_line.reshape(-1)]


def _begins(one: int, others: Collection[int], hashes: list[str]) -> bool:
    return any(other != one and hashes[other].startswith(hashes[one]) for other in others)


def unnamed_streams(place: Ints, own: Ints, free: int) -> tuple[Ints, NDArray[np.bool_]]:
    """Codes from ``free`` on for streams that bear no name at all, and which lines belong to something known."""
    named = np.bincount(place[own >= 0], minlength=int(place.max(initial=0)) + 1) > 0
    alone = ~named[place]
    return np.where(alone, free + place, own), (own >= 0) | alone


def _whole_hashes(hashes: list[str]) -> list[set[int]]:
    """For each hash those that it begins and that begin no other."""
    order = sorted(range(len(hashes)), key=hashes.__getitem__)
    whole: list[set[int]] = [set() for _ in hashes]
    open_: list[int] = []
    for i, h in enumerate(order):
        while open_ and not hashes[h].startswith(hashes[open_[-1]]):
            open_.pop()
        open_.append(h)
        following = order[i + 1] if i + 1 < len(order) else None
        if following is None or not hashes[following].startswith(hashes[h]):
            for shorter in open_:
                whole[shorter].add(h)
    return whole
