"""The walk that follows amounts: where it goes, what it calls a cause, what it leaves alone."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from diagnosis.job import Job, Place
from diagnosis.operator_graph.attribution import Walk, walk
from diagnosis.operator_graph.attribution_settings import AttributionSettings
from diagnosis.operator_graph.leaf import Leaf
from diagnosis.operator_graph.logs import Logs
from tests.diagnosis.answering import Asked, answered
from tests.diagnosis.made_logs import MS, Collective, Compute, Recv, Send, Step, Training
from tests.diagnosis.operator_graph.published_case import SLOW, reduced

PLAIN = AttributionSettings()


def walked(
    training: Training,
    pivots: Sequence[int],
    excess_ms: float,
    settings: AttributionSettings | None = None,
    missing: Sequence[int] = (),
    job: Job | None = None,
) -> tuple[Walk, Asked]:
    logs = Logs(job or training.job(), tuple(range(training.iterations)))
    search = walk(logs, training.irregular, training.baseline, pivots, int(excess_ms * MS), settings or PLAIN)
    return answered(search, training.table(), missing)


def places(found: Walk) -> set[tuple[int, str | None]]:
    return {(leaf.rank, leaf.communicator) for leaf in found.leaves}


def chain(extra_ms: float = 50.0, stages: int = 4) -> Training:
    """A pipeline of blocking sends; the last stage computes longer, the others wait one for the next."""

    def program(rank: int) -> list[Step]:
        late = Compute(10, extra_ms=extra_ms if rank == stages - 1 else 0)
        steps: list[Step] = [late] if rank == stages - 1 else [Compute(10), Recv(rank + 1)]
        return [*steps, Compute(2), *([Send(rank - 1)] if rank else []), Collective("all")]

    return Training({rank: program(rank) for rank in range(stages)}, {"all": tuple(range(stages))})


def test_the_walk_passes_from_rank_to_rank_to_the_one_that_computed() -> None:
    found, asked = walked(chain(), (0,), 50)
    [leaf] = found.leaves
    assert (leaf.rank, leaf.communicator, leaf.path) == (3, None, (0, 1, 2, 3))
    assert leaf.excess_ns == pytest.approx(50 * MS, rel=0.02)
    assert leaf.operator.op == "send"
    assert [(wait.waiting_rank, wait.awaited_rank) for wait in found.waits] == [(0, 1), (1, 2), (2, 3)]
    assert all(wait.ns == pytest.approx(50 * MS, rel=0.02) for wait in found.waits)
    assert found.visited == [0, 1, 2, 3]
    assert asked.ranks == {0, 1, 2, 3}


def test_a_culprit_among_many_waiting_groups_is_reached_in_waves() -> None:
    """The published case: the walk needs a wave a hop, whatever the pivots."""
    found, asked = walked(reduced(), (0, 37, 70, 127), 80)
    assert places(found) == {(SLOW, None)}
    assert asked.rounds <= 2 * 9
    assert len(asked.ranks) < 64


def test_a_walk_is_bounded() -> None:
    found, _ = walked(chain(), (0,), 50, AttributionSettings(most_ranks=2))
    assert (found.visited, found.leaves, found.bounded) == ([0, 1], [], True)
    assert not walked(chain(), (0,), 50)[0].bounded


def slow_pairs(pairs: int) -> Training:
    """Each pair of ranks loses 50 ms on a channel of its own, as many others lose none; then all wait 50 ms for the
    last rank, which computes.
    """
    late = 4 * pairs

    def program(rank: int) -> list[Step]:
        slow = [Compute(), Collective(f"pair{rank // 2}", extra_ms=50 if rank < 2 * pairs else 0)]
        return [*([Compute(100, extra_ms=100)] if rank == late else slow), Collective("all")]

    channels = {f"pair{pair}": (2 * pair, 2 * pair + 1) for pair in range(2 * pairs)}
    return Training({rank: program(rank) for rank in range(late + 1)}, channels | {"all": tuple(range(late + 1))})


@pytest.mark.parametrize(("pairs", "is_wide"), [(2, False), (3, True)])
def test_a_walk_that_sees_many_slow_channels_apart_goes_no_further(pairs: int, is_wide: bool) -> None:
    """Not a cable is slow, but a switch above: every way leads to one more channel."""
    pivots, late = tuple(range(4 * pairs)), 4 * pairs
    found, _ = walked(slow_pairs(pairs), pivots, 100, AttributionSettings(most_channels=3))
    assert {name for _, name in places(found)} - {None} == {f"pair{pair}" for pair in range(pairs)}
    assert (found.visited, found.bounded) == ([*pivots, *([] if is_wide else [late])], is_wide)


@pytest.mark.parametrize(("excess_ms", "is_cause"), [(190, True), (210, False)])
def test_a_cause_lost_a_material_share(excess_ms: float, is_cause: bool) -> None:
    """A quarter of the iteration's excess; here 50 ms were lost."""
    found, _ = walked(chain(), (3,), excess_ms)
    assert places(found) == ({(3, None)} if is_cause else set())


