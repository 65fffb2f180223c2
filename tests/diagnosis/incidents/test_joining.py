"""Findings become incidents: when one opens, what belongs to it, what a person hears of, how it ends."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnosis.incidents.agreement import compatible
from diagnosis.incidents.evidence import Evidence, Incident, Run, Span
from diagnosis.incidents.explanation import explain
from diagnosis.incidents.joining import IncidentJoiner, JoiningSettings, Rule, held_back
from diagnosis.incidents.moments import MomentSettings
from diagnosis.irregularity.run import DEGRADATION, FLUCTUATION, SPIKE
from diagnosis.job import Job
from diagnosis.topology import Device
from tests.diagnosis.incidents.findings import SECOND, all_over, found, in_run, on_step, run_over

SETTINGS = JoiningSettings(confirmations=2, least_confidence=0.75, agreement=0.34, window=100)


def opening(finding: Evidence) -> str:
    return f"incident {finding.id}"


def joined(findings: Iterable[Evidence], world: int | None = None) -> tuple[IncidentJoiner, list[Incident]]:
    """The joiner after all findings, and every record of an incident that it made on the way. Those of one iteration
    that follow each other come together.
    """
    joiner = IncidentJoiner(opening, SETTINGS, world=world)
    messages = [list(of) for _, of in groupby(findings, key=lambda finding: (finding.method, finding.iteration))]
    return joiner, [incident for message in messages for incident in joiner.take(*message)]


def only(findings: Iterable[Evidence]) -> Incident:
    [incident] = joined(findings)[0].incidents.values()
    return incident


def run(first: int) -> Run:
    """The run of the made findings that began with an iteration."""
    return Run("operator_graph", first)


DEGRADED = [in_run(i, 10, 3, pattern=SPIKE if i < 14 else DEGRADATION) for i in (10, 11, 13, 17)]
"""As a search tells a degradation: its irregular iterations 1, 2, 4, 8."""


def test_the_rule_is_that_of_the_newest_finding_on_just_its_ranks() -> None:
    early, late = found(20, 3), found(31, 3, rule="goes_on_late")
    assert only([early, late]).rule == "goes_on_late"
    assert only([late, found(42, 3)]).rule is None
    others = [found(20, 3, 4, rule="other"), found(31, 3, 4, rule="other")]
    assert only(others).rule == "other"
    assert only([*others, found(42, 3), found(53, 3)]).rule is None  # it is about rank 3 alone by now


def of_nvlinks(iteration: int, *ranks: int, host: str = "h0") -> Evidence:
    nvlink = (Device(f"nvlink:{host}", "nvlink", 0),)
    return found(iteration, *ranks, cause="communication_slow", devices=nvlink)


def over_nvlinks(iteration: int, *ranks: int) -> Evidence:
    """A channel between hosts, one of which has several of its ranks."""
    wide = found(iteration, *ranks, cause="communication_slow")
    return replace(wide, devices=(*wide.devices, Device("nvlink:h0", "nvlink", 0)))


def test_one_fault_is_one_incident_from_its_first_iteration_to_its_last() -> None:
    incident = only([*DEGRADED, run_over(26, 10, 24)])
    assert (incident.first_iteration, incident.last_iteration, incident.pattern) == (10, 24, DEGRADATION)
    assert (incident.state, incident.ranks, incident.cause, incident.level) == (
        "resolved",
        (3,),
        "compute_slow",
        "device",
    )
    assert incident.findings == tuple(finding.id for finding in DEGRADED)
    assert incident.lost_ns == 15 * 2 * SECOND
    assert (incident.opened_ns, incident.resolved_ns) == (11 * SECOND, 26 * SECOND)
    assert incident.id == opening(DEGRADED[0])


def test_spikes_of_one_device_are_one_incident_of_several_runs() -> None:
    incident = only([found(i, 3) for i in (20, 31, 45)])
    assert incident.runs == {run(i): Span(i, i, 2 * SECOND, at=i, share=1.0) for i in (20, 31, 45)}
    assert (incident.pattern, incident.lost_ns, incident.state) == (SPIKE, 6 * SECOND, "open")


def test_spikes_of_months_do_not_make_the_state_grow() -> None:
    """The first and last iteration, the number of spikes and what they cost stay as they are."""
    iterations = range(20, 20 + 10 * 700, 10)
    joiner, _ = joined(found(i, 3) for i in iterations)
    [incident] = joiner.incidents.values()
    assert incident.occasions == len(incident.runs) + incident.folded == len(iterations)
    assert (incident.first_iteration, incident.last_iteration) == (iterations[0], iterations[-1])
    assert incident.lost_ns == len(iterations) * 2 * SECOND
    assert f"in {len(iterations)} spikes" in explain(Job("j", (), ()), incident)
    size = len(json.dumps(joiner.to_state()))
    for i in range(iterations[-1] + 10, iterations[-1] + 10 * 700, 10):
        joiner.take(found(i, 3))
    assert len(json.dumps(joiner.to_state())) < 1.1 * size


def test_a_single_finding_proves_little() -> None:
    assert joined([found(20, 3)])[1] == []
    joiner, records = joined([found(20, 3), found(20, 3, id="another pivot")])
    assert records == []
    assert len(joiner.take(found(21, 3))) == 1


def test_what_two_methods_see_of_an_iteration_is_seen_once() -> None:
    """Each numbers iterations in its own way."""
    twice = [found(20, 3), found(17, 3, method="another", id="another")]
    assert joined(twice)[1] == []
    assert joined([*twice, found(30, 3)])[1] != []
    assert joined([*twice, found(27, 3, method="another", id="another 27")])[1] != []


def test_what_another_method_found_meanwhile_is_no_second_incident() -> None:
    """Searches queue: theirs come after the incident is over, with when the iteration was told."""
    over = [replace(finding, method="traffic") for finding in (*DEGRADED, run_over(26, 10, 24))]
    late = [in_run(i, 10, 3, id=f"late {i}", found_ns=i * SECOND) for i in (13, 17)]
    assert only([*over, *late]).state == "resolved"
    anew = [in_run(i, 40, 3, id=f"anew {i}", found_ns=i * SECOND) for i in (40, 41)]
    assert len(joined([*over, *anew])[0].incidents) == 2


LATER = 50_000
"""By how much a method's numbers are above those of one that counts from 0."""


def test_methods_that_number_apart_do_not_push_out_each_others_findings() -> None:
    def story(ahead: int) -> list[Evidence]:
        return [
            finding
            for i in range(20, 28)
            for finding in (
                found(i, 5, method="traffic", id=f"traffic {i}"),
                found(i + ahead, i, found_ns=i * SECOND),
            )
        ]

    for ahead in (0, LATER):
        assert [incident.ranks for incident in joined(story(ahead))[1]][:1] == [(5,)]


