"""What is kept out of everything the fleet prints: whose machine it is, and which.

A message of a database or of an operating system names servers, users and files. Who reads a worker's log or a doctor's
findings may be anybody; who set the variables knows what they say.
"""

from __future__ import annotations

import getpass
import re
import socket
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

import attrs

HIDDEN = "…"
_URIS = ("STATE_DB_URI", "TASK_QUEUE_URI", "KAFKA_BOOTSTRAP_SERVERS")
_NAMES = (
    "USER", "LOGNAME", "HOSTNAME", "PGHOST", "PGHOSTADDR", "PGUSER",
    "KAFKA_SASL_USERNAME", "KAFKA_SASL_PASSWORD", "KAFKA_SSL_KEY_PASSWORD",
)  # fmt: skip
#: Words of ours, or anybody's: they tell nobody from anybody else.
_PLAIN = frozenset(
    {"agent", "dispatch", "kafka", "localhost", "postgres", "postgresql", "queue", "root", "sqlite", "worker"}
)
_SHORTEST = 3  #: a name of one or two letters would take words apart; where it is quoted it is found all the same

_PATTERNS = (
    (re.compile(r"\b([a-z][a-z0-9+.-]*)://[^\s'\"<>()]*", re.IGNORECASE), rf"\1://{HIDDEN}"),
    (
        re.compile(r"(\b(?:user|role|host|host name|hostaddr|server at|socket|address) )([\"'])[^\"']*\2"),
        rf"\1\2{HIDDEN}\2",
    ),
    (re.compile(r"(?<![\w:/])(?:~|\.{1,2}|…)?(?:/[^\s/:'\"<>(),;|]+)+/?"), HIDDEN),
    (re.compile(r"\bipv[46]#\S+"), HIDDEN),
    (re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}\b(?::\d+)?"), HIDDEN),
    (re.compile(r"(?<![\w.-])[\w-]*[A-Za-z][\w.-]*:\d{2,5}\b(?!:)"), HIDDEN),
)


@attrs.frozen
class Redactor:
    """Takes names of machines and users, addresses and paths out of a text: known ones, and what looks like one."""

    _known: re.Pattern[str] | None

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Redactor:
        """What is known here and now of this machine, its user, and the servers that the environment names."""
        names = sorted(_telling(_known(environ)), key=len, reverse=True)
        pattern = "|".join(map(re.escape, names))
        return cls(re.compile(rf"(?<!\w)(?:{pattern})(?!\w)") if pattern else None)

    def redacted(self, text: str) -> str:
        if self._known is not None:
            text = self._known.sub(HIDDEN, text)
        for pattern, instead in _PATTERNS:
            text = pattern.sub(instead, text)
        return text


def _telling(names: Iterable[str]) -> set[str]:
    return {name for name in names if len(name) >= _SHORTEST and name.lower() not in _PLAIN}


def _known(environ: Mapping[str, str]) -> Iterator[str]:
    host = socket.gethostname()
    yield from (host, host.partition(".")[0])
    yield from (environ.get(name, "") for name in _NAMES)
    for find in (getpass.getuser, lambda: str(Path.home()), lambda: str(Path.cwd())):
        try:
            yield find()
        except (OSError, KeyError, RuntimeError):  # this user has no name, no home, or stands in a folder that is gone
            continue
    for name in _URIS:
        for uri in environ.get(name, "").split(","):
            yield from _parts(uri.strip())


def _parts(uri: str) -> Iterator[str]:
    """What a connection string says of a server and a user, or where a file is."""
    scheme, _, rest = uri.partition("://")
    if scheme == "sqlite":
        path = rest.removeprefix("/")
        yield from (path, str(Path(path).name), str(Path(path).parent))
        return
    yield from re.findall(r"\b(?:host|hostaddr|user|password|passfile)=([^\s&]+)", uri)
    try:
        found = urlsplit(uri if rest else f"//{uri}")
        yield from (unquote(part) for part in (found.hostname, found.username, found.password) if part)
    except ValueError:  # no URL: what it is refused with repeats nothing of it
        return
