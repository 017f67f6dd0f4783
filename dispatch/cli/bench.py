"""`bench`: what the product itself costs on this machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from dispatch.cli.options import Json

bench = typer.Typer(help="Measure the program itself on this machine.")

WIDTH = 110  #: what the table needs
SIZES, SHAPES = "1000,10000,100000", "free,layered,chain,fan,hotspot,glob"


@bench.callback(invoke_without_command=True)
def no_command(context: typer.Context) -> None:
    """Measure the program itself on this machine."""
    if context.invoked_subcommand is None:
        sys.stdout.write(context.get_help() + "\n")


@bench.command()
def scale(
    sizes: Annotated[str, typer.Option("--sizes", metavar="N,N", help="How many slices.")] = SIZES,
    shapes: Annotated[
        str, typer.Option("--shapes", metavar="NAME,NAME", help="Which graphs; `files` is another.")
    ] = SHAPES,
    full: Annotated[bool, typer.Option("--full", help="A million slices as well: takes a quarter of an hour.")] = False,
    repeat: Annotated[int, typer.Option("--repeat", metavar="N", min=1, help="Runs of each.")] = 3,
    json: Json = False,
) -> None:
    """Measure what a slice costs, in time and memory, and how that grows: no store, sessions that take no time."""
    from rich.console import Console

    from dispatch.bench.report import scale_document, scale_table
    from dispatch.bench.scale import FULL_SIZE, measure_scale
    from dispatch.cli.output import output, print_document

    out = output()
    wanted = {*_sizes(sizes), *([FULL_SIZE] if full else [])}
    result = measure_scale(sorted(wanted), _shapes(shapes), repeat, progress=_progress)
    if json:
        print_document(scale_document(result))
    else:
        console = Console(
            file=out.stream, force_terminal=out.styled, width=max(WIDTH, out.chart_width), highlight=False
        )
        console.print(scale_table(result))


@bench.command()
def durable(
    postgres: Annotated[
        str,
        typer.Option(
            "--postgres",
            metavar="URL",
            help="A PostgreSQL database to measure as well; by default the one that DISPATCH_STORE names, if it does.",
            show_default=False,
        ),
    ] = "",
    folder: Annotated[
        Path | None,
        typer.Option("--dir", metavar="DIR", help="Where the SQLite file is made.", show_default="the state directory"),
    ] = None,
    slices: Annotated[int, typer.Option("--slices", metavar="N", min=1, help="How many at once.")] = 100_000,
    repeat: Annotated[int, typer.Option("--repeat", metavar="N", min=1, help="Turns of each.")] = 5,
    json: Json = False,
) -> None:
    """Measure what a change costs that is on the disk before it is acknowledged, beside the database's own floor."""
    from rich.console import Console

    from dispatch.bench.durable import measure_durable
    from dispatch.bench.report import durable_document, durable_table
    from dispatch.cli.output import output, print_document
    from dispatch.cli.places import state_folder

    out = output()
    place = _made(folder or state_folder())
    result = measure_durable(place, postgres_named(postgres), slices, repeat, progress=_progress)
    if json:
        print_document(durable_document(result))
    else:
        console = Console(
            file=out.stream, force_terminal=out.styled, width=max(WIDTH, out.chart_width), highlight=False
        )
        console.print(durable_table(result))


@bench.command()
def fleet(
    postgres: Annotated[
        str,
        typer.Option(
            "--postgres",
            metavar="URL",
            help="A PostgreSQL server to measure on as well, in a database that is made there and dropped again; by"
            " default the one that STATE_DB_URI names, if it does.",
            show_default=False,
        ),
    ] = "",
    folder: Annotated[
        Path | None,
        typer.Option("--dir", metavar="DIR", help="Where SQLite files are made.", show_default="the state directory"),
    ] = None,
    against: Annotated[
        str,
        typer.Option(
            "--against",
            metavar="NAME,NAME",
            help="Other queues to measure beside it: pgqueuer, procrastinate, huey. They come with the extra `bench`.",
        ),
    ] = "",
    turns: Annotated[int, typer.Option("--turns", metavar="N", min=10, help="How many at once.")] = 1000,
    starts: Annotated[int, typer.Option("--starts", metavar="N", min=1, help="How many one at a time.")] = 50,
    repeat: Annotated[int, typer.Option("--repeat", metavar="N", min=1, help="Repetitions of all.")] = 5,
    json: Json = False,
) -> None:
    """Measure what a turn costs that does nothing: admitted, claimed, committed, beside other queues and a floor."""
    from rich.console import Console

    from dispatch.bench.fleet import NoServerError, Sizes, measure_fleet
    from dispatch.bench.fleet_report import fleet_document, fleet_tables
    from dispatch.cli.ending import RefusedError
    from dispatch.cli.output import output, print_document
    from dispatch.cli.places import state_folder

    out = output()
    server, peers = postgres_named(postgres, "STATE_DB_URI"), peers_named(against)
    sizes = Sizes(ones=max(1, turns // 5), burst=turns, starts=starts, repeat=repeat)
    try:
        result = measure_fleet(_made(folder or state_folder()), server, peers, sizes, progress=_progress)
    except NoServerError as error:
        raise RefusedError(f"{error}; name another server with --postgres") from None
    if json:
        print_document(fleet_document(result))
    else:
        console = Console(
            file=out.stream, force_terminal=out.styled, width=max(WIDTH, out.chart_width), highlight=False
        )
        for table in fleet_tables(result):
            console.print(table)


def peers_named(text: str, find: Callable[[str], object] = find_spec) -> tuple[str, ...]:
    """The queues to measure beside ours. `find` says None of a module that is not installed."""
    from dispatch.bench.fleet import PEERS, PEERS_NEED
    from dispatch.cli.ending import RefusedError

    wanted = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    for name in wanted:
        if name not in PEERS:
            raise RefusedError(f"--against knows {', '.join(PEERS)}, not {name!r:.100}")
    missing = [name for name in PEERS_NEED if find(name) is None]
    if wanted and missing:
        raise RefusedError(f"{', '.join(missing)}: not installed; install slice-dispatch[bench]")
    return wanted


def _made(folder: Path) -> Path:
    from dispatch.cli.ending import RefusedError

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RefusedError(f"{folder} can't be made ({error.strerror}); name another folder with --dir") from None
    return folder


def postgres_named(url: str, variable: str = "DISPATCH_STORE") -> str:
    """The database to measure; empty for none. `variable` of the environment names it if nobody else does."""
    from dispatch.cli.ending import RefusedError
    from dispatch.store import open_store

    named = url or os.environ.get(variable, "")
    is_one = named.startswith(("postgresql://", "postgres://"))
    if url and not is_one:
        raise RefusedError(f"--postgres takes a URL that begins with postgresql://, not {url!r:.100}")
    if is_one:
        open_store(named)  # refuses what can't be read, and repeats no password
    return named if is_one else ""


def _sizes(text: str) -> list[int]:
    from dispatch.cli.ending import RefusedError

    parts = text.split(",")
    if not all(part.strip().isdecimal() and int(part) > 0 for part in parts):
        raise RefusedError(f"--sizes takes whole numbers with commas between them, not {text!r}")
    return [int(part) for part in parts]


def _shapes(text: str) -> Sequence[str]:
    from dispatch.bench.shapes import SHAPES as KNOWN
    from dispatch.cli.ending import RefusedError

    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in KNOWN:
            raise RefusedError(f"there is no shape {name!r}; there are {', '.join(KNOWN)}")
    return names


def _progress(what: str) -> None:
    sys.stderr.write(f"measuring: {what}\n")
    sys.stderr.flush()