@pytest.mark.parametrize("ahead", [0, LATER])
def test_what_one_method_says_is_over_another_that_numbers_apart_may_still_see(ahead: int) -> None:
    by_logs = [in_run(i + ahead, 10 + ahead, 3, found_ns=i * SECOND) for i in (10, 11, 13, 17)]
    by_traffic = [in_run(i, 10, 3, method="traffic", id=f"traffic {i}", found_ns=i * SECOND) for i in (10, 11, 13, 17)]
    over = run_over(26 + ahead, 10 + ahead, 24 + ahead)
    assert only([*by_traffic, *by_logs, over]).state == "open"


def test_what_another_method_found_long_ago_is_let_go() -> None:
    """Whatever it numbers: when findings were made of as old iterations by the method that goes on."""
    old = found(3, 9, method="traffic", id="traffic", found_ns=3 * SECOND)
    joiner, _ = joined([old, *(found(LATER + i, i, found_ns=i * SECOND) for i in range(4, 120, 5))])
    assert old not in joiner.memory.findings


def test_findings_of_another_method_do_not_speak_against_those_that_agree() -> None:
    others = [
        found(i, rank, method="another", id=f"another {i}")
        for i, rank in zip(range(20, 27), range(10, 17), strict=True)
    ]
    assert [incident.ranks for incident in joined([found(20, 3), *others, found(26, 3)])[1]] == [(3,)]


def test_a_hang_needs_no_other_finding_for_no_other_iteration_comes() -> None:
    hang = found(10, 3, cause="hang_hardware", share=1.0)
    assert only([hang]).cause == "hang_hardware"
    assert joined([replace(hang, share=0.2)])[1] == []


def test_a_hang_of_all_ranks_does_not_pass() -> None:
    halves = ((0, 2), (1, 3))
    hang = replace(found(10, 0, 1, 2, 3, cause="hang_hardware"), candidates=halves)
    [opened] = joined([hang], world=4)[1]
    assert (opened.cause, opened.candidates) == ("hang_hardware", halves)


def test_a_hang_that_is_over_ends_hangs_alone_and_the_next_one_is_another() -> None:
    hang = found(11, 5, cause="hang_hardware")
    over = replace(all_over(11), id="over", cause="hang_hardware")
    joiner, _ = joined([found(10, 3), found(11, 3), hang, over])
    assert [(i.ranks, i.state) for i in joiner.incidents.values()] == [((3,), "open"), ((5,), "resolved")]
    [again] = joiner.take(replace(hang, id="hang 2"))
    assert (again.ranks, again.state, again.revision) == ((5,), "open", 1)


def test_findings_that_leave_doubt_open_nothing() -> None:
    weak = [found(20, 3, share=0.4, coverage=0.5), found(21, 3, share=0.4)]
    assert joined(weak)[1] == []
    [opened] = joined([*weak, found(22, 3, share=0.9)])[1]
    assert opened.confidence == pytest.approx(1 - 0.8 * 0.6 * 0.1, abs=1e-4)


def test_a_weak_finding_on_one_of_a_group_does_not_keep_the_group_from_being_named() -> None:
    def of_group(iteration: int) -> Evidence:
        return found(iteration, 1, 2, 3, 4, cause="communication_slow")

    weak, strong = (found(21, 1, cause="communication_slow", share=share) for share in (0.29, 1.0))
    records = joined([of_group(20), weak, of_group(22)])[1]
    assert [record.ranks for record in records] == [(1, 2, 3, 4)] * 2
    assert records[-1].findings == (of_group(20).id, weak.id, of_group(22).id)
    assert joined([of_group(20), strong])[1][-1].ranks == (1,)


def test_findings_must_agree_on_enough_of_what_was_searched() -> None:
    others = [found(i) for i in range(21, 26)]
    assert joined([found(20, 3), *others, found(30, 3)])[1] == []
    assert len(joined([found(20, 3), *others[:3], found(30, 3)])[1]) == 1


def test_spikes_that_hardly_stand_out_of_what_the_job_scatters_accuse_nobody() -> None:
    def spikes(prominence: float | None) -> list[Evidence]:
        return [found(i, 3, prominence=prominence) for i in (20, 31, 45)]

    assert joined(spikes(2.4))[1] == []
    assert held_back(spikes(2.4), SETTINGS) is Rule.MOMENTARY
    for prominence in (2.5, None):
        assert only(spikes(prominence)).ranks == (3,)
    published = IncidentJoiner(opening, replace(SETTINGS, moments=MomentSettings(chance=1.0)), world=8)
    assert [incident.ranks for finding in spikes(2.4) for incident in published.take(finding)] == [(3,), (3,)]


def test_nor_do_they_speak_for_or_against_anybody_else() -> None:
    for ranks in ((7,), ()):
        faint = [found(i, *ranks, prominence=1.5) for i in range(21, 29)]
        assert only([found(20, 3), *faint, found(29, 3)]).ranks == (3,)
    incident = only([found(20, 3), found(21, 3), found(30, 3, prominence=1.5)])
    assert (incident.last_iteration, len(incident.findings)) == (21, 2)


def test_what_hardly_stands_out_counts_once_its_run_lasts() -> None:
    faint = [replace(finding, prominence=1.5) for finding in DEGRADED]
    assert joined(faint[:3])[1] == []
    assert only(faint).findings == tuple(finding.id for finding in faint)
    recurring = [in_run(i, 20, 3, pattern=FLUCTUATION, period=7.0, prominence=1.5) for i in (20, 27)]
    assert only(recurring).ranks == (3,)


def test_what_holds_up_several_at_once_for_a_moment_is_nobody_s_fault() -> None:
    moments = [found(i, rank, prominence=6.0) for i in (20, 31, 45) for rank in (3, 7, 11)]
    assert joined(moments)[1] == []
    assert held_back(moments, SETTINGS) is Rule.MOMENTARY
    two = [finding for finding in moments if finding.ranks != (11,)]
    assert {incident.ranks for incident in joined(two)[0].incidents.values()} == {(3,), (7,)}
    run = [(known.at, known.pattern or "", rank) for known in DEGRADED for rank in (3, 7, 11)]
    lasting = [in_run(at, 10, rank, pattern=pattern, prominence=6.0) for at, pattern, rank in run]
    assert {incident.ranks for incident in joined(lasting)[0].incidents.values()} == {(3,), (7,), (11,)}


def test_a_spike_of_which_a_culprit_explains_little_is_not_its() -> None:
    clear = [found(i, 3, prominence=6.0) for i in (20, 21)]
    assert only([*clear, found(30, 3, share=0.4, prominence=6.0)]).last_iteration == 21
    assert only([*clear, found(30, 3, share=0.5, prominence=6.0)]).last_iteration == 30


