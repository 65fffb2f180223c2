"""What the traffic of a described fabric crosses, and how many NICs are below each device."""

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from diagnosis.job import Job, Place
from diagnosis.topology import Device, Topology
from schemas.catalogue import JOBS
from schemas.message import decode, encode

HOSTS, RAILS, PER_POD = 6, 2, 3
"""Two pods of three hosts with two GPUs each; a ToR a pod and rail; the ToRs of a rail share a spine of their own,
and all ToRs one more."""


def nic(rank: int) -> str:
    host, rail = divmod(rank, RAILS)
    return f"nic:h{host}/n{rail}"


def tor(rank: int) -> str:
    host, rail = divmod(rank, RAILS)
    return f"tor:{host // PER_POD}/{rail}"


def fabric(*, trunks: bool = False, rules: bool = True) -> dict[str, Any]:
    """Row of control.jobs of the fabric; with cables from ToRs to spines, or rules that tell of them."""
    ranks = range(HOSTS * RAILS)
    tors = sorted({tor(rank) for rank in ranks})
    reached = {name: [f"spine:rail{name[-1]}", "spine:all"] for name in tors}
    names = {
        "gpu": [f"gpu:h{rank // RAILS}/{rank % RAILS}" for rank in ranks],
        "nic": [nic(rank) for rank in ranks],
        "link": [f"link:{nic(rank)}" for rank in ranks],
        "tor": tors,
        "spine": ["spine:rail0", "spine:rail1", "spine:all"],
    }
    links = [{"link": f"link:{nic(rank)}", "a": nic(rank), "b": tor(rank)} for rank in ranks]
    links += [{"link": f"{a}-{b}", "a": b, "b": a} for a in tors for b in reached[a] if trunks]
    return {
        "devices": [
            *({"device": name, "kind": kind} for kind, of in names.items() for name in of),
            *({"device": f"nvlink:h{host}/switch", "kind": "nvlink", "host": f"h{host}"} for host in range(HOSTS)),
        ],
        "links": links,
        "paths": [{"rail": int(a[-1]), "tor": a, "spines": b} for a, b in reached.items()] if rules else None,
    }


def job(**changes: Any) -> Job:
    places = tuple(Place(r, f"h{r // RAILS}", r % RAILS, (f"n{r % RAILS}",)) for r in range(HOSTS * RAILS))
    return Job("j", places, (), row=fabric(**changes))


ROUTES: list[dict[str, Any]] = [
    {"source": nic(0), "destination": nic(6), "switches": [tor(0), "spine:all", tor(6)]},
    {"source": nic(6), "destination": nic(0), "switches": [tor(6), "spine:all", tor(0)]},
    {"source": nic(0), "destination": nic(2), "switches": [tor(0)]},
    {"source": nic(2), "destination": nic(6), "switches": [tor(2), "spine:rail0", tor(6)]},
]
"""Both ways between the first hosts of the pods; from the first to its neighbour, but not back; from that to the other
pod, but not back; nothing of the others."""


def traced(*, routes: list[dict[str, Any]] = ROUTES) -> Job:
    return Job("j", job().places, (), row={**fabric(), "routes": routes})


def spines(job: Job, members: tuple[int, ...], suspects: list[int] | None = None) -> set[str]:
    return {device.device for device in job.carriers(members, suspects) if device.kind == "spine"}


def counts(devices: tuple[Device, ...]) -> dict[str, int | None]:
    return {device.device: device.downside_nics for device in devices}


def test_within_a_pod_a_rail_crosses_one_tor() -> None:
    devices = job().carriers((0, 2))
    assert counts(devices) == {
        "nic:h0/n0": 1,
        "nic:h1/n0": 1,
        "link:nic:h0/n0": 1,
        "link:nic:h1/n0": 1,
        "tor:0/0": 3,
    }
    assert [device.kind for device in devices] == ["nic", "nic", "link", "link", "tor"]


