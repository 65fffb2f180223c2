"""Recorded NIC traffic: what is read together, in which spelling, and what is refused, with file, line and field."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from producers.importers.files import Limits
from producers.importers.formats import recognise
from producers.importers.traffic import TRAFFIC, load
from schemas.catalogue import NIC_EPOCHS, OP_CALLS, QUEUE_PAIRS
from schemas.errors import InputError
from schemas.topic import Topic
from tests.producers.collectors.dumps import dump
from tests.schemas.samples import first_row


def written(folder: Path, name: str, *rows: Any) -> Path:
    path = folder / name
    text = b"".join((row if isinstance(row, bytes) else json.dumps(row).encode()) + b"\n" for row in rows)
    path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    return path


def refusal(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        load([path])
    return str(caught.value)


def test_a_folder_holds_the_traffic_of_several_hosts_and_other_things(tmp_path: Path) -> None:
    call, pair, epochs = (first_row(topic) for topic in (OP_CALLS, QUEUE_PAIRS, NIC_EPOCHS))
    written(tmp_path, "rank9.op_calls.jsonl", {**call, "host": "h1"}, {**call, "host": "h1", "call_id": 99})
    written(tmp_path, "rank1.op_calls.jsonl.gz", {**call, "rank": 1})
    written(tmp_path, "h1.queue_pairs.jsonl", pair)
    written(tmp_path, "h1.nic_epochs.jsonl", {**epochs, "host": "h1"})
    written(tmp_path, "rank9.jsonl", {"rank": 9, "communicator": "c", "op": "barrier", "call_ns": 1})
    (tmp_path / "mlx5_1.epochs").write_bytes(dump([(7, 1, [3])], nic=b"mlx5_1", readings=[(1000, 500, 1010)]))
    traffic = load([tmp_path])
    assert traffic.op_calls.select(["rank", "call_id", "host"]).to_pylist() == [
        {"rank": 1, "call_id": call["call_id"], "host": None},
        {"rank": 9, "call_id": call["call_id"], "host": "h1"},
        {"rank": 9, "call_id": 99, "host": "h1"},
    ]
    assert traffic.queue_pairs.drop(["host"]).to_pylist() == [pair]
    read, dumped = traffic.nic_epochs.to_pylist()
    assert read == {**epochs, "host": "h1"}
    assert (dumped["nic"], dumped["qpn"], dumped["epoch"], dumped["units"]) == ("mlx5_1", [7], [1], [3])
    assert dumped["host_minus_nic_ns"] == 505
    assert [path.name for path in recognise([tmp_path]).files] == ["rank9.jsonl"]


def test_compressed_data_that_ends_early_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    calls = [{**first_row(OP_CALLS), "host": "h1", "call_id": number * 7919 % 10_007} for number in range(3000)]
    path = written(tmp_path, "rank9.op_calls.jsonl.gz", *calls)
    path.write_bytes(path.read_bytes()[:-1000])
    traffic = load([path])
    read = traffic.op_calls.num_rows
    assert 100 < read < 3000
    assert traffic.gone == (f"{path}: the compressed data ends early, in line {read + 1}; what follows is lost",)


def test_a_folder_tells_the_host_of_what_lies_in_it(tmp_path: Path) -> None:
    """NICs of several hosts have one name, and a dump does not say whose it is."""
    for host in ("h1", "h2"):
        (tmp_path / f"host={host}").mkdir()
        written(
            tmp_path / f"host={host}", "a.op_calls.jsonl", first_row(OP_CALLS), {**first_row(OP_CALLS), "host": "h9"}
        )
        (tmp_path / f"host={host}" / "mlx5_0.epochs").write_bytes(dump([(7, 1, [3])]))
    traffic = load([tmp_path])
    assert traffic.op_calls.column("host").to_pylist() == ["h1", "h9", "h2", "h9"]
    assert traffic.nic_epochs.column("host").to_pylist() == ["h1", "h2"]


def test_both_spellings_are_read(tmp_path: Path) -> None:
    row = first_row(OP_CALLS)
    short = {"comm" if name == "communicator" else name: value for name, value in row.items()}
    traffic = load([written(tmp_path, "a.op_calls.jsonl", row, short, {**row, "more": {"of": "this"}})])
    assert traffic.op_calls.drop(["host"]).to_pylist() == [row, row, row]
    assert (traffic.queue_pairs.num_rows, traffic.nic_epochs.num_rows) == (0, 0)


@pytest.mark.parametrize(
    ("topic", "wrong", "said"),
    [
        (OP_CALLS, {"rank": None}, "field rank is missing"),
        (OP_CALLS, {"count": "many"}, "field count"),
        (OP_CALLS, {"seq": 5.0}, "field seq: 5.0"),
        (OP_CALLS, {"count": "5"}, "field count"),
        (OP_CALLS, {"comm": 7}, "field comm:"),
        (OP_CALLS, {"dtype": "complex64"}, "dtype holds 'complex64'"),
        (OP_CALLS, {"group_end_ns": 1}, "group_end_ns lies before call_ns"),
        (QUEUE_PAIRS, {"valid_to_ns": 1}, "valid_to_ns lies before valid_from_ns"),
        (QUEUE_PAIRS, {"qpn": -1}, "field qpn"),
        (NIC_EPOCHS, {"units": [1, None, 2]}, "units"),
        (NIC_EPOCHS, {"epoch": [1]}, "differ in length"),
        (NIC_EPOCHS, {"unit_bytes": 32.5}, "field unit_bytes"),
    ],
)
def test_what_cannot_be_is_told_with_its_line(tmp_path: Path, topic: Topic, wrong: dict[str, Any], said: str) -> None:
    good = first_row(topic)
    path = written(tmp_path, f"a.{topic.name.partition('.')[2]}.jsonl", good, b"", {**good, **wrong}, good)
    assert refusal(path).startswith(f"{path}:3: ")
    assert said in refusal(path)
    assert "row 0" not in refusal(path), "the line says which"


@pytest.mark.parametrize("line", [b"null", b"[1]", b"{", b"\xff", b"17", b'{"rank": 1, "rank": 2}'])
def test_a_line_that_is_no_row_is_refused(tmp_path: Path, line: bytes) -> None:
    path = written(tmp_path, "a.op_calls.jsonl", first_row(OP_CALLS), line)
    assert refusal(path).startswith(f"{path}:2: ")


def test_a_folder_without_traffic_is_refused(tmp_path: Path) -> None:
    said = refusal(tmp_path)
    assert said.startswith(f"{tmp_path}: no NIC traffic")
    assert all(format_.what in said for format_ in TRAFFIC.values())


def test_files_are_known_by_how_they_begin(tmp_path: Path) -> None:
    (tmp_path / "dump").write_bytes(dump())
    written(tmp_path, "calls", first_row(OP_CALLS))
    short = {"comm" if name == "communicator" else name: value for name, value in first_row(OP_CALLS).items()}
    written(tmp_path, "short", short)
    written(tmp_path, "log", {"rank": 9, "communicator": "c", "op": "barrier", "call_ns": 1})
    begins = {
        path.name: [name for name, format_ in TRAFFIC.items() if format_.begins(path)]
        for path in [*tmp_path.iterdir(), tmp_path / "gone"]
    }
    assert begins == {
        "dump": ["epochs"],
        "calls": ["op_calls.jsonl"],
        "short": ["op_calls.jsonl"],
        "log": [],
        "gone": [],
    }


def test_limits_hold_over_all_files_of_a_format(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.epochs").write_bytes(dump([(7, 1, [3] * 100)]))
    one = TRAFFIC["epochs"].read([tmp_path / "0.epochs"], Limits()).nbytes
    with pytest.raises(InputError, match=r"2\.epochs.*holds more than"):
        load([tmp_path], Limits(decoded_bytes=int(2.9 * one)))
