"""What one fault came to: what was done, what was survived, and where the outcome differs from an undisturbed run."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Self

from tests.integration.verdict import Verdict


@dataclass
class Tally:
    """Counts of one fault, or of several.

    ``kills`` are SIGKILLs of roles, ``outages`` times that something was away, slow, full or refusing, ``rebalances``
    how often the broker told that a worker had joined a group or left it, ``restarts`` how often a role that had ended
    was started again. ``differences`` say what is not as undisturbed; without any, and with no ``pages_lost``, all of
    it was survived. ``skipped`` says what this machine could not do.
    """

    fault: str
    seconds: float = 0.0
    jobs: int = 0
    kills: int = 0
    outages: int = 0
    rebalances: int = 0
    clocks_set: int = 0
    restarts: int = 0
    bad_messages: int = 0
    late_records: int = 0
    pages: int = 0
    pages_lost: int = 0
    pages_repeated: int = 0
    differences: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    @property
    def survived(self) -> bool:
        return not self.differences and not self.pages_lost

    def judge(self, job: str, verdict: Verdict) -> None:
        """Count in what became of a job."""
        self.jobs += 1
        self.pages += verdict.pages
        self.pages_lost += len(verdict.lost)
        self.pages_repeated += verdict.repeated.total()
        self.differences += [f"{job}: {difference}" for difference in verdict.differences]

    @classmethod
    def total(cls, tallies: Iterable[Self]) -> Self:
        """All of them together."""
        whole = cls("all")
        for tally in tallies:
            for name in (one.name for one in fields(cls) if one.name != "fault"):
                setattr(whole, name, getattr(whole, name) + getattr(tally, name))
        return whole

    def to_row(self) -> dict[str, Any]:
        """As JSON has it."""
        return {**asdict(self), "seconds": round(self.seconds, 1), "survived": self.survived}