def test_between_pods_the_spines_of_the_rail_and_those_of_all_count() -> None:
    crossed = counts(job().carriers((0, 6)))
    switches = {name: below for name, below in crossed.items() if name.startswith(("tor", "spine"))}
    assert switches == {"tor:0/0": 3, "tor:1/0": 3, "spine:rail0": 6, "spine:all": 12}


def test_between_rails_only_what_both_reach_counts() -> None:
    assert {name for name in counts(job().carriers((0, 3))) if name.startswith("spine")} == {"spine:all"}


def test_of_one_suspect_only_its_side_counts() -> None:
    assert counts(job().carriers((0, 6), [0])) == {
        "nic:h0/n0": 1,
        "link:nic:h0/n0": 1,
        "tor:0/0": 3,
        "spine:all": 12,
        "spine:rail0": 6,
    }


def test_cables_between_switches_have_the_nics_below_their_lower_end() -> None:
    crossed = counts(job(trunks=True).carriers((0, 6), [0]))
    assert crossed["tor:0/0-spine:rail0"] == crossed["tor:0/0-spine:all"] == 3
    assert "tor:1/0-spine:all" not in crossed
    assert not any("-spine" in name for name in counts(job(trunks=True).carriers((0, 2))))


def test_without_rules_the_cables_tell() -> None:
    assert job(trunks=True, rules=False).carriers((0, 3, 6)) == job(trunks=True).carriers((0, 3, 6))


def test_nvlinks() -> None:
    assert job().carriers((0, 1)) == (Device("nvlink:h0/switch", "nvlink", 0),)
    whole = {device.device for device in job().carriers((0, 1, 2)) if device.kind == "nvlink"}
    assert whole == {"nvlink:h0/switch"}  # h1 has one member
    assert not any(device.kind == "nvlink" for device in job().carriers((0, 1, 2), [0]))


def test_without_a_fabric_the_nics_are_all_that_is_known() -> None:
    bare = Job("j", job().places, (), row={**fabric(), "links": None})
    assert bare.topology is None
    assert bare.carriers((0, 1)) == (Device("nvlink:h0", "nvlink", 0),)
    assert bare.carriers((0, 2)) == (Device("nic:h0/n0", "nic", 1), Device("nic:h1/n0", "nic", 1))
    assert bare.carriers((0, 2), [2]) == (Device("nic:h1/n0", "nic", 1),)


def test_what_is_not_cabled_is_the_nic_alone() -> None:
    row = fabric()
    row["links"] = [link for link in row["links"] if link["a"] != nic(2)]
    partly = Job("j", job().places, (), row=row)
    assert partly.carriers((0, 2), [2]) == (Device("nic:h1/n0", "nic", 1),)
    assert counts(partly.carriers((0, 2), [0]))["tor:0/0"] == 2


def test_cables_to_what_is_no_switch_carry_nothing() -> None:
    row = fabric()
    row["links"] += [
        {"link": "pcie", "a": "gpu:h0/0", "b": nic(0)},
        {"link": "stray", "a": nic(0), "b": "tor:not listed"},
        {"link": "loose", "a": nic(0), "b": None},
        {"link": "skips a step", "a": nic(0), "b": "spine:all"},
    ]
    assert Job("j", job().places, (), row=row).carriers((0, 6)) == job().carriers((0, 6))


@pytest.mark.parametrize("trunks", [False, True])
def test_the_fabric_travels(trunks: bool) -> None:
    told = job(trunks=trunks)
    [row] = decode(encode(JOBS, JOBS.from_rows([told.to_row()]), job="j"), JOBS).to_pylist()
    assert told.topology is not None
    assert Job.from_row(row).topology == told.topology


