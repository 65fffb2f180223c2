"""Port counters of a made-up sysfs, by a made-up clock."""

import logging
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from producers.collectors.poll import Poll, messages
from producers.collectors.port_counters import PortCounters
from schemas.catalogue import NIC_EPOCHS
from schemas.message import decode

MS = 1_000_000
START = 10**18


class Host:
    """Ports and a clock: each read takes ``read_ns``."""

    def __init__(self, folder: Path, *, read_ns: int = 0) -> None:
        self.folder, self.now_ns, self._read_ns = folder, START, read_ns

    def clock_ns(self) -> int:
        self.now_ns += self._read_ns
        return self.now_ns

    def port(self, nic: str = "mlx5_0", number: int = 1, *, rate: str | None = "400 Gb/sec (4X NDR)\n") -> Path:
        port = self.folder / nic / "ports" / str(number)
        (port / "counters").mkdir(parents=True)
        if rate is not None:
            (port / "rate").write_text(rate)
        return port / "counters" / "port_xmit_data"


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def run(host: Host, counter: Path, values: list[object], *, epoch_ns: int = 10 * MS) -> list[Poll]:
    """One sample an epoch."""
    counter.write_text(f"{values[0]}\n")
    counters = PortCounters(host.clock_ns, epoch_ns, host.folder)
    for value in values:
        counter.write_text(f"{value}\n")
        counters.sample()
        host.now_ns += epoch_ns
    return counters.polls()


def units(poll: Poll) -> list[tuple[int, int]]:
    return list(zip(poll.epoch.tolist(), poll.units.tolist(), strict=True))


def test_words_are_told_epoch_by_epoch(host: Host) -> None:
    [poll] = run(host, host.port(), [100, 100, 350, 350, 351])
    assert units(poll) == [(1, 250), (3, 1)]
    assert (poll.nic, poll.source, poll.qpn, poll.unit_bytes) == ("mlx5_0", "port_counter", None, 4)
    assert (poll.from_ns, poll.to_ns, poll.epoch_ns) == (START, START + 40 * MS, 10 * MS)
    [message] = messages([poll], "job", "h0")
    [row] = decode(message, NIC_EPOCHS).to_pylist()
    assert (row["qpn"], row["host_minus_nic_ns"], row["clock_error_ns"]) == (None, 0, 0)


@pytest.mark.parametrize("width", [32, 64])
def test_a_counter_wraps(host: Host, width: int) -> None:
    full = 1 << width
    [poll] = run(host, host.port(), [full - 300, full - 100, 50, 60])
    assert units(poll) == [(0, 200), (1, 150), (2, 10)]


@pytest.mark.parametrize(
    "values",
    [
        [1 << 20, (1 << 20) + 5, 3, 4],  # would have been a wrap of 16 GiB in an epoch
        [1 << 40, (1 << 40) + 5, 3, 4],
        [7, 12, 1 << 40, (1 << 40) + 1],  # another device in its place
        [7, 12, "", 20, 21],
        [7, 12, "damaged", 20, 21],
        [7, 12, "9" * 21, 20, 21],
    ],
)
def test_what_is_not_known_is_not_told_as_zero(host: Host, values: list[object]) -> None:
    before, after = run(host, host.port(), values)
    assert units(before) == [(0, 5)]
    assert before.to_ns == START + 10 * MS
    assert units(after) == [(0, 1)]
    assert after.from_ns == START + (len(values) - 2) * 10 * MS
    assert after.to_ns == after.from_ns + 10 * MS


def test_a_counter_that_stays_at_its_end_tells_nothing(host: Host) -> None:
    end = (1 << 32) - 1
    first, last = run(host, host.port(), [end - 7, end, end, end])
    assert units(first) == [(0, 7)]
    assert last.to_ns == last.from_ns == START + 30 * MS


def test_an_idle_port_is_told_as_idle(host: Host) -> None:
    [poll] = run(host, host.port(), [9, 9, 9])
    assert (units(poll), poll.to_ns - poll.from_ns) == ([], 20 * MS)


def test_a_port_that_was_not_looked_at_for_long_is_not_told(host: Host) -> None:
    counter = host.port()
    counter.write_text("0")
    counters = PortCounters(host.clock_ns, 10 * MS, host.folder)
    for step in (10, 10, 50, 40):
        counters.sample()
        host.now_ns += step * MS
    counters.sample()
    host.now_ns -= 5 * MS  # the clock is set back
    counters.sample()
    assert [(poll.from_ns - START, poll.to_ns - START) for poll in counters.polls()] == [
        (0, 20 * MS),
        (70 * MS, 110 * MS),
        (105 * MS, 105 * MS),
    ]


def test_devices_come_and_go(host: Host, caplog: pytest.LogCaptureFixture) -> None:
    first = host.port()
    first.write_text("5")
    counters = PortCounters(host.clock_ns, 10 * MS, host.folder)
    counters.sample()
    second = host.port("mlx5_1", 2, rate=None)
    second.write_text("7")
    assert [poll.nic for poll in counters.polls()] == ["mlx5_0"]
    host.now_ns += 10 * MS
    counters.sample()
    shutil.rmtree(host.folder / "mlx5_0")
    host.now_ns += 10 * MS
    second.write_text("9")
    counters.sample()
    with caplog.at_level(logging.WARNING):
        gone, there = counters.polls()
    assert (gone.nic, gone.to_ns) == ("mlx5_0", START + 10 * MS)
    assert (there.nic, units(there)) == ("mlx5_1/2", [(0, 2)])
    assert "mlx5_0/ports/1 has vanished" in caplog.text
    host.now_ns += 10 * MS
    counters.sample()
    assert [poll.nic for poll in counters.polls()] == ["mlx5_1/2"]


def test_a_host_without_devices_tells_nothing(tmp_path: Path) -> None:
    counters = PortCounters(Host(tmp_path).clock_ns, 10 * MS, tmp_path / "none")
    counters.sample()
    assert list(counters.polls()) == []


def test_the_time_that_a_read_takes_is_told_as_error(tmp_path: Path) -> None:
    slow = Host(tmp_path, read_ns=3000)
    [poll] = run(slow, slow.port(), [0, 5, 6])
    assert poll.offset is not None
    assert poll.offset.error_ns == 1500


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(1, 30), st.integers(0, 200_000), st.booleans()), min_size=2, max_size=40))
def test_no_word_is_lost_or_made_up(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, int, bool]]
) -> None:
    host = Host(tmp_path_factory.mktemp("sysfs"))
    counter = host.port()
    counter.write_text("0")
    counters = PortCounters(host.clock_ns, 10 * MS, host.folder)
    counters.sample()
    value, told, samples = 0, [], [(0, 0)]
    for step_ms, words, is_told in steps:
        host.now_ns += step_ms * MS
        value += words
        counter.write_text(str(value))
        counters.sample()
        samples.append((host.now_ns - START, value))
        if is_told:
            told += counters.polls()
    told += counters.polls()
    assert [poll.from_ns for poll in told] == [START, *(poll.to_ns for poll in told[:-1])]
    covered_ns = told[-1].to_ns - START
    assert samples[-1][0] - covered_ns < 10 * MS
    at, words_at = zip(*samples, strict=True)
    total = sum(int(poll.units.sum()) for poll in told)
    assert total == pytest.approx(np.interp(covered_ns, at, words_at), abs=1)
