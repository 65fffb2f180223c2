"""The spool: messages come back whole and in order, over restarts, and what had to go is counted."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producers.segments import Segments
from producers.spool import Spool
from schemas.message import Message

PLENTY = 1 << 20


def message(number: int, topic: str = "t", size: int = 1) -> Message:
    return Message(topic, f"key {number}", bytes([number % 256]) * size, {"job": "ä\n", "n": str(number)})


def drained(spool: Spool, at_once: int = 3) -> list[Message]:
    found: list[Message] = []
    while len(spool):
        messages, last = spool.waiting(at_once)
        found += messages
        spool.delivered(last)
    return found


@given(st.lists(st.sampled_from(["append", "deliver", "restart"]), max_size=40))
def test_messages_come_in_order_and_once(tmp_path_factory: pytest.TempPathFactory, actions: list[str]) -> None:
    folder = tmp_path_factory.mktemp("spool")
    spool = Spool(folder, PLENTY)
    sent: list[Message] = []
    got: list[Message] = []
    for action in actions:
        if action == "append":
            sent.append(message(len(sent)))
            spool.append(sent[-1])
        elif action == "deliver":
            messages, last = spool.waiting(2)
            got += messages
            if messages:
                spool.delivered(last)
        else:
            spool = Spool(folder, PLENTY)
        assert len(spool) == len(sent) - len(got)
    assert got + drained(spool) == sent
    assert spool.dropped == {}


def test_a_message_comes_as_it_went(tmp_path: Path) -> None:
    spool = Spool(tmp_path, PLENTY)
    sent = [replace(message(1), value=b"a\n\0b", timestamp_ns=7), replace(message(2), value=None, key="")]
    for each in sent:
        spool.append(each)
    assert spool.waiting(9)[0] == sent


def test_what_was_not_delivered_comes_again(tmp_path: Path) -> None:
    spool = Spool(tmp_path, PLENTY)
    for number in range(4):
        spool.append(message(number))
    assert spool.waiting(2)[0] == spool.waiting(2)[0] == [message(0), message(1)]


def test_beyond_the_bound_the_oldest_go_and_are_counted(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 16 * 1000)
    for number in range(60):
        spool.append(message(number, topic="ab"[number % 2], size=400))
        assert spool.total_bytes <= 16 * 1000
    left = drained(spool)
    dropped = 60 - len(left)
    assert dropped > 0
    assert left == [message(number, topic="ab"[number % 2], size=400) for number in range(dropped, 60)]
    assert sum(spool.dropped.values()) == dropped
    assert set(spool.dropped) == {"a", "b"}
    assert spool.newly_dropped() == {("ab"[number % 2], f"key {number}"): 1 for number in range(dropped)}
    assert not spool.newly_dropped()


def test_a_delivery_of_what_was_dropped_meanwhile_is_no_harm(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 16 * 1000)
    spool.append(message(0, size=400))
    _, last = spool.waiting(1)
    for number in range(1, 60):
        spool.append(message(number, size=400))
        assert spool.total_bytes <= 16 * 1000
    spool.delivered(last)
    left = len(drained(spool))
    assert sum(spool.dropped.values()) == 59 - left > 0
    assert spool.newly_dropped() == {("t", f"key {number}"): 1 for number in range(1, 60 - left)}


@pytest.mark.parametrize("ended", [Spool.undelivered, lambda spool: spool.waiting(1)], ids=["told", "sent again"])
def test_what_was_dropped_while_it_was_sent_in_vain_is_lost(tmp_path: Path, ended: Callable[[Spool], object]) -> None:
    spool = Spool(tmp_path, 16 * 1000)
    for number in range(25):
        spool.append(message(number, size=400))
    spool.waiting(25)
    for number in range(25, 45):
        spool.append(message(number, size=400))
    assert not spool.dropped
    ended(spool)
    assert spool.dropped == {"t": 45 - len(spool)}
    left = len(drained(spool))
    assert spool.dropped == {"t": 45 - left}


def test_what_was_dropped_is_known_after_a_restart(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 16 * 1000)
    for number in range(60):
        spool.append(Message("ab"[number % 2], "ä", bytes(400)))
    dropped, lost = spool.dropped, spool.untold
    assert lost == {("a", "ä"): dropped["a"], ("b", "ä"): dropped["b"]}
    again = Spool(tmp_path, 16 * 1000)
    assert (again.dropped, again.untold, again.newly_dropped()) == (dropped, lost, lost)
    again.delivered(-1, Counter({("a", "ä"): dropped["a"], ("b", "ä"): 1}))
    again = Spool(tmp_path, 16 * 1000)
    assert (again.dropped, again.untold) == (dropped, {("b", "ä"): dropped["b"] - 1})


def test_what_a_lower_bound_leaves_no_room_for_is_dropped_and_counted(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 16 * 1000)
    for number in range(25):
        spool.append(message(number, size=400))
    spool.delivered(1)
    bounded = Spool(tmp_path, 16 * 500)
    assert bounded.total_bytes <= 16 * 500
    dropped = 23 - len(bounded)
    assert bounded.dropped == {"t": dropped}
    assert drained(bounded) == [message(number, size=400) for number in range(2 + dropped, 25)]


def test_what_went_while_it_was_sent_is_dropped_if_nobody_knows_that_it_arrived(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 16 * 1000)
    for number in range(20):
        spool.append(message(number, size=400))
    _, last = spool.waiting(20)
    for number in range(20, 40):
        spool.append(message(number, size=400))
    killed = Spool(tmp_path, 16 * 1000)
    assert killed.dropped == {"t": 40 - len(spool)}
    assert sum(killed.untold.values()) == 40 - len(spool)
    spool.delivered(last)
    again = Spool(tmp_path, 16 * 1000)
    assert not again.dropped
    assert not again.untold


@pytest.mark.parametrize(
    "tally",
    [
        b"",
        b"\xff",
        b"[]",
        b"[" * 99999,
        b'{"dropped": {}}',
        b'{"dropped": {"t": 0}, "untold": []}',
        b'{"dropped": {"t": "1"}, "untold": []}',
        b'{"dropped": 3, "untold": []}',
        b'{"dropped": {"t": 1}, "untold": [["t", 1]]}',
        b'{"dropped": {"t": 1}, "untold": [["t", 3, 1]]}',
        b'{"dropped": {"t": 1}, "untold": [["t", [], 1]]}',
        b'{"dropped": {"t": 1}, "untold": [["t", "k", true]]}',
    ],
)
def test_a_damaged_tally_is_told_and_begins_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, tally: bytes
) -> None:
    (tmp_path / "dropped").write_bytes(tally)
    spool = Spool(tmp_path, 16 * 1000)
    assert [record.message.split(": ")[1] for record in caplog.records] == ["what was dropped before is not known"]
    for number in range(60):
        spool.append(message(number, size=400))
    assert spool.dropped == Spool(tmp_path, 16 * 1000).dropped == {"t": 60 - len(spool)}


def test_after_all_was_delivered_numbers_go_on(tmp_path: Path) -> None:
    spool = Spool(tmp_path, PLENTY)
    spool.append(message(0))
    drained(spool)
    again = Spool(tmp_path, PLENTY)
    again.append(message(1))
    assert drained(Spool(tmp_path, PLENTY)) == [message(1)]


@pytest.mark.parametrize(
    "strange",
    [
        b"",
        b"no message\n",
        b'{"topic": 3, "key": "", "tombstone": false}\n',
        b'{"topic": "t", "key": "", "headers": 3, "tombstone": false}\n',
        b"[" * 99999,
    ],
)
def test_what_is_no_message_is_dropped_and_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, strange: bytes
) -> None:
    spool = Spool(tmp_path, PLENTY)
    spool.append(message(0))
    Segments(tmp_path, PLENTY).append(1, strange)
    spool = Spool(tmp_path, PLENTY)
    spool.append(message(2))
    assert drained(spool) == [message(0), message(2)]
    assert [record.message.split(":")[1] for record in caplog.records] == [" what waits under number 1 is dropped"]
    assert not spool.dropped


@pytest.mark.parametrize("mark", [b"", b"\xff", b"none", b"-7", b"9" * 30, b"9" * 5000])
def test_a_damaged_mark_lets_all_be_sent_again(tmp_path: Path, mark: bytes) -> None:
    spool = Spool(tmp_path, PLENTY)
    for number in range(3):
        spool.append(message(number))
    spool.delivered(0)
    (tmp_path / "delivered").write_bytes(mark)
    spool = Spool(tmp_path, PLENTY)
    assert spool.waiting(9)[0] == [message(number) for number in range(3)]
    spool.append(message(3))
    assert drained(spool) == [message(number) for number in range(4)]
