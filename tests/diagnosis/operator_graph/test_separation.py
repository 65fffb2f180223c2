"""Which member makes a channel's transfers slow: the one whose other channels are slow as well."""

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from diagnosis.job import Job, Place
from diagnosis.operator_graph.attribution import walk
from diagnosis.operator_graph.attribution_settings import AttributionSettings
from diagnosis.operator_graph.logs import Logs
from diagnosis.operator_graph.needs import Answer, Need
from diagnosis.operator_graph.separation import Separation, SeparationSettings, separate, transfers
from schemas.catalogue import COMM_OPS
from tests.diagnosis.answering import Asked, answered
from tests.diagnosis.made_logs import MS, Collective, Compute, Step, Training

GROUPS: dict[str, tuple[int, ...]] = {"row0": (0, 1), "row1": (2, 3), "column0": (0, 2), "column1": (1, 3)}
GROUPS |= {"across0": (0, 3), "across1": (1, 2), "all": (0, 1, 2, 3)}
"""A square of four ranks: every NIC carries the traffic with each of the others, and everybody's."""


def square(extra_ms: Mapping[str, float], times: int = 1) -> Training:
    def program(rank: int) -> list[Step]:
        names = (f"row{rank // 2}", f"column{rank % 2}", f"across{int(rank in {1, 2})}", "all")
        steps: list[Step] = []
        for name in names:
            steps += [Compute(), *[Collective(name, extra_ms=extra_ms.get(name, 0) / times)] * times]
        return steps

    return Training({rank: program(rank) for rank in range(4)}, GROUPS)


def separated(
    training: Training,
    channel: str,
    job: Job | None = None,
    missing: tuple[int, ...] = (),
    at_hand: tuple[str, ...] = (),
    settings: SeparationSettings | None = None,
    table: pa.Table | None = None,
    *,
    narrow: bool = False,
) -> tuple[Separation, Asked]:
    """What is told of the slow channel that a walk from one of its members finds, and what is asked for that; ``table``
    is what then comes.
    """
    job, table = job or training.job(), training.table() if table is None else table
    excess_ns, members = 100 * MS, training.groups[channel]
    logs = Logs(job, tuple(range(training.iterations)))
    found, _ = answered(
        walk(logs, training.irregular, training.baseline, members[:1], excess_ns, AttributionSettings()),
        training.table(),
    )
    leaf = next(leaf for leaf in found.leaves if leaf.communicator == channel)
    logs = Logs(job, tuple(range(training.iterations)), narrow=narrow)
    answered(logs.fetch({channel: members, **dict.fromkeys(at_hand, range(4))}), table)
    [told], asked = answered(
        separate(logs, [leaf], training.baseline, settings or SeparationSettings()), table, missing=missing
    )
    return told, asked


def test_the_member_whose_other_channels_are_slow_is_told_apart() -> None:
    told, _ = separated(square({"row0": 60, "column1": 50, "across1": 50, "all": 50}), "row0")
    assert told == Separation((0, 1), (1,))
    other, _ = separated(square({"row0": 60, "column0": 50, "across0": 50, "all": 50}), "row0")
    assert other.ranks == (0,)


@pytest.mark.parametrize(("others_ms", "ranks"), [(0, (0,)), (10, (0,)), (40, (0, 1, 2))], ids=["no", "little", "much"])
def test_who_is_slow_where_another_suspect_takes_part_is_not_suspected_for_that(
    others_ms: float, ranks: tuple[int, ...]
) -> None:
    """Of each of three the half of their other channels is the same slow group."""
    groups = {"wide": (0, 1, 2, 3), "small": (0, 1, 2), "own0": (0, 4), "own1": (1, 4), "own2": (2, 4)}
    extra_ms = {"wide": 60.0, "small": 60.0, "own0": 50.0, "own1": others_ms, "own2": others_ms}
    programs: dict[int, list[Step]] = {
        rank: [
            step
            for name, members in groups.items()
            if rank in members
            for step in (Compute(), Collective(name, extra_ms=extra_ms[name]))
        ]
        for rank in range(5)
    }
    told, _ = separated(Training(programs, groups), "wide")
    assert told == Separation((0, 1, 2, 3), ranks)


def test_what_a_member_sends_late_shows_with_whom_it_reaches_late() -> None:
    """As where packets leave a host late: its own operators end in time, but for those that wait for an answer."""
    late = {("column1", 3), ("across1", 2)}
    programs = square({"row0": 60}).programs
    programs = {
        rank: [
            replace(step, late_ms=50) if isinstance(step, Collective) and (step.communicator, rank) in late else step
            for step in steps
        ]
        for rank, steps in programs.items()
    }
    told, _ = separated(Training(programs, GROUPS), "row0")
    assert told == Separation((0, 1), (1,))


