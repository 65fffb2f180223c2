"""What a person is told of an incident."""

from dataclasses import replace
from typing import Any

import pytest

from diagnosis.causes import GOES_ON_LATE
from diagnosis.incidents.evidence import Incident, Run, Span, Stage
from diagnosis.incidents.explanation import explain
from diagnosis.incidents.joining import IncidentJoiner
from diagnosis.irregularity.run import DEGRADATION, FLUCTUATION
from diagnosis.job import Communicator, Job, Place
from diagnosis.topology import Device
from tests.diagnosis.incidents.findings import SECOND, found

RUN = Run("operator_graph", 20)
JOB = Job("j", tuple(Place(rank, f"h{rank // 2}" if rank < 8 else None, rank % 2) for rank in range(10)), ())


def incident(*ranks: int, **fields: str) -> Incident:
    joiner = IncidentJoiner(lambda finding: finding.id)
    joiner.take(found(20, *ranks, **fields))
    [opened] = joiner.take(found(31, *ranks, **fields))
    return opened


def test_one_slow_gpu() -> None:
    assert explain(JOB, incident(3)) == (
        "Rank 3 on h1 (gpu:h3/0) computes slowly (mostly in the forward phase)"
        " in 2 spikes between iterations 20 and 31: the job lost 4 s."
        " Check the GPU's clocks, temperature and throttle reasons, and the host's CPU load; else swap it."
    )


def test_whoever_goes_on_late_may_be_waiting_for_packets() -> None:
    plain, late = incident(3), replace(incident(3), rule=GOES_ON_LATE)
    packets = "When operators ended its log does not tell: late packets look alike; check its NIC and its peers'."
    assert explain(JOB, late) == f"{explain(JOB, plain)} {packets}"
    confirmed = replace(late, methods=("operator_graph", "traffic"))
    assert explain(JOB, confirmed) == explain(JOB, plain)
    on_one_host = replace(JOB, communicators=(Communicator("tp", (2, 3)),))
    assert explain(on_one_host, late) == explain(on_one_host, plain)
    abroad = replace(JOB, communicators=(*on_one_host.communicators, Communicator("dp", (3, 5))))
    assert explain(abroad, late).endswith(packets)


def test_candidates_are_alternatives() -> None:
    text = explain(JOB, incident(2, 9, cause="communication_slow"))
    assert text.startswith("Rank 2 on h1 or rank 9 (nic:h2/0, nic:h9/0) transfers slowly")
    assert "The evidence cannot tell these apart: as far as it goes they share every operator that is slow." in text
    assert text.endswith("Check the NIC's rate, errors, cable and PCIe link, and its switch port; else swap it.")


def test_nvlinks_among_the_candidates_are_checked_too() -> None:
    links = (Device("nvlink:h1", "nvlink", 0), Device("nvlink:h4", "nvlink", 0))
    nics = incident(2, 9, cause="communication_slow")
    text = explain(JOB, replace(nics, devices=(*nics.devices, *links)))
    assert text.startswith("Rank 2 on h1 or rank 9 (nic:h2/0, nic:h9/0, nvlink:h1, nvlink:h4) transfers slowly")
    assert text.endswith(
        "else swap it. Slow NVLinks (nvlink:h1 or nvlink:h4) look alike: check their errors and states as well"
        " (nvidia-smi nvlink)."
    )


def test_slow_nvlinks_are_those_of_a_host() -> None:
    nvlinks = replace(incident(2, 3, cause="communication_slow"), devices=(Device("nvlink:h1", "nvlink", 0),))
    text = explain(JOB, nvlinks)
    assert text.startswith("The NVLinks of host h1 (ranks 2-3) transfer slowly (mostly in the ")
    assert text.endswith("Check their errors and states (nvidia-smi nvlink) and the NVSwitches'; else swap the host.")
    assert "apart" not in text
    assert "NIC" not in text
    either = replace(nvlinks, devices=(*nvlinks.devices, Device("cpu:h1", "cpu", 0)))
    assert explain(JOB, either).startswith("The NVLinks, or the CPUs, of host h1 (ranks 2-3) transfer slowly")
    assert explain(JOB, either).endswith("A busy CPU that launches late looks alike: check its load.")
    unplaced = explain(Job("j", (), ()), nvlinks)
    assert unplaced.startswith("Rank 2 or rank 3 (nvlink:h1) transfers slowly")


