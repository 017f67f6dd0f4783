"""The command line: `slice-dispatch`, or `python -m dispatch`.

A module a group of commands. What a command needs beyond its own words it imports when it is called, so that `--help`
is there at once.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from functools import partial
from typing import Annotated

import typer

from dispatch.cli.bench import bench
from dispatch.cli.demo import demo
from dispatch.cli.doctor import doctor
from dispatch.cli.ending import ended
from dispatch.cli.graphs import graphs
from dispatch.cli.history import history, replay
from dispatch.cli.jobs import jobs
from dispatch.cli.operate import cancel, hold, merged, release, retry
from dispatch.cli.plan import plan, schema
from dispatch.cli.read import explain, list_slices, log
from dispatch.cli.run import run
from dispatch.cli.worker import worker

__all__ = ["main", "main_of_worker", "serve"]

_program = partial(
    typer.Typer,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app = _program(
    name="slice-dispatch",
    help="Run many coding agents at once: a plan of slices, scheduled onto sessions, merged into main.",
)
app_of_worker = _program()  # a program of one command, which goes by the program's name


def _version(wanted: bool) -> None:
    if wanted:
        print_version()
        raise typer.Exit


def print_version() -> None:
    """Print the version."""
    from importlib.metadata import version

    sys.stdout.write(f"slice-dispatch {version('slice-dispatch')}\n")


@app.callback(invoke_without_command=True)
def no_command(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Run many coding agents at once: a plan of slices, scheduled onto sessions, merged into main."""
    if context.invoked_subcommand is None:
        sys.stdout.write(context.get_help() + "\n")


app.command()(run)
app.command()(plan)
app.command()(graphs)
app.command("list")(list_slices)
app.command()(explain)
app.command()(log)
app.command()(history)
app.command()(replay)
app.command()(cancel)
app.command()(retry)
app.command()(merged)
app.command()(hold)
app.command()(release)
app.command()(worker)
app_of_worker.command()(worker)
app.add_typer(jobs, name="jobs")
app.command()(doctor)
app.command()(schema)
app.command()(demo)
app.add_typer(bench, name="bench")
app.command("version")(print_version)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command that `arguments` (by default the program's own) name, and exit with its status."""
    _show_all_of_unicode()
    sys.exit(serve(arguments))


def main_of_worker() -> None:
    """The same for `agent-dispatch-worker`, which is the command `worker`."""
    _show_all_of_unicode()
    sys.exit(ended(lambda: app_of_worker(prog_name="agent-dispatch-worker", standalone_mode=False)))


def _show_all_of_unicode() -> None:
    """In a locale without it a title is no reason to fail."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def serve(arguments: Sequence[str] | None = None) -> int:
    """The same, returning the exit status."""
    return ended(lambda: app(args=arguments, standalone_mode=False))