def test_a_degradation_that_is_over_before_it_is_searched_again_is_told_at_its_end() -> None:
    faint = [in_run(i, 10, 3, pattern=SPIKE, prominence=1.5) for i in (10, 11, 13)]
    opened, resolved = joined([*faint, run_over(17, 10, 15)], world=8)[1]
    assert (opened.ranks, opened.state, opened.opened_ns) == ((3,), "open", 17 * SECOND)
    assert (resolved.state, resolved.last_iteration) == ("resolved", 15)


def test_what_several_searches_found_may_come_in_one_message() -> None:
    story = [in_run(10, 10, 5), in_run(12, 10, 3), found(20, 7), found(30, 7), all_over(130), found(131, 7)]
    at_once = IncidentJoiner(opening, SETTINGS)
    assert at_once.take(*story) == joined(story)[1]


def test_what_is_said_of_all_ranks_proves_nothing_of_some() -> None:
    def of_all(finding: Evidence) -> Evidence:
        return replace(finding, level="group", ranks=tuple(range(8)), candidates=())

    some = in_run(11, 10, 2, 3)
    assert joined([of_all(in_run(10, 10, 3, pattern=SPIKE)), some], world=8)[1] == []
    [opened] = joined([of_all(finding) for finding in DEGRADED], world=8)[1]
    assert len(opened.ranks) == 8
    joiner, _ = joined([*(of_all(finding) for finding in DEGRADED), some], world=8)
    assert [len(incident.ranks) for incident in joiner.incidents.values()] == [8]
    joiner, _ = joined([*DEGRADED, *(of_all(in_run(i, 10, 3)) for i in (25, 41))], world=8)
    assert [incident.ranks for incident in joiner.incidents.values()] == [(3,)], "what is known of one explains it"


def test_who_has_more_to_do_is_told_once_it_lasts() -> None:
    uneven = [replace(finding, cause="imbalance") for finding in DEGRADED]
    assert joined(uneven[:3])[1] == []
    [opened] = joined(uneven)[1]
    assert (opened.cause, opened.ranks, opened.pattern) == ("imbalance", (3,), DEGRADATION)
    assert held_back(uneven[:3], SETTINGS) is Rule.LASTING


def test_the_rule_that_held_findings_back_is_the_furthest_that_any_came_to() -> None:
    def rule(*findings: Evidence, world: int | None = None) -> Rule | None:
        return held_back(findings, SETTINGS, world)

    assert rule() is rule(found(20)) is None
    assert rule(found(20, 3, prominence=1.0), found(21, 3, prominence=1.0)) is Rule.MOMENTARY
    assert rule(found(20, 3)) is rule(found(20, 3), found(21, 3, prominence=1.0)) is Rule.CONFIRMATIONS
    assert rule(found(20, 3), *(found(i) for i in range(21, 26)), found(30, 3)) is Rule.AGREEMENT
    weak = [found(20, 3, share=0.4, coverage=0.5), found(21, 3, share=0.4)]
    assert rule(*weak) is rule(*weak, found(22, 7)) is Rule.CONFIDENCE
    assert rule(found(20, 3), found(21, 3)) is None
    together = [replace(found(i, 0), level="group", ranks=(0, 1)) for i in (20, 21)]
    assert rule(*together, world=2) is Rule.LASTING
    assert rule(*together, world=3) is None


def test_findings_that_are_too_far_apart_do_not_agree() -> None:
    assert joined([found(20, 3), found(121, 3)])[1] == []
    assert len(joined([found(20, 3), found(120, 3)])[1]) == 1


def test_several_culprits_are_several_incidents() -> None:
    joiner, _ = joined(
        [finding for i in (20, 21) for finding in (found(i, 3), found(i, 7, cause="communication_slow"))]
    )
    assert [(i.ranks, i.cause) for i in joiner.incidents.values()] == [
        ((3,), "compute_slow"),
        ((7,), "communication_slow"),
    ]


def test_an_incident_explains_iterations_that_else_speak_against_the_others() -> None:
    """Rank 7 spikes again and again; rank 3 only twice, in the first and in the last iteration."""
    frequent = [found(i, 7) for i in range(21, 29)]
    joiner, _ = joined([found(20, 3), *frequent, found(30, 3)])
    assert {incident.ranks for incident in joiner.incidents.values()} == {(3,), (7,)}


def test_what_opens_one_incident_can_open_another() -> None:
    """Six iterations speak against rank 3, until three of them turn out to be rank 7's."""
    unsure = [found(i, 7, share=0.3) for i in (21, 22, 23)]
    joiner, records = joined([found(20, 3), *unsure, found(24), found(25), found(26), found(27, 3)])
    assert records == []
    opened = joiner.take(found(28, 7))
    assert [(incident.ranks, incident.opened_ns) for incident in opened] == [((7,), 28 * SECOND), ((3,), 28 * SECOND)]


def test_narrowing_from_a_group_to_a_device_is_told() -> None:
    groups = [in_run(i, 10, 2, 3, cause="communication_slow") for i in (10, 11)]
    narrow = [in_run(i, 10, 3, cause="communication_slow") for i in (13, 17)]
    joiner, records = joined([*groups, *narrow])
    assert [(r.revision, r.level, r.ranks) for r in records] == [
        (1, "group", (2, 3)),
        (1, "group", (2, 3)),
        (2, "device", (3,)),
    ]
    assert records[-1].candidates == ()
    assert records[-1].devices == narrow[-1].devices
    wide_again = joiner.take(in_run(25, 10, 2, 3, cause="communication_slow"))
    assert [(r.revision, r.ranks) for r in wide_again] == [(2, (3,))]


@pytest.mark.parametrize("narrow", [2, 3, 4])
def test_one_search_of_five_that_names_a_member_does_not_narrow_what_the_others_say(narrow: int) -> None:
    """Whoever has a hiccup of its own while a group waits for another one."""
    told = [transfers(20 + i, *((6,) if i == narrow else (0, 2, 4, 6)), share=0.9) for i in range(5)]
    _, records = joined(told)
    assert {(record.ranks, record.level, record.revision) for record in records} == {((0, 2, 4, 6), "group", 1)}
    assert only([*told, *(transfers(30 + i, 6, share=0.9) for i in range(2))]).ranks == (6,)


@given(st.lists(st.sampled_from([(0, 1, 2, 3), (1, 2), (2, 3), (2,), (3,)]), max_size=30))
def test_whom_an_incident_is_about_is_narrowed_at_most_once_a_rank(told: list[tuple[int, ...]]) -> None:
    """Nobody is paged again and again where searches differ in how much they can tell apart."""
    _, records = joined(transfers(20 + i, *ranks, share=0.9) for i, ranks in enumerate(told))
    for _, history in groupby(sorted(records, key=lambda record: record.id), key=lambda record: record.id):
        for before, after in pairwise(history):
            assert set(after.ranks) <= set(before.ranks)


