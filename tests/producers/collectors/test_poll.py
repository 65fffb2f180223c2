"""Polls as records of telemetry.nic_epochs: together where they fit, in parts where they do not."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from producers.collectors import poll as polls
from producers.collectors.nic_clock import Offset
from producers.collectors.poll import Poll, messages
from schemas.catalogue import NIC_EPOCHS
from schemas.message import decode

Row = dict[str, object]


def poll(values: list[tuple[int, int, int]], nic: str = "mlx5_0", *, port: bool = False) -> Poll:
    columns: NDArray[np.uint32] = np.array(values, dtype=np.uint32).reshape(-1, 3)
    return Poll(
        nic=nic,
        source="port_counter" if port else "dpa",
        from_ns=1000,
        to_ns=1000 + 64 * 100,
        epoch_ns=100,
        unit_bytes=32,
        aggregation_bytes=4096,
        qpn=None if port else columns[:, 0],
        epoch=columns[:, 1],
        units=columns[:, 2],
        aged_qpns=np.array([4], dtype=np.uint32),
        events_dropped=2,
        offset=Offset(50, 3),
    )


def rows(of: list[Poll]) -> list[list[Row]]:
    """The rows of each record, checked as a reader checks them."""
    found = list(messages(of, "job", "h0"))
    assert {(message.key, message.watermark_ns) for message in found} == {("job/h0", 7450)}
    return [decode(message, NIC_EPOCHS).to_pylist() for message in found]


def values(row: Row) -> list[tuple[int, int, int]]:
    names = ("qpn", "epoch", "units")
    return list(zip(*(row[name] for name in names), strict=True))


def test_the_polls_of_a_host_are_one_record() -> None:
    some = [(5, 0, 1), (5, 63, 2), (9, 1, 3)]
    [[first, empty, port]] = rows([poll(some), poll([], "mlx5_1"), poll([(0, 2, 8)], "mlx5_2", port=True)])
    assert values(first) == some
    assert (first["nic"], first["source"], first["poll_from_ns"], first["poll_to_ns"]) == ("mlx5_0", "dpa", 1000, 7400)
    assert (first["host_minus_nic_ns"], first["clock_error_ns"]) == (50, 3)
    assert (first["events_dropped"], first["aged_qpns"], first["part"], first["parts"]) == (2, [4], 0, 1)
    assert (empty["nic"], empty["qpn"], empty["units"]) == ("mlx5_1", [], [])
    assert (port["source"], port["qpn"], port["epoch"]) == ("port_counter", None, [2])


def test_a_large_poll_comes_in_parts_of_whole_queue_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polls, "MOST_VALUES", 40)
    every = [(qpn, epoch, 1 + qpn) for qpn in range(7) for epoch in range(0, 64, 4)]
    records = rows([poll(every), poll([(1, 1, 1)], "mlx5_1")])
    told = [row for record in records for row in record]
    large = [row for row in told if row["nic"] == "mlx5_0"]
    assert [(row["part"], row["parts"]) for row in large] == [(0, 4), (1, 4), (2, 4), (3, 4)]
    assert [each for row in large for each in values(row)] == every
    assert {len(set(row["qpn"])) for row in large} == {1, 2}  # type: ignore[call-overload]
    assert all(row["events_dropped"] == 2 and row["aged_qpns"] == [4] for row in large)
    assert all(sum(len(values(row)) for row in record) <= 40 for record in records)


def test_a_queue_pair_that_is_too_much_for_a_part_makes_shorter_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polls, "MOST_VALUES", 20)
    every = [(qpn, epoch, 1 + epoch) for qpn in (3, 8) for epoch in range(64)]
    told = [row for record in rows([poll(every)]) for row in record]
    assert sorted({(row["poll_from_ns"], row["poll_to_ns"]) for row in told}) == [
        (1000, 2600),
        (2600, 4200),
        (4200, 5800),
        (5800, 7400),
    ]
    again = sorted(
        (qpn, (int(str(row["poll_from_ns"])) - 1000) // 100 + epoch, units)
        for row in told
        for qpn, epoch, units in values(row)
    )
    assert again == every
    assert sum(int(str(row["events_dropped"])) for row in told if row["part"] == 0) == 2


def test_the_largest_record_is_within_the_bound_however_little_it_compresses() -> None:
    noise = np.random.default_rng(1)
    of_each = polls.MOST_VALUES // polls.MOST_POLLS
    large = [
        replace(
            poll([], f"mlx5_{nic}"),
            to_ns=1000 + (1 << 40),
            epoch_ns=1 << 8,
            qpn=np.sort(noise.choice(1 << 24, of_each, replace=False)).astype(np.uint32),
            epoch=noise.integers(0, 1 << 32, of_each, dtype=np.uint32),
            units=noise.integers(1, 1 << 32, of_each, dtype=np.uint32),
            aged_qpns=noise.integers(0, 1 << 24, polls.MOST_AGED, dtype=np.uint32),
        )
        for nic in range(polls.MOST_POLLS + 1)
    ]
    first, second = messages(large, "job", "h0")
    assert [decode(message, NIC_EPOCHS).num_rows for message in (first, second)] == [polls.MOST_POLLS, 1]
