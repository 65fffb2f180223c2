"""Devices by the evidence of many irregularities: sums, decay, prior, places and ambiguity sets."""

import math
from dataclasses import replace
from fractions import Fraction
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnosis.ranking.devices import Implication, RankedDevice, RankingSettings, rank
from diagnosis.ranking.prior import ALL, BAD_DEVICES, OTHERS, share
from diagnosis.topology import Device

WHOLE = RankingSettings(top=0)
AS_PUBLISHED = replace(WHOLE, coverage=False)
PLAIN = replace(WHOLE, prior=False, decay=False)

GPU, GPU_TOO = (Device(f"gpu:a/{i}", "gpu", 0) for i in range(2))
NIC, CABLE = Device("nic:a/0", "nic", 1), Device("link:a/0", "link", 1)
NICS = [Device(f"nic:{host}/0", "nic", 1) for host in "ab"]
TOR, SPINE = Device("tor:0", "tor", 32), Device("spine:0", "spine", 1024)


def times(count: int, rate: float, *devices: Device) -> list[Implication]:
    return [Implication(rate, devices)] * count


def places(ranked: list[RankedDevice]) -> dict[str, int]:
    return {device.device: device.place for device in ranked}


def test_rates_add_up_on_every_device_that_an_irregularity_implicates() -> None:
    ranked = rank([*times(2, 0.5, GPU), *times(1, 0.25, NIC, CABLE), *times(3, 1.0, NIC)], PLAIN)
    assert [(d.device, d.findings, d.irregularity_rate, d.place) for d in ranked] == [
        ("nic:a/0", 4, 3.25, 1),
        ("gpu:a/0", 2, 1.0, 2),
        ("link:a/0", 1, 0.25, 3),
    ]
    assert [d.score for d in ranked] == pytest.approx([3.25 / 4.5, 1 / 4.5, 0.25 / 4.5])
    assert rank([]) == []


def test_the_score_is_the_mean_of_the_posterior() -> None:
    [gpu, tor] = rank([*times(3, 0.8, GPU), *times(4, 1.0, TOR)], replace(AS_PUBLISHED, alpha=2.0))
    kept = math.log(32 + math.e - 1) / 32
    assert [gpu.decay, tor.decay] == pytest.approx([1.0, kept])
    assert (gpu.prior_a, gpu.prior_b) == pytest.approx((2 * 74 / 126, 2 * 52 / 126))
    assert gpu.score == pytest.approx((2.4 + 2 * 74 / 126) / (2.4 + 4 * kept + 2))
    assert tor.score == pytest.approx((4 * kept + 2 * 6 / 126) / (2.4 + 4 * kept + 2))


def test_the_prior_is_each_kinds_share_of_what_was_at_fault() -> None:
    assert share("gpu") == pytest.approx(0.587, abs=5e-4)
    assert share("nic") == pytest.approx(0.183, abs=5e-4)
    assert share("fan") == OTHERS / ALL
    of_table = {kind: count for kind, count in BAD_DEVICES.items() if kind not in {"nvlink", "spine"}}
    assert sum(map(Fraction, of_table.values())) + OTHERS == ALL  # NVLinks are links, spines switches as ToRs are


def test_a_device_above_one_nic_or_none_keeps_its_evidence_whole() -> None:
    kept = {device.kind: device.decay for device in rank(times(1, 1.0, GPU, NIC, TOR, SPINE), AS_PUBLISHED)}
    assert (kept["gpu"], kept["nic"]) == (1.0, 1.0)
    assert kept["gpu"] > kept["tor"] > kept["spine"] > 0


def test_coverage_counts_the_branches_below_for_each_that_is_named() -> None:
    def kept(*devices: Device) -> dict[str, float]:
        return {device.device: device.decay for device in rank([Implication(1.0, (d, *devices)) for d in NICS], WHOLE)}

    def decay(branches: float) -> float:
        return math.log(branches + math.e - 1) / branches

    of_tor, tors = Device("tor:0", "tor", 8), [Device(f"tor:{i}", "tor", 8) for i in range(4)]
    spine = Device("spine:0", "spine", 64)
    assert kept(of_tor)["tor:0"] == pytest.approx(decay(8 / 2))
    assert kept(of_tor, spine)["spine:0"] == pytest.approx(decay(8 / 1))
    assert kept(*tors, spine)["spine:0"] == pytest.approx(decay(8 / 4))
    assert kept(spine)["spine:0"] == pytest.approx(decay(64 / 2))  # of no known ToRs
    assert kept(Device("tor:0", "tor", 1))["tor:0"] == 1.0  # more NICs are named beside it than are below
    assert kept(of_tor)["nic:a/0"] == 1.0