def test_groups_of_hosts_meet_in_whole_hosts() -> None:
    def slow(iteration: int, *hosts: int) -> Evidence:
        each = tuple((2 * host, 2 * host + 1) for host in hosts)
        return found(iteration, *sum(each, ()), cause="host_slow", candidates=each)

    two = only([slow(20, 0, 1, 2), slow(21, 1, 2, 3)])
    assert (two.ranks, two.level, two.candidates) == ((2, 3, 4, 5), "group", ((2, 3), (4, 5)))
    one = only([slow(20, 0, 1), slow(21, 1, 2)])
    assert (one.ranks, one.level, one.candidates) == ((2, 3), "machine", ())


def test_what_another_method_finds_as_often_narrows_it_however_rarely_it_looks() -> None:
    told = [transfers(20 + i, 0, 2, 4, 6, share=0.9) for i in range(5)]
    measured = found(1, 2, cause="communication_slow", method="nic_traffic", share=0.9)
    assert only([*told, measured]).ranks == (2,)


def test_groups_that_cannot_tell_their_members_apart_meet_in_the_culprit() -> None:
    findings = [found(20, 1, 2, cause="communication_slow"), found(21, 2, 3, cause="communication_slow")]
    incident = only([*findings, found(22, 2, 4, cause="communication_slow")])
    assert (incident.ranks, incident.level, incident.candidates) == ((2,), "device", ())
    assert [device.device for device in incident.devices] == ["nic:h2/0"]


def test_what_was_said_of_a_wider_group_says_less_of_each_member() -> None:
    wide = [found(i, *range(8), cause="communication_slow", share=0.9) for i in (20, 21)]
    group = only(wide)
    device = only([*wide, *(found(i, 5, cause="communication_slow", share=0.5) for i in (22, 23))])
    assert group.confidence == pytest.approx(0.99)
    assert 0.5 < device.confidence < 0.85


@pytest.mark.parametrize(
    ("one", "other", "together"),
    [
        (found(1, 3), found(2, 3), True),
        (found(1, 3), found(2, 4), False),
        (found(1, 3), found(2, 3, cause="communication_slow"), False),
        (found(1, 3), found(2, 3, cause="mixed_slow"), True),
        (found(1, 3, cause="hang_hardware"), found(2, 3, cause="mixed_slow"), False),
        (found(1, 3, cause="host_slow"), found(2, 3, cause="mixed_slow"), False),
        (found(1, 3), found(2, 2, 3), True),
        (found(1, 2, 3), found(2, 3, 4), True),
        (found(1, 2, 3, candidates=()), found(2, 3, 4), False),
        (found(1, 3), found(2), False),
        (of_nvlinks(1, 2, 3), found(2, 3, 9, cause="communication_slow"), False),
        (of_nvlinks(1, 2, 3), over_nvlinks(2, 2, 3, 9), True),
        (found(1, 3, cause="communication_slow"), over_nvlinks(2, 2, 3, 9), True),
    ],
)
def test_what_can_be_about_one_fault(one: Evidence, other: Evidence, together: bool) -> None:
    assert compatible(one, other) == compatible(other, one) == together


def test_all_ranks_slow_for_a_moment_are_congestion() -> None:
    everyone = [found(i, 0, 1, 2, 3, cause="communication_slow") for i in (20, 21)]
    assert joined(everyone, world=4)[1] == []
    assert len(joined(everyone, world=5)[1]) == 1
    lasting = [in_run(i, 20, 0, 1, 2, 3, cause="communication_slow") for i in (20, 21)]
    assert len(joined(lasting, world=4)[1]) == 1


def test_what_is_over_of_some_ranks_ends_their_incident_alone() -> None:
    """Two faults of one run, each of which ends by itself."""
    both = [in_run(i, 5, rank, share=0.5) for i in (7, 8) for rank in (2, 3)]
    over = replace(run_over(12, 5, 9), ranks=(3,))
    joiner, _ = joined([*both, over])
    assert {incident.ranks: incident.state for incident in joiner.incidents.values()} == {
        (2,): "open",
        (3,): "resolved",
    }
    joiner.take(replace(run_over(14, 5, 13)))
    assert {incident.state for incident in joiner.incidents.values()} == {"resolved"}


def test_a_cleared_run_of_spikes_completes_the_run_and_resolves_nothing() -> None:
    spikes = [in_run(i, 20, 3, pattern=SPIKE, share=0.5) for i in (20, 21)]
    joiner, records = joined([*spikes, found(30, 3), run_over(24, 20, 22, SPIKE)])
    spans = (Span(20, 22, 3 * SECOND, at=21, share=0.5), Span(30, 30, 2 * SECOND, at=30, share=1.0))
    assert records[-1].runs == dict(zip((run(20), run(30)), spans, strict=True))
    assert (records[-1].state, records[-1].revision) == ("open", 1)
    assert joiner.take(run_over(24, 20, 22, SPIKE)) == []


def test_a_run_that_became_a_degradation_after_it_was_last_searched() -> None:
    incident = only([in_run(i, 20, 3, pattern=SPIKE) for i in (20, 21, 23)] + [run_over(27, 20, 25)])
    assert (incident.pattern, incident.last_iteration, incident.state) == (DEGRADATION, 25, "resolved")


def test_spikes_that_turn_out_to_recur_are_a_fluctuation() -> None:
    incident = only([found(i, 3, pattern=SPIKE) for i in (20, 27)] + [found(34, 3, pattern=FLUCTUATION)])
    assert (incident.pattern, incident.state) == (FLUCTUATION, "open")


def test_how_often_a_fluctuation_comes_is_what_was_told_last() -> None:
    findings = [replace(found(i, 3, pattern=FLUCTUATION), period=period) for i, period in ((20, 6.5), (27, 7.0))]
    joiner, _ = joined([*findings, found(34, 3, pattern=SPIKE)])
    [incident] = joiner.incidents.values()
    assert incident.period == Incident.from_state(incident.to_state()).period == 7.0


def test_every_culprit_of_a_run_bears_its_share_of_what_was_lost() -> None:
    findings = [in_run(i, 10, rank, share=share) for i in (10, 11) for rank, share in ((3, 0.6), (5, 0.4))]
    findings += [in_run(13, 10, 5, share=0.4), in_run(17, 10, 5, share=0.4)]
    joiner, _ = joined([*findings, run_over(21, 10, 19)])
    assert {i.ranks: i.lost_ns for i in joiner.incidents.values()} == {(3,): 12 * SECOND, (5,): 8 * SECOND}


