"""`jobs`: the fleet's work items, looked at and changed in their course."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from dispatch.cli.options import Json, Reason

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from harness.fleet.jobs import Document
    from harness.fleet.ports import Authority

jobs = typer.Typer(help="Look at the fleet's jobs, cancel them, try dead letters again.")

JobId = Annotated[str, typer.Argument(metavar="ID", help="A job's id.", show_default=False)]
Tenant = Annotated[
    str | None,
    typer.Option("--tenant", metavar="NAME", help="Only jobs of this tenant; by default, of all.", show_default=False),
]
Limit = Annotated[int, typer.Option("--limit", metavar="N", min=1, max=1000, help="How many at most.")]


@jobs.callback(invoke_without_command=True)
def no_command(context: typer.Context) -> None:
    """Look at the fleet's jobs, cancel them, try dead letters again."""
    if context.invoked_subcommand is None:
        sys.stdout.write(context.get_help() + "\n")


@jobs.command()
def status(job_id: JobId, tenant: Tenant = None, json: Json = False) -> None:
    """Show where a job stands, and how its attempts ended."""
    from harness.fleet import jobs as fleet

    with _authority() as authority:
        _show(fleet.status(authority, job_id, tenant), json=json)


@jobs.command("list")
def list_jobs(
    state: Annotated[
        list[str] | None,
        typer.Option("--state", metavar="NAME", help="Only those in this state; may be repeated.", show_default=False),
    ] = None,
    tenant: Tenant = None,
    session: Annotated[
        str | None,
        typer.Option("--session", metavar="ID", help="Only those of this session.", show_default=False),
    ] = None,
    kind: Annotated[
        str | None, typer.Option("--kind", metavar="NAME", help="Only those of this kind.", show_default=False)
    ] = None,
    after: Annotated[
        str, typer.Option("--after", metavar="ID", help="Only those submitted after this one.", show_default=False)
    ] = "",
    limit: Limit = 100,
    json: Json = False,
) -> None:
    """List jobs, in the order in which they were submitted."""
    from dispatch.cli.output import output, print_document
    from dispatch.view.fleet import listing_lines
    from harness.fleet import jobs as fleet

    wanted = fleet.query(tenant=tenant, states=state or (), session_id=session, kind=kind, after=after, limit=limit)
    with _authority() as authority:
        found = fleet.listing(authority, wanted)
    if json:
        print_document(found)
    else:
        out = output()
        out.write(listing_lines(found, out.width))


@jobs.command()
def cancel(job_id: JobId, reason: Reason = "", tenant: Tenant = None, json: Json = False) -> None:
    """Cancel a job. One that runs is asked to stop, at its next safepoint."""
    from harness.fleet import jobs as fleet

    with _authority() as authority:
        _show(fleet.cancel(authority, job_id, tenant, reason), json=json)


@jobs.command()
def requeue(job_id: JobId, tenant: Tenant = None, json: Json = False) -> None:
    """Try a dead letter again, with its failures forgiven."""
    from harness.fleet import jobs as fleet

    with _authority() as authority:
        _show(fleet.requeue(authority, job_id, tenant), json=json)


@jobs.command()
def dead(tenant: Tenant = None, limit: Limit = 100, json: Json = False) -> None:
    """Show the dead letters, and the deliveries that were no job's."""
    from dispatch.cli.output import output, print_document
    from dispatch.view.fleet import dead_lines
    from harness.fleet import jobs as fleet

    with _authority() as authority:
        found = fleet.dead(authority, tenant, limit)
    if json:
        print_document(found)
    else:
        out = output()
        out.write(dead_lines(found, out.width))


def _authority() -> AbstractContextManager[Authority]:
    """That of the environment. Who looks for one makes none."""
    from harness.fleet.looking import authority_to_look_at
    from harness.fleet.settings import FleetSettings

    return authority_to_look_at(FleetSettings.of(os.environ))


def _show(job: Document, *, json: bool) -> None:
    from dispatch.cli.output import output, print_document
    from dispatch.view.fleet import job_lines

    if json:
        print_document(job)
    else:
        out = output()
        out.write(job_lines(job, out.width))