@given(st.sets(st.integers(0, HOSTS * RAILS - 1), min_size=2), st.data())
def test_each_side_is_part_of_the_whole_and_the_sides_make_it_up(members: set[int], data: st.DataObject) -> None:
    ordered = sorted(members)
    described = job(trunks=True)
    assume(not described.on_one_host(ordered))
    whole = {device for device in described.carriers(ordered) if device.kind != "nvlink"}
    sides = [set(described.carriers(ordered, [rank])) for rank in ordered]
    assert set().union(*sides) == whole
    some = data.draw(st.lists(st.sampled_from(ordered), min_size=1, unique=True))
    part = {device for device in described.carriers(ordered, some) if device.kind != "nvlink"}
    assert part == set().union(*(sides[ordered.index(rank)] for rank in some))


EITHER = {"spine:all", "spine:rail0"}


def test_of_spines_those_count_that_traffic_was_seen_to_take() -> None:
    assert traced().spines_between((0, 6)) == (Device("spine:all", "spine", 12),)
    assert spines(traced(), (0, 6, 8), [0]) == {"spine:all"}
    other_port = {"source": nic(0), "destination": nic(6), "switches": [tor(0), "spine:rail0", tor(6)]}
    assert spines(traced(routes=[*ROUTES, other_port]), (0, 6)) == EITHER


def test_where_a_direction_was_not_traced_all_spines_count() -> None:
    assert spines(traced(), (2, 6), [2]) == EITHER  # of what rank 6 sends to rank 2 nothing is known
    assert spines(traced(), (4, 10), [4]) == EITHER


def test_routes_to_others_than_the_members_tell_nothing() -> None:
    assert spines(traced(), (0, 8), [0]) == EITHER
    assert spines(traced(), (0, 2)) == set()


def test_a_rank_below_a_tor_whose_neighbour_is_beyond_it_takes_what_both_ways_tell() -> None:
    back = {"source": nic(2), "destination": nic(0), "switches": [tor(2)]}
    assert spines(traced(routes=[*ROUTES, back]), (0, 2, 6), [2]) == {"spine:rail0"}


@pytest.mark.parametrize("switches", [None, [], [tor(0), "unknown", tor(6)], [tor(0), "", tor(6)]])
def test_a_route_on_which_a_switch_did_not_answer_tells_nothing(switches: list[str] | None) -> None:
    silent = {**ROUTES[0], "switches": switches}
    assert spines(traced(routes=[silent, *ROUTES[1:]]), (0, 6)) == EITHER
    assert spines(traced(routes=[*ROUTES, silent]), (0, 6)) == EITHER, "another path between the two did answer"


@pytest.mark.parametrize(("switches", "over"), [(["b"], set()), (["a", None, "c"], {"s"}), ([], {"s"}), (["a"], {"s"})])
def test_nics_that_share_one_of_two_tors_may_still_take_spines(switches: list[str | None], over: set[str]) -> None:
    kinds = {"m": "nic", "n": "nic", "a": "tor", "b": "tor", "c": "tor", "s": "spine"}
    cables = [("m", "a"), ("m", "b"), ("n", "b"), ("n", "c")]
    row = {
        "devices": [{"device": name, "kind": kind} for name, kind in kinds.items()],
        "links": [{"link": f"{low}-{up}", "a": low, "b": up} for low, up in cables],
        "paths": [{"rail": 0, "tor": name, "spines": ["s"]} for name in "abc"],
        "routes": [{"source": x, "destination": y, "switches": switches} for x, y in (("m", "n"), ("n", "m"))],
    }
    topology = Topology.of_row(row)
    assert topology is not None
    assert {device.device for device in topology.crossed(["m", "n"]) if device.kind == "spine"} == over


def test_routes_survive_a_message() -> None:
    told = traced()
    row = decode(encode(JOBS, JOBS.from_rows([told.to_row()]), job="j", watermark_ns=0), JOBS).to_pylist()[0]
    again = Job.from_row(row).topology
    assert again is not None
    assert told.topology is not None
    assert again.routes == told.topology.routes
