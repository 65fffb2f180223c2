"""Megatrace logs: what lines say in every variant, what is lost of them, and what is refused, with file and line."""

import gzip
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producers.importers.about import about
from producers.importers.files import Limits
from producers.importers.formats import recognise
from producers.importers.megatrace import Megatrace
from schemas.errors import InputError

DATA = Path(__file__).parent / "testdata"
GOOD = DATA / "megatrace.good.log"
BAD = [line.split("\t") for line in (DATA / "megatrace.bad.txt").read_text().splitlines()]


def line(
    second: float = 0.0,
    rank: int = 0,
    op: str = "AllReduce",
    data: int = 4,
    stream: str = "0xa",
    op_count: int | None = None,
    group: str | None = None,
    save_count: int | None = None,
) -> str:
    text = f"[{1755590104 + int(second)}.{round(second % 1 * 1e9):09}] [Rank {rank}] Fun {op} Data {data}"
    text += f" stream {stream}"
    text = text if save_count is None else f"[save_count {save_count}] {text}"
    text = text if op_count is None else f"{text} opCount {op_count}"
    return text if group is None else f"{text} groupHash {group}"


def written(folder: Path, *lines: str, name: str = "rank_0.log", end: str = "\n") -> Path:
    path = folder / name
    data = ("\n".join(lines) + end).encode()
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


