"""The throughput benchmark reads, stores and imports all that it is told to, and leaves nothing on the brokers."""

import pytest
from confluent_kafka.admin import AdminClient

from benchmarks.bus_reader import Meter, Plan, Reader
from benchmarks.bus_throughput import RECORD_BYTES, large_records
from benchmarks.pipeline import run
from schemas.catalogue import COMM_OPS, TOPICS
from schemas.errors import BusError
from schemas.message import Message, decode
from streams import topics
from streams.bus import LIBRDKAFKA, Bus
from tests.services import ClickHouseAddress


@pytest.mark.kafka
@pytest.mark.clickhouse
def test_everything_is_read_stored_and_imported(
    kafka: str, clickhouse: ClickHouseAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.apply(Bus(kafka), TOPICS.values())
    monkeypatch.setenv("OFFBEAT_STORE__USER", clickhouse.user)
    monkeypatch.setenv("OFFBEAT_STORE__PASSWORD", clickhouse.password)
    address = f"{clickhouse.host}:{clickhouse.port}"
    figures = run(bootstrap=kafka, clickhouse=address, records=3, rows=2000, iterations=2, repeats=1)
    bus, store, importer = figures["bus"], figures["store"], figures["importer"]
    assert (bus["records"], store["rows"], importer["files"]) == (3, 2000, 64)
    assert importer["rows"] > 10_000
    readers = {"consumer", "consumer_decode", "worker", "worker_decode"}
    assert bus["mb_per_s"].keys() == bus["cpu_ms_per_mb"].keys() == bus["rounds_mb_per_s"].keys() == readers
    rates = [*bus["mb_per_s"].values(), *store.values(), importer["rows_per_s"], bus["worker_to_consumer"]]
    assert all(rate > 0 for rate in rates)
    left = AdminClient(Bus(kafka).librdkafka(), logger=LIBRDKAFKA).list_topics(timeout=10).topics
    assert not [name for name in left if name.startswith("offbeat-bench-")]


def test_large_records_are_valid_and_of_about_their_size() -> None:
    for record in large_records(2):
        assert len(record.value or b"") == pytest.approx(RECORD_BYTES, rel=0.2)
        assert decode(record, COMM_OPS).num_rows > 10_000


def test_only_large_records_count_and_each_once() -> None:
    meter = Meter(Plan(Reader.CONSUMER, {}, "t", "g", lead_in=2, records=2))
    for offset, size in enumerate((1, 1, 1000)):
        meter.take(Message("t", "", bytes(size), offset=offset))
    with pytest.raises(BusError, match="3 of 4 records were read"):
        _ = meter.reading
    for offset, size in ((3, 500), (4, 1)):
        meter.take(Message("t", "", bytes(size), offset=offset))
    assert (meter.reading.records, meter.reading.bytes) == (2, 1500)


def test_a_record_out_of_turn_is_no_reading() -> None:
    meter = Meter(Plan(Reader.WORKER, {}, "t", "g", lead_in=0, records=2))
    meter.take(Message("t", "", b"", offset=0))
    with pytest.raises(ValueError, match="record 2 came when 1 was due"):
        meter.take(Message("t", "", b"", offset=2))
