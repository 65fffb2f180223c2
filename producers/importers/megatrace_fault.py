"""What a line of a Megatrace log looks like, and which line of a block does not, and why: the slow way."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pyarrow as pa

from producers.importers.columns import not_utf8, row_fault, shown
from producers.importers.files import Block

OPS: Mapping[str, str] = {
    "AllReduce": "all_reduce",
    "AllGather": "all_gather",
    "ReduceScatter": "reduce_scatter",
    "Broadcast": "broadcast",
    "Bcast": "broadcast",
    "Reduce": "reduce",
    "AllToAll": "all_to_all",
    "AllToAllv": "all_to_all",
    "Send": "send",
    "Recv": "recv",
}
"""Operators by the functions' names."""

_IN_LOWER_CASE = {function.lower(): op for function, op in OPS.items()}


def operator(function: str) -> str | None:
    """The operator of a function, however its name is capitalised (NCCL's is ``AlltoAll``); None: it is not known."""
    return _IN_LOWER_CASE.get(function.lower())


LINE = re.compile(
    r"^(?:\[[^\] ]*\] )*?(?:(?:\[(?P<host>[^\] ]+)\] )?\[save_count (?P<save_count>[0-9]{1,15})\] )?"
    r"\[(?P<seconds>[0-9]{1,12})\.(?P<nanoseconds>[0-9]{1,9})\] \[Rank (?P<rank>[0-9]{1,9})\] (?:\[PCI [^\]]*\] )?"
    r"\[?Func? (?:nccl)?(?P<function>[A-Za-z]+)\]? \[?Data (?P<count>[0-9]{1,18})\]? "
    r"\[?stream (?P<stream>[0-9A-Za-z()]+)\]?"
    r"(?: \[?opCount (?P<op_count>[0-9]{1,15})\]?(?: \[?groupHash (?P<hash>-?[0-9A-Fa-fx]*)\]?)?)?(?P<tail>.*)$"
)
"""A line; the expression is understood alike by Python and by RE2. ``tail`` is empty unless the line is cut."""

MOST_CHARACTERS = 127
"""A line that is as long may be cut."""

_TAILS = [f" {name} "[:end] for name in ("opCount", "groupHash") for end in range(1, len(name) + 3)]
CUT_TAILS = pa.array(_TAILS, pa.string())
"""What stands after the last field of a line that was cut within a field's name."""

_PARTS = (
    (r"\[[0-9]{1,12}\.[0-9]{1,9}\]", "no time as [1755590104.253968145]"),
    (r"\[Rank [0-9]{1,9}\]", "no rank as [Rank 3]"),
    (r"Func? [A-Za-z]+", "no function as Fun AllReduce"),
    (r"Data [0-9]{1,18}(?:[\] ]|$)", "no element count as Data 4096"),
    (r"stream [0-9A-Za-z()]+", "no stream as stream 0x55919d27b4b0"),
)


def find_faults(block: Block) -> dict[int, str]:
    """What is wrong with each bad line, with its file, line and field, by its place among the block's lines."""
    return {
        at: f"{block.path}:{block.line + at}: {fault}"
        for at, line in enumerate(block.data.split(b"\n"))
        if line.strip() and (fault := _fault(line))
    }


def _fault(raw: bytes) -> str | None:
    try:
        line = raw.decode().rstrip("\r")
    except UnicodeDecodeError as error:
        return not_utf8(error)
    long = len(line) >= MOST_CHARACTERS
    line = line if long else line.strip()
    found = LINE.match(line)
    if found is None:
        missing = next((says for part, says in _PARTS if not re.search(part, line)), "not a line of a Megatrace log")
        return f"{missing} in {shown(line)}"
    function = found["function"]
    op = operator(function)
    if op is None:
        return f"function {shown(function)}; known are {', '.join(OPS)}"
    if found["tail"] and not (long and found["tail"] in _TAILS):
        return f"{shown(found['tail'])} after the last field"
    row = {name: int(found[name]) for name in ("rank", "count")}
    call_ns = int(found["seconds"]) * 1_000_000_000 + int(found["nanoseconds"])
    return row_fault({**row, "op": op, "call_ns": call_ns, "stream": found["stream"]})
