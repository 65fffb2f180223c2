"""All that is collected on hosts: told once, held until it is safe, and joined over hosts."""

import logging
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from producers.collectors.call_log import CLOSED, CONNECTED, MEMBER
from producers.collectors.host import HostCollector
from producers.collectors.port_counters import PortCounters
from schemas.catalogue import ADDRESSES, NIC_EPOCHS, OP_CALLS, QUEUE_PAIRS, TOPICS
from schemas.comm_ops import OPS
from schemas.errors import ImpossibleValue, MessageError
from schemas.message import Message, decode, encode
from schemas.topic import Topic
from tests.producers.collectors.dumps import dump
from tests.producers.collectors.rings import append, live, pair, record, write

NOW = 10**18
SEND = OPS.index("send")
WORLD = f"{0xAB:016x}"


def told(collector: HostCollector, now_ns: int = NOW) -> list[Message]:
    found = list(collector.step(now_ns))
    for message in found:
        assert message.key.startswith(f"{message.job}/")
        if message.value is not None:
            decode(message, TOPICS[message.topic])
    return found


def rows(messages: Iterable[Message], topic: Topic) -> list[dict[str, Any]]:
    of = (message for message in messages if message.topic == topic.name and message.value is not None)
    return [row for message in of for row in decode(message, topic).to_pylist()]


def process(calls: Path, rank: int, *, to: int, job: str = "llama") -> Path:
    """A rank that is a member of a world of two, and has one queue pair to the other, whom it sends something."""
    facts = (
        record(MEMBER, communicator=0xAB, place=rank - 70, size=2),
        pair(CONNECTED, at_ns=NOW - 9, qpn=rank, destination_qpn=to, gid=gid(rank), destination_gid=gid(to)),
    )
    send = record(at_ns=NOW - 5, op=SEND, peer=to - 70, communicator=0xAB, place=rank - 70, count=rank)
    return write(calls / f"{rank}-a", send, facts=facts, rank=rank, job=job)


def gid(rank: int) -> bytes:
    return bytes(15) + bytes([rank])


def test_two_hosts_tell_one_another_where_their_ranks_are_met(tmp_path: Path) -> None:
    locks = [live(process(tmp_path / "h0", 70, to=71)), live(process(tmp_path / "h1", 71, to=70))]
    hosts = [HostCollector(name, calls=tmp_path / name) for name in ("h0", "h1")]
    first = [told(host) for host in hosts]
    assert rows(first[0], ADDRESSES) == [
        {"rank": 70, "kind": "communicator", "name": WORLD, "number": 0},
        {"rank": 70, "kind": "queue_pair", "name": "::46", "number": 70},
    ]
    assert {message.key for message in first[0]} == {"llama/h0"}
    assert [rows(messages, topic) for messages in first for topic in (OP_CALLS, QUEUE_PAIRS)] == [[], [], [], []]
    for host in hosts:
        for message in [message for messages in first for message in messages if message.topic == ADDRESSES.name]:
            host.process(message)
    second = [told(host) for host in hosts]
    assert [(row["rank"], row["peer"], row["count"]) for row in rows(second[0], OP_CALLS)] == [(70, 71, 70)]
    assert [(row["rank"], row["peer"]) for row in rows(second[1], OP_CALLS)] == [(71, 70)]
    assert rows(second[0], QUEUE_PAIRS) == [
        {
            "nic": "mlx5_0",
            "gid": "::46",
            "qpn": 70,
            "source_rank": 70,
            "destination_rank": 71,
            "destination_gid": "::47",
            "destination_qpn": 71,
            "valid_from_ns": NOW - 9,
            "valid_to_ns": None,
        }
    ]
    third = told(hosts[0])
    assert [message.topic for message in third] == [OP_CALLS.name]  # nothing new, but it lives
    assert rows(third, OP_CALLS) == []
    for lock in locks:
        os.close(lock)


def met(collector: HostCollector, rank: int) -> None:
    """Another host tells of a rank."""
    batch = [
        {"rank": rank, "kind": "communicator", "name": WORLD, "number": rank - 70},
        {"rank": rank, "kind": "queue_pair", "name": f"::{rank:x}", "number": rank},
    ]
    collector.process(encode(ADDRESSES, ADDRESSES.from_rows(batch), job="llama", key="llama/other"))


