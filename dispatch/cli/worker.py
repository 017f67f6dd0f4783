"""`worker`: takes turns from the fleet's queue and runs them, until it is told to stop."""

from __future__ import annotations

from typing import Annotated

import typer


def worker(
    workers: Annotated[
        int, typer.Option("--workers", metavar="N", min=1, max=1000, help="How many turns at once.")
    ] = 1,
    executor: Annotated[
        list[str] | None,
        typer.Option(
            "--executor",
            metavar="KIND=MODULE:CALLABLE",
            help="What runs turns of a kind; may be repeated. Installed ones need not be named.",
            show_default=False,
        ),
    ] = None,
    drain_s: Annotated[
        float,
        typer.Option(
            "--drain-s",
            metavar="SECONDS",
            min=0,
            help="After SIGTERM or ctrl-C, how long turns may go on by themselves.",
        ),
    ] = 30.0,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            "--metrics-port", metavar="PORT", min=1, max=65535, help="Serve metrics there.", show_default=False
        ),
    ] = None,
    metrics_address: Annotated[
        str, typer.Option("--metrics-address", metavar="ADDRESS", help="The address that metrics are served on.")
    ] = "127.0.0.1",
) -> int:
    """Run turns of the fleet. Where it gets them is in the environment: see docs/fleet.md."""
    from dispatch.cli.shift import work

    return work(workers, executor or [], drain_s, metrics_port, metrics_address)
