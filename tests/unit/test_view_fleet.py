"""The fleet's jobs and a doctor's findings, as people read them."""

from __future__ import annotations

from collections.abc import Iterable

from rich.text import Text

from dispatch.view.fleet import dead_lines, findings_document, findings_lines, job_lines, listing_lines
from harness.fleet.commands import Cancel, Retry
from harness.fleet.doctor import Finding, Standing
from harness.fleet.jobs import graph_jobs
from harness.fleet.ports import Buried
from tests.unit.fleet_desk import FleetDesk


def plain(lines: Iterable[Text]) -> str:
    return "\n".join(line.plain.rstrip() for line in lines)


def test_a_job_and_its_attempts() -> None:
    desk = FleetDesk()
    desk.submit("a", max_attempts=3, deadline=2000.0)
    desk.perform(Retry(desk.begin("a"), "no\x1b[31m luck\x07"))
    desk.now += 61.5
    desk.begin("a", ttl_s=5.0)
    desk.now += 2.0
    desk.perform(Cancel("a", "t", "not wanted"))
    assert plain(job_lines(graph_jobs("status", "a", authority=desk.authority), 100)) == (
        "a  running, to be cancelled\n"
        "  kind        k\n"
        "  session     s-a\n"
        "  tenant      t\n"
        "  attempts    2\n"
        "  failures    1 of 3 that make it a dead letter\n"
        "  submitted   1970-01-01T00:16:40Z\n"
        "  deadline    1970-01-01T00:33:20Z\n"
        "  not before  1970-01-01T00:16:41Z\n"
        "  started     1970-01-01T00:17:41Z\n"
        "  lease until 1970-01-01T00:17:46Z\n"
        "  worker      5eed\n"
        "  cause       not wanted\n"
        "  attempt 1  1970-01-01T00:16:40Z  0.0 s  left ready  no luck\N{REPLACEMENT CHARACTER}"
    )


def test_a_dead_letter_goes_by_the_name_that_a_list_takes_and_is_forgiven_when_it_is_tried_again() -> None:
    desk = FleetDesk()
    desk.submit("a")
    desk.perform(Retry(desk.begin("a"), "no luck"))
    head, *_ = plain(job_lines(graph_jobs("status", "a", authority=desk.authority), 100)).splitlines()
    assert head == "a  dead_letter"
    told = plain(job_lines(graph_jobs("requeue", "a", authority=desk.authority), 100))
    assert "  attempts    1\n  failures    0 of 1 that make it a dead letter\n" in told


def test_a_list() -> None:
    desk = FleetDesk()
    for name, kind in (("a", "k"), ("long-name", "kind"), ("c", "k")):
        desk.submit(name, kind=kind)
    desk.begin("a")
    page = graph_jobs("list", limit=2, authority=desk.authority)
    assert plain(listing_lines(page, 100)) == (
        "2 jobs\n"
        "  running      a          k     s-a  attempt 1\n"
        "  ready        long-name  kind  s-long-name\n"
        "there are more: --after long-name"
    )
    assert plain(listing_lines({"jobs": [], "next": None}, 100)) == "0 jobs"
    assert max(map(len, plain(listing_lines(page, 20)).splitlines())) <= 20


def test_the_dead() -> None:
    desk = FleetDesk()
    for name in ("a", "b"):
        desk.submit(name)
        desk.perform(Retry(desk.begin(name), "no luck"))
    desk.authority.bury([Buried("d" * 64, "it is not JSON", "x\ny"), Buried("e" * 64, "no such job")])
    assert plain(dead_lines(graph_jobs("dead", limit=1, authority=desk.authority), 200)) == (
        "1 dead letter\n"
        "  dead_letter  a  k  s-a  attempt 1  no luck\n"
        "there are more: jobs list --state dead_letter --after a\n"
        "1 delivery of no job\n"
        "  eeeeeeeeeeee  1x  last 1970-01-01T00:16:40Z  no such job"
    )
    assert "for x y  it is not JSON" in plain(dead_lines(graph_jobs("dead", authority=desk.authority), 200))


def test_findings() -> None:
    found = [Finding("one", Standing.OK, "well"), Finding("another", Standing.FAIL, "it is broken", "mend it")]
    assert plain(findings_lines(found, 100)) == (
        "ok    one      well\nfail  another  it is broken\n               -> mend it"
    )
    assert findings_document(found) == {
        "standing": "fail",
        "checks": [
            {"name": "one", "standing": "ok", "says": "well", "mend": ""},
            {"name": "another", "standing": "fail", "says": "it is broken", "mend": "mend it"},
        ],
    }
