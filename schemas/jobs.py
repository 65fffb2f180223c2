"""control.jobs: what a job is made of; one record a job, rewritten when something becomes known."""

from __future__ import annotations

import pyarrow as pa

from schemas.topic import TIME, Column, Key, Topic

RANK = pa.struct(
    [
        pa.field("rank", pa.int32(), nullable=False),
        pa.field("host", pa.string()),
        pa.field("container", pa.string()),
        pa.field("gpu", pa.int32()),
        pa.field("nics", pa.list_(pa.string())),
        pa.field("numa_node", pa.int32()),
    ]
)
COMMUNICATOR = pa.struct(
    [
        pa.field("communicator", pa.string(), nullable=False),
        pa.field("kind", pa.string()),
        pa.field("ranks", pa.list_(pa.int32())),
    ]
)
DEVICE = pa.struct(
    [
        pa.field("device", pa.string(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("host", pa.string()),
        pa.field("rate_bytes_per_s", pa.float64()),
    ]
)
LINK = pa.struct(
    [
        pa.field("link", pa.string(), nullable=False),
        pa.field("a", pa.string()),
        pa.field("a_port", pa.string()),
        pa.field("b", pa.string()),
        pa.field("b_port", pa.string()),
        pa.field("rate_bytes_per_s", pa.float64()),
    ]
)
PATH_RULE = pa.struct(
    [
        pa.field("rail", pa.int32()),
        pa.field("tor", pa.string()),
        pa.field("spines", pa.list_(pa.string())),
    ]
)
ROUTE = pa.struct(
    [
        pa.field("source", pa.string(), nullable=False),
        pa.field("destination", pa.string(), nullable=False),
        pa.field("switches", pa.list_(pa.string())),
    ]
)
TRAINING = pa.struct(
    [
        *(
            pa.field(name, pa.int32())
            for name in (
                "tp pp dp cp ep virtual_stages hidden heads sequence_length "
                "micro_batch_size global_batch_size microbatches"
            ).split()
        ),
        pa.field("layers_per_stage", pa.list_(pa.int32())),
        pa.field("rank_order", pa.string()),
        pa.field("schedule", pa.string()),
        pa.field("recompute", pa.string()),
        *(
            pa.field(name, pa.bool_())
            for name in (
                "sequence_parallel distributed_optimizer overlap_grad_reduce "
                "overlap_param_gather overlap_p2p tied_embeddings"
            ).split()
        ),
        pa.field("given", pa.list_(pa.string())),
    ]
)
RNIC = pa.struct(
    [
        pa.field("nic", pa.string()),
        pa.field("vf", pa.int32()),
        pa.field("rail", pa.int32()),
        pa.field("gpu", pa.int32()),
        pa.field("overlay_ip", pa.string()),
        pa.field("underlay_ip", pa.string()),
        pa.field("tor", pa.string()),
        pa.field("tor_port", pa.string()),
    ]
)
CONTAINER = pa.struct(
    [
        pa.field("container", pa.string(), nullable=False),
        pa.field("host", pa.string()),
        pa.field("tenant", pa.string()),
        pa.field("vni", pa.int32()),
        pa.field("rnics", pa.list_(RNIC)),
    ]
)

TOPIC = Topic(
    name="control.jobs",
    version=1,
    key=Key.JOB,
    doc="Ranks, hosts, NICs, communicators and layout of a job; the newest record of a job counts.",
    compacted=True,
    columns=(
        Column("job", pa.string(), "One run with one layout; a restart is a new id."),
        Column("ranks", pa.list_(RANK), "Where each rank runs."),
        Column("communicators", pa.list_(COMMUNICATOR), "Members of each communicator, in its own rank order."),
        Column("devices", pa.list_(DEVICE), "Hardware that can be at fault.", nullable=True),
        Column("links", pa.list_(LINK), "Cables; `a` and `b` are names of devices.", nullable=True),
        Column("paths", pa.list_(PATH_RULE), "Spines that traffic of a rail and ToR may take.", nullable=True),
        Column(
            "routes",
            pa.list_(ROUTE),
            "Switches that traffic from a NIC to another was seen to take, also where that is one ToR alone; a NIC "
            "of which nothing that it sends others, or nothing that it is sent, is listed may take whatever `paths` "
            "allow.",
            nullable=True,
        ),
        Column("training", TRAINING, "Parallelism and sizes; `given` names what was not inferred.", nullable=True),
        Column("monitoring", pa.bool_(), "Whether the job is watched.", nullable=True),
        Column("containers", pa.list_(CONTAINER), "Containers and their RNICs.", nullable=True),
        Column("started_ns", TIME, "When the job started.", "ns since the epoch", nullable=True),
        Column("ended_ns", TIME, "When the job ended; null while it runs.", "ns since the epoch", nullable=True),
    ),
)
