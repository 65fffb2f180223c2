"""Whether an expression for Prometheus asks for metrics and labels that are declared."""

import re

from schemas.metrics import METRICS, Metric

LABELS = {"instance", "job", "le"}
"""Labels that Prometheus adds, or that a histogram has."""


def check_names(expression: str) -> list[Metric]:
    """The metrics of an expression; fails for a name or a label that is not declared."""
    by_sample = {sample: metric for metric in METRICS.values() for sample in metric.samples}
    names = re.findall(r"\boffbeat_\w+", expression)
    assert set(names) <= set(by_sample), expression
    asked = [by_sample[name] for name in names]
    grouped = {
        label.strip()
        for labels in re.findall(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)", expression)
        for label in labels.split(",")
    }
    assert grouped <= LABELS | {label for metric in asked for label in metric.labels}, expression
    return asked
