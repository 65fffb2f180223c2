"""Several receivers of which all are told and one is enough."""

from collections.abc import Iterator

import httpx
import pytest

from schemas.errors import ReceiverError
from sinks.webhook.cluster import PAUSE_S, Cluster
from sinks.webhook.delivery import Delivery, PageRefused, ReceiverAway
from sinks.webhook.receiver import Request
from tests.sinks.webhook.fake_clock import FakeClock

REQUEST = Request(b"[]")


class Member:
    """Counts what it was asked; answers with ``status``, and not at all with 0."""

    def __init__(self, name: str) -> None:
        self.asked = 0
        self.status = 200
        self.delivery = Delivery(f"http://{name}/", transport=httpx.MockTransport(self._answer))

    def _answer(self, _: httpx.Request) -> httpx.Response:
        self.asked += 1
        if not self.status:
            raise httpx.ConnectError("refused")
        return httpx.Response(self.status, stream=httpx.ByteStream(b""))


@pytest.fixture
def members() -> Iterator[tuple[Member, Member]]:
    pair = Member("one"), Member("two")
    yield pair
    for member in pair:
        member.delivery.close()


@pytest.fixture
def cluster(members: tuple[Member, Member], clock: FakeClock) -> Cluster:
    return Cluster([member.delivery for member in members], clock=clock)


def test_all_are_told(cluster: Cluster, members: tuple[Member, Member]) -> None:
    cluster.post(REQUEST, "a/1")
    assert [member.asked for member in members] == [1, 1]


@pytest.mark.parametrize("status", [0, 400, 401, 500])
def test_one_is_enough(cluster: Cluster, members: tuple[Member, Member], status: int) -> None:
    for posts, failing in enumerate(members, 1):
        failing.status = status
        cluster.post(REQUEST, "a/1")
        failing.status = 200
        assert [member.asked for member in members] == [posts, posts]


def test_one_that_failed_is_left_alone_for_a_while(
    cluster: Cluster, members: tuple[Member, Member], clock: FakeClock
) -> None:
    one, two = members
    one.status = 0
    for _ in range(3):
        cluster.post(REQUEST, "a/1")
    assert (one.asked, two.asked) == (1, 3)
    one.status = 200
    clock.now += PAUSE_S
    cluster.post(REQUEST, "a/1")
    cluster.post(REQUEST, "a/1")
    assert (one.asked, two.asked) == (3, 5)


def test_where_the_others_fail_it_is_asked_all_the_same(cluster: Cluster, members: tuple[Member, Member]) -> None:
    one, two = members
    one.status = 0
    cluster.post(REQUEST, "a/1")
    one.status, two.status = 200, 0
    cluster.post(REQUEST, "a/2")
    assert (one.asked, two.asked) == (2, 2)


@pytest.mark.parametrize(
    ("statuses", "error"),
    [((0, 500), ReceiverAway), ((400, 0), ReceiverAway), ((400, 400), PageRefused), ((401, 401), ReceiverError)],
)
def test_where_nobody_takes_it_whoever_is_away_may_later(
    cluster: Cluster, members: tuple[Member, Member], statuses: tuple[int, int], error: type[ReceiverError]
) -> None:
    for member, status in zip(members, statuses, strict=True):
        member.status = status
    with pytest.raises(ReceiverError) as raised:
        cluster.post(REQUEST, "a/1")
    assert type(raised.value) is error
