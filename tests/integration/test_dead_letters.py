"""What was buried is replayed after a fix, on a real broker by a real worker."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from diagnosis.job import Job, Place
from local.kafka import LocalKafka
from producers.job_source import job_message
from producers.publisher import Publisher
from schemas import catalogue
from schemas.message import Message, decode, encode
from streams.bus import Bus
from streams.follower import Follower
from tests.integration.roles import KINDS, Role
from tests.offbeat.command_line import offbeat, own_environment

pytestmark = pytest.mark.kafka

JOB = "appears-late"
SUMMARIES = catalogue.ITERATION_SUMMARIES
WITHIN_S = 90.0


def awaited(condition: Callable[[], None], role: Role) -> None:
    """Look again and again until nothing is amiss."""

    def look() -> None:
        if not role.running:
            pytest.fail(role.last_words())
        condition()

    Retrying(
        retry=retry_if_exception_type(AssertionError),
        stop=stop_after_delay(WITHIN_S),
        wait=wait_fixed(0.2),
        reraise=True,
    )(look)


def summary(iteration: int) -> Message:
    row = {"rank": 0, "iteration": iteration, "start_ns": iteration * 10**9, "end_ns": (iteration + 1) * 10**9}
    batch = SUMMARIES.from_rows([row | {"operators": 4, "lost_lines": 0}])
    return encode(SUMMARIES, batch, job=JOB, watermark_ns=(iteration + 1) * 10**9)


def test_what_was_buried_is_replayed_after_a_fix(local_kafka: LocalKafka, tmp_path: Path) -> None:
    servers = local_kafka.bootstrap_servers
    settings = {"OFFBEAT_KAFKA__BOOTSTRAP_SERVERS": servers}

    def send(*messages: Message) -> None:
        publisher = Publisher({"bootstrap.servers": servers}, "test")
        for message in messages:
            publisher.send(message)
        publisher.flush()

    def letters() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(offbeat("dead-letters", "list", "--json", settings=settings).stdout)
        return found

    def replayed(*options: str) -> tuple[int, dict[str, Any]]:
        done = offbeat("dead-letters", "replay", "--json", *options, settings=settings)
        assert done.exit_code < 2, done.output
        return done.exit_code, json.loads(done.stdout)

    def judged() -> list[int]:
        with Follower(Bus(servers), catalogue.ITERATIONS.name) as follower:
            batches = [decode(message, catalogue.ITERATIONS) for message in follower.catch_up()]
        return [batch.column("iteration")[0].as_py() for batch in batches]

    def there_are(count: int) -> Callable[[], None]:
        def look() -> None:
            assert len(letters()) == count

        return look

    def all_are_judged() -> None:
        assert judged() == [0, 1, 2, 3, 4]

    assert offbeat("topics", "apply", settings=settings).exit_code == 0
    junk = Message(SUMMARIES.name, JOB, b"junk", {"schema": SUMMARIES.schema_id, "job": JOB})
    environment = {**own_environment(settings), "PYTHONPATH": str(Path(__file__).parents[2])}
    with Role(KINDS["monitor"], environment, tmp_path / "monitor") as monitor:
        send(*(summary(iteration) for iteration in range(5)), junk)
        awaited(there_are(6), monitor)
        code, would = replayed("--dry-run")
        assert (code, would["sent"], len(would["failing"])) == (1, {}, 6)

        send(job_message(Job(JOB, (Place(0),), ())))
        assert replayed("--error", "UnknownJob") == (
            0,
            {"dry_run": False, "sent": {SUMMARIES.name: 5}, "repeated": 0, "failing": []},
        )
        awaited(all_are_judged, monitor)
        assert len(letters()) == 6

        code, refused = replayed("--error", "UndecodableMessage")
        assert (code, refused["sent"], [failing["sent"] for failing in refused["failing"]]) == (1, {}, [False])
        code, forced = replayed("--error", "UndecodableMessage", "--force")
        assert (code, forced["sent"]) == (0, {SUMMARIES.name: 1})
        awaited(there_are(7), monitor)
        [first, again] = [letter for letter in letters() if letter["error"] == "UndecodableMessage"]
        assert first["replayed_from"] is None
        assert again["replayed_from"] == f"{SUMMARIES.name}/{first['partition']}/{first['offset']}"
        _, both = replayed("--error", "UndecodableMessage", "--dry-run", "--force")
        assert (both["sent"], both["repeated"]) == ({SUMMARIES.name: 1}, 1)
