"""Where faults happen: the pipeline, what it stands on, and who judges each job that went through it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Self

from local.clickhouse import LocalClickHouse
from local.kafka import LocalKafka
from sinks.clickhouse.driver import DriverStore, ServerAddress
from sinks.clickhouse.store import Store
from tests.faults.tally import Tally
from tests.integration.on_call import OnCall, on_call
from tests.integration.outcome import Stored, in_process, new_database
from tests.integration.pipeline import Pipeline
from tests.integration.recordings import Recorded, new_job, simulated, under_job
from tests.integration.verdict import Verdict
from tests.services import ClickHouseAddress
from tests.sinks.clickhouse.relay import Relay

WITHIN_S = 300.0
"""How long a job may take, whatever befalls it."""

ITERATION_S = 0.3
"""Of a job: there is time for something to befall it while it trains."""


@dataclass(frozen=True)
class Services:
    """What the pipeline stands on. ``broker`` and ``server`` can be stopped; None where others use them as well."""

    kafka: str
    clickhouse: ClickHouseAddress
    broker: LocalKafka | None = None
    server: LocalClickHouse | None = None

    @classmethod
    @contextmanager
    def own(cls) -> Iterator[Self]:
        """A broker and a server that nobody else uses."""
        with LocalKafka() as broker, LocalClickHouse() as server:
            address = ClickHouseAddress(server.host, server.tcp_port, server.user, server.password)
            yield cls(broker.bootstrap_servers, address, broker, server)


@dataclass
class Site:
    """One pipeline for all faults, one after the other; the store is reached through ``relay``.

    ``random`` and ``tally`` are those of the fault at hand.
    """

    services: Services
    pipeline: Pipeline
    relay: Relay
    store: DriverStore
    reference: Store
    folder: Path
    random: Random
    tally: Tally

    @classmethod
    @contextmanager
    def deployed(cls, services: Services, folder: Path, *, iteration_s: float = ITERATION_S) -> Iterator[Self]:
        """Deploy the pipeline, and stop it after the block."""
        with ExitStack() as stack:
            person = stack.enter_context(on_call())
            database, expected = (stack.enter_context(new_database(services.clickhouse)) for _ in range(2))
            relay = stack.enter_context(Relay(database.port))
            pipeline = Pipeline(
                services.kafka,
                database,
                person,
                folder / "roles",
                overriding={"OFFBEAT_STORE__PORT": str(relay.port)},
                supervised=True,
                within_s=WITHIN_S,
                iteration_s=iteration_s,
            )
            stack.callback(pipeline.close)
            store, reference = (stack.enter_context(_opened(address)) for address in (database, expected))
            yield cls(services, pipeline, relay, store, reference, folder, Random(0), Tally(""))

    @property
    def person(self) -> OnCall:
        return self.pipeline.on_call

    @cached_property
    def simulated(self) -> Path:
        """The recording that most faults are tried on: two incidents, each opened, worse, resolved."""
        return simulated(self.folder / "simulated")

    def recording(self, of: Path | None = None) -> Recorded:
        """A recording under a job id of its own."""
        return under_job(of or self.simulated, new_job("faults"), self.folder)

    @contextmanager
    def diagnosing(self, *recordings: Recorded) -> Iterator[None]:
        """Produce recordings; once all has arrived everywhere, judge what came of them."""
        self.pipeline.repair()
        with self.pipeline.producing(*recordings):
            yield
        for recorded in recordings:
            self.judge(recorded, self.pipeline.stored(recorded))

    def diagnose(self, *recordings: Recorded) -> None:
        """Produce recordings, which nothing befalls meanwhile, and judge what came of them."""
        with self.diagnosing(*recordings):
            """Nothing."""

    def judge(self, recorded: Recorded, stored: Stored) -> None:
        """Compare what is stored and paged of a job with what an undisturbed run makes of its files."""
        taken = self.person.taken(recorded.job)
        self.tally.judge(recorded.job, Verdict.of(stored, in_process(recorded, self.reference), taken))

    @contextmanager
    def training_slowly(self, iteration_s: float) -> Iterator[None]:
        """Have the jobs of the block take that long for each iteration."""
        before, self.pipeline.iteration_s = self.pipeline.iteration_s, iteration_s
        try:
            yield
        finally:
            self.pipeline.iteration_s = before

    @contextmanager
    def outage(self, what: str, felt: Callable[[], int], *, times: int = 1) -> Iterator[None]:
        """Count an outage, which lasts until it is felt so many ``times``: ``felt`` counts what shows it.

        One that nobody feels, because all was done by then, tries nothing: the fault does not come to its end.
        """
        before = felt()
        self.tally.outages += 1
        yield
        self.pipeline.awaited(lambda: felt() >= before + times, f"sign that anybody felt {what}")

    def said(self, *words: str) -> int:
        """How often the roles and the producers have said any of these words, over all their starts."""
        logs = [process.log() for process in (*self.pipeline.roles.values(), *self.pipeline.producers)]
        return sum(log.count(word) for log in logs for word in words)

    def amid(self, least_s: float = 0.5, most_s: float = 6.0) -> None:
        """Let the roles work until some moment amid a job."""
        self.pipeline.rest(self.random.uniform(least_s, most_s))

    def expect(self, holds: bool, what: str) -> None:
        """Note a difference where something does not hold that ought to."""
        if not holds:
            self.tally.differences.append(what)


@contextmanager
def _opened(address: ServerAddress) -> Iterator[DriverStore]:
    store = DriverStore(address)
    try:
        yield store
    finally:
        store.close()
