"""The fleet's jobs and a doctor's findings, as people read them. What programs read are the documents themselves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.text import Text

from dispatch.view.text import clean, count, fit, folded, line, moment
from harness.fleet.doctor import Finding, Standing, worst

Document = Mapping[str, Any]

_STYLES = {
    "submitted": "dim",
    "ready": "",
    "leased": "cyan",
    "running": "cyan",
    "succeeded": "green",
    "failed": "red",
    "cancelled": "dim",
    "dead_letter": "red",
}
_STANDINGS = {Standing.OK: "green", Standing.WARN: "yellow", Standing.FAIL: "red"}
_STATE_CELLS = max(map(len, _STYLES))
_MOST_CELLS = 40  #: of an id or a name in a table


def listing_lines(found: Document, width: int) -> Iterator[Text]:
    """One line for each job, and how to see those that follow."""
    jobs: Sequence[Document] = found["jobs"]
    yield line((count(len(jobs), "job"), "dim"), cells=width)
    yield from _table(jobs, width)
    if found["next"] is not None:
        yield line((f"there are more: --after {clean(found['next'])}", "dim"), cells=width)


def dead_lines(found: Document, width: int) -> Iterator[Text]:
    """The dead letters, then the deliveries that were no item's."""
    letters, graves = found["dead_letters"], found["buried"]
    yield line((count(len(letters), "dead letter"), "dim"), cells=width)
    yield from _table(letters, width)
    if found["next"] is not None:
        yield line(
            (f"there are more: jobs list --state dead_letter --after {clean(found['next'])}", "dim"), cells=width
        )
    yield line((f"{count(len(graves), 'delivery', 'deliveries')} of no job", "dim"), cells=width)
    for grave in graves:
        about = f"  for {clean(grave['job_id'])}" if grave["job_id"] else ""
        head = (f"  {grave['digest'][:12]}  {grave['count']:,}x  last {moment(grave['last_at'])}{about}  ",)
        yield from folded(head, clean(grave["cause"]), indent=4, cells=width)


def job_lines(job: Document, width: int) -> Iterator[Text]:
    """A job, where it stands, and how its attempts ended if the document has them."""
    yield line((clean(job["job_id"]), "bold"), "  ", (_words(job), _STYLES[job["state"]]), cells=width)
    for name, text in _facts(job):
        yield from folded((fit(f"  {name}", 14),), clean(str(text)), indent=14, cells=width)
    for each in job.get("outcomes", ()):
        ran = f"{each['ended_at'] - each['started_at']:.1f} s" if each["started_at"] else "not begun"
        expired = ", its lease ran out" if each["lease_expired"] else ""
        head = (f"  attempt {each['attempt']}  {moment(each['ended_at'])}  {ran}{expired}  left {each['left']}  ",)
        yield from folded(head, *([clean(each["text"])] if each["text"] else []), indent=4, cells=width)


def findings_lines(found: Sequence[Finding], width: int) -> Iterator[Text]:
    """A line for each finding, the way out below those that need one."""
    names = max((len(each.name) for each in found), default=0)
    for each in found:
        head = ((f"{each.standing.value:<4}", _STANDINGS[each.standing]), "  ", fit(each.name, names), "  ")
        yield from folded(head, clean(each.says), indent=8 + names, cells=width)
        if each.mend:
            yield from folded((" " * (8 + names), "-> "), clean(each.mend), indent=11 + names, cells=width)


def findings_document(found: Sequence[Finding]) -> dict[str, Any]:
    """The same for programs."""
    checks = [
        {"name": each.name, "standing": each.standing.value, "says": each.says, "mend": each.mend} for each in found
    ]
    return {"standing": worst(found).value, "checks": checks}


def _table(jobs: Sequence[Document], width: int) -> Iterator[Text]:
    ids, kinds = (min(_MOST_CELLS, max((len(job[key]) for job in jobs), default=0)) for key in ("job_id", "kind"))
    for job in jobs:
        yield line(
            (f"  {job['state']:<{_STATE_CELLS}}  ", _STYLES[job["state"]]),
            (fit(clean(job["job_id"]), ids), "bold"),
            f"  {fit(clean(job['kind']), kinds)}",
            f"  {clean(job['session_id'], _MOST_CELLS)}",
            (f"  attempt {job['attempt']}" if job["attempt"] else "", "dim"),
            (f"  {clean(job['cause'])}" if job["cause"] else "", "dim"),
            cells=width,
        )


def _words(job: Document) -> str:
    state = str(job["state"])  # by the name that --state takes
    return f"{state}, to be cancelled" if job["cancel_requested"] else state


def _facts(job: Document) -> Iterator[tuple[str, object]]:
    """What there is to say of it, by name."""
    yield "kind", job["kind"]
    yield "session", job["session_id"]
    yield "tenant", job["tenant"]
    yield "attempts", job["attempt"]
    yield "failures", f"{job['failures']} of {job['max_attempts']} that make it a dead letter"
    yield "submitted", moment(job["submitted_at"])
    moments = {
        "deadline": "deadline",
        "not before": "not_before",
        "started": "started_at",
        "lease until": "lease_expires_at",
    }
    yield from ((name, moment(job[key])) for name, key in moments.items() if job[key])
    texts = {"worker": "worker", "cause": "cause", "result": "result"}
    yield from ((name, job[key]) for name, key in texts.items() if job[key])
    if job["depends_on"]:
        yield "depends on", ", ".join(job["depends_on"])