def test_a_slow_tor_comes_before_its_nics_once_enough_of_them_were_seen() -> None:
    """As published each of its NICs keeps 1 of what the ToR keeps 0.11 of, and one more finding changes nothing."""
    nics = [Device(f"nic:h{i}/0", "nic", 1) for i in range(32)]
    told_apart = [Implication(0.9, (nic, TOR)) for nic in nics[:4] * 2]
    assert places(rank(told_apart, AS_PUBLISHED))["tor:0"] > 4
    assert places(rank(told_apart, WHOLE))["tor:0"] == 1
    assert places(rank([Implication(0.9, (nics[0], TOR))] * 8, WHOLE)) == {"nic:h0/0": 1, "tor:0": 2}


def _below_one_tor(number: int, iteration: int | None = None) -> Implication:
    """A pair of NICs that cannot be told apart, and their ToR."""
    nics = (Device(f"nic:h{2 * number + k}/0", "nic", 1) for k in range(2))
    return Implication(0.9, (*nics, TOR), iteration)


def test_a_tor_is_no_single_one_of_its_nics_where_none_explains_half_of_the_iterations() -> None:
    """Two slow NICs of one ToR would each show alone while the other one is not slow."""
    together = [_below_one_tor(number, iteration) for iteration in range(5) for number in range(2)]
    assert places(rank(together, WHOLE))["tor:0"] == 1
    assert places(rank(together, AS_PUBLISHED))["tor:0"] == 3
    alone = [_below_one_tor(0, iteration) for iteration in range(5, 10)]
    assert places(rank([*together, *alone], WHOLE))["tor:0"] == 3
    assert places(rank([_below_one_tor(number) for number in (0, 1) * 5], WHOLE))["tor:0"] == 3
    assert places(rank([_below_one_tor(number) for number in (0, 1, 2)], WHOLE))["tor:0"] == 1


def test_a_switch_that_is_named_alone_keeps_all_of_that() -> None:
    """What searches tell of spines counts, however often they saw no more of them than a NIC."""
    spines = tuple(Device(f"spine:{i}", "spine", 1024) for i in range(8))
    crossing = [Implication(0.9, (NIC, CABLE, TOR, *spines), iteration) for iteration in range(3)]
    told = [Implication(0.9, spines, iteration) for iteration in range(3, 7)]
    assert places(rank([*told, *crossing], WHOLE))["spine:0"] == 1
    assert places(rank([*told, *crossing], AS_PUBLISHED))["spine:0"] > 1
    assert places(rank([*told[:2], *crossing], WHOLE))["spine:0"] > 1
    assert [device.decay for device in rank(told, WHOLE)] == [1.0] * 8
    kept = {device.device: device.decay for device in rank([*told[:1], *crossing[:1]], WHOLE)}
    alone = {device.device: device.decay for device in rank(crossing[:1], WHOLE)}
    assert kept["spine:0"] == pytest.approx((1 + alone["spine:0"]) / 2)
    both = rank(times(1, 0.9, TOR, SPINE), WHOLE)  # which of them nothing has told
    assert all(device.decay < 1.0 for device in both)


def test_what_names_a_switch_alone_is_left_out_of_what_its_other_findings_say() -> None:
    def kept(evidence: list[Implication], name: str) -> float:
        return next(device.decay for device in rank(evidence, WHOLE) if device.device == name)

    alone = [Implication(0.9, (TOR,), iteration) for iteration in range(20, 30)]
    assert kept([*alone, *(_below_one_tor(number, number) for number in range(3))], "tor:0") == 1.0
    # one pair of NICs is in one of two iterations: it may stand for the ToR, however often that is named alone
    assert kept([*alone, *(_below_one_tor(number, number) for number in range(2))], "tor:0") < 1.0
    spine = [Implication(0.9, (Device("spine:0", "spine", 8192),), iteration) for iteration in range(20, 30)]
    assert kept([*spine, *(_below_one_spine(way, 1) for way in range(3))], "spine:0") == 1.0


def test_findings_that_share_a_nic_or_tell_nothing_apart_say_nothing_of_the_tor_itself() -> None:
    def kept(*second: Device) -> float:
        evidence = [Implication(1.0, (NICS[0], Device("tor:0", "tor", 32)), 7), Implication(1.0, second, 7)]
        return next(device.decay for device in rank(evidence, WHOLE) if device.kind == "tor")

    tor = Device("tor:0", "tor", 32)
    assert kept(NICS[1], tor) == 1.0
    assert kept(NICS[1], NICS[0], tor) < 1.0
    assert kept(tor, SPINE) < 0.5


