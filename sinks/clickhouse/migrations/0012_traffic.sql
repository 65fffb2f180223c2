-- What is found in NIC traffic, and by which rule and numbers ranks were told apart.

ALTER TABLE findings ADD COLUMN IF NOT EXISTS `rule` Nullable(String) AFTER evidence;
ALTER TABLE findings ADD COLUMN IF NOT EXISTS `measures` Array(Tuple(name String, value Float64)) AFTER rule;

CREATE TABLE IF NOT EXISTS operators
(
    `job` LowCardinality(String),
    `method` LowCardinality(String),
    `rank` Int32,
    `communicator` LowCardinality(String),
    `seq` Nullable(Int64),
    `position` Nullable(Int32),
    `iteration` Nullable(Int32),
    `op` LowCardinality(String),
    `call_id` Nullable(Int64),
    `group_call` Nullable(Int64),
    `nic` LowCardinality(Nullable(String)),
    `qpns` Array(UInt32),
    `peer` Nullable(Int32),
    `algorithm` LowCardinality(Nullable(String)),
    `algorithm_confidence` Nullable(Float64),
    `parallelism` LowCardinality(Nullable(String)),
    `expected_bytes` Nullable(Int64),
    `sent_bytes` Nullable(Int64),
    `received_bytes` Nullable(Int64),
    `start_at` Nullable(DateTime64(9, 'UTC')),
    `end_at` Nullable(DateTime64(9, 'UTC')),
    `state` LowCardinality(String),
    `visibility` LowCardinality(String),
    `coverage` Float64,
    `stored_at` DateTime('UTC') MATERIALIZED now('UTC')
)
ENGINE = ReplacingMergeTree
ORDER BY (job, rank, communicator, seq, call_id, method, nic)
TTL stored_at + toIntervalDay(14)
SETTINGS non_replicated_deduplication_window = 1000, allow_nullable_key = 1;

CREATE TABLE IF NOT EXISTS traffic_metrics
(
    `job` LowCardinality(String),
    `communicator` LowCardinality(String),
    `seq` Int64,
    `rank` Int32,
    `nic` LowCardinality(Nullable(String)),
    `iteration` Nullable(Int32),
    `op` LowCardinality(String),
    `algorithm` LowCardinality(Nullable(String)),
    `parallelism` LowCardinality(Nullable(String)),
    `call_at` DateTime64(9, 'UTC'),
    `start_at` Nullable(DateTime64(9, 'UTC')),
    `end_at` Nullable(DateTime64(9, 'UTC')),
    `clock_error_ns` Nullable(Int64),
    `state` LowCardinality(String),
    `visibility` LowCardinality(String),
    `duration_ns` Nullable(Int64),
    `actual_time_ns` Nullable(Int64),
    `expected_bytes` Nullable(Int64),
    `sent_bytes` Nullable(Int64),
    `received_bytes` Nullable(Int64),
    `actual_rate_bytes_per_s` Nullable(Float64),
    `observed_rate_bytes_per_s` Nullable(Float64),
    `longest_gap_ns` Nullable(Int64),
    `gap_histogram` Array(Int32),
    `p2p_expected` Nullable(Int32),
    `p2p_completed` Nullable(Int32),
    `incomplete_peers` Array(Int32),
    `peers` Array(Int32),
    `peer_sent_bytes` Array(Int64),
    `peer_actual_time_ns` Array(Int64),
    `busy_epoch_bytes` Nullable(Int64),
    `epoch_ns` Int64,
    `coverage` Float64,
    `stored_at` DateTime('UTC') MATERIALIZED now('UTC')
)
ENGINE = ReplacingMergeTree
PARTITION BY toYYYYMMDD(call_at)
ORDER BY (job, rank, call_at, communicator, seq, nic)
TTL stored_at + toIntervalDay(14)
SETTINGS non_replicated_deduplication_window = 1000, allow_nullable_key = 1, ttl_only_drop_parts = 1;
