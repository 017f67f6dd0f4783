"""`python -m benchmarks.fleet`: `bench fleet` on SQLite and on PostgreSQL, with a server started for it.

Takes the options of `bench fleet`, see its `--help`. The server's files are where temporary ones are: set TMPDIR to a
real disk if that is memory.
"""

from __future__ import annotations

import contextlib
import sys

from dispatch.cli import serve
from tests.postgres_server import PostgresServer

if __name__ == "__main__":
    with contextlib.closing(PostgresServer()) as server:
        server.start()
        status = serve(["bench", "fleet", "--postgres", server.url(), *sys.argv[1:]])
    sys.exit(status)