def test_what_slows_several_groups_costs_what_they_lose_together() -> None:
    pairs = [[in_run(i, 10, 0, 1, share=0.5), in_run(i, 10, 2, 3, share=0.4)] for i in (10, 11, 13)]
    nvlinks = (Device("nvlink:h0", "nvlink", 0),)
    told = [replace(known, cause="communication_slow", devices=nvlinks) for pair in pairs for known in pair]
    joiner, _ = joined([*told, run_over(21, 10, 19)])
    [incident] = joiner.incidents.values()
    assert incident.ranks == (0, 1, 2, 3)
    assert incident.lost_ns == pytest.approx(10 * 2 * 0.9 * SECOND)


def test_what_two_methods_see_is_lost_once() -> None:
    seen = [in_run(i, 10, 3) for i in (10, 11, 13)]
    shifted = [in_run(i + 2, 12, 3, method="another", id=f"another {i}") for i in (10, 11, 13)]
    incident = only([finding for pair in zip(seen, shifted, strict=True) for finding in pair])
    assert incident.methods == ("operator_graph", "another")
    assert incident.lost_ns == 4 * 2 * SECOND
    assert (incident.first_iteration, incident.occasions) == (10, 1)


SEEN_TWICE = [*DEGRADED, *(in_run(i + 2, 12, 3, method="another", id=f"another {i}") for i in (10, 11, 13))]
OVER = run_over(26, 10, 24)
OVER_FOR_THE_OTHER = replace(OVER, id="another over", method="another", iteration=28, first_iteration=12)


@pytest.mark.parametrize("order", [(OVER, OVER_FOR_THE_OTHER), (OVER_FOR_THE_OTHER, OVER)])
def test_what_two_methods_see_is_over_once_both_say_so(order: tuple[Evidence, ...]) -> None:
    first, second = order
    joiner, _ = joined([*SEEN_TWICE, first])
    assert [incident.state for incident in joiner.incidents.values()] == ["open"]
    joiner = IncidentJoiner.from_state(json.loads(json.dumps(joiner.to_state())), opening, SETTINGS)
    [incident] = joiner.take(second)
    assert (incident.state, incident.resolved_ns) == ("resolved", second.found_ns)


def test_what_a_method_finds_again_is_not_over_for_it() -> None:
    again = in_run(30, 30, 3, pattern=DEGRADATION)
    assert only([*SEEN_TWICE, OVER, again, OVER_FOR_THE_OTHER]).state == "open"
    assert only([*SEEN_TWICE, OVER, again, OVER_FOR_THE_OTHER, run_over(40, 30, 39)]).state == "resolved"


def test_what_a_method_said_is_over_before_the_incident_opened_does_not_keep_it_open() -> None:
    before = [in_run(6, 6, 3, method="another", id="another"), replace(run_over(8, 6, 7), method="another", id="over")]
    assert only([*before, *DEGRADED, OVER]).state == "resolved"


def test_a_method_that_has_long_been_silent_does_not_keep_an_incident_open() -> None:
    going_on = [in_run(i, 10, 3, pattern=DEGRADATION) for i in (25, 41, 73, 120, 160)]
    assert only([*SEEN_TWICE, *going_on, run_over(170, 10, 168)]).state == "resolved"


def test_spikes_that_another_method_still_sees_go_on() -> None:
    seen = [found(i, 3) for i in (20, 31)]
    by_another = [found(i, 3, method="another", id=f"another {i}") for i in (20, 31, 60, 90, 120)]
    over = replace(run_over(122, 120, 120, SPIKE), method="another", id="another over")
    story = [*seen, *by_another, over, all_over(131)]
    assert only(story).state == "open"
    assert only([*story, replace(all_over(220), method="another")]).state == "resolved"


def test_who_found_what_is_open_is_waited_for() -> None:
    joiner, _ = joined([*SEEN_TWICE, *(found(i, 9, id=f"other {i}") for i in range(150, 400, 10))])
    assert joiner.methods == {"operator_graph", "another"}


def second_fault(*, until: int) -> list[Evidence]:
    """Rank 3 is slow from 10 on; from 18 on rank 7 as well, by which an iteration loses 4 s more."""
    first = [in_run(i, 10, 3) for i in (10, 11, 13, 17)]
    rows = [(on_step(i, 10, 18, 7, share=2 / 3), on_step(i, 10, 18, 3, share=1 / 3)) for i in (18, 19, 21, 25)]
    return [*first, *(finding for row in rows for finding in row if (finding.iteration or 0) <= until)]


def test_what_comes_on_top_of_a_run_begins_with_its_step() -> None:
    joiner, _ = joined(second_fault(until=25))
    whole, step = joiner.incidents.values()
    assert (whole.ranks, whole.first_iteration, whole.last_iteration) == ((3,), 10, 25)
    assert (step.ranks, step.first_iteration, step.last_iteration) == ((7,), 18, 25)
    assert step.lost_ns == pytest.approx(8 * 4 * SECOND, abs=4)
    assert explain(Job("j", (), ()), step).startswith("Rank 7 (gpu:h7/0) computes slowly (mostly in the forward phase)")
    assert " since iteration 18: " in explain(Job("j", (), ()), step)


def test_what_came_with_a_step_began_there_even_if_it_outlasts_what_was_before() -> None:
    findings = second_fault(until=21)
    alone = in_run(33, 10, 7, run_excess_ns=(8 * 2 + 8 * 6 + 8 * 4) * SECOND)
    over = replace(run_over(42, 10, 39), run_excess_ns=(8 * 2 + 8 * 6 + 14 * 4) * SECOND)
    joiner, _ = joined([*findings, alone, over])
    step = joiner.incidents[opening(findings[4])]
    assert (step.ranks, step.state, step.first_iteration, step.last_iteration) == ((7,), "resolved", 18, 39)
    assert step.lost_ns == (8 * 6 + 14 * 4) * SECOND  # the share of its last finding, since 18


def test_who_was_found_before_a_step_began_with_the_run() -> None:
    incident = only([in_run(10, 10, 3), on_step(11, 10, 11, 3), on_step(12, 10, 11, 3)])
    assert incident.runs == {run(10): Span(10, 12, 14 * SECOND, at=12, share=1.0)}


def test_what_a_run_costs_is_told_however_long_it_goes_on_after_its_last_search() -> None:
    others = [found(i) for i in range(30, 900, 10)]
    incident = only([*DEGRADED, *others, run_over(901, 10, 899)])
    assert (incident.state, incident.last_iteration, incident.lost_ns) == ("resolved", 899, 890 * 2 * SECOND)


def test_a_culprit_that_takes_over_from_another_one_within_a_run_ends_its_part_and_begins_another() -> None:
    first = [in_run(i, 10, 3, share=0.9) for i in (10, 11, 13, 17, 25)]
    then = [in_run(i, 10, 7, share=0.8) for i in (41, 57)]
    joiner, _ = joined([*first, *then, run_over(71, 10, 69)])
    one, other = joiner.incidents.values()
    assert (one.ranks, one.first_iteration, one.last_iteration) == ((3,), 10, 25)
    assert one.lost_ns == pytest.approx(0.9 * 16 * 2 * SECOND)
    assert (other.ranks, other.first_iteration, other.last_iteration) == ((7,), 26, 69)
    assert other.lost_ns == pytest.approx(0.8 * 44 * 2 * SECOND)
    assert (one.state, other.state) == ("resolved", "resolved")


