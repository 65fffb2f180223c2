"""The receiver on loopback and the time that does not pass."""

from collections.abc import Iterator

import pytest

from tests.sinks.webhook.fake_clock import FakeClock
from tests.sinks.webhook.local_receiver import LocalReceiver


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalReceiver]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    local = LocalReceiver()
    yield local
    local.away()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()