def read(*paths: Path, **limits: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = Megatrace().read(paths, Limits(**limits)).to_pylist()
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


def lost(*paths: Path) -> int:
    return about(Megatrace().read(paths, Limits()).schema).lost_lines


def refusal(*paths: Path, **limits: int) -> str:
    with pytest.raises(InputError) as caught:
        read(*paths, **limits)
    return str(caught.value)


@pytest.mark.parametrize("name", ["rank_0.log", "rank_0.log.gz"])
def test_the_fields_of_every_variant_are_read(tmp_path: Path, name: str) -> None:
    rows = read(written(tmp_path, GOOD.read_text(), name=name))
    common = {"rank": 0, "op": "all_reduce", "count": 1, "stream": "0x55919d27b4b0"}
    assert rows[0] == {**common, "call_ns": 1755590104253968145}
    assert [row["op"] for row in rows[1:]] == [
        *("broadcast", "all_gather", "send", "recv", "reduce_scatter", "all_to_all"),
    ]
    assert [row.get("seq") for row in rows] == [None, None, 0, 7, 8, 3, 16932]
    assert [row.get("group_call") for row in rows] == [None, None, 0, 7, 7, 3, 16932]
    assert [row.get("host") for row in rows] == [None] * 6 + ["node201"]
    assert rows[-1]["stream"] == "(nil)"


def test_equally_many_digits_below_nine_are_a_decimal_fraction(tmp_path: Path) -> None:
    def calls(*times: str) -> list[int]:
        lines = [f"[{time}] [Rank 0] Fun AllReduce Data 4 stream 0xa" for time in times]
        path = written(tmp_path, *lines)
        small = [row["call_ns"] for row in read(path, line_bytes=len(lines[0]) + 1)]  # each line a block
        assert [row["call_ns"] for row in read(path)] == small
        return small

    micro = ["1755590104.253968", "1755590104.000007", "1755590105.100000"]
    assert calls(*micro) == [1755590104253968000, 1755590104000007000, 1755590105100000000]
    assert calls("10.253", "11.004") == [10_253_000_000, 11_004_000_000]
    assert calls("10.253968145", "10.000000007") == [10_253_968_145, 10_000_000_007]
    assert calls("10.253968145", "11.7", "12.90") == [10_253_968_145, 11_000_000_007, 12_000_000_090]


@pytest.mark.parametrize(("reason", "bad"), BAD)
def test_a_bad_line_is_refused_with_file_line_and_field(tmp_path: Path, reason: str, bad: str) -> None:
    path = written(tmp_path, line(), line(1), "", bad, line(2))
    assert refusal(path).startswith(f"{path}:4: {reason}")


def test_a_torn_line_among_thousands_is_lost_and_said(tmp_path: Path) -> None:
    lines = [line(i / 8, op_count=i) for i in range(4000)]
    lines[100], lines[200] = lines[100][20:], lines[200][:30] + lines[201]
    path = written(tmp_path, *lines)
    assert [len(read(path)), lost(path)] == [3998, 2]
    [said] = about(Megatrace().read([path], Limits()).schema).gone
    assert said.startswith(f"{path}:101: no time as [1755590104.253968145] in ")
    assert said.endswith(" (and 1 more): passed over")
    many = written(tmp_path, *(text[9:] if i % 500 == 9 else text for i, text in enumerate(lines)), name="many.log")
    assert refusal(many).startswith(f"{many}:10: no time as")


def test_a_byte_order_mark_is_none_of_the_first_line(tmp_path: Path) -> None:
    path = tmp_path / "rank_0.log"
    path.write_bytes(b"\xef\xbb\xbf" + f"{line()}\n".encode())
    assert len(read(path)) == 1
    assert Megatrace().matches(path)


@pytest.mark.parametrize("function", ["AlltoAll", "AllToAll", "ncclAlltoAllv"])
def test_names_of_functions_may_be_capitalised_otherwise(tmp_path: Path, function: str) -> None:
    assert read(written(tmp_path, line(op=function)))[0]["op"] == "all_to_all"


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "rank_0.log"
    path.write_bytes(f"{line()}\n".encode() + b"\xff\xfe\n")
    assert refusal(path) == f"{path}:2: not UTF-8: byte 1 of the line is 0xff; logs are UTF-8 text"


def test_a_file_is_recognised_by_what_it_holds(tmp_path: Path) -> None:
    written(tmp_path, line())
    written(tmp_path, "2026-01-01 starting", name="train.log")
    written(tmp_path, "2026-01-01 starting", name="train.log.1")
    written(tmp_path, line(rank=1), name="other_name.log.gz")
    written(tmp_path, line(rank=1), name="other_name.log.1")
    found = recognise([tmp_path])
    assert (found.format.name, [file.name for file in found.files]) == (
        "megatrace",
        ["other_name.log.1", "other_name.log.gz", "rank_0.log"],
    )
    with pytest.raises(InputError, match=r"train\.log: no telemetry in a known format"):
        recognise([tmp_path / "train.log"])


def test_a_last_line_that_was_still_being_written_is_lost(tmp_path: Path) -> None:
    path = written(tmp_path, line(), line(1)[:40], end="")
    assert len(read(path)) == 1
    assert lost(path) == 1
    whole = written(tmp_path, line(), line(1), name="whole.log", end="")
    assert (len(read(whole)), lost(whole)) == (2, 0)


def test_compressed_data_that_ends_early_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    path = written(
        tmp_path, *(line(n * 7919 % 10_007 / 8 + n * 2000, op_count=n) for n in range(3000)), name="rank_0.log.gz"
    )
    path.write_bytes(path.read_bytes()[:-1000])
    table = Megatrace().read([path], Limits())
    assert 100 < table.num_rows < 3000
    assert about(table.schema).gone == [
        f"{path}: the compressed data ends early, in line {table.num_rows + 1}; what follows is lost"
    ]


def test_a_last_line_that_fits_the_format_by_chance_is_lost(tmp_path: Path) -> None:
    """Cut within its last number or pointer: a line that ends there would be another operator, or of another stream."""
    before = [line(at, op_count=102 + at, stream="0x5591") for at in range(2)]
    last = line(2, op_count=104, stream="0x5591")
    for end in ("opCount 1", "stream 0x5591", "stream 0x"):
        cut = written(tmp_path, *before, last[: last.index(end) + len(end)], end="")
        assert ([row["seq"] for row in read(cut)], lost(cut)) == ([102, 103], 1)
    whole = written(tmp_path, *before, last, name="whole.log", end="")
    assert ([row["seq"] for row in read(whole)], lost(whole)) == ([102, 103, 104], 0)


def test_a_group_call_has_one_number_and_its_operators_one_each(tmp_path: Path) -> None:
    ops = [("Send", 4), ("Recv", 4), ("Send", 5), ("Recv", 8)]
    rows = read(written(tmp_path, *(line(i, op=op, op_count=n) for i, (op, n) in enumerate(ops))))
    assert [row["seq"] for row in rows] == [4, 5, 6, 9]  # two group calls are lost
    assert [row["group_call"] for row in rows] == [4, 4, 5, 8]


def test_operators_that_share_a_number_are_told_apart_alike_on_all_ranks(tmp_path: Path) -> None:
    def of(rank: int, *counts: int) -> list[str]:
        return [line(i, rank, "ReduceScatter", op_count=n, group="77") for i, n in enumerate(counts)]

    whole, late, hole = of(0, 0, 0, 1, 1, 2, 2, 2), of(1, 1, 2, 2, 2), of(2, 0, 0, 2, 2, 2)
    rows = read(written(tmp_path, *whole, *late, *hole))
    assert [row["seq"] for row in rows] == [0, 1, 2, 3, 4, 5, 6, 2, 4, 5, 6, 0, 1, 4, 5, 6]


@pytest.mark.parametrize("group", ["0", "0x0", "-5951111"])
def test_a_hash_that_is_none_leaves_the_streams(tmp_path: Path, group: str) -> None:
    """One that was not caught, or the same for all communicators."""
    lines = [line(2 * i + s, stream=f"0x{s}", op_count=i + 7 * s, group=group) for i in range(4) for s in range(2)]
    rows = read(written(tmp_path, *lines))
    assert {row.get("communicator") for row in rows} == {None}
    assert [row["seq"] for row in rows] == [0, 7, 1, 8, 2, 9, 3, 10]


def test_numbers_that_count_on_a_stream_of_several_communicators_are_none_of_theirs(tmp_path: Path) -> None:
    groups = ["11", "11", "22", "11", "22", "22", "11"]
    lines = [line(i, stream="(nil)", op_count=i + 1, group=g) for i, g in enumerate(groups)]
    rows = read(written(tmp_path, *lines))
    assert [row["communicator"] for row in rows] == groups
    assert not any("seq" in row for row in rows)
    assert [row["group_call"] for row in rows] == [1, 2, 3, 4, 5, 6, 7]
    holed = written(tmp_path, *lines[:3], *lines[5:], name="holed.log")
    assert lost(holed) == 2


def test_communicators_of_a_stream_that_take_turns_count_each_by_itself(tmp_path: Path) -> None:
    lines = [line(i, stream="(nil)", op_count=i // 2, group=("11", "22")[i % 2]) for i in range(8)]
    assert [row["seq"] for row in read(written(tmp_path, *lines))] == [0, 0, 1, 1, 2, 2, 3, 3]


def test_a_number_that_stays_0_means_nothing(tmp_path: Path) -> None:
    rows = read(written(tmp_path, *(line(i, op_count=0) for i in range(3))))
    assert all("seq" not in row for row in rows)


def test_a_number_that_goes_back_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, line(0, op_count=7), line(1, op_count=8), line(2, op_count=3))
    assert refusal(path).startswith(f"{path}:3: rank 0, stream 0xa: opCount goes back to 3")


def test_a_number_that_goes_back_is_refused_with_its_line_whatever_was_passed_over(tmp_path: Path) -> None:
    """Blank lines, torn ones, copies, and those of another rank and file before it."""
    before = [line(i / 8, rank=1, op_count=i, stream="0xb") for i in range(50)]
    first = written(tmp_path, *before, "", *before[:9], name="rank_1.log")
    lines = [line(i / 8, op_count=i) for i in range(4000)]
    lines[7], lines[3500] = "", line(3500 / 8, op_count=6)
    lines[2000:2000] = [lines[100], "", line(1, op_count=8)[9:]]
    second = written(tmp_path, *lines)
    said = refusal(first, second, line_bytes=400_000)
    assert said.startswith(f"{second}:3504: rank 0, stream 0xa: opCount goes back to 6: ")


def test_flushes_that_are_missing_count_where_numbers_do_not_show_it(tmp_path: Path) -> None:
    silent = written(tmp_path, line(0, op_count=0, save_count=1), line(1, op_count=0, save_count=5))
    assert lost(silent) == 3
    shown = written(tmp_path, line(0, op_count=0, save_count=1), line(1, op_count=9, save_count=5), name="b.log")
    assert lost(shown) == 0  # the eight holes in the numbers are counted by who reads them


HASH = "-5951234567890123456"


def test_a_hash_names_the_communicator_also_where_the_line_was_cut(tmp_path: Path) -> None:
    groups = [HASH, HASH[:-6], HASH[:9], HASH]
    lines = [line(i, stream="0x55919d27b4b0", op_count=i, group=g, save_count=10**9) for i, g in enumerate(groups)]
    padded = [text.replace("[save_count", "[node-of-a-name-as-long-as-they-get] [save_count") for text in lines]
    rows = read(written(tmp_path, *padded))
    assert [row["communicator"] for row in rows] == [HASH] * 4
    assert [row["seq"] for row in rows] == [0, 1, 2, 3]


def test_a_hash_cut_short_is_told_by_its_stream(tmp_path: Path) -> None:
    whole = ["-5951111", "-5952222"]
    lines = [line(i, stream=f"0x{i}", op_count=0, group=g) for i, g in enumerate(whole)]
    lines += [line(2 + i, stream=f"0x{i}", op_count=1, group="-595") for i in range(2)]
    assert [row["communicator"] for row in read(written(tmp_path, *lines))] == whole * 2


def test_a_hash_cut_short_is_told_by_that_of_another_rank(tmp_path: Path) -> None:
    lines = [line(0, stream="0x1", op_count=0, group="-5951111"), line(1, stream="0x2", op_count=0, group="77")]
    lines.append(line(2, rank=1, stream="0x3", op_count=0, group="-595"))
    lines.append(line(3, rank=1, stream="0x4", op_count=0, group="7"))
    assert [row["communicator"] for row in read(written(tmp_path, *lines))] == ["-5951111", "77"] * 2


def test_a_hash_that_the_rank_has_elsewhere_is_another_one(tmp_path: Path) -> None:
    lines = [line(0, stream="0x1", op_count=0, group="-5951111"), line(1, stream="0x2", op_count=0, group="-595")]
    assert [row["communicator"] for row in read(written(tmp_path, *lines))] == ["-5951111", "-595"]


def test_a_hash_that_fits_several_leaves_its_stream_without_a_name(tmp_path: Path) -> None:
    lines = [line(i, stream=f"0x{i}", op_count=0, group=g) for i, g in enumerate(["-5951111", "-5952222"])]
    lines.append(line(9, rank=1, stream="0x9", op_count=5, group="-595"))
    rows = read(written(tmp_path, *lines))
    assert [(row.get("communicator"), row["seq"]) for row in rows] == [("-5951111", 0), ("-5952222", 0), (None, 5)]


def test_a_line_cut_before_its_hash_keeps_its_stream_and_loses_its_number(tmp_path: Path) -> None:
    long_name = "n" * 60
    lines = [f"[{long_name}] {line(i, op_count=i, group=HASH, save_count=1)}" for i in range(3)]
    lines[1] = lines[1][: lines[1].index(" groupHash") + 4]
    rows = read(written(tmp_path, *lines))
    assert [(row["communicator"], row["seq"]) for row in rows] == [(HASH, 0), (HASH, 1), (HASH, 2)]


@pytest.mark.parametrize("kept", [" ", " gr", " groupHash "])
def test_lines_cut_after_their_number_keep_it(tmp_path: Path, kept: str) -> None:
    long_name = "n" * 60
    lines = [f"[{long_name}] {line(i, op_count=i + 16_930, group=HASH, save_count=1)}" for i in range(4)]
    for at in (1, 2):
        lines[at] = lines[at][: lines[at].index(" groupHash")] + kept
    rows = read(written(tmp_path, *lines))
    assert [(row["communicator"], row["seq"]) for row in rows] == [(HASH, 16_930 + i) for i in range(4)]


@pytest.mark.parametrize("cut", [(0,), (0, 1), (1, 2), (1, 2, 3), (2, 3), (0, 1, 2, 3)])
def test_numbers_that_are_cut_are_those_between_their_neighbours(tmp_path: Path, cut: tuple[int, ...]) -> None:
    long_name = "n" * 60
    lines = [f"[{long_name}] {line(i, op_count=i + 16_930, group=HASH, save_count=1)}" for i in range(4)]
    lines.append(line(9, rank=1, op_count=16_930, group=HASH, save_count=1))
    for at in cut:
        lines[at] = lines[at][: lines[at].index(" groupHash") - 2]
    rows = read(written(tmp_path, *lines))
    known = [row.get("seq") for row in rows[:4]]
    assert known == ([None] * 4 if len(cut) == 4 else [16_930 + i for i in range(4)])


def test_reading_is_bounded(tmp_path: Path) -> None:
    path = written(tmp_path, *(line(i) for i in range(50)))
    assert "bytes, at most 10 are read" in refusal(path, file_bytes=10)
    assert "holds more than 1000 bytes once decompressed" in refusal(path, decoded_bytes=1000, line_bytes=100)
    assert len(read(path, line_bytes=100)) == 50


PIECES = st.sampled_from(
    [
        *(
            "[",
            "]",
            " ",
            "\n",
            "save_count ",
            "1755590104.25",
            "Rank ",
            "Fun ",
            "AllReduce",
            "Send",
            "Data ",
            "stream ",
        ),
        *("0x5f", "opCount ", "groupHash ", "-", "0", "99999999999999999999", "é", "\x00", "(nil)", "nccl", line()),
    ]
)


@given(st.lists(PIECES, max_size=30).map("".join) | st.text(max_size=200))
def test_nothing_that_a_file_may_hold_breaks_the_reader(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz_0.log"
    path.write_bytes(f"{line(op_count=0)}\n{text}".encode())
    try:
        rows = read(path)
    except InputError as error:
        assert str(error).startswith((f"{path}:", f"{path.parent}:"))  # noqa: PT017 - either outcome is right
    else:
        assert rows[0]["call_ns"] == 1755590104000000000


@given(st.binary(max_size=100))
def test_nothing_that_a_file_may_hold_breaks_recognition(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    for name in ("fuzz.log", "fuzz.log.gz"):
        path = tmp_path_factory.getbasetemp() / name
        path.write_bytes(data)
        assert not Megatrace().matches(path)