@pytest.mark.parametrize(("excess_ms", "is_followed"), [(320, True), (340, False)])
def test_a_wait_is_followed_down_to_a_lesser_share(excess_ms: float, is_followed: bool) -> None:
    found, _ = walked(chain(), (0,), excess_ms)
    assert bool(found.waits) == is_followed


def test_a_wait_is_followed_though_it_scatters_with_who_else_is_awaited() -> None:
    """Rank 1 takes 3960 to 4040 ms, so that the wait for rank 2, which is slow beyond any doubt, is within three of
    its standard deviations; for rank 1, which is no slower than usual, nobody is told to wait.
    """
    training = Training(
        {
            rank: [Compute(ms, extra_ms=extra), Collective("g")]
            for rank, ms, extra in ((0, 10, 0), (1, 4000, 0), (2, 10, 4050))
        },
        {"g": (0, 1, 2)},
    )
    assert places(walked(training, (0,), 70)[0]) == {(2, None)}
    assert not walked(training, (0,), 70, replace(PLAIN, follow_sigmas=3.0))[0].waits
    assert places(walked(training, (0, 1), 70)[0]) == {(2, None)}


def late_in_turn() -> Training:
    """Ranks 1 to 8 lose 10 ms among themselves eight times, and each of them once enters last what rank 0 waits in."""

    def program(rank: int) -> list[Step]:
        steps: list[Step] = []
        for turn in range(1, 9):
            own: list[Step] = [Collective("tp", extra_ms=10), Compute(1, extra_ms=0.5 if turn == rank else 0)]
            steps += [*([Compute(2)] if rank == 0 else own), Collective("ep")]
        return steps

    tensor = tuple(range(1, 9))
    return Training({rank: program(rank) for rank in range(9)}, {"ep": (0, *tensor), "tp": tensor})


def test_of_a_host_that_is_late_as_a_whole_one_rank_stands_for_all() -> None:
    """None of its ranks is awaited for the least share of the excess."""
    training = late_in_turn()
    hosts = replace(training.job(), places=tuple(Place(rank, f"h{min(rank, 1)}", rank) for rank in range(9)))
    found, _ = walked(training, (0,), 84, job=hosts)
    [wait] = found.waits
    assert wait.awaited_rank in range(1, 9)
    assert wait.ns == pytest.approx(84 * MS, rel=0.03)
    assert places(found) == {(wait.awaited_rank, "tp")}
    assert walked(training, (0,), 84)[0].waits == []  # as many hosts as ranks: nobody is slow enough


def test_what_varies_as_much_anyway_is_no_cause() -> None:
    """The rank computes now 0, now 40 ms longer: 50 ms are no surprise."""
    restless = Training(
        {0: [Compute(400, extra_ms=5), Collective("g")], 1: [Compute(10), Collective("g")]}, {"g": (0, 1)}
    )
    found, _ = walked(restless, (0, 1), 6)
    assert found.leaves == []


