"""An ASGI app to mount into one's own server: jobs and topology as JSON. Needs the extra `http` (Starlette).

`GET /api/graph/jobs?job_id=…` is one job, without `job_id` a list (`tenant`, `session_id`, `kind`, `state`, `after`,
`limit`); `POST /api/graph/jobs` takes `{"action": "cancel" | "status", "job_id": …, "tenant": …, "reason": …}`; `GET
/api/fleet/topology`. Whatever goes wrong is answered by `{"error": {"code", "message"}}`.
"""

from __future__ import annotations

import hmac
import json
import logging
from collections.abc import Callable, Mapping
from functools import partial

import anyio
import attrs
from anyio import CapacityLimiter
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from harness.fleet import jobs
from harness.fleet.counting import Counts
from harness.fleet.errors import (
    FleetUnavailableError,
    InvalidTurnError,
    UnknownItemError,
    WrongStateError,
)
from harness.fleet.jobs import Document
from harness.fleet.ports import Authority, Transport
from harness.fleet.topology import topology

logger = logging.getLogger(__name__)

BODY_LIMIT = 16_384  #: bytes of a request
CALLS = 8  #: into the databases at a time; more wait
_LISTED = frozenset({"tenant", "session_id", "kind", "state", "after", "limit"})
_POSTED = frozenset({"action", "job_id", "tenant", "reason"})
_CODES = {400: "invalid", 401: "unauthorized", 404: "not_found", 405: "method_not_allowed", 409: "wrong_state",
          413: "too_large", 415: "not_json", 500: "broken", 503: "unavailable"}  # fmt: skip


def fleet_app(
    authority: Authority, transport: Transport, backend: str, *, token: str | None = None, tenant: str | None = None
) -> Starlette:
    """With a `token`, every request has to carry it: `Authorization: Bearer <token>`. Without one, who may ask is the
    surrounding server's to decide. With a `tenant`, jobs of others don't exist, and the topology is not shown.
    """
    if token is not None and not token:
        raise InvalidTurnError("token", "must not be empty; leave it out if others see to who may ask")
    desk = _Desk(authority, transport, backend, token, tenant, Counts(authority))
    return Starlette(
        routes=[
            Route("/api/graph/jobs", desk.jobs, methods=["GET", "POST"]),
            Route("/api/fleet/topology", desk.topology, methods=["GET"]),
        ],
        exception_handlers={HTTPException: _refusal, Exception: _failure},
    )


@attrs.frozen(eq=False)
class _Desk:
    """`limiter`: calls block, and so run in threads; they are few, since what they read is large and their clients are
    many."""

    authority: Authority
    transport: Transport
    backend: str
    token: str | None = attrs.field(repr=False)
    tenant: str | None
    counts: Counts
    limiter: CapacityLimiter = attrs.field(factory=lambda: CapacityLimiter(CALLS))

    async def jobs(self, request: Request) -> Response:
        self._admit(request)
        asked = await _posted(request) if request.method == "POST" else _queried(request)
        return await self._answered(partial(self._job, asked, request.method))

    async def topology(self, request: Request) -> Response:
        self._admit(request)
        if self.tenant is not None:
            raise HTTPException(404, "there is no such place")
        return await self._answered(partial(topology, self.authority, self.transport, self.backend, self.counts))

    def _admit(self, request: Request) -> None:
        if self.token is None:
            return
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        same = hmac.compare_digest(given.strip().encode(), self.token.encode())
        if scheme.lower() != "bearer" or not same:
            raise HTTPException(401, "a bearer token is needed, and the right one", {"WWW-Authenticate": "Bearer"})

    def _job(self, asked: Mapping[str, str], method: str) -> Document:
        tenant = self.tenant if self.tenant is not None else asked.get("tenant")
        if "tenant" in asked and asked["tenant"] != tenant:
            raise UnknownItemError(asked.get("job_id", ""))
        if method == "GET" and "job_id" not in asked:
            return self._listing(asked, tenant)
        job_id, action = asked.get("job_id", ""), asked.get("action", "status")
        if action not in ("status", "cancel"):
            raise InvalidTurnError("action", "is neither status nor cancel")
        return jobs.graph_jobs(action, job_id, tenant=tenant, reason=asked.get("reason", ""), authority=self.authority)

    def _listing(self, asked: Mapping[str, str], tenant: str | None) -> Document:
        wanted = jobs.query(
            tenant=tenant,
            session_id=asked.get("session_id"),
            kind=asked.get("kind"),
            states=[name for name in asked.get("state", "").split(",") if name],
            after=asked.get("after", ""),
            limit=_whole(asked.get("limit", "100")),
        )
        return jobs.listing(self.authority, wanted)

    async def _answered(self, call: Callable[[], Document]) -> Response:
        try:
            return JSONResponse(await anyio.to_thread.run_sync(call, limiter=self.limiter))
        except InvalidTurnError as refused:
            raise HTTPException(400, str(refused)) from refused
        except UnknownItemError as refused:
            raise HTTPException(404, "there is no such job") from refused
        except WrongStateError as refused:
            raise HTTPException(409, str(refused)) from refused
        except FleetUnavailableError as problem:
            logger.warning("a request could not be answered: the fleet's database is out of reach")
            raise HTTPException(503, "the fleet's database is out of reach for now", {"Retry-After": "2"}) from problem


def _queried(request: Request) -> dict[str, str]:
    """Each at most once, and none that has no meaning here."""
    pairs = request.query_params.multi_items()
    asked = dict(pairs)
    known = {"job_id", "tenant"} if "job_id" in asked else _LISTED
    if len(asked) < len(pairs) or not asked.keys() <= known:
        raise HTTPException(400, f"the query may have, once each: {', '.join(sorted(known))}")
    return asked


async def _posted(request: Request) -> dict[str, str]:
    """A flat object of texts. Its media type has to be JSON's, which no form on a stranger's page can send."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise HTTPException(415, "the body must be application/json")
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > BODY_LIMIT:
            raise HTTPException(413, f"the body may have {BODY_LIMIT:,} bytes")
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, "the body is not JSON in UTF-8") from error
    if (
        not isinstance(asked, dict)
        or not asked.keys() <= _POSTED
        or not all(isinstance(v, str) for v in asked.values())
    ):
        raise HTTPException(400, f"the body must be an object of texts: {', '.join(sorted(_POSTED))}")
    return asked


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 6):
        raise InvalidTurnError("limit", f"must be a whole number from 1 to {jobs.MOST:,}")
    return int(text)


def _said(status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    answer = {"error": {"code": _CODES.get(status, "refused"), "message": message}}
    return JSONResponse(answer, status, headers)


async def _refusal(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, HTTPException)
    return _said(problem.status_code, problem.detail, problem.headers)


async def _failure(request: Request, problem: Exception) -> Response:
    """What nobody expected is for the log of the surrounding server, which Starlette raises it to."""
    return _said(500, "this could not be answered; the server's log says why")
