"""The registry of a role: what every process tells Prometheus, whatever else it does."""

from __future__ import annotations

from importlib.metadata import version

from prometheus_client import CollectorRegistry, ProcessCollector

from schemas.metrics import BUILD


def registry(role: str) -> CollectorRegistry:
    """A registry that holds the figures of this process, and which version runs as ``role`` (see ``metrics.ROLES``)."""
    made = CollectorRegistry()
    ProcessCollector(registry=made)
    BUILD.made(made).labels(version("offbeat"), role).set(1)
    return made
