"""Further workers of a role, which join its group and leave it again as the broker tells."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

import pytest

from tests.faults.kills import kill
from tests.faults.site import Site
from tests.integration.roles import KINDS, Role


@dataclass(frozen=True)
class Further:
    """A further worker of the group of the role ``name``. A rebalance counts once the broker has told how it ended."""

    site: Site
    name: str
    worker: Role

    @classmethod
    @contextmanager
    def started(cls, site: Site, name: str, instance: str) -> Iterator[Self]:
        """Start one; it takes its time to join. It does not outlive the block."""
        worker = site.pipeline.another(name, instance)
        worker.start()
        try:
            yield cls(site, name, worker)
        finally:
            worker.kill()

    def await_joined(self) -> None:
        """Wait until it has partitions, and others have some as well."""
        self.site.pipeline.awaited(self._has_joined, f"share of {self.worker.folder.name} in the partitions")
        self.site.tally.rebalances += 1

    def stop(self) -> None:
        """End it in order. Under a name of its own it has its place until its session is over, as if it came back."""
        code = self.worker.stop()
        self.site.expect(code == 0, f"{self.worker.folder.name} ended with {code}")

    def kill(self) -> None:
        """End it by SIGKILL."""
        kill(self.site, self.worker)

    def await_left(self) -> None:
        """Wait until it is forgotten, and others have all partitions."""
        self.site.pipeline.awaited(self._has_left, f"rebalance without {self.worker.folder.name}")
        self.site.tally.rebalances += 1

    def _has_joined(self) -> bool:
        if not self.worker.running:
            pytest.fail(f"a further worker ended before it had joined\n{self.worker.last_words()}")
        shares = self.site.pipeline.shares(self.name)
        return self.worker.folder.name in shares and len(shares) > 1 and all(shares.values())

    def _has_left(self) -> bool:
        shares = self.site.pipeline.shares(self.name)
        every = {(topic.name, partition) for topic in KINDS[self.name].reads for partition in range(topic.partitions)}
        return self.worker.folder.name not in shares and every == set().union(*shares.values())
