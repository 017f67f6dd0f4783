"""Requests to an ASGI app as a server would make them, without a server."""

from __future__ import annotations

import json as codec
from typing import Any
from urllib.parse import urlencode, urlsplit

import anyio
import attrs


@attrs.frozen
class Answer:
    status_code: int
    headers: dict[str, str]
    body: bytes
    raised: Exception | None  #: what the app raised after it had answered

    @property
    def text(self) -> str:
        return self.body.decode()

    def json(self) -> Any:
        assert self.headers["content-type"] == "application/json"
        return codec.loads(self.body)


@attrs.frozen
class Client:
    """`app` is any ASGI app. A body is sent in two pieces."""

    app: Any

    def get(self, url: str, params: dict[str, str] | None = None, headers: dict[str, str] | None = None) -> Answer:
        return self.request("GET", url + (f"?{urlencode(params)}" if params else ""), b"", headers or {})

    def post(
        self, url: str, *, json: Any = None, content: bytes | None = None, headers: dict[str, str] | None = None
    ) -> Answer:
        body = codec.dumps(json).encode() if content is None else content
        given = {"content-type": "application/json"} if content is None else {}
        return self.request("POST", url, body, given | (headers or {}))

    def request(self, method: str, url: str, body: bytes, headers: dict[str, str]) -> Answer:
        return anyio.run(self._request, method, url, body, headers)

    async def _request(self, method: str, url: str, body: bytes, headers: dict[str, str]) -> Answer:
        parts, middle = urlsplit(url), len(body) // 2
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
            "path": parts.path, "raw_path": parts.path.encode(), "root_path": "", "query_string": parts.query.encode(),
            "headers": [(name.encode(), value.encode("latin-1")) for name, value in headers.items()],
            "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
        }  # fmt: skip
        pieces = [
            {"type": "http.request", "body": body[middle:], "more_body": False},
            {"type": "http.request", "body": body[:middle], "more_body": True},
        ]
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return pieces.pop() if pieces else {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        raised = None
        try:
            await self.app(scope, receive, send)
        except Exception as error:  # noqa: BLE001 - a server would log it
            assert sent, error
            raised = error
        start, *bodies = sent
        named = {name.decode(): value.decode() for name, value in start["headers"]}
        return Answer(start["status"], named, b"".join(each.get("body", b"") for each in bodies), raised)
