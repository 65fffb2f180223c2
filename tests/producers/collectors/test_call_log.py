"""What a process has logged, read: in order, once, and nothing that cannot be."""

import os
from pathlib import Path
from typing import Any

import pytest

from producers.collectors.addresses import Addresses
from producers.collectors.call_log import CLOSED, CONNECTED, GROUP_END, HOLD_NS, MEMBER, CallLog
from schemas.catalogue import OP_CALLS
from schemas.comm_ops import OPS
from schemas.errors import InputError
from schemas.message import decode, encode
from tests.producers.collectors.rings import append, live, pair, record, write

NOW = 10**18
SEND = OPS.index("send")


def told(log: CallLog, addresses: Addresses | None = None, now_ns: int = NOW) -> list[dict[str, Any]]:
    """Rows as readers take them."""
    log.look()
    batch = log.calls(addresses or Addresses(), now_ns)
    found: list[dict[str, Any]] = decode(encode(OP_CALLS, batch, job="j"), OP_CALLS).to_pylist()
    return found


def counts(*arguments: Any, **named: Any) -> list[int]:
    return [row["count"] for row in told(*arguments, **named)]


def test_what_was_not_released_is_told_again(tmp_path: Path) -> None:
    folder = write(tmp_path / "3-a", record(at_ns=NOW, count=1), record(at_ns=NOW, count=2))
    log = CallLog(folder)
    assert counts(log) == [1, 2]
    append(folder, record(at_ns=NOW, count=3))
    assert counts(CallLog(folder)) == [1, 2, 3]
    log.release()
    assert counts(log) == [3]
    log.release()
    assert counts(CallLog(folder)) == []


def test_a_call_waits_for_the_end_of_its_group_and_those_behind_it_do(tmp_path: Path) -> None:
    grouped = record(at_ns=NOW, count=2, group=7, group_start_ns=NOW - 5)
    folder = write(tmp_path / "3-a", record(at_ns=NOW, count=1), grouped, record(at_ns=NOW, count=3))
    lock = live(folder)
    log = CallLog(folder)
    assert counts(log) == [1]
    log.release()
    append(folder, record(GROUP_END, at_ns=NOW + 9, group=7, group_start_ns=NOW - 5))
    assert [(row["count"], row["group_end_ns"]) for row in told(log)] == [(2, NOW + 9), (3, None)]
    assert [row["call_id"] for row in told(log)] == [1, 2]
    os.close(lock)


def test_a_send_waits_until_it_is_known_to_whom(tmp_path: Path) -> None:
    folder = write(tmp_path / "3-a", record(at_ns=NOW, op=SEND, peer=2, communicator=0xAB), record(at_ns=NOW, count=3))
    lock = live(folder)
    log, addresses = CallLog(folder), Addresses()
    assert counts(log, addresses) == []
    addresses.tell("h1", {("communicator", "00000000000000ab", 2): 70})
    assert [(row["op"], row["peer"]) for row in told(log, addresses)] == [("send", 70), ("all_reduce", None)]
    os.close(lock)


@pytest.mark.parametrize("lives", [True, False])
def test_nothing_waits_for_ever_nor_for_a_process_that_is_no_more(tmp_path: Path, lives: bool) -> None:
    grouped = record(at_ns=NOW, count=2, group=7, group_start_ns=NOW - 5)
    folder = write(tmp_path / "3-a", grouped, record(at_ns=NOW, op=SEND, peer=2), record(at_ns=NOW, count=3))
    lock = live(folder) if lives else None
    log = CallLog(folder)
    found = told(log, now_ns=NOW + HOLD_NS + 1 if lives else NOW)
    assert [(row["op"], row["peer"], row["group_start_ns"], row["group_end_ns"]) for row in found] == [
        ("all_reduce", None, NOW - 5, None),
        ("send", None, None, None),
        ("all_reduce", None, None, None),
    ]
    if lock is not None:
        os.close(lock)


@pytest.mark.parametrize("at_ns", [1 << 62, NOW + HOLD_NS + 1])
def test_nothing_waits_for_a_time_that_is_far_ahead(tmp_path: Path, at_ns: int) -> None:
    folder = write(tmp_path / "3-a", record(at_ns=at_ns, op=SEND, peer=2), record(at_ns=NOW, count=3))
    lock = live(folder)
    log = CallLog(folder)
    assert counts(log)[-1] == 3
    assert log.told_ns == NOW
    os.close(lock)


@pytest.mark.parametrize(
    "wrong",
    [
        {"op": 9},
        {"dtype": 12},
        {"at_ns": -1},
        {"at_ns": 1 << 62},
        {"count": -1},
        {"count": 1 << 60},
        {"seq": -1},
        {"place": -1},
        {"place": 1 << 20},
        {"kind": 77},
    ],
)
def test_what_cannot_be_is_left_out(tmp_path: Path, wrong: dict[str, int]) -> None:
    bad = record(at_ns=NOW, count=2)
    for name, value in wrong.items():
        bad[name] = value
    assert counts(CallLog(write(tmp_path / "3-a", record(at_ns=NOW, count=1), bad))) == [1]


def test_a_group_that_lies_elsewhere_in_time_is_not_told(tmp_path: Path) -> None:
    late = record(at_ns=NOW, group=1, group_start_ns=NOW + 1)
    early = record(at_ns=NOW, group=2, group_start_ns=NOW)
    ends = record(GROUP_END, at_ns=NOW + 5, group=1), record(GROUP_END, at_ns=NOW - 1, group=2)
    found = told(CallLog(write(tmp_path / "3-a", late, early, *ends)))
    assert [(row["group_start_ns"], row["group_end_ns"]) for row in found] == [(None, None), (NOW, None)]


def test_facts_are_given_once_each_without_those_that_cannot_be(tmp_path: Path) -> None:
    facts = (
        record(MEMBER, communicator=0xAB, place=1),
        record(MEMBER, communicator=0xAB, place=-1),
        pair(CONNECTED, at_ns=5, qpn=7, destination_qpn=8),
        pair(CONNECTED, at_ns=5, qpn=1 << 24),
        pair(CONNECTED, at_ns=-1),
        pair(CLOSED, at_ns=6, qpn=7),
        pair(CLOSED, at_ns=6, nic=b""),
        record(99),
    )
    folder = write(tmp_path / "3-a", facts=facts)
    log = CallLog(folder)
    assert len(list(log.facts())) == 3
    with (folder / "facts").open("ab") as file:
        file.write(facts[0].tobytes() + facts[0].tobytes()[:50])
    assert len(list(log.facts())) == 1
    assert list(log.facts()) == []


def test_a_folder_of_another_library_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "3-a")
    ring = folder / "ring-0"
    ring.write_bytes(ring.read_bytes().replace(b"OFFBEATC", b"OFFBEAT1"))
    with pytest.raises(InputError, match="no ring of this version"):
        CallLog(folder)
    with pytest.raises(OSError, match="registration"):
        CallLog(tmp_path)
