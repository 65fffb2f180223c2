"""Faust workers as processes on a real broker: what comes out is the same as in process, whatever befalls them."""

import inspect
import logging
import re
import signal
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from logging.handlers import BufferingHandler
from pathlib import Path
from types import SimpleNamespace
from typing import cast
from uuid import uuid4

import httpx
import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from faust.transport.drivers import aiokafka
from mode.services import Service
from mode.threads import ServiceThread
from mode.utils.logging import CompositeLogger

from local.kafka import LocalKafka
from local.service import free_ports
from schemas import catalogue
from schemas.message import Message, decode
from streams import topics as on_broker
from streams.control_view import Jobs
from streams.in_process import run
from streams.worker import _no_guess, _quieten
from tests.streams.examples import END, FATAL, Sums, job_record, number, value_of
from tests.streams.stage import Stage, awaited, staged

JOBS = ("a", "b", "c", "d", "e")


@pytest.fixture
def stage(kafka: str, tmp_path: Path) -> Iterator[Stage]:
    with staged(kafka, f"t{uuid4().hex[:8]}", tmp_path) as stage:
        yield stage


def job_records(stage: Stage) -> list[Message]:
    return [job_record(job) for job in jobs_of(stage)]


def jobs_of(stage: Stage) -> list[str]:
    return [f"{stage.prefix}-{job}" for job in JOBS]


def numbers(stage: Stage, values: Iterable[int] = range(20, 40)) -> list[Message]:
    topics = (stage.topics.numbers, stage.topics.more_numbers)
    return [number(topic, job, value) for value in values for job in jobs_of(stage) for topic in topics]


def expected_sums(stage: Stage, messages: Iterable[Message]) -> set[tuple[str, ...]]:
    """What the runner without a broker makes of the same messages."""

    class Recorded:
        name = "test"

        def __init__(self) -> None:
            self._messages = [*job_records(stage), *messages]

        def advance(self) -> list[Message] | None:
            portion, self._messages = self._messages, []
            return portion or None

    rows: set[tuple[str, ...]] = set()

    def note(message: Message) -> None:
        if message.topic == stage.topics.sums.name:
            [row] = decode(message, stage.topics.sums).to_pylist()
            rows.add((message.job, *(str(field) for field in row.values())))

    jobs = Jobs()
    run([Recorded()], [jobs, Sums(stage.topics, jobs)], on_message=note)
    return rows


@pytest.mark.kafka
def test_kafka_and_in_process_agree(stage: Stage) -> None:
    messages = numbers(stage)
    stage.send(job_records(stage))
    stage.start()
    stage.send(messages)
    stage.await_rows(stage.topics.sums, expected_sums(stage, messages))
    jobs_by_partition: dict[int, set[str]] = {}
    for message in stage.seen(stage.topics.numbers):
        jobs_by_partition.setdefault(message.partition, set()).add(message.job)
    assert max(len(jobs) for jobs in jobs_by_partition.values()) > 1, "no two jobs share a partition"


@pytest.mark.kafka
def test_a_job_that_is_published_while_the_worker_runs_is_known_at_once(stage: Stage) -> None:
    messages = numbers(stage)
    first = [message for message in messages if message.job == jobs_of(stage)[0]]
    stage.send([*job_records(stage)[:1], *first])
    stage.start()
    stage.await_rows(stage.topics.sums, expected_sums(stage, first))
    others = [message for message in messages if message.job != jobs_of(stage)[0]]
    stage.send(job_records(stage)[1:])
    stage.send(others)
    stage.await_rows(stage.topics.sums, expected_sums(stage, messages))
    assert stage.letters() == []


@pytest.mark.kafka
@pytest.mark.parametrize("flush", [1, 2], ids=["outputs are safe, states are not", "states are safe, offsets are not"])
def test_sigkill_between_flush_and_commit(stage: Stage, flush: int) -> None:
    messages = numbers(stage)
    half = len(messages) // 2
    stage.send([*job_records(stage), *messages[:half]])
    assert stage.start(die_at_flush=flush).ended() == -signal.SIGKILL
    assert stage.committed("sums", stage.topics.numbers) == {}
    stage.send(messages[half:])
    stage.start(die_at_flush=flush)
    stage.await_rows(stage.topics.sums, expected_sums(stage, messages))


