"""`slice-dispatch`, or `python -m dispatch`: from the first moment to the last.

Loading the command line takes a while, and so does the interpreter's own end. There is nothing to be brought to an end
then, so an interrupt ends the process as it would any that doesn't heed it: at once and without a word.
"""

from __future__ import annotations

import signal
import sys


def main() -> None:
    """Run the command that the program's arguments name, and exit with its status."""
    _run("main")


def worker() -> None:
    """`agent-dispatch-worker`: the command `worker` by another name."""
    _run("main_of_worker")


def _run(name: str) -> None:
    """That function of the command line."""
    heeds = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # else we were told to ignore it
    if heeds:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from dispatch import cli

    try:
        if heeds:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        getattr(cli, name)()
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    finally:
        if heeds:
            signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    main()