def test_what_was_not_made_safe_is_told_again(tmp_path: Path) -> None:
    lock = live(process(tmp_path, 70, to=71))
    collector = HostCollector("h0", calls=tmp_path)
    met(collector, 71)
    for message in collector.step(NOW):
        if message.topic == OP_CALLS.name:
            break
    again = HostCollector("h0", calls=tmp_path)
    met(again, 71)
    found = told(again)
    assert len(rows(found, OP_CALLS)) == len(rows(found, QUEUE_PAIRS)) == 1
    after = HostCollector("h0", calls=tmp_path)  # calls were told; what is open is told whenever one starts
    met(after, 71)
    found = told(after)
    assert (len(rows(found, OP_CALLS)), len(rows(found, QUEUE_PAIRS)), len(rows(found, ADDRESSES))) == (0, 1, 2)
    os.close(lock)


def test_up_to_when_all_is_told_is_said(tmp_path: Path) -> None:
    lock = live(process(tmp_path, 70, to=71))
    collector = HostCollector("h0", calls=tmp_path)
    [waits] = [message for message in told(collector) if message.topic == OP_CALLS.name]
    met(collector, 71)
    [goes] = [message for message in told(collector) if message.topic == OP_CALLS.name]
    assert (waits.watermark_ns, goes.watermark_ns) == (NOW - 5, NOW)
    os.close(lock)


def test_a_queue_pair_that_closes_is_told_with_its_end(tmp_path: Path) -> None:
    folder = process(tmp_path, 70, to=71)
    lock = live(folder)
    collector = HostCollector("h0", calls=tmp_path)
    met(collector, 71)
    told(collector)
    again = pair(CONNECTED, at_ns=NOW + 7, qpn=70, destination_qpn=71, gid=gid(70), destination_gid=gid(71))
    with (folder / "facts").open("ab") as file:
        file.write(pair(CLOSED, at_ns=NOW + 5, qpn=70).tobytes() + again.tobytes())
    closed, opened = rows(told(collector), QUEUE_PAIRS)
    assert (closed["valid_from_ns"], closed["valid_to_ns"]) == (NOW - 9, NOW + 5)
    assert (opened["valid_from_ns"], opened["valid_to_ns"]) == (NOW + 7, None)
    os.close(lock)


def test_a_process_that_has_ended_is_told_and_cleared_away(tmp_path: Path) -> None:
    folder = process(tmp_path, 70, to=71)
    lock = live(folder)
    collector = HostCollector("h0", calls=tmp_path)
    met(collector, 71)
    told(collector)
    append(folder, record(at_ns=NOW + 1, count=5, communicator=0xAB))
    os.close(lock)
    *found, last = told(collector, NOW + 20)
    assert [row["count"] for row in rows(found, OP_CALLS)] == [5]
    assert [row["valid_to_ns"] for row in rows(found, QUEUE_PAIRS)] == [NOW + 20]
    assert (last.topic, last.key, last.value) == (ADDRESSES.name, "llama/h0", None)
    assert not folder.exists()
    assert told(collector) == []


def test_a_host_that_is_gone_is_met_no_more(tmp_path: Path) -> None:
    folder = process(tmp_path, 70, to=71)
    lock = live(folder)
    collector = HostCollector("h0", calls=tmp_path)
    met(collector, 71)
    gone = Message(ADDRESSES.name, "llama/other", None, {"schema": ADDRESSES.schema_id, "job": "llama"})
    collector.process(gone)
    assert rows(told(collector), OP_CALLS) == []
    collector.process(gone)
    os.close(lock)


def test_a_bad_record_changes_nothing(tmp_path: Path) -> None:
    collector = HostCollector("h0", calls=tmp_path)
    rows_of = ADDRESSES.from_rows([{"rank": -1, "kind": "communicator", "name": "c", "number": 0}])
    with pytest.raises(ImpossibleValue):
        collector.process(encode(ADDRESSES, rows_of, job="llama", key="llama/h1"))
    with pytest.raises(MessageError):
        collector.process(Message(ADDRESSES.name, "llama/h1", b"x", {"schema": "addresses/1", "job": "llama"}))


def test_what_is_no_process_is_passed_over_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "1-strange").mkdir()
    broken = process(tmp_path, 70, to=71)
    lock = live(broken)
    collector = HostCollector("h0", calls=tmp_path)
    with caplog.at_level(logging.WARNING):
        told(collector)
        (broken / "facts").unlink()
        os.mkfifo(broken / "facts")
        told(collector)
        told(collector)
    assert [record.message.split(":")[0] for record in caplog.records] == [
        "passed over",
        "rank 70 of llama is passed over from now on",
    ]
    os.close(lock)


