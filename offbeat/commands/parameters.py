"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from offbeat.settings import Settings

Json = Annotated[bool, typer.Option("--json", help="Print one JSON value on stdout.")]
FormatName = Annotated[
    str | None, typer.Option("--format", metavar="NAME", help="How the files are written, if it cannot be told.")
]
LayoutText = Annotated[
    str | None,
    typer.Option("--layout", metavar="tp=2,pp=4,dp=1", help="Degrees of parallelism, if they cannot be told."),
]
IterationOp = Annotated[
    str | None,
    typer.Option(metavar="op=all_reduce,bytes=4", help="The operator that ends an iteration, if rows carry none."),
]
SCENARIO = (
    "seed=0,tp=8,pp=4,dp=2 and so on: also cp, ep, microbatches, layers, hidden, sequence_length, micro_batch_size, "
    "vocabulary, iterations, gpus_per_host, age_days, compute_ms; fold_experts, sequence_parallel and "
    "distributed_optimizer=yes|no; noise=default|hard, omit=labels+ends+layout+routes; hosts_per_pod=32,spines=8 "
    "describe a fabric."
)
NIC_SCENARIO = (
    "With --nic: setup=gpt2_70b (the default), gpt2_70b_deep, gpt2_32b, mixtral, mixtral_trees, hot_experts, "
    "neighbours, all_to_one or one_to_all, seed, tp, dp, pp, microbatches, layers, iterations, line_gbps, channels, "
    "noise=default|hard|quiet, omit=layout."
)
_FAULTS = (
    "A slow device of the simulation (gpu_slow, nic_slow, cpu_slow, nvlink_slow and, in a fabric, "
    "link_slow, tor_slow, spine_slow); give it again for several. rank is one that the device serves, of a spine "
    "spine=0 its number. factor=2 is the device's own slowdown, part=forward|backward the compute that is slow, "
    "iterations=12+25+31 are spikes."
)
_FAULT_NAMES = "kind=gpu_slow,rank=13,iterations=20-40,slowdown=1.3"
Faults = Annotated[list[str] | None, typer.Option("--fault", metavar=_FAULT_NAMES, help=_FAULTS)]
NicFaults = Annotated[
    list[str] | None,
    typer.Option(
        "--fault",
        metavar=_FAULT_NAMES,
        help=f"{_FAULTS} With --nic: kind=pcie_downgrade,rank=13,at_ms=200,severity=0.4, other kinds being gpu_error, "
        "cuda_error, gpu_throttling, cpu_throttling, cpu_contention, nic_down, pcie_contention, congestion (with "
        "peer=5 of one path), cross_numa and memory_alignment; at_ms counts from the job's start. severity: of "
        "gpu_throttling watts that are left (350 to 200), of cpu_contention the share of the cores that is taken (0.9, "
        "1), of pcie_contention of the line (0.5 to 0.8), of pcie_downgrade (0.5 to 0.2) and congestion (0.8 to 0.5) "
        "the share of the line that is left; the others have none.",
    ),
]
DataDir = Annotated[
    Path | None, typer.Option("--data-dir", metavar="DIR", help="The chDB folder, instead of the store that is set.")
]
Bootstrap = Annotated[
    str | None, typer.Option("--bootstrap", metavar="HOST:PORT", help="Kafka, instead of the one that is set.")
]


def settings_with(*, bootstrap: str | None = None, data_dir: Path | None = None, **worker: Any) -> Settings:
    """The settings of the environment under what the command line gives; ``worker`` are fields of that group.

    Logs go to stderr as the settings say from then on.
    """
    from offbeat import logs
    from offbeat.settings import Settings

    settings = Settings.load(**given_settings(bootstrap=bootstrap, data_dir=data_dir, **worker))
    logs.configure(settings.log_level)
    return settings


def given_settings(*, bootstrap: str | None = None, data_dir: Path | None = None, **worker: Any) -> dict[str, Any]:
    """What the command line gives, as groups of settings; ``worker`` are fields of that group."""
    given: dict[str, Any] = {}
    if bootstrap is not None:
        given["kafka"] = {"bootstrap_servers": bootstrap}
    if data_dir is not None:
        given["store"] = {"engine": "chdb", "path": data_dir}
    of_worker = {name: value for name, value in worker.items() if value is not None}
    if of_worker:
        given["worker"] = of_worker
    return given