def test_a_slow_transfer_is_a_cause_with_all_its_members() -> None:
    training = Training(
        {rank: [Compute(), Collective("g"), Compute(), Collective("g", extra_ms=50)] for rank in range(3)},
        {"g": (0, 1, 2)},
    )
    for pivots in ((0,), (0, 1, 2)):  # those who share the transfers do not witness that all transfers are slow
        leaf, *others = walked(training, pivots, 50)[0].leaves
        assert (leaf.rank, leaf.communicator, leaf.members) == (0, "g", (0, 1, 2))
        assert (leaf.operator.position, leaf.iteration) == (1, training.irregular)
        assert leaf.excess_ns == pytest.approx(50 * MS, rel=0.02)
        assert {other.members for other in others} <= {leaf.members}


def test_a_slow_link_is_a_cause_with_its_two_ends() -> None:
    training = Training(
        {
            0: [Compute(), Recv(1), Collective("all")],
            1: [Compute(), Send(0, extra_ms=50), Collective("all")],
            2: [Compute(), Collective("all")],
        },
        {"all": (0, 1, 2)},
    )
    found, _ = walked(training, (2,), 50)
    [leaf] = {(leaf.communicator, leaf.members) for leaf in found.leaves}
    assert leaf == ("pp", (0, 1))


def test_what_was_lost_in_the_iteration_before_is_found_there() -> None:
    """Rank 3 was slow at the end of the iteration before: rank 2 is late already when this one begins."""
    training = Training(
        {
            0: [Collective("g"), Compute(60)],
            1: [Collective("g"), Compute(60)],
            2: [Collective("g"), Compute(30), Collective("h"), Compute(5)],
            3: [Compute(30, extra_ms=120), Collective("h")],
        },
        {"g": (0, 1, 2), "h": (2, 3)},
        extra_in=11,
    )
    found, _ = walked(training, (0,), 60)
    [leaf] = found.leaves
    assert (leaf.rank, leaf.communicator, leaf.path, leaf.iteration) == (3, None, (0, 2, 3), 11)


def test_members_that_do_not_answer_end_a_walk() -> None:
    found, asked = walked(chain(), (0,), 50, missing=[2])
    assert (found.leaves, found.visited) == ([], [0, 1])
    assert 3 not in {wait.awaited_rank for wait in found.waits}
    assert 2 in asked.ranks


def test_a_rank_that_stops_answering_is_not_judged_by_a_part_of_its_log() -> None:
    """It told of one communicator, then its host was gone: what it did in between is not known."""
    training = chain()
    logs = Logs(training.job(), tuple(range(training.iterations)))
    answered(logs.fetch({"all": [3]}), training.table())
    search = walk(logs, training.irregular, training.baseline, (3,), 50 * MS, PLAIN)
    found, _ = answered(search, training.table(), [3])
    assert found.leaves == []


def test_leaves_say_where_most_was_lost() -> None:
    found, _ = walked(chain(), (3,), 50)
    [leaf] = found.leaves
    assert isinstance(leaf, Leaf)
    assert (leaf.operator.rank, leaf.operator.communicator, leaf.path) == (3, "pp", (3,))


def test_what_most_channels_lose_is_shared_and_no_cause() -> None:
    """Five pairs of hosts: one that is slow is a cause, five that are slow alike are what somebody above them does."""
    groups = {f"pair{at}": (2 * at, 2 * at + 1) for at in range(5)}

    def of(slow: Sequence[str]) -> Walk:
        programs: dict[int, list[Step]] = {
            rank: [Compute(), Collective(f"pair{rank // 2}", extra_ms=60 if f"pair{rank // 2}" in slow else 0)]
            for rank in range(10)
        }
        return walked(Training(programs, groups), pivots=range(10), excess_ms=60)[0]

    alone, together = of(["pair1"]), of([*groups])
    assert {leaf.members for leaf in alone.leaves} == {(2, 3)}
    assert not alone.shared
    assert not together.leaves
    assert {(leaf.members, leaf.shared) for leaf in together.shared} == {(pair, True) for pair in groups.values()}