def test_of_a_process_that_is_passed_over_nothing_is_left_open(tmp_path: Path) -> None:
    """Nobody would see it end: the others of its host go on."""
    broken, locks = process(tmp_path, 70, to=72), []
    locks += [live(broken), live(process(tmp_path, 71, to=72))]
    collector = HostCollector("h0", calls=tmp_path)
    met(collector, 72)
    told(collector)
    (broken / "facts").unlink()
    found = told(collector, NOW + 5)
    assert [(row["source_rank"], row["valid_to_ns"]) for row in rows(found, QUEUE_PAIRS)] == [(70, NOW + 5)]
    assert {row["rank"] for row in rows(found, ADDRESSES)} == {71}
    for lock in locks:
        os.close(lock)


def test_dumps_are_told_in_their_order_and_cleared_away(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for number in (2, 1):
        reading = (number * 10**9 + 5000, number * 10**9, number * 10**9 + 5000)
        poll = dump(
            [(7, number, [3])], from_ns=(number - 1) * 10**9, to_ns=number * 10**9, readings=[reading], events_dropped=4
        )
        (tmp_path / f"{number}.epochs").write_bytes(poll)
    (tmp_path / "3.epochs").write_bytes(dump([(7, 3, [3])], nic=b"mlx5_1") + b"damaged")
    (tmp_path / ".4.epochs").write_bytes(b"is being written")
    (tmp_path / "5.epochs").symlink_to(tmp_path / "elsewhere")
    os.mkfifo(tmp_path / "6.epochs")
    collector = HostCollector("h0", dumps=tmp_path, job="llama")
    steps = collector.step(NOW)
    next(steps)
    left = [".4.epochs", "5.epochs", "6.epochs"]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*left, "1.epochs", "2.epochs", "3.epochs"])
    with caplog.at_level(logging.WARNING):
        found = rows(steps, NIC_EPOCHS)
    assert [(row["nic"], row["epoch"], row["host_minus_nic_ns"]) for row in found] == [
        ("mlx5_0", [2], 5000),
        ("mlx5_1", [3], None),
    ]
    assert "3.epochs: offset" in caplog.text
    assert (collector.lost_events, collector.refused_dumps) == ({"mlx5_0": 8, "mlx5_1": 0}, 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == [*left, "refused"]
    assert told(collector) == []


@pytest.mark.parametrize("given", [None, "other"])
def test_nics_are_told_under_each_job_that_runs_here(tmp_path: Path, given: str | None) -> None:
    (tmp_path / "dumps").mkdir()
    collector = HostCollector("h0", calls=tmp_path / "calls", dumps=tmp_path / "dumps", job=given)
    (tmp_path / "dumps" / "1.epochs").write_bytes(dump())
    assert [message.job for message in told(collector)] == ([] if given is None else [given])
    locks = [live(process(tmp_path / "calls", 70, to=71)), live(process(tmp_path / "calls", 71, to=70, job="mixtral"))]
    (tmp_path / "dumps" / "2.epochs").write_bytes(dump([(7, 1, [3])]))
    found = [message for message in told(collector) if message.topic == NIC_EPOCHS.name]
    assert [(message.job, message.key) for message in found] == [("llama", "llama/h0"), ("mixtral", "mixtral/h0")]
    for lock in locks:
        os.close(lock)


def test_ports_are_told_every_time_also_when_idle(tmp_path: Path) -> None:
    port = tmp_path / "mlx5_0" / "ports" / "1" / "counters"
    port.mkdir(parents=True)
    (port / "port_xmit_data").write_text("7")
    now = [NOW]
    ports = PortCounters(lambda: now[0], 10**7, tmp_path)
    collector = HostCollector("h0", ports=ports, job="llama")
    for _ in range(3):
        ports.sample()
        now[0] += 10**7
    [row] = rows(told(collector), NIC_EPOCHS)
    assert (row["nic"], row["source"], row["units"], row["poll_to_ns"] - row["poll_from_ns"]) == (
        "mlx5_0",
        "port_counter",
        [],
        2 * 10**7,
    )
    shutil.rmtree(tmp_path / "mlx5_0")
    ports.sample()
    assert len(rows(told(collector), NIC_EPOCHS)) <= 1
    assert told(collector) == []
