"""Names in a fabric's description that its list of devices lacks: mistyped ones, most likely."""

from __future__ import annotations

from collections.abc import Iterator

from diagnosis.job import Job
from producers.importers.job_of_rows import JOB_FILE


def unlisted(job: Job) -> Iterator[str]:
    """What a job's description says of its fabric that tells nothing, a line a field."""
    row = job.row
    links, paths, routes = (row.get(field) or () for field in ("links", "paths", "routes"))
    if not links:
        yield from (
            f"{JOB_FILE}: {field} tell nothing without links" for field in ("paths", "routes") if row.get(field)
        )
        return
    listed = {device["device"] for device in row.get("devices") or ()}
    named = {
        "ranks": (nic.device for place in job.places if place.host and place.nics for nic in job.nics(place.rank)),
        "links": (end for link in links for end in (link["a"], link["b"])),
        "paths": (name for rule in paths for name in (rule["tor"], *(rule["spines"] or ()))),
        "routes": (
            name for route in routes for name in (route["source"], route["destination"], *(route["switches"] or ()))
        ),
    }
    for field, names in named.items():
        unknown = sorted({name for name in names if name is not None} - listed)
        if unknown:
            more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
            yield f"{JOB_FILE}: {field} name {unknown[0]}{more}, which devices do not list: they tell nothing"
