"""What the ranks of a small job tell of an iteration: they compute, and wait for each other where that is due."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from diagnosis.job import Communicator, Job, Layout, Place
from schemas.catalogue import ITERATION_SUMMARIES

MS = 1_000_000
HOSTS, PER_HOST = 4, 2
RANKS = range(HOSTS * PER_HOST)
GROUPS: dict[str, tuple[int, ...]] = {f"tp{host}": (2 * host, 2 * host + 1) for host in range(HOSTS)}
GROUPS |= {f"dp{place}": tuple(range(place, 8, PER_HOST)) for place in range(PER_HOST)}
GROUPS |= {f"cp{pair}{place}": (4 * pair + place, 4 * pair + place + 2) for pair in range(2) for place in range(2)}
GROUPS |= {f"ep{one}{other}": (one, other) for one, other in ((0, 3), (1, 2), (4, 7), (5, 6))}
GROUPS["world"] = tuple(RANKS)
ORDER = ("tp", "cp", "ep", "dp", "world")


def job(*, hosts: bool = True) -> Job:
    """Four hosts of two ranks: tensor groups within hosts; context, expert and data groups across them."""
    places = tuple(Place(rank, f"h{rank // PER_HOST}" if hosts else None, rank % PER_HOST) for rank in RANKS)
    layout = Layout(tp=2, cp=2, dp=2, pp=1, source="given")
    return Job("j", places, tuple(Communicator(name, ranks) for name, ranks in GROUPS.items()), layout)


@dataclass(frozen=True)
class Made:
    """One iteration. ``compute_ms`` of ranks that differ from the others, ``transfer_ms`` of such channels; ``late_ms``
    of ranks that wait for a pipeline neighbour first, whose send comes as late.
    """

    compute_ms: Mapping[int, float] = field(default_factory=dict)
    transfer_ms: Mapping[str, float] = field(default_factory=dict)
    late_ms: Mapping[int, float] = field(default_factory=dict)

    def summaries(
        self, iteration: int = 0, ranks: Sequence[int] = RANKS, *, lost: Sequence[int] = (), ended: bool = True
    ) -> pa.RecordBatch:
        """Records of telemetry.iteration_summaries."""
        at = {rank: self.compute_ms.get(rank, 80.0) + self.late_ms.get(rank, 0.0) for rank in RANKS}
        spent: dict[int, list[tuple[str, str, float]]] = {rank: [] for rank in RANKS}
        for rank, late in self.late_ms.items():
            spent[rank].append(("pp", "recv", late))
        for kind in ORDER:
            for name in (name for name in GROUPS if name.startswith(kind)):
                done = max(at[rank] for rank in GROUPS[name]) + self.transfer_ms.get(name, 2.0)
                for rank in GROUPS[name]:
                    spent[rank].append((name, "all_reduce", done - at[rank]))
                    at[rank] = done
        end_ms = max(at.values())
        return ITERATION_SUMMARIES.from_rows(
            [
                {
                    "rank": rank,
                    "iteration": iteration,
                    "start_ns": 1000 * MS * iteration,
                    "end_ns": 1000 * MS * iteration + int(end_ms * MS),
                    "operators": len(spent[rank]),
                    "lost_lines": int(rank in lost),
                    "by_operator": [
                        {
                            "communicator": name,
                            "op": op,
                            "count": 1,
                            "duration_sum_ns": int(ms * MS) if ended else None,
                            "duration_max_ns": int(ms * MS) if ended else None,
                        }
                        for name, op, ms in spent[rank]
                    ],
                }
                for rank in ranks
            ]
        )


EQUAL = Made()
SLOW_GPU = Made(compute_ms={5: 120.0})
