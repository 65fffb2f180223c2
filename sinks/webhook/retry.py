"""How long to keep trying while the receiver is away."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tenacity import RetryCallState, Retrying, retry_if_exception_type, wait_random_exponential

from sinks.webhook.delivery import ReceiverAway


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Waits and their bound, in seconds.

    ``patience_s`` must stay below the consumer's longest time between polls, or the partition moves to a worker
    that waits just as long. A flush goes over what is due for ``flush_s`` and leaves the rest to the next one, so that
    what a slow receiver has taken is saved before a worker that seems stuck is ended.
    """

    first_wait_s: float = 0.5
    longest_wait_s: float = 30.0
    patience_s: float = 240.0
    flush_s: float = 60.0


class Patience:
    """When to try again, and until when; one object a flush.

    Waits grow exponentially and are random, so that many workers do not come back at once; a longer Retry-After
    counts instead. The patience starts anew with every delivery, and the last attempt is made when it ends.
    """

    def __init__(self, policy: RetryPolicy, clock: Callable[[], float]) -> None:
        self._policy = policy
        self._clock = clock
        self._backoff = wait_random_exponential(
            multiplier=policy.first_wait_s, min=policy.first_wait_s, max=policy.longest_wait_s
        )
        self._until = clock() + policy.patience_s

    def delivered(self) -> None:
        """A page got through: the receiver is there."""
        self._until = self._clock() + self._policy.patience_s

    def retrying(
        self,
        sleep: Callable[[float], None],
        stopped: Callable[[], bool],
        before_sleep: Callable[[ReceiverAway], None],
    ) -> Retrying:
        """Calls again after ``ReceiverAway`` while there is patience; then, or once ``stopped``, lets it through."""

        def tell(state: RetryCallState) -> None:
            before_sleep(_failure(state))

        def spent(_: RetryCallState) -> bool:
            return stopped() or self._clock() >= self._until

        return Retrying(
            retry=retry_if_exception_type(ReceiverAway),
            wait=self._wait,
            stop=spent,
            sleep=sleep,
            before_sleep=tell,
            reraise=True,
        )

    def _wait(self, state: RetryCallState) -> float:
        wanted = max(self._backoff(state), _failure(state).retry_after_s or 0.0)
        return max(0.0, min(wanted, self._until - self._clock()))


def _failure(state: RetryCallState) -> ReceiverAway:
    error = None if state.outcome is None else state.outcome.exception()
    if not isinstance(error, ReceiverAway):
        raise TypeError(f"only ReceiverAway is tried again, not {error!r}")
    return error