def test_an_end_of_which_chance_is_not_known_hides_nothing_of_the_other() -> None:
    training, settings = square({"column1": 50}), SeparationSettings()
    job, asking = training.job(), Logs(training.job(), tuple(range(training.iterations)))
    seen, _ = answered(
        transfers(asking, (1, 3), ["column1"], training.irregular, training.baseline, settings), training.table()
    )
    known = {of: chance for of, chance in seen.chance.items() if of[0] == 1}
    for told in (seen, replace(seen, chance=known)):
        [lost] = told.slowness(job, 1, training.irregular, settings, lambda members: True)
        assert lost == pytest.approx(50 * MS, rel=0.1)


def in_pairs(extra_ms: Mapping[str, float], lonely: bool = False) -> Training:
    """Two ranks that share a channel, each with four others beside; ``lonely``: one of them has no other."""
    groups: dict[str, tuple[int, ...]] = {"both": (0, 1)}
    groups |= {f"of{rank}-{other}": (rank, other) for rank in range(int(lonely), 2) for other in (2, 3, 4, 5)}
    programs: dict[int, list[Step]] = {
        rank: [
            step
            for name, members in groups.items()
            if rank in members
            for step in (Compute(), Collective(name, extra_ms=extra_ms.get(name, 0)))
        ]
        for rank in range(6)
    }
    return Training(programs, groups)


def test_who_alone_lost_on_another_channel_is_pointed_to_though_most_are_as_fast_as_ever() -> None:
    """As where a NIC's line lets small messages pass, but for those that come after a large one."""
    assert separated(in_pairs({"both": 60, "of1-3": 20}), "both")[0] == Separation((0, 1), (), (1,))
    assert separated(in_pairs({"both": 60, "of1-3": 20, "of0-2": 20}), "both")[0] == Separation((0, 1), ())
    little = in_pairs({"both": 60, "of1-3": 4})
    assert separated(little, "both")[0] == Separation((0, 1), ())
    assert separated(little, "both", settings=SeparationSettings(alone_share=0.05))[0].points_to == (1,)


@pytest.mark.parametrize(("tors", "told"), [(1, (1,)), (2, ())])
def test_a_slow_spine_slows_few_channels_as_well(tors: int, told: tuple[int, ...]) -> None:
    devices = [{"device": f"nic:h{rank}/mlx", "kind": "nic"} for rank in range(6)]
    devices += [{"device": f"tor{tor}", "kind": "tor"} for tor in range(tors)]
    devices.append({"device": "spine", "kind": "spine"})
    cables = [(f"nic:h{rank}/mlx", f"tor{rank % tors}") for rank in range(6)]
    cables += [(f"tor{tor}", "spine") for tor in range(tors)]
    links = [{"link": f"{a}-{b}", "a": a, "b": b} for a, b in cables]
    training = in_pairs({"both": 60, "of1-3": 20})
    places = tuple(Place(rank, f"h{rank}", 0, ("mlx",)) for rank in range(6))
    job = replace(training.job(), places=places, row={"devices": devices, "links": links})
    assert separated(training, "both", job)[0] == Separation((0, 1), (), told)


@pytest.mark.parametrize("silent", [2, 4])
def test_of_whom_something_is_unknown_it_may_have_lost_as_well(silent: int) -> None:
    """A partner of each of the two did not answer: what they lost there nobody knows."""
    training = in_pairs({"both": 60, "of1-3": 20})
    assert separated(training, "both", missing=(silent,))[0] == Separation((0, 1), ())


def test_nvlinks_serve_all_of_a_host() -> None:
    training = in_pairs({"both": 60, "of1-3": 20})
    job = replace(training.job(), places=tuple(Place(rank, "h0", rank, ()) for rank in range(6)))
    assert separated(training, "both", job)[0] == Separation((0, 1), ())


def test_who_has_no_other_channel_may_be_slow_as_well() -> None:
    assert separated(in_pairs({"both": 60, "of1-3": 20}, lonely=True), "both")[0] == Separation((0, 1), ())


def test_a_channel_that_is_slow_alone_tells_nobody_apart() -> None:
    told, _ = separated(square({"row0": 60}), "row0")
    assert told == Separation((0, 1), ())


