"""NIC telemetry through a real broker and the workers that look at it: what is found is what is found in process."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from diagnosis.traffic.host import StepRules
from local.kafka import LocalKafka
from offbeat import wiring
from offbeat.settings import Settings
from producers.job_source import job_message
from producers.publisher import Publisher
from producers.simulation.nic import simulate_nics
from producers.simulation.recording import write
from schemas import catalogue
from schemas.message import Message, decode
from streams.bus import Bus
from streams.follower import Follower
from tests.integration.doomed import End, Fate
from tests.integration.roles import KINDS, TRAFFIC_KINDS, Role
from tests.offbeat.command_line import offbeat, own_environment
from tests.offbeat.test_traffic_in_process import NEIGHBOURS
from tests.streams.examples import Listener
from tests.streams.traffic_cases import SLOW_NIC

pytestmark = pytest.mark.kafka

WITHIN_S = 90.0
Found = set[tuple[int, str, tuple[int, ...]]]


def named(messages: Iterable[Message]) -> Found:
    """Iteration, cause and ranks of every finding that names somebody."""
    rows = (row for message in messages for row in decode(message, catalogue.FINDINGS).to_pylist())
    return {(row["iteration"], row["cause"], tuple(row["ranks"])) for row in rows if row["cause"]}


def fates(job: str) -> dict[str, Fate]:
    """Both die with nothing committed that they have told: what comes of it is told twice."""
    return {
        "segment": Fate(job, catalogue.NIC_EPOCHS.name, 5, End.ALL_SAFE),
        "compare": Fate(job, catalogue.TRAFFIC_METRICS.name, 8, End.ALL_SAFE),
    }


def test_workers_that_are_killed_find_what_is_found_in_process(local_kafka: LocalKafka, tmp_path: Path) -> None:
    run = simulate_nics(replace(NEIGHBOURS, seed=77, iterations=16, faults=(replace(SLOW_NIC, at_s=0.03),)))
    heard = Listener((catalogue.FINDINGS,))
    steps = StepRules(step_ns=40_000_000)  # small ones, so that more than one message comes of it
    wiring.run_traffic_in_process(run.job, run.messages(), Settings(segment=steps), [heard])
    expected = named(heard.heard)
    assert {ranks for _, cause, ranks in expected if cause == "communication_slow"} == {(2,)}

    servers = local_kafka.bootstrap_servers
    settings = {"OFFBEAT_KAFKA__BOOTSTRAP_SERVERS": servers, "OFFBEAT_SEGMENT__STEP_NS": str(steps.step_ns)}
    assert offbeat("topics", "apply", settings=settings).exit_code == 0
    publisher = Publisher({"bootstrap.servers": servers}, "test")
    for message in (job_message(run.job), *run.messages()):
        publisher.send(message)
    publisher.flush()
    environment = {**own_environment(settings), "PYTHONPATH": str(Path(__file__).parents[2])}
    with ExitStack() as stack:
        roles = {name: Role(kind, environment, tmp_path / name) for name, kind in TRAFFIC_KINDS.items()}
        for name, role in roles.items():
            role.fates.append(fates(run.job.job)[name])
            stack.enter_context(role)
        follower = stack.enter_context(Follower(Bus(servers), catalogue.FINDINGS.name))
        seen: list[Message] = []

        def all_is_found() -> None:
            for role in roles.values():
                if not role.running:
                    if role.fate is None:
                        pytest.fail(role.last_words())
                    role.start()
            seen.extend(message for message in follower.catch_up() if message.job == run.job.job)
            assert named(seen) == expected
            assert all(role.fate is None for role in roles.values()), "somebody is yet to be killed"

        in_time(all_is_found)


def test_of_a_recording_that_is_produced_the_workers_say_what_diagnose_says(
    local_kafka: LocalKafka, tmp_path: Path
) -> None:
    recording = tmp_path / "slow"
    write(simulate_nics(replace(NEIGHBOURS, seed=77, iterations=16, faults=(replace(SLOW_NIC, at_s=0.03),))), recording)
    told = json.loads(offbeat("diagnose", recording, "--json").stdout)
    [expected] = told["incidents"]
    servers = local_kafka.bootstrap_servers
    settings = {"OFFBEAT_KAFKA__BOOTSTRAP_SERVERS": servers}
    assert offbeat("topics", "apply", settings=settings).exit_code == 0
    environment = {**own_environment(settings), "PYTHONPATH": str(Path(__file__).parents[2])}
    with ExitStack() as stack:
        for name, kind in {**TRAFFIC_KINDS, "incidents": KINDS["incidents"]}.items():
            stack.enter_context(Role(kind, environment, tmp_path / name))
        produced = offbeat("produce", "--recording", recording, "--json", settings=settings)
        assert produced.exit_code == 0, produced.output
        follower = stack.enter_context(Follower(Bus(servers), catalogue.INCIDENTS.name))
        seen: list[Message] = []

        def it_is_over() -> None:
            seen.extend(follower.catch_up())
            rows = [row for message in seen for row in decode(message, catalogue.INCIDENTS).to_pylist()]
            assert [row["state"] for row in rows][-1:] == ["resolved"]
            assert {row["id"] for row in rows} == {expected["id"]}
            assert [rows[-1]["first_iteration"], rows[-1]["last_iteration"]] == expected["iterations"]
            assert (rows[-1]["cause"], rows[-1]["ranks"]) == (expected["cause"], expected["ranks"])

        in_time(it_is_over)
    done = json.loads(produced.stdout)
    assert (done["job"], done["answers"], done["ended_before"]) == (told["job"], 0, False)
    again = offbeat("produce", "--recording", recording, settings=settings)
    assert f"{told['job']} had ended before: running workers pass over what comes of it again" in again.stderr


def in_time(found: Callable[[], None]) -> None:
    """Look again and again until nothing is missing."""
    Retrying(
        retry=retry_if_exception_type(AssertionError),
        stop=stop_after_delay(WITHIN_S),
        wait=wait_fixed(0.2),
        reraise=True,
    )(found)