def _below_one_spine(number: int, iteration: int, *beside: Device) -> Implication:
    """A NIC, its ToR, and a spine of 256 ToRs."""
    nic, tor = Device(f"nic:h{number}/0", "nic", 1), Device(f"tor:{number}", "tor", 32)
    return Implication(0.9, (nic, tor, *beside, Device("spine:0", "spine", 8192)), iteration)


def test_a_spine_is_no_few_of_many_tors_where_most_findings_are_of_iterations_that_three_explain() -> None:
    """A search ends after some slow channels: in a large fabric most ToRs below a slow spine are never named."""

    def place(ways: int, iterations: int = 7, *beside: Device) -> int:
        evidence = [_below_one_spine(way, i, *beside) for i in range(iterations) for way in range(ways)]
        alone = [_below_one_spine(0, i) for i in range(100, 103)]
        return places(rank([*evidence, *alone], WHOLE))["spine:0"]

    assert place(3) == 1
    assert place(7) == 1
    assert place(2) > 2  # two slow NICs at once
    assert place(3, 2) == 1  # of most iterations one explains all, but not of most that was found
    assert place(3, 1) > 3
    assert place(7, 7, Device("tor:0", "tor", 32)) > 1  # one ToR is at an end of each
    assert places(rank([_below_one_spine(way, 1) for way in range(3)], AS_PUBLISHED))["spine:0"] > 3


def test_the_printed_epsilon_turns_the_evidence_against_a_nic_around() -> None:
    printed = replace(AS_PUBLISHED, epsilon=1e-6)
    [nic] = [device for device in rank(times(1, 1.0, NIC, TOR), printed) if device.kind == "nic"]
    assert nic.decay == pytest.approx(-13.8, abs=0.02)
    assert [device.decay for device in rank(times(1, 1.0, GPU), printed)] == [1.0]


def test_what_no_irregularity_implicates_is_not_ranked_and_what_explains_nothing_comes_last() -> None:
    ranked = rank([*times(1, 0.0, GPU), *times(1, 0.1, SPINE)], WHOLE)
    assert places(ranked) == {"spine:0": 1, "gpu:a/0": 2}
    assert ranked[0].score < ranked[1].score  # by the prior alone
    assert [device.score for device in rank(times(1, 0.0, GPU), PLAIN)] == [0.0]


def test_devices_with_the_same_evidence_share_a_place() -> None:
    ranked = rank([*times(2, 0.7, NIC, CABLE, TOR), *times(1, 0.7, GPU), *times(1, 0.7, GPU_TOO)], WHOLE)
    assert places(ranked) == {"nic:a/0": 1, "link:a/0": 1, "gpu:a/0": 2, "gpu:a/1": 2, "tor:0": 4}
    sets = {device.device: device.ambiguity_set for device in ranked}
    assert sets["nic:a/0"] == sets["link:a/0"] == ("link:a/0", "nic:a/0")
    assert sets["gpu:a/0"] == ("gpu:a/0",)  # as much evidence, but not the same
    assert sets["tor:0"] == ("tor:0",)  # the same findings, but it carries more


def test_only_the_first_places_are_told() -> None:
    evidence = [*times(3, 1.0, NIC, CABLE), *times(2, 1.0, GPU), *times(1, 1.0, GPU_TOO)]
    assert places(rank(evidence, RankingSettings(top=1))) == {"nic:a/0": 1, "link:a/0": 1}
    assert set(places(rank(evidence))) == {"nic:a/0", "link:a/0", "gpu:a/0"}
    assert len(rank(evidence, RankingSettings(top=0))) == 4


def test_sums_in_another_order_tie() -> None:
    rates = [0.1, 0.2, 0.3, 1e-9, 0.7]
    forth = [Implication(rate, (GPU,)) for rate in rates]
    back = [Implication(rate, (GPU_TOO,)) for rate in reversed(rates)]
    assert set(places(rank([*forth, *back], WHOLE)).values()) == {1}


@pytest.mark.parametrize(
    "wrong", [{"alpha": -1}, {"alpha": math.nan}, {"epsilon": 0}, {"epsilon": -1}, {"epsilon": math.inf}, {"top": -1}]
)
def test_impossible_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"give .* (or more|for all)"):
        replace(RankingSettings(), **wrong)


@pytest.mark.parametrize("rate", [-0.1, 1.1, math.nan])
def test_a_rate_that_is_none_is_refused(rate: float) -> None:
    with pytest.raises(ValueError, match="a rate is"):
        rank(times(1, rate, GPU))


