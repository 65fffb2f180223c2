"""Who answers for the agents in a diagnosis of the past."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from producers.kept_logs import KeptLogs
from producers.log_agent import LogAgent
from schemas import catalogue
from schemas.message import Message, decode
from schemas.topic import Topic


class KeptAnswers:
    """Answers the requests of a diagnosis of the past: as they were answered then, else from the rows that are kept.

    A processor. What is no longer kept is answered as overwritten, and counted in ``logs``, by job.
    """

    name = "kept-logs"
    reads: tuple[Topic, ...] = (catalogue.LOG_REQUESTS,)
    writes: tuple[Topic, ...] = (catalogue.ITERATION_SUMMARIES, catalogue.COMM_OPS, catalogue.OPERATOR_WINDOWS)

    def __init__(self, logs: Mapping[str, KeptLogs]) -> None:
        self.logs = logs
        self._agents: dict[str, LogAgent] = {}

    def process(self, message: Message) -> Iterable[Message]:
        rows = decode(message, catalogue.LOG_REQUESTS).to_pylist()
        if message.job not in self.logs:
            return
        then = self.logs[message.job].answers_to(rows[0]["request_id"], rows) if rows else None
        if then is None:
            if message.job not in self._agents:
                self._agents[message.job] = LogAgent(self.logs[message.job], self.name, ())
            yield from self._agents[message.job].process(message)
        else:
            for answer in then:  # under the time of now, as an agent's
                yield Message(answer.topic, answer.key, answer.value, answer.headers)

    def tick(self, now_ns: int) -> Iterable[Message]:
        """Nothing: whoever asks minds the deadlines."""
        return ()

    def safe_offsets(self) -> Mapping[Topic, int]:
        return {}