@pytest.mark.kafka
def test_a_processing_error_ends_the_worker_and_a_restart_resumes(stage: Stage) -> None:
    messages = numbers(stage)
    messages.insert(len(messages) // 2, number(stage.topics.numbers, jobs_of(stage)[0], FATAL))
    stage.send([*job_records(stage), *messages])
    broken = stage.start()
    assert broken.ended() == 1
    assert "RuntimeError: this processor is broken" in broken.log()
    [fatal] = [m for m in stage.seen(stage.topics.numbers) if value_of(m, stage.topics.numbers) == FATAL]
    assert stage.committed("sums", stage.topics.numbers).get(fatal.partition, 0) <= fatal.offset
    (stage.folder / "mended").touch()
    stage.start()
    stage.await_rows(stage.topics.sums, expected_sums(stage, messages))
    stage.await_all_committed("sums", stage.topics.numbers)


@pytest.mark.kafka
def test_poison_among_good_records(stage: Stage) -> None:
    good = numbers(stage)
    [job, *_] = jobs_of(stage)
    stranger = replace(number(stage.topics.numbers, "stranger", 1), key=job)  # among good ones of its partition
    wrong_schema = replace(good[0], headers={**good[0].headers, "schema": "other/1"})
    bad = {
        "UndecodableMessage": [replace(good[0], value=b"junk"), replace(good[0], value=None)],
        "WrongSchema": [wrong_schema, replace(good[0], headers={"job": job})],
        "UnknownJob": [stranger],
    }
    every = [message for messages in bad.values() for message in messages]
    # each time after a good one of the same partition, so that never too many are in a row
    times = [one for one in good if (one.topic, one.key) == (good[0].topic, good[0].key)]
    spoilt = [message for one in good for message in (one, *(every if one in times else ()))]
    last = replace(good[0], value=b"the last of its partition")
    stage.send([*job_records(stage), *spoilt, last])
    stage.start()
    stage.await_rows(stage.topics.sums, expected_sums(stage, good))
    stage.await_all_committed("sums", stage.topics.numbers)
    errors = [letter["error"] for letter in stage.letters()]
    assert sorted(errors) == sorted(
        [error for error, messages in bad.items() for _ in range(len(times) * len(messages))] + ["UndecodableMessage"]
    )


@pytest.mark.kafka
def test_too_much_poison_stops_the_worker_loudly_at_the_same_message_again(stage: Stage) -> None:
    """However few of them a slow broker hands over at a time: what was committed before is counted on."""
    [job, *_] = jobs_of(stage)
    stage.send([*job_records(stage), *[replace(number(stage.topics.numbers, job, 1), value=b"junk")] * 200])
    for _ in range(2):
        worker = stage.start()
        assert worker.ended() == 1
        assert re.search(r"^TooMuchPoison: .*: 50 bad messages in a row, .* offset 49: ", worker.log(), re.MULTILINE)
        assert max(stage.committed("sums", stage.topics.numbers).values(), default=0) < 50


@pytest.mark.kafka
def test_poison_that_trickles_in_stops_the_worker_though_it_is_started_again(stage: Stage) -> None:
    """A sink, which saves no state of its own: what was committed before it ended counts."""
    [job, *_] = jobs_of(stage)
    junk = replace(number(stage.topics.numbers, job, 1), value=b"junk")
    stage.send([*job_records(stage), *[junk] * 30])
    first = stage.start(processor="line_sink")
    stage.await_all_committed("line_sink", stage.topics.numbers)
    first.kill()
    passed = stage.committed("line_sink", stage.topics.numbers)
    assert list(passed.values()) == [30]
    stage.send([junk] * 25)
    for _ in range(2):
        worker = stage.start(processor="line_sink")
        assert worker.ended() == 1
        assert re.search(r"^TooMuchPoison: .*: 50 bad messages in a row, .* offset 49: ", worker.log(), re.MULTILINE)
        assert max(stage.committed("line_sink", stage.topics.numbers).values()) < 50


@pytest.mark.kafka
def test_sigterm_is_bounded_and_a_restart_gives_the_same(stage: Stage) -> None:
    messages = numbers(stage)
    half = len(messages) // 2
    stage.send([*job_records(stage), *messages[:half]])
    worker = stage.start()
    awaited(lambda: stage.rows(stage.topics.sums), "first sums")
    worker.process.send_signal(signal.SIGTERM)
    assert worker.ended() == 0
    stage.send(messages[half:])
    stage.start()
    stage.await_rows(stage.topics.sums, expected_sums(stage, messages))


@pytest.mark.kafka
def test_a_worker_that_is_stopped_while_it_joins_its_group_ends_at_once(stage: Stage) -> None:
    """Another member of the group holds the rebalance up: it is stopped, and its session lasts longer than the end."""
    messages = numbers(stage)
    stage.send([*job_records(stage), *messages])
    other = stage.start(session_timeout_s=30.0)
    stage.await_rows(stage.topics.sums, expected_sums(stage, messages))
    other.process.send_signal(signal.SIGSTOP)
    [port] = free_ports(1)
    worker = stage.start(instance="another", health_port=port, stop_within_s=0.5)
    awaited(lambda: _lives(port), "the worker's start")
    worker.process.send_signal(signal.SIGTERM)
    assert worker.ended() == 0


@pytest.mark.kafka
def test_a_worker_that_is_stopped_before_it_joins_its_group_ends_in_order(stage: Stage) -> None:
    [port] = free_ports(1)
    assert stage.start(health_port=port, sigterm_at_page=True).ended() == 0


def logged_by_faust(message: str) -> logging.LogRecord:
    """As a service's thread logs it: behind where it is in the tree of services."""
    handler = BufferingHandler(capacity=10)
    logger = logging.getLogger("tests.faust")
    logger.propagate = False
    logger.handlers = [handler]
    placed = SimpleNamespace(beacon=SimpleNamespace(depth=4), shortlabel="AIOKafkaConsumerThread")
    CompositeLogger(logger, formatter=partial(Service._format_log, cast("Service", placed))).error(message)
    [record] = handler.buffer
    assert record.msg == f"[^---AIOKafkaConsumerThread]: {message}"
    return record


@pytest.mark.parametrize("name", [name for name in vars(aiokafka) if name.startswith("SLOW_PROCESSING_NO_")])
def test_what_faust_guesses_of_idle_workers_is_not_logged(name: str) -> None:
    guess = f"{getattr(aiokafka, name)} There are multiple possible explanations"
    told = logged_by_faust(guess)
    of_the_broker = name in {"SLOW_PROCESSING_NO_RECENT_FETCH", "SLOW_PROCESSING_NO_RECENT_RESPONSE"}
    of_the_broker |= name == "SLOW_PROCESSING_NO_HIGHWATER_SINCE_START"
    assert _no_guess(told) == of_the_broker
    assert _no_guess(logged_by_faust("Got exception: %r"))


def test_a_busy_loop_is_not_logged_as_a_thread_that_does_not_respond() -> None:
    said = inspect.getsource(ServiceThread._keepalive2)
    assert (guess := "Thread keepalive is not responding...") in said
    assert not _no_guess(logged_by_faust(guess))


def test_a_broker_that_is_away_is_not_told_of_without_end(caplog: pytest.LogCaptureFixture) -> None:
    """aiokafka says so ten times a second, most of it under its own bare name."""
    loggers = [logging.getLogger(name) for name in ("aiokafka", "aiokafka.conn", "librdkafka")]
    before = [list(logger.filters) for logger in loggers]
    try:
        _quieten()
        for logger in loggers:
            for _ in range(100):
                logger.error("Unable connect to node with id 1")
        assert [record.name for record in caplog.records] == ["aiokafka", "aiokafka.conn", "librdkafka"]
    finally:
        for logger, filters in zip(loggers, before, strict=True):
            logger.filters[:] = filters


@pytest.mark.kafka
def test_workers_come_and_go(stage: Stage) -> None:
    messages = numbers(stage, range(20, 50))
    third = len(messages) // 3
    stage.send(job_records(stage))
    one = stage.start(instance="one")
    stage.send(messages[:third])
    stage.await_rows(stage.topics.sums, expected_sums(stage, messages[:third]))
    port, _ = free_ports(2)
    two = stage.start(instance="two", health_port=port)
    awaited(lambda: _lives(port), "second worker")
    stage.send(messages[third : 2 * third])
    stage.await_rows(stage.topics.sums, expected_sums(stage, messages[: 2 * third]))
    one.kill()
    stage.send(messages[2 * third :])
    stage.await_rows(stage.topics.sums, expected_sums(stage, messages))
    assert two.process.poll() is None


def _lives(port: int) -> bool:
    return _answers(port) and httpx.get(f"http://127.0.0.1:{port}/live").status_code == 200


def _answers(port: int) -> bool:
    try:
        httpx.get(f"http://127.0.0.1:{port}/live")
    except httpx.TransportError:
        return False
    return True


@pytest.mark.kafka
def test_who_waits_for_an_answer_holds_its_offset_and_asks_again(stage: Stage) -> None:
    [job, *_] = jobs_of(stage)
    stage.send([number(stage.topics.numbers, job, value) for value in (2, 4, 6)])
    first = stage.start(processor="asker")
    asked = awaited(lambda: _three(stage.seen(stage.topics.questions)), "questions")
    stage.send([number(stage.topics.answers, job, 20, request=asked[0].headers["request"])])
    [partition] = {message.partition for message in stage.seen(stage.topics.numbers)}
    awaited(lambda: stage.committed("asker", stage.topics.numbers) == {partition: 1}, "held offset")
    first.kill()
    stage.start(processor="asker")
    again = awaited(lambda: _three(stage.seen(stage.topics.questions)[3:], 2), "questions asked again")
    assert [message.headers["request"] for message in again] == [f"{job}/1", f"{job}/2"]
    stage.send([number(stage.topics.answers, job, 10 * n, request=f"{job}/{n // 2 - 1}") for n in (4, 6)])
    stage.await_rows(stage.topics.results, {(job, str(10 * n), f"answer to {n}") for n in (2, 4, 6)})
    stage.await_all_committed("asker", stage.topics.numbers)


def _three(messages: list[Message], count: int = 3) -> list[Message] | None:
    return messages if len(messages) >= count else None


@pytest.mark.kafka
def test_a_sink_delivers_everything_though_it_is_killed(stage: Stage) -> None:
    values = range(20, 40)
    messages = [number(stage.topics.numbers, job, value) for value in values for job in jobs_of(stage)]
    lines = stage.folder / "lines"
    lines.touch()
    stage.send(messages[:50])
    first = stage.start(processor="line_sink")
    awaited(lines.read_text, "first lines")
    first.kill()
    stage.send(messages[50:])
    stage.start(processor="line_sink")
    stage.await_all_committed("line_sink", stage.topics.numbers)
    assert set(lines.read_text().splitlines()) == {f"{job} {value}" for value in values for job in jobs_of(stage)}


@pytest.mark.kafka
def test_the_state_of_an_ended_job_becomes_a_tombstone(stage: Stage) -> None:
    ended, *_ = jobs_of(stage)
    messages = [*numbers(stage, range(20, 25)), number(stage.topics.numbers, ended, END)]
    stage.send([*job_records(stage), *messages])
    stage.start()
    key = f"{stage.prefix}.sums/{ended}"

    def dropped() -> bool:
        states = [state for state in stage.seen(catalogue.STATE) if state.key == key]
        return bool(states) and states[-1].value is None

    awaited(dropped, "tombstone")
    stage.await_rows(stage.topics.sums, expected_sums(stage, messages))


@pytest.mark.kafka
def test_a_worker_shows_its_metrics_and_is_alive(stage: Stage) -> None:
    port, _ = free_ports(2)
    messages = numbers(stage, range(20, 25))
    stage.send([*job_records(stage), *messages])
    stage.start(health_port=port)
    stage.await_rows(stage.topics.sums, expected_sums(stage, messages))
    page = f"http://127.0.0.1:{port}"
    line = f'offbeat_messages_total{{processor="{stage.prefix}.sums",topic="{stage.topics.numbers.name}"}} 25.0'
    awaited(lambda: line in httpx.get(f"{page}/metrics").text, line)
    awaited(lambda: "offbeat_lag_messages{" in httpx.get(f"{page}/metrics").text, "lag")
    assert httpx.get(f"{page}/live").status_code == 200


@pytest.mark.kafka
def test_a_worker_whose_offset_does_not_move_asks_for_a_restart(stage: Stage) -> None:
    port, _ = free_ports(2)
    [job, *_] = jobs_of(stage)
    stage.send([number(stage.topics.numbers, job, value) for value in range(20, 25)])
    stage.start(processor="hoarder", health_port=port, stuck_after_s=3.0)
    said = re.compile(
        rf"{stage.topics.numbers.name} partition \d: messages were processed, and no offset was committed"
    )

    def stuck() -> bool:
        if not _answers(port):
            return False
        answer = httpx.get(f"http://127.0.0.1:{port}/live")
        return answer.status_code == 503 and said.match(answer.text) is not None

    awaited(stuck, "503")
    page = httpx.get(f"http://127.0.0.1:{port}/metrics").text
    assert f'offbeat_stuck{{processor="{stage.prefix}.hoarder"}} 1.0' in page
    held = f'processor="{stage.prefix}.hoarder",topic="{stage.topics.numbers.name}"'
    assert f"offbeat_uncommitted_messages{{{held}}} 5.0" in page
    assert f"offbeat_lag_messages{{{held}}} 0.0" in page


@pytest.mark.kafka
def test_what_would_hang_is_said_before_the_start(kafka: str, tmp_path: Path) -> None:
    prefix = f"t{uuid4().hex[:8]}"
    with staged(kafka, prefix, tmp_path) as stage:
        uneven = replace(stage.topics.more_numbers, name=f"{prefix}x.more_numbers", partitions=2)
        on_broker.apply(
            stage.bus,
            [
                uneven,
                *(
                    replace(t, name=t.name.replace(prefix, f"{prefix}x"))
                    for t in (stage.topics.numbers, stage.topics.sums)
                ),
            ],
        )
        refused = {
            f"BusError: missing on {kafka}: {prefix}y.more_numbers, {prefix}y.numbers, {prefix}y.sums: "
            "run `offbeat topics apply`": stage.start(prefix=f"{prefix}y"),
            "BusError: topics that are read together must have the same number of partitions: "
            f"{prefix}x.more_numbers has 2, {prefix}x.numbers has 3": stage.start(prefix=f"{prefix}x"),
            "SettingsError: OFFBEAT_WORKER__SESSION_TIMEOUT_S is 0.5: these brokers and this client take 1 to 30 s": (
                stage.start(session_timeout_s=0.5)
            ),
        }
        for line, worker in refused.items():
            assert worker.ended() == 1
            assert worker.log().splitlines()[-1] == line


@pytest.mark.kafka
def test_records_with_the_producers_time_are_refused(stage: Stage) -> None:
    entry = ConfigEntry("message.timestamp.type", "CreateTime", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, stage.topics.numbers.name, incremental_configs=[entry])
    [future] = stage.admin.incremental_alter_configs([resource]).values()
    future.result()
    stage.send(job_records(stage))

    def of_the_producer() -> bool:
        stage.send(numbers(stage, [20]))
        return any(message.timestamp_ns == 0 for message in stage.seen(stage.topics.numbers))

    awaited(of_the_producer, "record with the producer's time")
    worker = stage.start()
    assert worker.ended() == 1
    assert re.search(r"^BusError: .*numbers: its records carry the producers' time", worker.log(), re.MULTILINE)


@pytest.mark.kafka
def test_a_worker_outlives_its_broker_and_ends_in_time_without_it(local_kafka: LocalKafka, tmp_path: Path) -> None:
    with staged(local_kafka.bootstrap_servers, "t", tmp_path) as stage:
        messages = numbers(stage)
        half = len(messages) // 2
        stage.send([*job_records(stage), *messages[:half]])
        worker = stage.start(stop_within_s=5.0)
        stage.await_rows(stage.topics.sums, expected_sums(stage, messages[:half]))
        local_kafka.kill()
        local_kafka.start()
        stage.send(messages[half:])
        stage.await_rows(stage.topics.sums, expected_sums(stage, messages))
        local_kafka.kill()
        worker.process.send_signal(signal.SIGTERM)
        assert worker.ended() == 0 or "did not stop within 5 s" in worker.log()
