"""All topics. `offbeat topics apply` makes a broker agree with this."""

from __future__ import annotations

from schemas import (
    comm_ops,
    dead_letters,
    findings,
    incidents,
    iteration_summaries,
    iterations,
    jobs,
    log_requests,
    operator_windows,
    silences,
    state,
)
from schemas.topic import Topic

JOBS = jobs.TOPIC
LOG_REQUESTS = log_requests.TOPIC
STATE = state.TOPIC
SILENCES = silences.TOPIC
COMM_OPS = comm_ops.TOPIC
OPERATOR_WINDOWS = operator_windows.TOPIC
ITERATION_SUMMARIES = iteration_summaries.TOPIC
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
        COMM_OPS,
        OPERATOR_WINDOWS,
        ITERATION_SUMMARIES,
        ITERATIONS,
        FINDINGS,
        INCIDENTS,
        DEAD_LETTERS,
    )
}