def test_a_channel_that_all_of_them_share_tells_nobody_apart() -> None:
    """Both are slow in what everybody does together; that one of them is a little slower there means nothing."""
    names = ("row0", "row1", "all")
    rank_groups = {rank: (f"row{rank // 2}", "all") for rank in range(4)}
    slow = {"row0": 60, "all": 50}
    programs: dict[int, list[Step]] = {
        rank: [step for name in of for step in (Compute(), Collective(name, extra_ms=slow.get(name, 0)))]
        for rank, of in rank_groups.items()
    }
    told, _ = separated(Training(programs, {name: GROUPS[name] for name in names}), "row0")
    assert told == Separation((0, 1), ())


def test_members_that_are_slow_alike_are_all_suspects() -> None:
    told, _ = separated(square({"row0": 60, "column0": 50, "across0": 50, "column1": 50, "across1": 50}), "row0")
    assert told.ranks == (0, 1)


def test_a_suspect_beside_a_far_stronger_one_is_none() -> None:
    told, _ = separated(square({"row0": 60, "column0": 9, "across0": 9, "column1": 90, "across1": 90}), "row0")
    assert told.ranks == (1,)


def test_the_widest_channel_is_told_by_the_narrow_ones() -> None:
    told, _ = separated(square({"all": 60, "row1": 50, "column0": 50, "across1": 50}), "all")
    assert told == Separation((0, 1, 2, 3), (2,))


def test_channels_of_another_medium_say_nothing() -> None:
    """Rows stay within a host: they are slow for another reason, and are not even asked for."""
    training = square({"column0": 60, "row0": 90, "across1": 50})
    places = tuple(Place(rank, f"h{rank // 2}", rank % 2, (f"nic{rank % 2}",)) for rank in range(4))
    job = replace(training.job(), places=places)
    told, asked = separated(training, "column0", job)
    assert told.ranks == (2,)
    assert separated(training, "column0", job, at_hand=("row0", "row1"))[0] == told
    assert not {need.communicator for need in asked.needs} & {"row0", "row1"}


def late_around(crest: float, step_ms: float = 5) -> list[float]:
    """By how much each of eight ranks ends a collective later than the one opposite to the crest."""
    return [step_ms * abs((rank - crest) % 8 - 4) for rank in range(8)]


