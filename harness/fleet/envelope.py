"""What travels through a queue: references to a turn, never its contents.

As JSON, an envelope is one object with the fields of `AgentTurnEnvelope` and `v`, the version of this form.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

import attrs

from harness.fleet.errors import InvalidTurnError

TEXT_LIMIT = 512  #: characters of an id or a reference
ENVELOPE_LIMIT = 16_384  #: bytes; what is longer is none of ours
MOST_URGENT, LEAST_URGENT = 0, 3
_VERSION = 1
_KEPT = re.compile(r"sha256:[0-9a-f]{64}")


def check_reference(field: str, value: object, *, empty: bool = False) -> str:
    """The text, if it can be an id or a reference: printable, not blank, at most `TEXT_LIMIT` characters."""
    if not isinstance(value, str):
        raise InvalidTurnError(field, f"must be text, not {type(value).__name__}")
    if not value.strip() and not (empty and value == ""):
        raise InvalidTurnError(field, "must not be empty")
    if len(value) > TEXT_LIMIT:
        raise InvalidTurnError(field, f"has {len(value):,} characters; {TEXT_LIMIT} are the most")
    if not value.isprintable():
        raise InvalidTurnError(field, "holds a character that can't be printed")
    return value


def check_payload_ref(value: object) -> str:
    """The reference: empty, one of contents that an authority keeps, or one to elsewhere, which is not looked into."""
    text = check_reference("payload_ref", value, empty=True)
    if text.startswith("sha256:") and not _KEPT.fullmatch(text):
        raise InvalidTurnError("payload_ref", "is none of kept contents: sha256: and 64 hex digits, as `keep` answers")
    return text


def check_contents(value: object) -> None:
    """Refuses what an authority can't keep."""
    if not isinstance(value, bytes | bytearray | memoryview):
        raise InvalidTurnError("contents", f"must be bytes, not {type(value).__name__}; encode a text first")


def check_whole(field: str, value: object, least: int, most: int) -> int:
    """The whole number, if it lies between `least` and `most`."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidTurnError(field, f"must be a whole number, not {type(value).__name__}")
    if not least <= value <= most:
        raise InvalidTurnError(field, f"is {value}; it must be from {least} to {most}")
    return value


def check_moment(field: str, value: object) -> float:
    """Unix seconds, finite and not negative."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise InvalidTurnError(field, f"must be Unix seconds, not {type(value).__name__}")
    if not 0 <= value < 1e12:  # nor for what is no number
        raise InvalidTurnError(field, "must be Unix seconds")
    return float(value)


@attrs.frozen
class AgentTurnEnvelope:
    """A delivery's contents. `job_id` is the WorkItem's id; `priority` 0 is most urgent, 3 least; times are Unix
    seconds.

    `payload_ref` says where the turn's contents are; `attempt` counts the attempts that were begun before it was
    queued. Raises `InvalidTurnError`.
    """

    job_id: str
    session_id: str
    kind: str
    payload_ref: str
    tenant: str
    priority: int = 2
    deadline: float | None = None
    attempt: int = 0
    enqueued_at: float = 0.0

    def __attrs_post_init__(self) -> None:
        for field in ("job_id", "session_id", "kind", "tenant"):
            check_reference(field, getattr(self, field))
        check_reference("payload_ref", self.payload_ref, empty=True)
        check_whole("priority", self.priority, MOST_URGENT, LEAST_URGENT)
        check_whole("attempt", self.attempt, 0, 2**31)
        check_moment("enqueued_at", self.enqueued_at)
        if self.deadline is not None:
            check_moment("deadline", self.deadline)

    @property
    def group(self) -> str:
        """The fairness group: an opaque reference of the session within its tenant."""
        return opaque(self.tenant, self.session_id)


_FIELDS = tuple(field.name for field in attrs.fields(AgentTurnEnvelope))


def opaque(*parts: str) -> str:
    """A reference that says nothing of what it refers to, the same everywhere: 32 hex digits."""
    return digest("\0".join(parts).encode())[:32]


def digest(raw: bytes) -> str:
    """The SHA-256 of a delivery's bytes, in hex: what an unparsable one is known by."""
    return hashlib.sha256(raw).hexdigest()


def encode(envelope: AgentTurnEnvelope) -> bytes:
    """The envelope as JSON, in UTF-8."""
    fields: dict[str, Any] = {name: getattr(envelope, name) for name in _FIELDS}
    return json.dumps({"v": _VERSION, **fields}, ensure_ascii=False, separators=(",", ":")).encode()


def decode(raw: bytes | None) -> AgentTurnEnvelope:
    """Raises `InvalidTurnError` for whatever is not an envelope; unknown fields are one of a newer version's."""
    if not raw:
        raise InvalidTurnError("envelope", "is empty")
    if len(raw) > ENVELOPE_LIMIT:
        raise InvalidTurnError("envelope", f"has {len(raw):,} bytes; {ENVELOPE_LIMIT:,} are the most")
    try:
        found = json.loads(raw.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise InvalidTurnError("envelope", "is not JSON in UTF-8") from error
    if not isinstance(found, dict):
        raise InvalidTurnError("envelope", "is not a JSON object")
    version = found.pop("v", None)
    if version != _VERSION or isinstance(version, bool):
        raise InvalidTurnError("v", f"is not {_VERSION}; a newer version wrote it, or another program")
    unknown = sorted(found.keys() - set(_FIELDS))
    if unknown:
        raise InvalidTurnError("envelope", "has a field that is not known here")
    missing = [name for name in ("job_id", "session_id", "kind", "payload_ref", "tenant") if name not in found]
    if missing:
        raise InvalidTurnError(missing[0], "is missing")
    return AgentTurnEnvelope(**found)
