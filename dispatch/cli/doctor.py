"""`doctor`: what is wrong with the fleet that the environment names, and how to mend it."""

from __future__ import annotations

from dispatch.cli.options import Json


def doctor(json: Json = False) -> int:
    """Look the fleet over. Exit status: 0 all is well, 1 something deserves a look, 2 something is broken."""
    import os

    from dispatch.cli.output import output, print_document
    from dispatch.view.fleet import findings_document, findings_lines
    from harness.fleet.doctor import Standing, findings, worst

    found = list(findings(os.environ))
    if json:
        print_document(findings_document(found))
    else:
        out = output()
        out.write(findings_lines(found, out.width))
    return list(Standing).index(worst(found))