def ring(
    late_ms: list[float], hosts: int = 8, order: tuple[int, ...] = tuple(range(8)), beside: float | None = None
) -> tuple[Training, Job]:
    """Eight ranks whose one collective is slow; ``beside`` what they do in pairs, which then takes so much longer."""
    pairs = {f"pair{k}": (2 * k, 2 * k + 1) for k in range(4)} if beside is not None else {}
    programs: dict[int, list[Step]] = {
        rank: [
            Compute(),
            Collective("ring", extra_ms=60, late_ms=late_ms[order.index(rank)]),
            *(Collective(name, extra_ms=beside or 0) for name, members in pairs.items() if rank in members),
        ]
        for rank in range(8)
    }
    training = Training(programs, {"ring": order, **pairs})
    places = tuple(Place(rank, f"h{rank % hosts}", rank // hosts, (f"nic{rank}",)) for rank in range(8))
    return training, replace(training.job(), places=places)


def on_ring(training: Training, job: Job, table: pa.Table | None = None) -> tuple[int, ...]:
    told, _ = separated(training, "ring", job, table=table)
    assert (set(told.members), told.ranks) == (set(range(8)), ())
    return told.points_to


def test_where_there_is_no_other_channel_the_ends_of_a_ring_point_to_a_part_of_it() -> None:
    assert on_ring(*ring(late_around(6))) == (5, 6, 7)
    assert on_ring(*ring(late_around(0))) == (0, 1, 7)
    assert on_ring(*ring(late_around(6, step_ms=0))) == ()
    assert on_ring(*ring(late_around(6, step_ms=0.2))) == ()


def test_a_ring_goes_around_its_members_in_their_own_order() -> None:
    order = (0, 2, 4, 6, 1, 3, 5, 7)
    assert on_ring(*ring(late_around(5), order=order)) == (1, 3, 5)


def test_members_that_share_hosts_are_no_ring_of_nics() -> None:
    assert on_ring(*ring(late_around(6), hosts=4)) == ()
    assert on_ring(*ring(late_around(6), hosts=1)) == ()


def test_a_ring_says_nothing_against_members_whose_other_channels_are_fine() -> None:
    assert on_ring(*ring(late_around(6), beside=0.0)) == ()


def test_a_ring_without_all_of_its_ends_says_nothing() -> None:
    training, job = ring(late_around(6))
    table = training.table()
    ends = pc.if_else(pc.equal(table["rank"], 3), None, table["end_ns"])
    assert on_ring(training, job, table.set_column(table.column_names.index("end_ns"), "end_ns", ends)) == ()


def test_a_ring_of_which_a_line_is_lost_says_nothing() -> None:
    training, job = ring(late_around(6))
    table = training.table()
    of_ring = pc.and_(pc.equal(table["communicator"], "ring"), pc.equal(table["iteration"], training.irregular))
    for rank in (3, 6):
        assert on_ring(training, job, table.filter(pc.invert(pc.and_(of_ring, pc.equal(table["rank"], rank))))) == ()


def test_only_the_communicators_of_the_members_are_asked_for() -> None:
    _, asked = separated(square({"row0": 60, "column1": 50, "across1": 50}), "row0")
    assert not {need.communicator for need in asked.needs} & {"row1", None}


def test_of_many_operators_some_stand_for_all() -> None:
    slow = {"row0": 60, "column1": 50, "across1": 50, "all": 50}
    told, asked = separated(square(slow, times=8), "row0", settings=SeparationSettings(most_operators=3))
    assert told == Separation((0, 1), (1,))
    sampled = {need.communicator: need for need in asked.needs if need.positions}
    assert sampled.keys() == {"column0", "column1", "across0", "across1", "all"}
    assert {need.positions for need in sampled.values()} == {(0, 3, 7)}
    assert sampled["column1"].ranks == (1, 3)
    listed = [need for need in asked.needs if not need.positions and need.communicator != "pp"]
    assert {(len(need.ranks), len(need.iterations)) for need in listed} == {(1, 1)}


@pytest.mark.parametrize(("most", "positions"), [(5, {(0, 1, 3, 5, 7)}), (8, set())])
def test_where_ends_are_not_logged_more_of_them_do(most: int, positions: set[tuple[int, ...]]) -> None:
    training = square({"row0": 60, "column1": 50, "across1": 50, "all": 50}, times=8)
    table = training.table()
    at = table.schema.get_field_index("end_ns")
    bare = table.set_column(at, table.schema.field(at), pa.nulls(len(table), pa.int64()))
    settings = SeparationSettings(most_operators=3, most_without_ends=most)
    told, asked = separated(training, "row0", settings=settings, table=bare, narrow=True)
    assert told.ranks == (1,)
    assert {need.positions for need in asked.needs if need.positions} == positions


@pytest.mark.parametrize(
    ("logged", "places"),
    [("end_ns", (0, 3, 7)), ("next_call_ns", (0, 1, 3, 5, 7)), ("start_ns", ())],
)
def test_none_stand_for_others_unless_it_is_told_when_they_ended(logged: str, places: tuple[int, ...]) -> None:
    training = square({}, times=8)
    rows = [
        {"rank": 0, "communicator": "all", "op": "all_reduce", "iteration": training.irregular, "position": place}
        | {"seq": place, "call_ns": place * MS, logged: (place + 1) * MS}
        for place in range(8)
    ]
    settings = SeparationSettings(most_operators=3, most_without_ends=5)
    logs = Logs(training.job(), (*training.baseline, training.irregular), narrow=True)
    search = transfers(logs, {0}, ["all"], training.irregular, training.baseline, settings)
    assert next(search) == (Need((0,), (training.irregular,), "all"),)
    [needed] = search.send(Answer(COMM_OPS.from_rows(rows)))
    assert needed.positions == places


def test_where_nobody_lists_the_operators_all_are_asked_for() -> None:
    slow = {"row0": 60, "column1": 50, "across1": 50, "all": 50}
    settings = SeparationSettings(most_operators=3)
    told, asked = separated(square(slow, times=8), "row0", missing=(0,), settings=settings)
    assert told.ranks == (1,)
    whole = {(need.communicator, need.ranks) for need in asked.needs if not need.positions and len(need.iterations) > 1}
    assert whole >= {("all", (1,)), ("all", (2, 3))}, "first the members', then of whom they meet"
    assert {need.communicator for need in asked.needs if need.positions} == {"column1", "across1"}


@pytest.mark.parametrize("missing", [(2, 3), (0, 1, 2, 3)])
def test_without_the_others_nobody_is_told_apart(missing: tuple[int, ...]) -> None:
    told, _ = separated(square({"row0": 60, "column1": 50, "across1": 50}), "row0", missing=missing)
    assert told.ranks == ()
