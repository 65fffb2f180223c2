-- One table a topic; schemas/tables.py says what each column holds.

CREATE TABLE IF NOT EXISTS iterations
(
    `job` LowCardinality(String),
    `iteration` Int32,
    `pivot` Int32,
    `start_at` DateTime64(9, 'UTC'),
    `duration_ns` Nullable(Int64),
    `expected_ns` Nullable(Int64),
    `delta` Float64,
    `irregular` Nullable(Bool),
    `pattern` LowCardinality(Nullable(String)),
    `pattern_from` Nullable(Int32),
    `pattern_ordinal` Nullable(Int32),
    `pattern_state` LowCardinality(Nullable(String)),
    `pattern_to` Nullable(Int32),
    `excess_ns` Nullable(Int64),
    `baseline` Array(Int32),
    `last` Nullable(Bool),
    `stored_at` DateTime('UTC') MATERIALIZED now('UTC')
)
ENGINE = ReplacingMergeTree
ORDER BY (job, iteration, pivot)
TTL stored_at + toIntervalDay(90)
SETTINGS non_replicated_deduplication_window = 1000;

CREATE TABLE IF NOT EXISTS findings
(
    `job` LowCardinality(String),
    `id` String,
    `method` LowCardinality(String),
    `active` Bool,
    `iteration` Nullable(Int32),
    `pivot` Nullable(Int32),
    `pattern` Nullable(String),
    `first_iteration` Nullable(Int32),
    `last_iteration` Nullable(Int32),
    `cause` LowCardinality(Nullable(String)),
    `level` LowCardinality(Nullable(String)),
    `ranks` Array(Int32),
    `candidates` Array(Array(Int32)),
    `devices` Array(Tuple(device String, kind String, downside_nics Nullable(Int32))),
    `root_operator` Tuple(rank Nullable(Int32), communicator Nullable(String), position Nullable(Int32), op Nullable(String)),
    `stage` Tuple(phase Nullable(String), pipeline_stage Nullable(Int32), microbatch Nullable(Int32), op Nullable(String)),
    `excess_ns` Nullable(Int64),
    `run_excess_ns` Nullable(Int64),
    `iteration_ns` Nullable(Int64),
    `expected_ns` Nullable(Int64),
    `evidence` Tuple(delta Nullable(Float64), irregularity_rate Nullable(Float64), share Nullable(Float64), operator_ns Array(Nullable(Int64)), iteration_ns Array(Nullable(Int64)), path Array(Nullable(Int32)), clock_error_ns Nullable(Int64), fetched_bytes Nullable(Int64)),
    `waits` Array(Tuple(waiting_rank Nullable(Int32), awaited_rank Nullable(Int32), communicator Nullable(String), op Nullable(String))),
    `coverage` Nullable(Float64),
    `last_record_at` Nullable(DateTime64(9, 'UTC')),
    `found_at` DateTime64(9, 'UTC'),
    `stored_at` DateTime('UTC') MATERIALIZED now('UTC')
)
ENGINE = ReplacingMergeTree(found_at)
ORDER BY (job, id)
TTL stored_at + toIntervalDay(365)
SETTINGS non_replicated_deduplication_window = 1000;

CREATE TABLE IF NOT EXISTS incidents
(
    `job` LowCardinality(String),
    `id` String,
    `revision` Int32,
    `state` LowCardinality(String),
    `cause` LowCardinality(String),
    `level` LowCardinality(String),
    `ranks` Array(Int32),
    `candidates` Array(Array(Int32)),
    `devices` Array(Tuple(device String, kind String, downside_nics Nullable(Int32))),
    `first_iteration` Nullable(Int32),
    `last_iteration` Nullable(Int32),
    `pattern` Nullable(String),
    `confidence` Float64,
    `lost_ns` Nullable(Int64),
    `lost_gpu_seconds` Nullable(Float64),
    `stage` Tuple(phase Nullable(String), pipeline_stage Nullable(Int32), microbatch Nullable(Int32), op Nullable(String)),
    `network` Tuple(layer Nullable(String), component Nullable(String), component_kind Nullable(String), issue_classes Array(Nullable(String)), evidence Array(Nullable(String))),
    `methods` Array(String),
    `explanation` String,
    `opened_at` DateTime64(9, 'UTC'),
    `updated_at` DateTime64(9, 'UTC'),
    `resolved_at` Nullable(DateTime64(9, 'UTC')),
    `findings` Array(String),
    `stored_at` DateTime('UTC') MATERIALIZED now('UTC')
)
ENGINE = ReplacingMergeTree(revision)
ORDER BY (job, id)
TTL stored_at + toIntervalDay(730)
SETTINGS non_replicated_deduplication_window = 1000;

CREATE TABLE IF NOT EXISTS comm_ops
(
    `job` LowCardinality(String),
    `rank` Int32,
    `communicator` LowCardinality(String),
    `seq` Nullable(Int64),
    `position` Nullable(Int32),
    `call_order` Nullable(Int64),
    `op` LowCardinality(String),
    `algorithm` LowCardinality(Nullable(String)),
    `protocol` LowCardinality(Nullable(String)),
    `dtype` LowCardinality(Nullable(String)),
    `count` Nullable(Int64),
    `bytes` Nullable(Int64),
    `peer` Nullable(Int32),
    `p2p_seq` Nullable(Int64),
    `stream` LowCardinality(Nullable(String)),
    `group_call` Nullable(Int64),
    `iteration` Nullable(Int32),
    `microbatch` Nullable(Int32),
    `phase` LowCardinality(Nullable(String)),
    `model_chunk` Nullable(Int32),
    `layer` Nullable(Int32),
    `call_at` DateTime64(9, 'UTC'),
    `start_at` Nullable(DateTime64(9, 'UTC')),
    `end_at` Nullable(DateTime64(9, 'UTC')),
    `error` LowCardinality(Nullable(String)),
    `stored_at` DateTime('UTC') MATERIALIZED now('UTC')
)
ENGINE = ReplacingMergeTree
PARTITION BY toYYYYMMDD(call_at)
ORDER BY (job, rank, call_at, communicator, op, seq, call_order, peer)
TTL stored_at + toIntervalDay(14)
SETTINGS non_replicated_deduplication_window = 1000, allow_nullable_key = 1, ttl_only_drop_parts = 1;
