"""The whole pipeline on a real broker: whatever befalls a role, the same is found, stored and paged.

Each test feeds the running roles with a recording under a job id of its own. What must come of it is what the
runner without a broker makes of the same files, ids and all.
"""

import signal
import time
from collections import Counter
from collections.abc import Collection, Iterator
from itertools import count
from pathlib import Path

import pytest
from aiokafka.partitioner import murmur2

from schemas import catalogue
from schemas.message import Message, encode
from schemas.topic import Topic
from sinks.clickhouse.driver import DriverStore
from sinks.clickhouse.store import Store
from sinks.webhook import signing
from tests.integration.doomed import BROKEN, End, Fate
from tests.integration.on_call import FAILURE, on_call
from tests.integration.outcome import Stored, in_process, new_database
from tests.integration.pipeline import SECRET, Pipeline
from tests.integration.recordings import Recorded, new_job, simulated, under_job
from tests.integration.roles import KINDS
from tests.integration.verdict import Verdict
from tests.offbeat.command_line import EXAMPLE
from tests.services import ClickHouseAddress

pytestmark = [pytest.mark.kafka, pytest.mark.clickhouse]

AMID = {
    "monitor": (catalogue.ITERATIONS, 18),
    "search": (catalogue.FINDINGS, 2),
    "incidents": (catalogue.INCIDENTS, 1),
    "store": (catalogue.FINDINGS, 2),
    "page": (catalogue.INCIDENTS, 1),
}
"""How many records about the job, published or in the sinks taken, a role lives to see: it is amid its work then. One
life may have committed all but its last, so that those of all its lives are no more than there are: of iterations 36.
"""

TUNING = "tuning.env"
"""The file of settings that the roles look at while they run, in the pipeline's folder."""

ENDS = {
    "monitor": (End.OUTPUTS_SAFE, End.ALL_SAFE),
    "search": (End.ALL_SAFE,),
    "incidents": (End.OUTPUTS_SAFE, End.ALL_SAFE),
    "store": (End.ALL_SAFE,),
    "page": (End.OUTPUTS_SAFE, End.DELIVERED, End.ALL_SAFE),
}
"""What befalls each role in turn."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulated(tmp_path_factory.mktemp("simulated"))


@pytest.fixture(scope="module")
def deployed(kafka: str, clickhouse: ClickHouseAddress, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    with on_call() as person, new_database(clickhouse) as database:
        folder = tmp_path_factory.mktemp("deployed")
        (folder / TUNING).touch()
        tuned = {"OFFBEAT_WORKER__TUNING": str(folder / TUNING)}
        pipeline = Pipeline(kafka, database, person, folder, overriding=tuned)
        yield pipeline
        pipeline.close()


@pytest.fixture(scope="module")
def reference(clickhouse: ClickHouseAddress) -> Iterator[Store]:
    """Where the runner without a broker stores what it makes of the recordings."""
    with new_database(clickhouse) as database:
        store = DriverStore(database)
        yield store
        store.close()


@pytest.fixture
def pipeline(deployed: Pipeline) -> Pipeline:
    """All roles run, and nothing awaits any of them."""
    deployed.repair()
    return deployed


@pytest.fixture
def recorded(files: Path, tmp_path: Path) -> Recorded:
    return under_job(files, new_job("simulated"), tmp_path)


def assert_as_undisturbed(
    pipeline: Pipeline, reference: Store, recorded: Recorded, may_repeat: Collection[str] = ()
) -> Stored:
    """The same is stored as in process, and the receiver knows how each incident stands; what is stored.

    No page comes twice but those with the keys that ``may_repeat``.
    """
    stored = pipeline.stored(recorded)
    verdict = Verdict.of(stored, in_process(recorded, reference), pipeline.on_call.taken(recorded.job))
    assert not verdict.differences, "\n".join(verdict.differences[:10])
    assert not verdict.lost
    assert set(verdict.repeated) <= set(may_repeat)
    return stored


def test_undisturbed(pipeline: Pipeline, reference: Store, recorded: Recorded) -> None:
    with pipeline.producing(recorded):
        pass
    stored = assert_as_undisturbed(pipeline, reference, recorded)
    assert {(row["iteration"], tuple(row["ranks"])) for row in stored.findings.values() if row["active"]} == {
        *((iteration, (5,)) for iteration in (12, 13, 15, 19)),
        *((iteration, (2, 6)) for iteration in (26, 27, 29, 33)),
    }
    assert {(row["cause"], row["state"]) for row in stored.incidents.values()} == {
        ("compute_slow", "resolved"),
        ("communication_slow", "resolved"),
    }
    for request in pipeline.on_call.taken(recorded.job):
        signing.verify(request.headers[signing.HEADER.lower()], request.body, [SECRET], time.time())


def test_sigkill_between_flush_and_commit(pipeline: Pipeline, reference: Store, recorded: Recorded) -> None:
    """Every role amid its work, those that feed others first, while one job goes on."""
    fates = {
        name: [Fate(recorded.job, topic.name, records, end) for end in ENDS[name]]
        for name, (topic, records) in AMID.items()
    }
    roles = {name: pipeline.doom(name, *of) for name, of in fates.items()}
    may_repeat: set[str] = set()
    with pipeline.producing(recorded):
        for name, role in roles.items():
            for fate in fates[name]:
                assert pipeline.ended(role) == -signal.SIGKILL
                assert pipeline.lag(name) > 0
                if fate.end is End.DELIVERED:
                    may_repeat = {request.key for request in pipeline.on_call.taken(recorded.job)}
                role.start()
    assert_as_undisturbed(pipeline, reference, recorded, may_repeat)


def test_a_processing_error_ends_a_role_and_a_restart_resumes(
    pipeline: Pipeline, reference: Store, recorded: Recorded
) -> None:
    amid = {name: of for name, of in AMID.items() if name in {"monitor", "store"}}
    roles = {
        name: pipeline.doom(name, Fate(recorded.job, topic.name, records, End.ERROR))
        for name, (topic, records) in amid.items()
    }
    with pipeline.producing(recorded):
        for name, role in roles.items():
            assert pipeline.ended(role) == 1
            assert f"RuntimeError: {BROKEN}" in role.log()
            assert pipeline.lag(name) > 0
            role.start()
    assert_as_undisturbed(pipeline, reference, recorded)


def test_poison_among_good_records(pipeline: Pipeline, reference: Store, recorded: Recorded) -> None:
    topics = [catalogue.ITERATION_SUMMARIES, catalogue.ITERATIONS, catalogue.COMM_OPS]
    topics += [catalogue.FINDINGS, catalogue.INCIDENTS]
    poison = [(message, error) for topic in topics for message, error in _poison(topic, recorded.job)]
    pipeline.send(message for message, _ in poison)
    with pipeline.producing(recorded):
        pipeline.awaited(lambda: pipeline.stored(recorded).findings, "first finding")
        pipeline.send(message for message, _ in poison)
    assert_as_undisturbed(pipeline, reference, recorded)
    letters = pipeline.letters(recorded)
    assert all(letter["reason"] for letter in letters)
    assert Counter((letter["processor"], letter["topic"], letter["error"], letter["value"]) for letter in letters) == {
        (name, message.topic, error, message.value): 2 for message, error in poison for name in _decoders(message.topic)
    }


def _poison(topic: Topic, job: str) -> Iterator[tuple[Message, str]]:
    """Bad records under a job's key, and the error that each of them is."""
    headers = {"schema": topic.schema_id, "job": job}
    yield Message(topic.name, job, b"junk", headers), "UndecodableMessage"
    yield Message(topic.name, job, None, headers), "UndecodableMessage"
    yield Message(topic.name, job, b"", {"schema": "other/1", "job": job}), "WrongSchema"
    if topic is catalogue.ITERATION_SUMMARIES:
        row = {"rank": 0, "iteration": 3, "start_ns": 1, "end_ns": 2, "operators": 0, "lost_lines": 0}
        yield encode(topic, topic.from_rows([row]), job=f"not-{job}", key=job), "UnknownJob"


