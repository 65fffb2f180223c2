"""What a host's telemetry is remembered of, beyond what is kept."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from diagnosis.traffic.calls import Calls, LetGo
from diagnosis.traffic.host import HostTraffic, StepRules
from diagnosis.traffic.ways import Way
from diagnosis.traffic.windows import NicWindow, WindowRules
from schemas.queue_pairs import TOPIC as QUEUE_PAIRS
from tests.diagnosis.traffic.made_calls import Caller, table
from tests.diagnosis.traffic.made_epochs import MS, SECOND

TO_8, TO_9 = Way(0, 8, "dp", True), Way(0, 9, "dp", True)


def pair(qpn: int, to: int, since_ns: int = SECOND, until_ns: int | None = None) -> dict[str, Any]:
    return {
        "nic": "a",
        "gid": "::1",
        "qpn": qpn,
        "source_rank": 0,
        "destination_rank": to,
        "destination_gid": "::2",
        "destination_qpn": 7,
        "valid_from_ns": since_ns,
        "valid_to_ns": until_ns,
    }


def told(*rows: dict[str, Any]) -> pa.RecordBatch:
    return QUEUE_PAIRS.from_rows(list(rows))


def test_only_a_new_queue_pair_has_to_show_again_that_all_are_known() -> None:
    """One that closes as its process dies is no reason to doubt what it did not end."""
    host = HostTraffic("h", StepRules(), windows={"a": NicWindow("a", WindowRules())})
    host.take_pairs(told(pair(1, 8), pair(2, 9)))
    window = host.windows["a"]
    window.mapped, window.unmapped = {TO_8}, {TO_9}
    host.take_pairs(told(pair(1, 8), pair(2, 9)))
    host.take_pairs(told(pair(1, 8, until_ns=2 * SECOND)))
    assert (window.mapped, window.unmapped) == ({TO_8}, {TO_9})
    host.take_pairs(told(pair(3, 9)))
    assert (window.mapped, window.unmapped) == ({TO_8}, set())
    host.take_pairs(told(pair(1, 8, since_ns=3 * SECOND)))
    assert window.mapped == set()


def test_calls_that_are_no_longer_kept_tell_what_is_lost_after_them() -> None:
    """Also after a restart, when those that are still needed come again."""
    caller = Caller(0, {"dp": (0, 8)})
    for at in range(8):
        caller.call("dp", "all_reduce", 10, SECOND + at * 100 * MS)
    caller.rows = [row for row in caller.rows if row["seq"] not in {1, 4}]
    batches = [table([caller]).slice(at, 2).combine_chunks().to_batches()[0] for at in (0, 2, 4)]
    window = NicWindow("a", WindowRules(), from_ns=0)
    host = HostTraffic("h", StepRules(), windows={"a": window})
    host.serving.from_ns = None
    for batch in batches:
        host.take_calls(batch, 2 * SECOND)
    window.from_ns = SECOND + 500 * MS
    host._forget()
    assert host.let_go == {(0, "dp"): LetGo(2, 1)}
    assert [kept.column("seq").to_pylist() for kept in host.calls] == [[3, 5], [6, 7]]
    again = HostTraffic.from_state(StepRules(), json.loads(json.dumps(host.to_state())))
    assert again.let_go == host.let_go
    assert Calls.from_arrow(pa.concat_tables(host.calls), again.let_go).lost.tolist() == [1, 2, 2, 2]
