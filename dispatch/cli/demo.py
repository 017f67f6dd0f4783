"""`demo`: the product at work, in less than a minute."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dispatch.cli.options import Plain


def demo(
    keep: Annotated[
        Path | None,
        typer.Option("--keep", metavar="DIR", help="Do it in this new folder and leave it there.", show_default=False),
    ] = None,
    plain: Plain = False,
) -> int:
    """Show what this program does, on a throwaway repository. It takes less than a minute."""
    from dispatch.demo.story import run_demo

    return run_demo(keep, plain=plain)
