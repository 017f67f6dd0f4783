"""The fleet's settings, from the environment: typed, checked, and all of them here."""

from __future__ import annotations

import math
import re
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

import attrs
import platformdirs

from harness.fleet.envelope import opaque
from harness.fleet.errors import InvalidSettingError
from harness.fleet.kafka_servers import KafkaServers

BACKENDS = ("sqlite", "postgres", "kafka")
LONGEST_TTL_S = 300.0  #: a lease that nobody renews keeps a turn from everybody for so long
RENEWALS_IN_A_TTL = 3  #: at least, so that one or two may fail
_POSTGRES = re.compile(r"postgres(ql)?://")
_FILE = re.compile(r"sqlite:////")  # absolute: workers started in other folders are to find the same one
Value = TypeVar("Value", int, float)


@attrs.frozen
class FleetSettings:
    """What a worker or a client is to use.

    `state_db_uri` names the authority, `postgresql://…` or `sqlite:///…`; `queue_uri` the database of a database
    transport. `max_depth` is how many deliveries may be unacknowledged. For `keep_days` what ended is kept; 0 is for
    good. `repr` shows no password.
    """

    backend: str = "sqlite"
    state_db_uri: str = attrs.field(default="", repr=False)
    queue_uri: str = attrs.field(default="", repr=False)
    max_depth: int = 10_000
    claim_ttl_s: float = 120.0
    renew_interval_s: float = 30.0
    partitions: int = 12
    kafka_servers: KafkaServers = attrs.field(factory=KafkaServers)
    kafka_instance: str = ""
    keep_days: float = 30.0

    @property
    def is_one_database(self) -> bool:
        """Whether authority and queue are: by their names, which are the same then."""
        return self.backend != "kafka" and self.queue_uri == self.state_db_uri

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> FleetSettings:
        """Raises `InvalidSettingError`, which names the variable. What is unset or empty has its default."""
        backend = environ.get("TASK_QUEUE_BACKEND") or "sqlite"
        if backend not in BACKENDS:
            raise InvalidSettingError("TASK_QUEUE_BACKEND", f"is none of {', '.join(BACKENDS)}")
        state = environ.get("STATE_DB_URI") or default_uri("state.db")
        if not (_POSTGRES.match(state) or _FILE.match(state)):
            raise InvalidSettingError(
                "STATE_DB_URI", "names neither a PostgreSQL database nor a SQLite file by its absolute path"
            )
        ttl_s = _number(environ, "AGENT_DISPATCH_CLAIM_TTL_S", 120.0, 1.0, LONGEST_TTL_S, float)
        return cls(
            backend,
            state,
            _queue_uri(environ, backend, state),
            _number(environ, "AGENT_DISPATCH_MAX_DEPTH", 10_000, 1, 10**9, int),
            ttl_s,
            _renew_interval_s(environ, ttl_s),
            _number(environ, "AGENT_TURNS_PARTITIONS", 12, 1, 10_000, int),
            # Others may have set these for programs of their own.
            KafkaServers.of(environ) if backend == "kafka" else KafkaServers(),
            environ.get("KAFKA_GROUP_INSTANCE_ID", ""),
            _number(environ, "AGENT_DISPATCH_KEEP_DAYS", 30.0, 0.0, 36_500.0, float),
        )


def problems(environ: Mapping[str, str]) -> tuple[InvalidSettingError, ...]:
    """All that is wrong with the settings, not just the first: each is looked at as if those before it were unset."""
    rest, found = dict(environ), list[InvalidSettingError]()
    while True:
        try:
            FleetSettings.of(rest)
        except InvalidSettingError as problem:
            if all(problem.name != other.name for other in found):
                found.append(problem)
            if rest.pop(problem.name, None) is None:  # it is about one that is missing
                return tuple(found)
        else:
            return tuple(found)


def default_uri(name: str) -> str:
    """A SQLite file in the user's data directory (XDG)."""
    return f"sqlite:///{platformdirs.user_data_path('slice-dispatch') / 'fleet' / name}"


def queue_token(settings: FleetSettings) -> str:
    """Says of two processes whether they use the same queue, and nothing of where it is. A server that goes by two
    names is taken for two."""
    if settings.backend == "kafka":
        return opaque("kafka", *sorted(server.strip() for server in settings.kafka_servers.bootstrap.split(",")))
    if settings.backend == "sqlite":
        return opaque("sqlite", socket.gethostname(), str(_path_of(settings.queue_uri).resolve()))
    return opaque("postgres", *_database_of(settings.queue_uri))


def _database_of(uri: str) -> tuple[str, str, str]:
    """Host, port and name of the database, whoever asks and however: as far as a URI tells."""
    found = urlsplit(uri)
    more = dict(parse_qsl(found.query))
    host, port = re.fullmatch(r"(.*?)(?::(\d+))?", found.netloc.rpartition("@")[2]).groups()  # type: ignore[union-attr]
    name = unquote(found.path.removeprefix("/"))
    return unquote(host) or more.get("host", ""), port or more.get("port", "5432"), name or more.get("dbname", "")


def _queue_uri(environ: Mapping[str, str], backend: str, state: str) -> str:
    """By default the authority's database where that is of the same kind."""
    given = environ.get("TASK_QUEUE_URI", "")
    is_postgres = bool(_POSTGRES.match(given or state))
    if backend == "postgres":
        if not is_postgres:
            raise InvalidSettingError(
                "TASK_QUEUE_URI" if given else "STATE_DB_URI",
                "names no PostgreSQL database, which TASK_QUEUE_BACKEND=postgres needs: postgresql://user@host/database",
            )
        return given or state
    if backend == "sqlite":
        if given and not _FILE.match(given):
            raise InvalidSettingError("TASK_QUEUE_URI", "names no SQLite file: sqlite:////absolute/path")
        beside = state if _FILE.match(state) else default_uri("queue.db")
        return beside if not given or _path_of(given).resolve() == _path_of(beside).resolve() else given
    return ""


def _path_of(uri: str) -> Path:
    return Path(uri.removeprefix("sqlite:///"))


def _renew_interval_s(environ: Mapping[str, str], ttl_s: float) -> float:
    name = "AGENT_DISPATCH_RENEW_INTERVAL_S"
    most = ttl_s / RENEWALS_IN_A_TTL
    interval_s = _number(environ, name, min(30.0, most), 0.1, LONGEST_TTL_S, float)
    if interval_s > most:
        raise InvalidSettingError(
            name, f"is {interval_s:g}; it may be a third of AGENT_DISPATCH_CLAIM_TTL_S at most, {most:g}"
        )
    return interval_s


def _number(
    environ: Mapping[str, str], name: str, default: Value, least: Value, most: Value, read: Callable[[str], Value]
) -> Value:
    text = environ.get(name, "").strip()
    if not text:
        return default
    try:
        value = read(text)
    except ValueError:
        kind = "a whole number" if isinstance(default, int) else "a number"
        raise InvalidSettingError(name, f"is not {kind}") from None
    if not (math.isfinite(value) and least <= value <= most):
        raise InvalidSettingError(name, f"is {value:g}; it must be from {least:g} to {most:g}")
    return value