def test_a_culprit_that_was_not_found_while_much_was_left_to_explain_goes_on() -> None:
    first = [in_run(i, 10, 3, share=0.6) for i in (10, 11, 13)]
    others = [in_run(i, 10, 7, share=0.3) for i in (17, 25)]
    nobody = in_run(41, 10)
    joiner, _ = joined([*first, *others, nobody, run_over(71, 10, 69)])
    [incident] = joiner.incidents.values()  # there is too much doubt about rank 7
    assert (incident.ranks, incident.first_iteration, incident.last_iteration) == ((3,), 10, 69)


def test_who_took_over_is_known_however_long_the_run_goes_on() -> None:
    told = [*(in_run(i, 10, 3) for i in (10, 11, 13)), in_run(41, 10, 7), in_run(42, 10, 7)]
    others = [found(i) for i in range(50, 900, 10)]
    joiner, _ = joined([*told, *others, run_over(901, 10, 899)])
    spans = [(i.ranks, i.first_iteration, i.last_iteration) for i in joiner.incidents.values()]
    assert spans == [((3,), 10, 13), ((7,), 14, 899)]


def test_what_is_remembered_of_a_run_without_end_is_bounded() -> None:
    steps = [on_step(i, 10, i, 100 + i % 50, share=0.3) for i in range(20, 9000, 7)]
    joiner, _ = joined([*(in_run(i, 10, 3) for i in (10, 11, 13)), *steps])
    still_open = [incident for incident in joiner.incidents.values() if incident.state == "open"]
    assert any(known.ranks == (3,) for known in joiner.memory.findings)
    assert 200 < len(joiner.memory.findings) <= 401 + len(still_open)


def transfers(iteration: int, *ranks: int, share: float) -> Evidence:
    return found(iteration, *ranks, cause="communication_slow", share=share)


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (1, 0, 3, 2), (3, 1, 2, 0), (1, 3, 0, 2)])
def test_a_part_that_one_rank_shows_alone_does_not_narrow_what_explains_all_of_two(order: tuple[int, ...]) -> None:
    """As of a slow ToR, whose two NICs a job cannot tell apart."""
    told = [((1, 5), 0.9), ((1,), 0.3), ((1, 5), 0.8), ((1,), 0.26)]
    joiner, _ = joined(transfers(20 + i, *told[n][0], share=told[n][1]) for i, n in enumerate(order))
    [incident] = joiner.incidents.values()
    assert (incident.ranks, incident.level, incident.candidates) == ((1, 5), "group", ((1,), (5,)))
    assert {device.device for device in incident.devices} == {"nic:h1/0", "nic:h5/0"}
    narrowed = [transfers(20, 1, 5, share=0.9), transfers(21, 1, share=0.5), transfers(22, 1, share=0.5)]
    assert only(narrowed).ranks == (1,)


def test_groups_that_one_device_carries_are_one_incident() -> None:
    told = [of_nvlinks(20, 0, 1), of_nvlinks(21, 2, 3), of_nvlinks(22, 0, 1), of_nvlinks(23, 2, 3)]
    joiner, records = joined(told)
    [incident] = joiner.incidents.values()
    assert (incident.ranks, incident.candidates) == ((0, 1, 2, 3), ((0,), (1,), (2,), (3,)))
    assert [device.device for device in incident.devices] == ["nvlink:h0"]
    assert (incident.level, incident.revision, len(incident.findings)) == ("group", 1, 4)
    assert incident.confidence > 0.9
    assert [record.ranks for record in records] == [(0, 1, 2, 3)] * 3


def test_a_channel_that_shares_a_rank_with_nvlinks_is_another_fault() -> None:
    """Chance named it first; the host's NVLinks are told with all of their groups."""
    chance = found(19, 1, 9, cause="communication_slow", share=0.6)
    groups = [of_nvlinks(i, *ranks) for i in (20, 21) for ranks in ((4, 5), (6, 7), (0, 1))]
    incident = only([chance, *groups])
    assert (incident.ranks, [device.device for device in incident.devices]) == ((0, 1, 4, 5, 6, 7), ["nvlink:h0"])


def test_what_is_said_of_the_same_nvlinks_is_one_incident_whoever_shows_it() -> None:
    cpu = Device("cpu:h0", "cpu", 0)
    with_cpu = [replace(known, devices=(*known.devices, cpu)) for known in (of_nvlinks(21, 2, 3), of_nvlinks(22, 0, 1))]
    incident = only([of_nvlinks(20, 6), of_nvlinks(20, 2, 3), *with_cpu, of_nvlinks(23, 6), of_nvlinks(23, 4, 5)])
    assert (incident.level, incident.ranks) == ("group", (0, 1, 2, 3, 4, 5, 6))
    assert incident.candidates == tuple((rank,) for rank in incident.ranks)


def test_ranks_that_share_a_nic_are_one_incident_about_it() -> None:
    nic = (Device("nic:h0/0", "nic", 0),)
    told = [found(20 + i, i % 4, cause="communication_slow", devices=nic) for i in range(8)]
    incident = only(told)
    assert (incident.level, incident.ranks) == ("group", (0, 1, 2, 3))
    assert [device.device for device in incident.devices] == ["nic:h0/0"]


def of_switch(iteration: int, *ranks: int, switches: tuple[str, ...] = ("tor:pod0/rail0",)) -> Evidence:
    devices = tuple(Device(name, name.partition(":")[0], 32) for name in switches)
    told = found(iteration, *ranks, cause="communication_slow", devices=devices)
    return replace(told, level="device" if len(switches) == 1 else "group", candidates=())


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_switch_is_not_narrowed_to_a_nic_below_it(order: tuple[int, int]) -> None:
    switch, nic = of_switch(20, 0, 2, 4), found(20, 2, cause="communication_slow")
    pair = [replace((switch, nic)[which], iteration=20 + at) for at, which in enumerate(order)]
    incident = only([*pair, replace(nic, id="again", iteration=22)])
    assert (incident.level, incident.ranks) == ("device", (0, 2, 4))
    assert [device.device for device in incident.devices] == ["tor:pod0/rail0"]


