"""Epoch dumps of NIC agents: what is read of them, and how what cannot be is told."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from producers.collectors.epoch_dump import Dump, read
from schemas.errors import InputError
from tests.producers.collectors.dumps import Runs, dump


def polls(path: Path, data: bytes) -> list[Dump]:
    path.write_bytes(data)
    return list(read(path))


@st.composite
def flows(draw: st.DrawFn, most: int) -> Runs:
    """Runs of several queue pairs, in order and apart."""
    runs = []
    for qpn in sorted(draw(st.sets(st.integers(0, (1 << 24) - 1), max_size=4))):
        epoch = 0
        for gap, counts in draw(st.lists(st.tuples(st.integers(0, 50), st.lists(st.integers(0, most))), max_size=3)):
            runs.append((qpn, epoch + gap, counts))
            epoch += gap + len(counts)
    return runs


@pytest.mark.parametrize("count_bytes", [2, 4])
@given(data=st.data())
def test_what_was_dumped_is_read_without_its_zeros(
    tmp_path_factory: pytest.TempPathFactory, count_bytes: int, data: st.DataObject
) -> None:
    runs = data.draw(flows((1 << 8 * count_bytes) - 1))
    aged = data.draw(st.lists(st.integers(0, (1 << 24) - 1), max_size=3))
    written = dump(runs, count_bytes=count_bytes, aged=aged, events_dropped=7, readings=[(1, 5, 3)])
    [first, second] = polls(tmp_path_factory.getbasetemp() / "a.epochs", written + dump(nic=b"mlx5_1"))
    expected = [(qpn, begin + at, count) for qpn, begin, counts in runs for at, count in enumerate(counts) if count > 0]
    poll = first.poll
    assert poll.qpn is not None
    assert list(zip(poll.qpn.tolist(), poll.epoch.tolist(), poll.units.tolist(), strict=True)) == expected
    assert poll.aged_qpns.tolist() == aged
    assert (poll.nic, poll.source, poll.events_dropped) == ("mlx5_0", "dpa", 7)
    assert (poll.from_ns, poll.to_ns, poll.epoch_ns) == (0, 1_000_000_000, 32_000)
    assert (poll.unit_bytes, poll.aggregation_bytes) == (32, 4096)
    assert first.readings.tolist() == [[1, 5, 3]]
    assert (second.poll.nic, len(second.poll.units)) == ("mlx5_1", 0)


@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("version", {"header": {"version": 2}}),
        ("count_bytes", {"header": {"count_bytes": 3}}),
        ("readings", {"header": {"readings": 1025}}),
        ("runs", {"header": {"runs": 1 << 21}}),
        ("aged", {"header": {"aged": 1 << 21}}),
        ("counts", {"header": {"counts": 1 << 27}}),
        ("from_ns", {"from_ns": -1}),
        ("to_ns", {"from_ns": 2, "to_ns": 1}),
        ("epoch_ns", {"epoch_ns": 0}),
        ("unit_bytes", {"unit_bytes": 0}),
        ("aggregation_bytes", {"aggregation_bytes": 0}),
        ("zero", {"header": {"zero": 1}}),
        ("events_dropped", {"events_dropped": 1 << 60}),
        ("nic", {"nic": b""}),
        ("nic", {"nic": b"\xff"}),
        ("readings: entry 1", {"readings": [(0, 0, 0), (0, -1, 0)]}),
        ("aged: entry 1", {"aged": [1, 1 << 24]}),
        ("qpn of runs: entry 0", {"runs": [(1 << 24, 0, [1])]}),
        ("first_epoch \\+ epochs of runs: entry 1", {"runs": [(1, 0, [1]), (1, 31249, [1, 1])]}),
        ("first_epoch of runs: entry 2", {"runs": [(1, 0, [1]), (2, 5, [1, 2]), (2, 6, [1])]}),
        ("first_epoch of runs: entry 1", {"runs": [(2, 0, [1]), (1, 5, [1])]}),
    ],
)
def test_what_no_agent_writes_is_named_with_its_file_offset_and_field(
    tmp_path: Path, field: str, given: dict[str, Any]
) -> None:
    whole = dump()
    path = tmp_path / "a.epochs"
    with pytest.raises(InputError, match=f"^{path}: offset ({len(whole)}|{len(whole) + 128}): field {field}"):
        polls(path, whole + dump(**given))


def test_a_header_may_not_claim_other_counts_than_its_runs(tmp_path: Path) -> None:
    written = dump([(1, 0, [1, 2])], aged=[1], header={"counts": 4, "aged": 0})
    with pytest.raises(InputError, match=r"offset 128: field counts is 4, but the runs have 2"):
        polls(tmp_path / "a.epochs", written)


def test_every_byte_is_under_a_checksum(tmp_path: Path) -> None:
    whole = dump([(5, 3, [1, 0, 2])], aged=[9], readings=[(1, 2, 3)])
    for at in range(len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= 1
        with pytest.raises(InputError, match="offset"):
            polls(tmp_path / "a.epochs", bytes(damaged))


def test_a_file_that_ends_early_gives_its_whole_polls_first(tmp_path: Path) -> None:
    path = tmp_path / "a.epochs"
    whole = dump([(5, 3, [1, 0, 2])])
    for cut in (1, len(whole) - 1, len(whole) - 130):
        path.write_bytes(whole + whole[:cut])
        found = read(path)
        assert next(found).poll.nic == "mlx5_0"
        with pytest.raises(InputError, match=f"offset {len(whole)}.*cut short"):
            next(found)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link.epochs").symlink_to(tmp_path / "elsewhere")
    for name in ("gone.epochs", "link.epochs"):
        with pytest.raises(InputError, match=name):
            list(read(tmp_path / name))


def test_two_thousand_flows_of_one_second_are_read(tmp_path: Path) -> None:
    counts = [0, 5, 0, 7] * 8
    [found] = polls(tmp_path / "a.epochs", dump([(qpn, 100, counts) for qpn in range(2000)], count_bytes=4))
    assert found.poll.qpn is not None
    assert np.array_equal(found.poll.qpn, np.repeat(np.arange(2000), 16))
    assert np.array_equal(found.poll.units, np.tile([5, 7], 16_000))
