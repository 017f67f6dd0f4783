"""`python -m benchmarks.durable`: `bench durable` on both stores, with a PostgreSQL server started for it.

Takes the options of `bench durable`, see its `--help`. The server's files are where temporary ones are: set TMPDIR to a
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
        status = serve(["bench", "durable", "--postgres", server.url(), *sys.argv[1:]])
    sys.exit(status)