@pytest.mark.parametrize(
    ("switches", "told", "ranks"),
    [
        (("spine:0", "spine:1"), "SNNN", (2,)),
        (("spine:0", "spine:1"), "NSSNSNNN", (2,)),
        (("spine:0", "spine:1"), "NNS", (2,)),
        (("spine:0", "spine:1"), "SSSNN", (0, 2, 4)),
        (("spine:0", "spine:1"), "NSS", (0, 2, 4)),
        (("spine:0", "spine:1"), "SOPNN", (0, 2, 4)),  # three NICs below the spines, each of them now and then
        (("tor:pod0/rail0",), "SNNN", (0, 2, 4)),
        (("tor:pod0/rail0",), "NNSS", (0, 2, 4)),
    ],
)
def test_of_spines_and_a_nic_below_them_what_is_found_on_more_iterations_counts(
    switches: tuple[str, ...], told: str, ranks: tuple[int, ...]
) -> None:
    """A ToR is told by the others below it, and keeps its incident; spines by what is not slow."""
    assert only(in_turn(told, switches)).ranks == ranks


def in_turn(told: str, switches: tuple[str, ...]) -> list[Evidence]:
    """Findings of the switches (S) and of NICs below them, an iteration each."""
    nics = {of: found(20, rank, cause="communication_slow") for of, rank in (("N", 2), ("O", 0), ("P", 4))}
    names = {"S": of_switch(20, 0, 2, 4, switches=switches), **nics}
    return [replace(names[of], id=f"{at}", iteration=20 + at) for at, of in enumerate(told)]


@pytest.mark.parametrize(("told", "ranks"), [("NSNSNSNS", (2,)), ("SNSNSNSN", (0, 2, 4))])
def test_spines_and_a_nic_in_turn_do_not_take_over_from_each_other(told: str, ranks: tuple[int, ...]) -> None:
    changes = joined(in_turn(told, ("spine:0", "spine:1")))[1]
    assert {incident.ranks for incident in changes} == {ranks}


def test_one_finding_of_many_does_not_make_a_nic_s_incident_a_switch_s() -> None:
    nic = [found(i, 5, cause="communication_slow", share=0.9) for i in range(20, 40)]
    for share in (0.1, 0.9):
        switch = replace(of_switch(40, 0, 5, 9), share=share)
        incident = only([*nic, switch, *(replace(each, id=f"again {each.at}", iteration=each.at + 21) for each in nic)])
        assert (incident.ranks, incident.level) == ((5,), "device")
    switches = [replace(of_switch(40 + i, 0, 5, 9), share=0.9) for i in range(20)]
    assert only([*nic, *switches]).ranks == (0, 5, 9)


def test_what_ranks_below_a_switch_share_with_others_is_its_too() -> None:
    shared = found(21, 2, 9, cause="communication_slow")
    assert only([of_switch(20, 0, 2, 4), shared]).ranks == (0, 2, 4)
    elsewhere = found(22, 8, 9, cause="communication_slow")
    joiner, _ = joined(
        [of_switch(20, 0, 2, 4), of_switch(21, 0, 2, 4), elsewhere, replace(elsewhere, id="x", iteration=23)]
    )
    assert {incident.ranks for incident in joiner.incidents.values()} == {(0, 2, 4), (8, 9)}


@pytest.mark.parametrize(
    ("told", "switch"),
    [
        ("SSTSTSS", "spine:5"),
        ("STTS", "tor:pod0/rail0"),
        ("STTT", "tor:pod0/rail0"),
        ("TTSS", "tor:pod0/rail0"),
        ("TTSSS", "spine:5"),
    ],
)
@pytest.mark.parametrize("below", [(1, 3), (1, 3, 17)], ids=["all show the spine", "not all do"])
def test_of_a_tor_and_a_spine_whichever_is_found_more_often_counts(
    told: str, switch: str, below: tuple[int, ...]
) -> None:
    """The ranks below a ToR are few of those whose traffic shows a spine: they do not narrow it."""
    names = {"S": of_switch(20, 1, 3, 5, 7, 9, switches=("spine:5",)), "T": of_switch(20, *below)}
    incident = only([replace(names[of], id=f"{at}", iteration=20 + at) for at, of in enumerate(told)])
    assert [device.device for device in incident.devices] == [switch]
    assert incident.ranks == names["S" if switch == "spine:5" else "T"].ranks


def test_all_traffic_that_shows_the_same_spines_is_one_incident() -> None:
    spines = ("spine:0", "spine:1")
    incident = only([of_switch(20, 1, 17, switches=spines), of_switch(21, 9, 25, switches=spines)])
    assert (incident.level, incident.ranks, incident.candidates) == ("group", (1, 9, 17, 25), ())
    assert [device.device for device in incident.devices] == list(spines)


def test_switches_are_told_apart() -> None:
    told = [of_switch(i, *ranks, switches=(f"tor:{ranks[0]}",)) for i in (20, 21) for ranks in ((0, 2), (1, 3))]
    assert [incident.ranks for incident in joined(told)[0].incidents.values()] == [(0, 2), (1, 3)]


def test_a_narrower_culprit_brings_its_own_cause() -> None:
    group = [found(i, 0, 1, 2, 3, cause="communication_slow") for i in (20, 21)]
    incident = only([*group, found(22, 3, cause="mixed_slow"), found(23, 3, cause="mixed_slow")])
    assert (incident.ranks, incident.cause) == ((3,), "mixed_slow")


def test_an_incident_is_told_again_once_its_device_slows_more_ranks() -> None:
    told = [of_nvlinks(20, 0, 1), of_nvlinks(21, 0, 1), of_nvlinks(22, 2, 3), of_nvlinks(23, 0, 1)]
    _, records = joined(told)
    assert [(record.ranks, record.revision) for record in records] == [((0, 1), 1), *[((0, 1, 2, 3), 2)] * 2]


def test_groups_of_different_hosts_are_different_incidents() -> None:
    told = [of_nvlinks(i, *ranks, host=host) for i in (20, 21) for ranks, host in (((0, 1), "h0"), ((2, 3), "h1"))]
    assert [incident.ranks for incident in joined(told)[0].incidents.values()] == [(0, 1), (2, 3)]


def test_a_step_of_a_later_run_does_not_move_where_an_incident_began() -> None:
    spikes = [found(i, 3) for i in (20, 31)]
    incident = only([*spikes, on_step(45, 43, 44, 3, pattern=SPIKE)])
    assert incident.runs[run(43)] == Span(44, 45, 12 * SECOND, 2 * SECOND, at=45, share=1.0)
    assert incident.first_iteration == 20


def test_a_run_of_others_resolves_nothing() -> None:
    joiner, records = joined([*DEGRADED, run_over(60, 55, 58)])
    assert records[-1].state == "open"
    assert joiner.take(replace(run_over(26, 10, 24), method="another")) == []


def test_quiet_resolves_whatever_is_open_once() -> None:
    joiner, _ = joined([found(20, 3), found(21, 3), found(20, 7), found(21, 7)])
    ended = joiner.take(all_over(122))
    assert [(i.state, i.revision, i.resolved_ns) for i in ended] == [("resolved", 2, 122 * SECOND)] * 2
    assert joiner.take(all_over(122)) == []
    assert joiner.take(all_over(123)) == []


