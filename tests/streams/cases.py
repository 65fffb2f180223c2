"""The processors that the contract suite runs on; every processor of the project belongs here."""

from collections.abc import Callable
from pathlib import Path

from schemas.message import Message
from tests.streams import pipeline_cases, traffic_cases
from tests.streams.examples import END, TOPICS, Answerer, Asker, LineSink, Sums, job_record, number
from tests.streams.journey import Case


def _numbers() -> list[Message]:
    """Two jobs in one partition, one of which ends; two inputs."""
    messages = [job_record("a"), job_record("b")]
    for value in range(1, 8):
        messages.append(number(TOPICS.numbers, "a", value))
        messages.append(number(TOPICS.numbers, "b", 100 + value))
        messages.append(number(TOPICS.more_numbers, "b", 1000 * value))
    return [*messages, number(TOPICS.numbers, "a", END), number(TOPICS.numbers, "b", 200)]


def _sums(_: Path) -> Case:
    return Case("sums", lambda jobs: Sums(jobs=jobs), _numbers, judged=(TOPICS.sums,))


def _asker(_: Path) -> Case:
    return Case("asker", lambda _: Asker(), _numbers, judged=(TOPICS.results,), others=lambda _: [Answerer()])


def _line_sink(folder: Path) -> Case:
    lines = folder / "lines"
    lines.touch()
    return Case("line_sink", lambda _: LineSink(lines), _numbers, delivered=lambda: lines.read_text().splitlines())


CASES: dict[str, Callable[[Path], Case]] = {
    "sums": _sums,
    "asker": _asker,
    "line_sink": _line_sink,
    "monitor": pipeline_cases.monitor,
    "search": pipeline_cases.search,
    "segment": traffic_cases.segment,
    "compare": traffic_cases.compare,
    "incidents": pipeline_cases.incidents,
}
"""Each makes a case in an empty folder of its own."""
