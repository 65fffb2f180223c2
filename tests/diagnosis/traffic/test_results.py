"""What is found as rows of its topics."""

import pyarrow as pa

from diagnosis.traffic.association import associate
from diagnosis.traffic.results import metrics_table, operators_table
from schemas.operators import TOPIC as OPERATORS
from schemas.topic import Topic
from schemas.traffic_metrics import TOPIC as TRAFFIC_METRICS
from tests.diagnosis.traffic.made_calls import Caller, calls
from tests.diagnosis.traffic.made_epochs import MB, MS, SECOND, Sent, port, queue_pairs

MEMBERS = {"dp": (0, 8), "ep": (0, 8, 16), "tp": (0, 1)}


def checked(topic: Topic, table: pa.Table) -> list[dict[str, object]]:
    """Rows that the topic accepts."""
    batch = topic.batch({name: table.column(name).combine_chunks() for name in table.column_names})
    rows: list[dict[str, object]] = batch.to_pylist()
    return rows


def test_rows_are_what_the_topics_hold() -> None:
    caller = Caller(0, MEMBERS)
    caller.exchange("ep", {8: 4 * MB, 16: 8 * MB}, 10 * MS)
    caller.call("dp", "send", 2000, 20 * MS, peer=8)
    caller.call("tp", "send", 8 * MB, 25 * MS, peer=1)
    caller.call("dp", "all_gather", 16 * MB, 30 * MS)
    caller.call("ep", "send", 8 * MB, 40 * MS, peer=16)
    sent = [Sent(5, 11 * MS, 4 * MB), Sent(6, 11 * MS, 3 * MB), Sent(5, 31 * MS, 17 * MB)]
    own, made = port(sent), calls(caller)
    found = associate(own, queue_pairs((5, 0, 8), (6, 0, 16)), made, MEMBERS, lambda a, b: a // 8 == b // 8)

    metrics = checked(TRAFFIC_METRICS, metrics_table(found, made, ["mlx5_0"], parallelism={"ep": "ep"}))
    assert [(row["op"], row["state"]) for row in metrics] == [
        ("custom", "incomplete"),
        ("all_gather", "complete"),
        ("send", "missing_start"),
    ]
    exchange, gather, send = metrics
    assert (exchange["peers"], exchange["incomplete_peers"]) == ([8, 16], [16])
    assert exchange["peer_sent_bytes"] == [4 * MB, 3 * MB]
    assert (exchange["p2p_expected"], exchange["p2p_completed"]) == (2, 1)
    assert (exchange["parallelism"], exchange["algorithm"]) == ("ep", "point_to_point")
    assert (gather["algorithm"], gather["parallelism"], gather["p2p_expected"]) == ("ring", None, None)
    sent_for_ns = gather["actual_time_ns"]
    assert isinstance(sent_for_ns, int)
    assert gather["actual_rate_bytes_per_s"] == 17 * MB / sent_for_ns * 1e9
    assert send["start_ns"] is send["actual_time_ns"] is None
    assert (send["incomplete_peers"], send["sent_bytes"]) == ([16], 0)

    operators = checked(OPERATORS, operators_table(found, made, ["mlx5_0"]))
    told = {(row["call_id"], row["visibility"], row["state"], str(row["qpns"])) for row in operators}
    assert told == {
        (0, "network", "complete", "[5]"),
        (2, "network", "incomplete", "[6]"),
        (4, "below_aggregation", "unknown", "None"),
        (5, "intra_host", "unknown", "None"),
        (6, "network", "complete", "[5]"),
        (7, "network", "missing_start", "[]"),
    }
    first = min(operators, key=lambda row: str(row["call_id"]))
    assert (first["group_call"], first["peer"], first["expected_bytes"]) == (0, 8, 4 * MB)


def test_nothing_found_is_no_rows() -> None:
    own, made = port([Sent(5, SECOND // 2, MB)]), calls(Caller(0, MEMBERS))
    found = associate(own, queue_pairs((5, 0, 8)), made, MEMBERS, lambda a, b: a // 8 == b // 8)
    assert checked(TRAFFIC_METRICS, metrics_table(found, made, ["mlx5_0"])) == []
    assert checked(OPERATORS, operators_table(found, made, ["mlx5_0"])) == []
