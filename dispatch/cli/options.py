"""The options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def named(context: typer.Context, parameter: typer.CallbackParam, value: str) -> str:
    """A name that was given but is empty, such as that of a variable that isn't set, is no way to ask for the default.

    An empty variable of the environment is: that is how it is unset.
    """
    source = context.get_parameter_source(parameter.name or "")
    if not value and source is not None and source.name == "COMMANDLINE":
        raise typer.BadParameter("it is empty; leave it out for the default", param_hint=f"'{parameter.opts[0]}'")
    return value


PlanPath = Annotated[
    Path, typer.Argument(metavar="PLAN", help="A plan file: .toml, .yaml or .yml.", show_default=False)
]
SliceId = Annotated[str, typer.Argument(metavar="ID", help="A slice's id.", show_default=False)]
StoreUrl = Annotated[
    str,
    typer.Option(
        "--store",
        metavar="URL",
        envvar="DISPATCH_STORE",
        help="Where graphs are kept: sqlite:///path or postgresql://user@host/database. By default a file in the user's"
        " state directory.",
        show_default=False,
        callback=named,
    ),
]
GraphName = Annotated[
    str,
    typer.Option(
        "--graph",
        metavar="NAME",
        help="Which graph; a plan's name will do. By default the only one of the repository you are in.",
        show_default=False,
        callback=named,
    ),
]
GraphRepository = Annotated[
    Path | None,
    typer.Option(
        "--repo",
        metavar="DIR",
        help="A folder in the repository that the graph belongs to. By default the one you are in.",
        show_default=False,
    ),
]
Repository = Annotated[Path, typer.Option("--repo", metavar="DIR", help="A folder in the git repository.")]
CapOption = Annotated[
    int | None,
    typer.Option("--cap", metavar="N", min=1, help="How many slices may run at once, instead of what the host allows."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Plain = Annotated[bool, typer.Option("--plain", help="Plain lines: no live view, no styles.")]
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, in words.", show_default=False)]
