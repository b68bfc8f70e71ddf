"""One connection: uvicorn's, with the limits that it leaves to others."""

import asyncio
import json
from contextlib import suppress
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from txaware.config import Settings

LINGER_S = 5.0

Timer = asyncio.TimerHandle | None


class HeadersTooLarge(Exception):
    """The headers of a request are above the limit."""


class Connection(HttpToolsProtocol):
    """Limits the headers in size and time, the connections in number.

    A half-closed connection still gets its answers: who has shut down its sending side
    may wait for them. `settings` is set by the server that makes connections.
    """

    settings: Settings

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._head_bytes = 0
        self._in_head = True
        self._head_timer: Timer = None
        self._write_timer: Timer = None
        self._when_gone: asyncio.Event | None = None
        self._has_ended = False
        self.app_state = {"peer": self}

    @property
    def is_gone(self) -> bool:
        """Whether nobody reads the answer any more."""
        return self._has_ended or self.transport.is_closing()

    @property
    def is_closed(self) -> bool:
        """Whether nothing can be sent any more."""
        return self.transport.is_closing()

    def cut(self) -> None:
        """Closes the connection at once, so that a broken answer is noticed."""
        self.transport.abort()

    @property
    def address(self) -> str | None:
        """Where the other end is."""
        return self.client[0] if self.client else None

    def tell_when_gone(self, event: asyncio.Event | None) -> None:
        """Sets the event when the other end goes; None takes that back."""
        self._when_gone = event
        if event is not None and self.is_gone:
            event.set()

    def pause_writing(self) -> None:
        """Cuts the connection off if its client reads nothing of what it asked for."""
        super().pause_writing()
        if self._write_timer is None:
            self._write_timer = self.loop.call_later(
                self.settings.write_timeout_s, self.transport.abort
            )

    def resume_writing(self) -> None:
        """The client reads on."""
        self._reads_on()
        super().resume_writing()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Refuses connections above the limit, with a reason."""
        super().connection_made(transport)
        if len(self.connections) > self.settings.connection_limit:
            self._refuse(503, "Unavailable", "there are too many connections")
        else:
            self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tells whoever waits for messages for this client."""
        self._head_arrived()
        self._reads_on()
        super().connection_lost(exc)
        self._tell_gone()

    def eof_received(self) -> bool:  # type: ignore[override]
        """Keeps the connection open for an answer under way."""
        self._tell_gone()
        if self.cycle is None or self.cycle.response_complete or self.cycle.more_body:
            return False
        if self.scheme == "https":
            return False  # TLS has no half-closed connections
        last = self.pipeline[0][0] if self.pipeline else self.cycle
        last.keep_alive = False
        return True

    def data_received(self, data: bytes) -> None:
        """Feeds the parser, as long as the headers stay within their limit."""
        if self.transport.is_closing():
            return
        if self._in_head:
            self._head_bytes += len(data)
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            # No other protocol is spoken here; who asks for one is answered in this.
            if rest := data[upgrade.args[0] :]:
                self.data_received(rest)
        except httptools.HttpParserError as error:
            if isinstance(error.__context__, HeadersTooLarge):
                self._refuse_head()
            else:
                self._refuse(400, "BadRequest", "this is no HTTP request")
        else:
            if not self._in_head:
                return
            if self._head_bytes > self.settings.header_limit_bytes:
                self._refuse_head()
            elif self._head_timer is None and self._head_bytes:
                self._expect_head()

    def on_headers_complete(self) -> None:
        """Checks the headers of one request before it begins."""
        size = len(self.url) + sum(
            len(name) + len(value) for name, value in self.headers
        )
        if size > self.settings.header_limit_bytes:
            raise HeadersTooLarge
        self._in_head = False
        self._head_arrived()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The next request's headers may follow."""
        super().on_message_complete()
        self._in_head, self._head_bytes = True, 0

    def on_response_complete(self) -> None:
        """Leaves a client that was refused a while to send the rest of its body."""
        super().on_response_complete()
        if not self._in_head and not self.transport.is_closing():
            self.loop.call_later(LINGER_S, self._end_linger, self.cycle)

    def _end_linger(self, cycle: object) -> None:
        if cycle is self.cycle and not self._in_head:
            self.transport.close()

    def _expect_head(self) -> None:
        self._head_timer = self.loop.call_later(
            self.settings.header_timeout_s, self._head_is_late
        )

    def _head_arrived(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _reads_on(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def _head_is_late(self) -> None:
        self._head_timer = None
        if not self.transport.is_closing():
            self._refuse(
                408, "BadRequest", "the request's headers did not come in time"
            )

    def _refuse_head(self) -> None:
        limit = self.settings.header_limit_bytes
        self._refuse(
            431, "RequestTooLarge", f"a request's headers have at most {limit} bytes"
        )

    def _refuse(self, status: int, name: str, message: str) -> None:
        """Answers what never became a request, and closes."""
        self._head_arrived()
        if self.cycle is not None and not self.cycle.response_complete:
            self.transport.close()  # an answer is under way, and would be garbled
            return
        body = json.dumps({"error": name, "message": message}).encode()
        retry = b"retry-after: 1\r\n" if status == 503 else b""
        self.transport.write(
            STATUS_LINE[status]
            + b"content-type: application/json\r\n"
            + retry
            + b"content-length: %d\r\nconnection: close\r\n\r\n" % len(body)
            + body
        )
        self.transport.close()

    def _tell_gone(self) -> None:
        self._has_ended = True
        if self._when_gone is not None:
            with suppress(RuntimeError):
                self._when_gone.set()
