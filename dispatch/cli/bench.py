"""`bench`: what the product itself costs on this machine."""

from __future__ import annotations

import sys
from collections.abc import Sequence
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
