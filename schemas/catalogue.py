"""All topics. `offbeat topics apply` makes a broker agree with this."""

from __future__ import annotations

from schemas import (
    addresses,
    comm_ops,
    dead_letters,
    findings,
    incidents,
    iteration_summaries,
    iterations,
    jobs,
    log_requests,
    nic_epochs,
    op_calls,
    operator_windows,
    operators,
    queue_pairs,
    silences,
    state,
    traffic_metrics,
)
from schemas.topic import Topic

JOBS = jobs.TOPIC
LOG_REQUESTS = log_requests.TOPIC
STATE = state.TOPIC
SILENCES = silences.TOPIC
ADDRESSES = addresses.TOPIC
COMM_OPS = comm_ops.TOPIC
OPERATOR_WINDOWS = operator_windows.TOPIC
ITERATION_SUMMARIES = iteration_summaries.TOPIC
NIC_EPOCHS = nic_epochs.TOPIC
OP_CALLS = op_calls.TOPIC
QUEUE_PAIRS = queue_pairs.TOPIC
OPERATORS = operators.TOPIC
TRAFFIC_METRICS = traffic_metrics.TOPIC
ITERATIONS = iterations.TOPIC
FINDINGS = findings.TOPIC
INCIDENTS = incidents.TOPIC
DEAD_LETTERS = dead_letters.TOPIC

TOPICS: dict[str, Topic] = {
    topic.name: topic
    for topic in (
        JOBS,
        LOG_REQUESTS,
        STATE,
        SILENCES,
        ADDRESSES,
        COMM_OPS,
        OPERATOR_WINDOWS,
        ITERATION_SUMMARIES,
        NIC_EPOCHS,
        OP_CALLS,
        QUEUE_PAIRS,
        OPERATORS,
        TRAFFIC_METRICS,
        ITERATIONS,
        FINDINGS,
        INCIDENTS,
        DEAD_LETTERS,
    )
}
