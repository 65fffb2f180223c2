"""`offbeat produce` at the pace of a job that trains, which production code has no use for.

python -m tests.integration.paced SECONDS produce --recording FOLDER --follow
"""

import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest import mock

from offbeat import produce
from offbeat.cli import main

_produce = produce.produce


def paced(iteration_s: float, *arguments: Any, on_round: Callable[[int], None], **named: Any) -> produce.Produced:
    """As ``produce``, with a pause after each iteration."""

    def slowly(rounds: int) -> None:
        on_round(rounds)
        time.sleep(iteration_s)

    return _produce(*arguments, on_round=slowly, **named)


if __name__ == "__main__":
    with mock.patch("offbeat.produce.produce", partial(paced, float(sys.argv.pop(1)))):
        main()