def _decoders(topic: str) -> list[str]:
    """The roles that look into a record of a topic; of comm_ops the search wants nothing but answers."""
    readers = [name for name, kind in KINDS.items() if topic in {read.name for read in kind.reads}]
    return [name for name in readers if (name, topic) != ("search", catalogue.COMM_OPS.name)]


def test_two_jobs_in_one_partition(pipeline: Pipeline, reference: Store, recorded: Recorded, tmp_path: Path) -> None:
    partition = _partition(recorded.job)
    job = next(job for job in (new_job("example") for _ in count()) if _partition(job) == partition)
    other = under_job(EXAMPLE, job, tmp_path)
    with pipeline.producing(recorded, other):
        pass
    assert {
        (message.job, message.partition)
        for message in pipeline.seen(catalogue.ITERATION_SUMMARIES)
        if message.job in {recorded.job, other.job}
    } == {(recorded.job, partition), (other.job, partition)}
    for one in (recorded, other):
        assert_as_undisturbed(pipeline, reference, one)


def _partition(job: str) -> int:
    return int(murmur2(job.encode()) & 0x7FFFFFFF) % catalogue.ITERATION_SUMMARIES.partitions


def test_the_receiver_fails_and_goes_away_and_comes_back(
    pipeline: Pipeline, reference: Store, recorded: Recorded
) -> None:
    person, page = pipeline.on_call, pipeline.roles["page"]
    before = page.log().count("ConnectError")
    person.instead = FAILURE
    with pipeline.producing(recorded):
        pipeline.awaited(lambda: person.failed, "page that the receiver fails to take")
        person.away()
        pipeline.awaited(lambda: page.log().count("ConnectError") > before, "page to a receiver that is away")
        pipeline.await_told(recorded)
        for name in ("monitor", "search", "incidents", "store"):
            pipeline.await_worked_off(name)
        assert pipeline.lag("page") > 0
        assert person.taken(recorded.job) == []
        person.instead = None
        person.back()
    assert_as_undisturbed(pipeline, reference, recorded)


def test_thresholds_change_without_a_restart(pipeline: Pipeline, reference: Store, files: Path, tmp_path: Path) -> None:
    tuning = Path(pipeline.settings["OFFBEAT_WORKER__TUNING"])
    try:
        tuning.write_text("OFFBEAT_MONITOR__DELTA=5\nOFFBEAT_MONITOR__FLUCTUATION__DELTA=5\n")
        blunt = under_job(files, new_job("blunt"), tmp_path)
        with pipeline.producing(blunt):
            pass
    finally:
        tuning.write_text("")
    found = pipeline.stored(blunt)
    assert found.iterations
    assert not any(row["active"] for row in found.findings.values())
    sharp = under_job(files, new_job("sharp"), tmp_path)
    with pipeline.producing(sharp):
        pass
    assert_as_undisturbed(pipeline, reference, sharp)