_device_sets = st.lists(st.sampled_from([GPU, GPU_TOO, NIC, CABLE, TOR, SPINE]), unique=True, min_size=1, max_size=4)
_implications = st.lists(
    st.builds(Implication, st.floats(0, 1), _device_sets.map(tuple), st.none() | st.integers(0, 2)), max_size=12
)


@given(_implications, st.randoms(use_true_random=False))
def test_the_order_of_irregularities_says_nothing(implications: list[Implication], random: Random) -> None:
    shuffled = random.sample(implications, len(implications))
    assert rank(shuffled, WHOLE) == rank(implications, WHOLE)


@given(_implications)
def test_one_more_irregularity_never_lowers_what_it_alone_implicates(implications: list[Implication]) -> None:
    more = [*implications, *times(1, 1.0, GPU)]
    before, after = (places(rank(of, WHOLE)).get("gpu:a/0", math.inf) for of in (implications, more))
    assert after <= before


class TestFigure20:
    """A fabric of rails below common spines: the ToRs of rails A and B are slow, spine C carries both's traffic."""

    RAILS, NICS = 8, 8
    """Rails below C, and NICs below each ToR."""

    def evidence(self, rounds: int) -> list[Implication]:
        """In turn a pair of NICs of rail A and one of rail B transfers slowly through its ToR and the spine."""
        spine = Device("spine:C", "spine", self.RAILS * self.NICS)
        told = []
        for number in range(rounds):
            for rail in "AB":
                nics = [Device(f"nic:h{(number + k) % self.NICS}/{rail}", "nic", 1) for k in range(2)]
                cables = [Device(nic.device.replace("nic", "link"), "link", 1) for nic in nics]
                told.append(Implication(0.9, (*nics, *cables, Device(f"tor:{rail}", "tor", self.NICS), spine)))
        return told

    @staticmethod
    def switches(ranked: list[RankedDevice]) -> list[str]:
        return [device.device for device in ranked if device.kind in {"tor", "spine"}]

    def test_without_decay_the_spine_is_blamed_for_both(self) -> None:
        [first, *_] = rank(self.evidence(8), replace(WHOLE, decay=False))
        assert first.device == "spine:C"

    def test_with_decay_the_slow_rails_come_before_it(self) -> None:
        assert self.switches(rank(self.evidence(8), WHOLE)) == ["tor:A", "tor:B", "spine:C"]

    def test_with_as_many_irregularities_as_it_takes_they_come_before_their_nics(self) -> None:
        """Each NIC has 2 of 8 irregularities of its ToR; a ToR of 8 NICs keeps 28 % of its 8."""
        kept = math.log(self.NICS + math.e - 1) / self.NICS
        assert 8 * kept > 2
        assert places(rank(self.evidence(8), WHOLE))["tor:A"] == 1

    def test_of_a_spine_above_nothing_else_the_decay_says_nothing(self) -> None:
        """Evidence and NICs double from A to C, so C keeps log(2n)/2n of twice as much: more, whatever n is."""
        evidence = [
            Implication(0.9, (Device(f"tor:{rail}", "tor", self.NICS), Device("spine:C", "spine", 2 * self.NICS)))
            for rail in "ABABAB"
        ]
        assert self.switches(rank(evidence, replace(WHOLE, prior=False)))[0] == "spine:C"


class TestFigure26:
    """What the prior is for: little evidence, some of it wrong, against devices of kinds that fail seldom or often."""

    def test_of_a_gpu_and_a_switch_with_like_evidence_the_gpu_comes_first(self) -> None:
        evidence = [*times(1, 0.90, GPU), *times(1, 0.95, Device("tor:1", "tor", 1))]
        assert places(rank(evidence, PLAIN)) == {"gpu:a/0": 2, "tor:1": 1}
        assert places(rank(evidence, WHOLE)) == {"gpu:a/0": 1, "tor:1": 2}

    def test_evidence_outweighs_it(self) -> None:
        evidence = [*times(1, 0.9, GPU), *times(3, 0.95, Device("tor:1", "tor", 1))]
        assert places(rank(evidence, WHOLE)) == {"gpu:a/0": 2, "tor:1": 1}
        assert places(rank(evidence, replace(WHOLE, alpha=30))) == {"gpu:a/0": 1, "tor:1": 2}

    def test_the_prior_alone_would_beat_a_large_switch_for_its_first_irregularities(self) -> None:
        """Which is why a device without evidence is not ranked."""
        kept = math.log(32 + math.e - 1) / 32
        assert 4 * kept + share("tor") < share("gpu") < 5 * kept + share("tor")
        assert set(places(rank(times(1, 1.0, TOR), WHOLE))) == {"tor:0"}