def test_what_is_resolved_stays_so_when_everything_is() -> None:
    joiner, _ = joined([*DEGRADED, run_over(26, 10, 24)])
    assert joiner.take(all_over(124)) == []


def test_a_late_finding_inside_a_resolved_span_joins_without_reopening() -> None:
    joiner, _ = joined([*DEGRADED, run_over(26, 10, 24)])
    [record] = joiner.take(in_run(21, 10, 3))
    assert (record.state, record.id) == ("resolved", opening(DEGRADED[0]))
    assert record.findings[-1] == in_run(21, 10, 3).id


def test_the_same_device_again_after_its_incident_was_resolved_is_a_new_incident() -> None:
    joiner, _ = joined([*DEGRADED, run_over(26, 10, 24), in_run(40, 40, 3), in_run(41, 40, 3)])
    first, second = joiner.incidents.values()
    assert (first.state, second.state) == ("resolved", "open")
    assert second.id == opening(in_run(40, 40, 3))
    assert (second.first_iteration, second.revision) == (40, 1)


def test_a_replay_from_before_the_window_changes_nothing() -> None:
    findings = [in_run(i, 10, 3) for i in (10, 11, 60, 130, 200)]
    joiner, _ = joined(findings)
    assert len(joiner.memory.findings) < len(findings)
    assert [joiner.take(finding) for finding in findings] == [[]] * len(findings)


def test_an_incident_that_was_resolved_long_ago_is_forgotten() -> None:
    joiner, _ = joined([*DEGRADED, run_over(26, 10, 24), found(124, 5)])
    assert len(joiner.incidents) == 1
    joiner.take(found(125, 5))
    assert [incident.ranks for incident in joiner.incidents.values()] == [(5,)]


# Properties: a job in which up to three devices are slow now and then.

_culprits = st.sampled_from([(3,), (7,), (2, 3), (11,)])
_told = st.lists(
    st.tuples(st.integers(1, 12), st.sets(_culprits, max_size=3), st.sampled_from([1.0, 0.6, 0.4])), max_size=14
)


def story(told: Sequence[tuple[int, set[tuple[int, ...]], float]], ends: set[int]) -> list[list[Evidence]]:
    """The findings of one iteration after the other; after some of them everything is over."""
    iteration, messages = 10, []
    for place, (step, culprits, share) in enumerate(told):
        iteration += step
        what = {"share": share, "cause": "communication_slow", "prominence": 1.5 if iteration % 3 else None}
        some = [found(iteration, *ranks, **what) for ranks in sorted(culprits)]
        messages.append(some or [found(iteration)])
        if place in ends:
            messages.append([all_over(iteration + 1)])
    return messages


ends = st.sets(st.integers(0, 13), max_size=3)
WORLD = 64
"""Ranks of the job: of so many, who is named in three of five moments is named by no chance."""


@given(_told, ends, st.sets(st.integers(0, 40), max_size=4))
def test_a_joiner_that_is_restarted_anywhere_joins_as_one_that_never_was(
    told: list[tuple[int, set[tuple[int, ...]], float]], over: set[int], cuts: set[int]
) -> None:
    messages = story(told, over)
    joiner, records = IncidentJoiner(opening, SETTINGS, world=WORLD), []
    for place, message in enumerate(messages):
        if place in cuts:
            state = json.loads(json.dumps(joiner.to_state()))
            joiner = IncidentJoiner.from_state(state, opening, SETTINGS)
            joiner.world = WORLD
        records += joiner.take(*message)
    assert records == joined((finding for message in messages for finding in message), WORLD)[1]


@given(_told, ends, st.data())
def test_replays_change_nothing(
    told: list[tuple[int, set[tuple[int, ...]], float]], over: set[int], data: st.DataObject
) -> None:
    messages = story(told, over)
    joiner, records = IncidentJoiner(opening, SETTINGS, world=WORLD), []
    for place, message in enumerate(messages):
        records += joiner.take(*message)
        again = data.draw(st.integers(0, 3))
        for repeated in messages[max(0, place + 1 - again) : place + 1]:
            assert joiner.take(*repeated) == []
    assert records == joined((finding for message in messages for finding in message), WORLD)[1]


_groups = st.tuples(
    st.sampled_from([(0, 1), (2, 3), (1, 2), (0, 1, 2, 3), (1,), (3,)]), st.sampled_from(["a", "b", "c"])
)
_overlapping = st.lists(
    st.tuples(st.integers(1, 12), st.sets(_groups, max_size=4), st.sampled_from([1.0, 0.6, 0.4])), max_size=14
)


@given(_overlapping)
def test_whatever_overlaps_an_incident_names_somebody(
    told: list[tuple[int, set[tuple[tuple[int, ...], str]], float]],
) -> None:
    iteration, findings = 10, []
    for step, groups, share in told:
        iteration += step
        for ranks, name in sorted(groups):
            what = {"cause": "communication_slow", "devices": (Device(name, "tor", 0),)}
            findings.append(found(iteration, *ranks, share=share, id=f"{iteration}/{ranks}/{name}", **what))
    ranks_of = {finding.id: set(finding.ranks) for finding in findings}
    for incident in joined(findings)[1]:
        assert incident.ranks
        assert set(incident.ranks) <= set().union(*(ranks_of[finding] for finding in incident.findings))


_apart = st.lists(
    st.tuples(
        st.integers(1, 12), st.sets(st.sampled_from([(3,), (7,), (11, 12)]), max_size=3), st.sampled_from([1.0, 0.5])
    ),
    max_size=14,
)


@given(_apart, ends, st.data())
def test_the_order_of_different_culprits_does_not_matter(
    told: list[tuple[int, set[tuple[int, ...]], float]], over: set[int], data: st.DataObject
) -> None:
    messages = story(told, over)
    shuffled = [data.draw(st.permutations(message)) for message in messages]
    one, other = (joined(f for m in order for f in m)[0] for order in (messages, shuffled))
    assert one.incidents == other.incidents


@given(_told, ends)
def test_revisions_rise_with_every_change_that_a_person_must_hear(
    told: list[tuple[int, set[tuple[int, ...]], float]], over: set[int]
) -> None:
    _, records = joined(finding for message in story(told, over) for finding in message)
    for _, of_one in groupby(sorted(records, key=lambda record: record.id), key=lambda record: record.id):
        history = list(of_one)
        assert history[0].revision == 1
        for before, after in pairwise(history):
            heard = (before.state, before.ranks, before.pattern) != (after.state, after.ranks, after.pattern)
            assert after.revision == before.revision + heard
            here, there = set(before.ranks), set(after.ranks)
            assert there <= here or here <= there  # it is narrowed, or what explains much more is wider
            assert after.last_iteration >= before.last_iteration
            assert not (before.state == "resolved" and after.state == "open")
