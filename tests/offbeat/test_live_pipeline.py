"""The whole pipeline over what training processes left in their rings: it finds what it finds in the same recording."""

from pathlib import Path
from typing import Any

from diagnosis.job import pivots
from offbeat import wiring
from offbeat.settings import Settings
from producers.job_source import JobSource
from producers.log_agent import LogAgent, agents
from producers.simulation import Fault, Kind, Scenario, simulate
from schemas.catalogue import INCIDENTS, ITERATION_SUMMARIES
from schemas.message import Message, decode
from schemas.topic import Topic
from streams import in_process
from streams.control_view import Jobs
from tests.producers.live.made import live_store

FAULTY = tuple(range(12, 20))
RUN = simulate(
    Scenario(
        seed=3,
        tp=2,
        pp=2,
        dp=1,
        layers=2,
        iterations=20,
        gpus_per_host=2,
        faults=(Fault(Kind.GPU_SLOW, 3, FAULTY, slowdown=1.5),),
    )
)


def test_a_live_host_leads_to_the_same_incidents(tmp_path: Path) -> None:
    chosen = pivots(RUN.job)
    recorded = agents(RUN.job, RUN.table, chosen)
    live = [
        LogAgent(live_store(RUN.job, RUN.table, tmp_path / agent.host, ranks=agent.ranks), agent.host, chosen)
        for agent in recorded
    ]
    from_rings, from_recording = told(live), told(recorded)
    [incident] = rows(from_rings[-1:], INCIDENTS)
    assert (incident["cause"], incident["ranks"], incident["state"]) == ("compute_slow", [3], "resolved")
    assert rows(from_rings, INCIDENTS) == rows(from_recording, INCIDENTS)
    assert summaries(from_rings) == summaries(from_recording)


def summaries(messages: list[Message]) -> list[dict[str, Any]]:
    """With the operators of each in one order: that of a recording is of all ranks' first appearances."""

    def name(operator: dict[str, Any]) -> tuple[str, str]:
        return operator["communicator"], operator["op"]

    found = rows(messages, ITERATION_SUMMARIES)
    return [{**row, "by_operator": sorted(row["by_operator"], key=name)} for row in found]


def told(agents: list[LogAgent]) -> list[Message]:
    """What the pipeline publishes over agents, incidents last."""
    settings, jobs, messages = Settings(), Jobs(), list[Message]()
    steps = wiring.steps(jobs, settings).values()
    in_process.run([JobSource(RUN.job, agents), *agents], [jobs, *agents, *steps], on_message=messages.append)
    return sorted(messages, key=lambda message: message.topic == INCIDENTS.name)


def rows(messages: list[Message], topic: Topic) -> list[dict[str, Any]]:
    return [row for message in messages if message.topic == topic.name for row in decode(message, topic).to_pylist()]
