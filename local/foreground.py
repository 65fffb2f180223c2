"""A service in the foreground, for trying things out: until Ctrl-C, SIGTERM, or its own end."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from typing import TypeVar

from local.service import LocalService, LocalServiceError

Service = TypeVar("Service", bound=LocalService)


def serve(make: Callable[[], Service], reached: Callable[[Service], str]) -> int:
    """Run the service that ``make`` gives and, once it answers, print how it is ``reached``; the exit code."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        made = make()
        print(f"starting {made.name} ...", flush=True)
        with made as service:
            print(f"{reached(service)}\n(log: {service.log_path}; Ctrl-C stops it)", flush=True)
            code = service.wait()
            print(f"{service.name} ended by itself with code {code}", file=sys.stderr)
            return 1
    except KeyboardInterrupt:
        return 0
    except LocalServiceError as error:
        print(error, file=sys.stderr)
        return 1