def test_a_switch_is_named_with_how_many_ranks_it_slows() -> None:
    tor = replace(incident(2, 4, cause="communication_slow"), devices=(Device("tor:pod0/rail0", "tor", 32),))
    text = explain(JOB, tor)
    assert text.startswith(
        "The switch tor:pod0/rail0 (2 ranks below) transfers slowly (mostly in the forward phase) in 2"
    )
    assert text.endswith("the job lost 4 s. Check its ports' rates, errors and discards; else move its ranks.")
    spines = tuple(Device(f"spine:{number}", "spine", 64) for number in range(2))
    text = explain(JOB, replace(tor, devices=spines))
    assert text.startswith("The switch spine:0 or spine:1 (2 ranks see it) transfers slowly")


def test_candidates_of_a_hang_share_what_hangs() -> None:
    text = explain(JOB, incident(2, 9, cause="hang_hardware"))
    assert "The evidence cannot tell these apart: as far as it goes they share every operator that hangs." in text


def test_many_ranks_are_counted() -> None:
    text = explain(JOB, incident(0, 1, 2, 3, 4, 5, cause="communication_slow"))
    assert text.startswith("Rank 0 on h0 or rank 1 on h0 or rank 2 on h1 or rank 3 on h1 and 2 more (")


@pytest.mark.parametrize(
    ("changes", "when"),
    [
        ({"pattern": DEGRADATION, "runs": {RUN: Span(20, 28, SECOND)}}, "since iteration 20: the job lost 1 s."),
        (
            {"pattern": DEGRADATION, "runs": {RUN: Span(20, 28, SECOND)}, "state": "resolved"},
            "from iteration 20 to 28: the job",
        ),
        (
            {"pattern": FLUCTUATION, "period": 6.94},
            "about every 7 iterations between iterations 20 and 31: the job lost 4 s.",
        ),
        ({"pattern": FLUCTUATION}, "again and again between iterations 20 and 31: the job lost 4 s."),
        ({"runs": {RUN: Span(20, 22, SECOND // 3)}}, "in iterations 20 to 22: the job lost 0.333 s."),
        ({"runs": {RUN: Span(20, 20, SECOND)}}, "in iteration 20: the job lost 1 s."),
    ],
)
def test_when(changes: dict[str, Any], when: str) -> None:
    assert when in explain(JOB, replace(incident(3), **changes))


def test_what_is_not_known_is_not_said() -> None:
    plain = replace(incident(9), stage=Stage(), devices=(), cause="network_path")
    assert explain(JOB, plain) == "Rank 9 network path in 2 spikes between iterations 20 and 31: the job lost 4 s."


def test_a_job_that_hangs_has_lost_more_than_can_be_said() -> None:
    hung = explain(JOB, replace(incident(9), cause="hang_not_entered"))
    assert "has not begun an operator that others wait for" in hung
    assert "the job does not go on" in hung
    assert "lost" not in hung


@pytest.mark.parametrize(
    ("cause", "ranks", "told"),
    [
        ("compute_slow", (2, 3), "A GPU of host h1 (ranks 2-3) computes slowly"),
        ("host_slow", (2, 3), "Host h1 (ranks 2-3) is slow"),
        ("communication_slow", (0, 2, 3), "Host h0 (rank 0) and host h1 (ranks 2-3) transfers slowly"),
        ("compute_slow", (2, 9), "Rank 2 on h1 and rank 9 ("),
    ],
)
def test_machines_are_named_by_their_hosts(cause: str, ranks: tuple[int, ...], told: str) -> None:
    named = replace(incident(3), cause=cause, ranks=ranks, level="machine")
    assert explain(JOB, named).startswith(told)


def test_of_several_machines_that_cannot_be_told_apart_each_is_named() -> None:
    either = replace(
        incident(3), cause="hang_not_entered", level="machine", ranks=(0, 1, 6, 7), candidates=((0, 1), (6, 7))
    )
    assert explain(JOB, either).startswith(
        "A GPU of host h0 (ranks 0-1) or host h3 (ranks 6-7) has not begun an operator"
    )
    group = replace(incident(3), cause="host_slow", level="group", ranks=(0, 2, 4))
    assert explain(JOB, group).startswith("One of host h0 (rank 0), host h1 (rank 2), host h2 (rank 4) is slow")
