"""Logs of the long-running roles, on stderr: JSON lines for a collector, plain lines on a terminal.

Both of our ways of logging end here: structlog's loggers and the standard library's.
"""

from __future__ import annotations

import logging
import sys

import structlog


def configure(level: str) -> None:
    """Send all logs of a level and above to stderr."""
    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if sys.stderr.isatty():
        # The default shows the values of local variables as well, and those may be secret.
        plain = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
        last: list[structlog.typing.Processor] = [plain]
    else:
        last = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(ensure_ascii=False)]
    handler = logging.StreamHandler(sys.stderr)
    remove = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=[remove, *last]))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    # Each of them tells of every request or reconnection what our own logs sum up.
    for noisy in ("httpx", "httpcore", "faust", "mode", "aiokafka"):
        logging.getLogger(noisy).setLevel(max(logging.WARNING, logging.getLevelName(level.upper())))
