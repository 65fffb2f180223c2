"""docs/collectors.md says what the code reads and where."""

import re
from itertools import accumulate
from pathlib import Path

from offbeat.setting_groups import CollectSettings
from producers.collectors import call_log, epoch_dump, poll
from producers.collectors.preload import SOURCES

PAGE = (Path(__file__).parents[3] / "docs" / "collectors.md").read_text()


def test_the_header_of_a_dump_is_as_it_is_documented() -> None:
    rows = re.findall(r"^\| (\d+) \| (\d+) \| `(\w+)` \|", PAGE, re.MULTILINE)
    sizes = [int(size) for _, size, _ in rows]
    assert [name for _, _, name in rows] == list(epoch_dump._Header._fields)
    assert [int(offset) for offset, _, _ in rows] == [0, *accumulate(sizes)][:-1]
    assert sum(sizes) == epoch_dump.HEADER.size
    bounds = {"readings": epoch_dump.MOST_READINGS, "runs": epoch_dump.MOST_RUNS, "aged": poll.MOST_AGED}
    for name, most in {**bounds, "counts": epoch_dump.MOST_COUNTS}.items():
        assert re.search(rf"`{name}` \| .* at most {most:,} \|", PAGE)


def test_every_function_that_the_library_stands_before_is_told() -> None:
    exported = {
        name
        for path in SOURCES
        for name in re.findall(r"^EXPORT (?:ncclResult_t|int|void \*) ?(\w+)\(", path.read_text(), re.MULTILINE)
    }
    told = set(re.findall(r"`((?:nccl|ibv_)[A-Z_]?\w+|dlvsym)`", PAGE.partition("Who is at the other end")[0]))
    assert exported == told - {"ncclCommInitAll", "ncclCommShrink"}
    assert "ncclAllReduce" in exported


def test_the_bounds_are_those_of_the_code() -> None:
    assert f"{call_log.MOST_FACTS:,} of them" in PAGE
    assert f"at most {call_log.HOLD_NS // 10**9} s" in PAGE
    assert f"more than {poll.MOST_VALUES:,} values" in PAGE


def test_the_library_logs_where_the_agent_looks() -> None:
    [ring] = [path.read_text() for path in SOURCES if path.name == "ring.c"]
    assert f'"{CollectSettings().calls}"' in ring
    settings = {f"OFFBEAT_COLLECT__{name.upper()}" for name in CollectSettings.model_fields}
    read = {name for path in SOURCES for name in re.findall(r'"(OFFBEAT_\w+)"', path.read_text())}
    assert read == {"OFFBEAT_COLLECT__CALLS", "OFFBEAT_COLLECT__INFINIBAND", "OFFBEAT_COLLECT__JOB"} <= settings
