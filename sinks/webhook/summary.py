"""The page about many incidents of a job at once: what a person reads instead of a flood."""

from __future__ import annotations

from urllib.parse import quote

from sinks.webhook.ledger import Summary
from sinks.webhook.page import Page, minute, rfc3339

CAUSE = "many_incidents"


def summary_page(job: str, summary: Summary, link: str = "") -> Page:
    """The newest revision of a summary as a page; ``link`` as for an incident's, without an incident."""
    count = "1 more incident" if summary.count == 1 else f"{summary.count} more incidents"
    filled = link.replace("{job}", quote(job, safe="")).replace("{incident}", "")
    unnamed = summary.count - len(summary.titles)
    named = [*summary.titles, *([f"and {unnamed} more"] if unnamed else [])]
    details = {
        "Where": f"job {job}",
        "Since": minute(summary.opened_ns),
        "Next": "" if summary.resolved else "look for what they share: a host, a switch, a recent change",
        "More": filled,
    }
    return Page(
        job=job,
        id=summary.id,
        revision=summary.revision,
        title=f"{'Resolved: ' if summary.resolved else ''}{count}, job {job}",
        text="Beside those paged one by one:\n" + "\n".join(named),
        cause=CAUSE,
        place=job,
        opened_ns=summary.opened_ns,
        ended_ns=summary.ended_ns,
        details={name: said for name, said in details.items() if said},
        facts={
            "cause": CAUSE,
            "incidents": str(summary.count),
            "opened": rfc3339(summary.opened_ns),
            "revision": str(summary.revision),
        },
        link=filled,
    )
