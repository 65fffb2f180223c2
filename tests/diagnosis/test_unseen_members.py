"""Communicators that a rank without a log may belong to."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from diagnosis.communicator_use import CommunicatorUse
from diagnosis.job import Layout
from diagnosis.unseen_members import in_doubt

OPS = {"tp": ("all_reduce", False), "dp": ("reduce_scatter", True), "pp": ("send", False), "mp": ("all_reduce", True)}


def groups(layout: Layout) -> dict[str, tuple[int, ...]]:
    """Every communicator of a job in Megatron's order, by a name that says its kind."""
    tp, dp, pp = layout.tp or 1, layout.dp or 1, layout.pp or 1
    rank = {(s, d, t): (s * dp + d) * tp + t for s in range(pp) for d in range(dp) for t in range(tp)}
    made: dict[str, tuple[int, ...]] = {}
    for s, d in ((s, d) for s in range(pp) for d in range(dp)):
        made[f"tp{s}.{d}"] = tuple(rank[s, d, t] for t in range(tp))
    for s, t in ((s, t) for s in range(pp) for t in range(tp)):
        made[f"dp{s}.{t}"] = tuple(rank[s, d, t] for d in range(dp))
    for d, t in ((d, t) for d in range(dp) for t in range(tp)):
        made[f"pp{d}.{t}"] = tuple(rank[s, d, t] for s in range(pp))
    for d in range(dp):
        made[f"mp{d}"] = tuple(rank[s, d, t] for s in range(pp) for t in range(tp))
    return made


def uses(made: dict[str, tuple[int, ...]], missing: set[int]) -> list[CommunicatorUse]:
    """What is seen of them without some ranks' logs: point-to-point shows the peer, a collective does not."""
    seen = []
    for name, ranks in made.items():
        op, in_step = OPS[name[:2]]
        shown = ranks if op == "send" else tuple(rank for rank in ranks if rank not in missing)
        if set(ranks) - missing and len(ranks) > 1:
            size = 4 if name.startswith("mp") else 1 << 20
            seen.append(CommunicatorUse(name, shown, frozenset({op}), 8.0, size, in_step))
    return seen


layouts = st.builds(
    Layout, tp=st.sampled_from([1, 2, 4]), dp=st.sampled_from([1, 2, 3, 4]), pp=st.sampled_from([1, 2, 4])
)


@given(layout=layouts)
def test_of_a_whole_log_nothing_is_in_doubt(layout: Layout) -> None:
    world = layout.world or 0
    assert in_doubt(uses(groups(layout), set()), range(world), (), layout) == set()


@given(layout=layouts, data=st.data(), known=st.booleans())
def test_whatever_lacks_a_member_is_in_doubt(layout: Layout, data: st.DataObject, known: bool) -> None:
    world = layout.world or 0
    assume(world > 2)
    missing = data.draw(st.sets(st.integers(0, world - 1), min_size=1, max_size=world // 2))
    made = groups(layout)
    found = in_doubt(uses(made, missing), set(range(world)) - missing, missing, layout if known else None)
    lacking = {name for name, ranks in made.items() if set(ranks) & missing and set(ranks) - missing}
    assert {name for name in lacking if not name.startswith("pp")} <= found


@pytest.mark.parametrize("missing", range(8))
def test_one_missing_rank_puts_only_its_own_communicators_in_doubt(missing: int) -> None:
    layout = Layout(tp=2, dp=2, pp=2)
    made = groups(layout)
    found = in_doubt(uses(made, {missing}), set(range(8)) - {missing}, {missing}, layout)
    assert found == {name for name, ranks in made.items() if missing in ranks and not name.startswith("pp")}


def test_missing_ranks_may_have_groups_of_their_own() -> None:
    """Of three tensor groups of two none can hold a third rank if two are missing; four could be in two of four."""
    kind = [CommunicatorUse(f"g{n}", (2 * n, 2 * n + 1), frozenset({"all_reduce"}), 8.0, 64, False) for n in range(3)]
    assert in_doubt(kind, range(6), (6, 7)) == set()
    assert in_doubt(kind[:2], range(4), (4, 5, 6, 7)) == {"g0", "g1"}
    assert in_doubt(kind, range(6), (6,)) == {"g0", "g1", "g2"}


def test_the_only_one_of_its_kind_is_in_doubt_while_a_rank_is_missing() -> None:
    alone = CommunicatorUse("embedding", (0, 6), frozenset({"all_reduce"}), 1.0, 64, True)
    others = [CommunicatorUse(f"g{n}", (n, n + 1), frozenset({"all_reduce"}), 8.0, 64, False) for n in (0, 2, 4, 6)]
    assert in_doubt([alone, *others], range(8), ()) == set()
    assert "embedding" in in_doubt([alone, *others], range(8), (8, 9))
