"""A TCP proxy that a test holds in its hand: it passes on, holds back, swallows, hangs up or falls silent, as told."""

from __future__ import annotations

import contextlib
import enum
import socket
import struct
import threading
from collections.abc import Callable

LIMIT_S = 30.0


class Flow(enum.Enum):
    """What happens to bytes that arrive."""

    PASS = "pass"
    HOLD = "hold"  #: kept, and passed on once told to pass
    SWALLOW = "swallow"
    TRICKLE = "trickle"  #: passed on byte by byte


class Link:
    """One connection through the proxy. `up` is the way to the server, `down` the way back."""

    def __init__(self, client: socket.socket, server: socket.socket, up: Flow, down: Flow) -> None:
        self._client, self._server = client, server
        self._flows = {"up": up, "down": down}
        self._seen = {"up": 0, "down": 0}  # bytes that arrived
        self._changed = threading.Condition()
        self._closed, self._ended = False, 0
        for way, source, target in (("up", client, server), ("down", server, client)):
            threading.Thread(target=self._pump, args=(way, source, target), daemon=True).start()

    def set(self, *, up: Flow | None = None, down: Flow | None = None) -> None:
        with self._changed:
            self._flows["up"] = up or self._flows["up"]
            self._flows["down"] = down or self._flows["down"]
            self._changed.notify_all()

    def seen(self, way: str) -> int:
        with self._changed:
            return self._seen[way]

    def wait_for(self, way: str, beyond: int) -> None:
        """Until more than so many bytes have arrived from that side."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._seen[way] > beyond, LIMIT_S), f"nothing came {way}"

    def wait_closed(self) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self._closed, LIMIT_S), "neither side hung up"

    def reset(self) -> None:
        """Both sides see a reset connection."""
        for side in (self._client, self._server):
            with contextlib.suppress(OSError):
                side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._close()

    def hang_up_on_client(self) -> None:
        """The client reads the end of the stream; what it sends still goes to the server."""
        self._client.shutdown(socket.SHUT_WR)

    def _close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for side in (self._client, self._server):
            with contextlib.suppress(OSError):
                side.shutdown(socket.SHUT_RD)  # wakes the thread that reads it; close alone would not
            side.close()

    def _pump(self, way: str, source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                self._forward(self._flow_of(way, len(data)), target, data)
            target.shutdown(socket.SHUT_WR)
        except OSError:  # one side has reset it
            self._close()
        with self._changed:
            self._ended += 1
            both_ended = self._ended == 2
        if both_ended:
            self._close()

    def _flow_of(self, way: str, arrived: int) -> Flow:
        """What to do with so many bytes that have arrived, once it is known."""
        with self._changed:
            self._seen[way] += arrived
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._closed or self._flows[way] is not Flow.HOLD)
            return self._flows[way]

    def _forward(self, flow: Flow, target: socket.socket, data: bytes) -> None:
        if flow is Flow.PASS:
            target.sendall(data)
        elif flow is Flow.TRICKLE:
            for at in range(len(data)):
                target.sendall(data[at : at + 1])


class TcpProxy:
    """Listens on a port of this machine, for as long as it is `open`, and links each client to a server of its own.

    `dial` connects to the server. New links begin with the flows `up` and `down`.
    """

    def __init__(self, dial: Callable[[], socket.socket]) -> None:
        self.links: list[Link] = []
        self.up = self.down = Flow.PASS
        self._dial = dial
        self._linked = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._accepting = self._accept()

    @property
    def last(self) -> Link:
        return self.links[-1]

    def refuse(self) -> None:
        """Reset all links, and refuse new ones."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._accepting.join(LIMIT_S)
        self._listener.close()
        self.reset()

    def listen_again(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self._accepting = self._accept()

    def fall_silent(self) -> None:
        """Keep all connections, take new ones, and pass nothing on."""
        self._set_all(Flow.HOLD)

    def heal(self) -> None:
        """Pass everything on, also what was held."""
        self._set_all(Flow.PASS)

    def reset(self) -> None:
        for link in self.links:
            link.reset()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.refuse()

    def _set_all(self, flow: Flow) -> None:
        with self._linked:  # or a link that is just being made would be missed
            self.up = self.down = flow
            for link in self.links:
                link.set(up=flow, down=flow)

    def _accept(self) -> threading.Thread:
        thread = threading.Thread(target=self._serve, args=(self._listener,), daemon=True)
        thread.start()
        return thread

    def _serve(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            try:
                server = self._dial()
            except OSError:
                client.close()
                continue
            with self._linked:
                self.links.append(Link(client, server, self.up, self.down))
