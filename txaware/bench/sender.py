"""Sends requests as fast as they are answered, where wrk is not installed.

python -m txaware.bench.sender  reads what to send from its standard input, as JSON
"""

import asyncio
import base64
import json
import sys
import time
from collections.abc import Iterator
from itertools import cycle
from typing import Any

import httptools
import uvloop


class SenderCounts:
    """The counts of all connections together."""

    def __init__(self, requests: Iterator[bytes]) -> None:
        self.requests = requests
        self.answered = 0
        self.failed = 0


class BenchConnection(asyncio.Protocol):
    """A connection that sends its next request when the last one was answered."""

    def __init__(self, counts: SenderCounts) -> None:
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._counts = counts
        self._parser: Any = httptools.HttpResponseParser(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Sends the first request."""
        self._transport: Any = transport
        self._send()

    def data_received(self, data: bytes) -> None:
        """Hands the data to the parser."""
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        """Counts an answer, and sends the next request."""
        if self._parser.get_status_code() == 200:
            self._counts.answered += 1
        else:
            self._counts.failed += 1
        self._send()

    def connection_lost(self, error: Exception | None) -> None:
        """Ends the connection, which the server closed, or this process."""
        if not self.over.done():
            self._counts.failed += 1
            self.over.set_result(None)

    def _send(self) -> None:
        request = next(self._counts.requests, None)
        if request is not None:
            self._transport.write(request)
        elif not self.over.done():
            self.over.set_result(None)
            self._transport.close()


async def send(request: dict[str, Any]) -> dict[str, float]:
    """Sends all requests once, or again and again for some time."""
    requests = [base64.b64decode(text) for text in request["requests"]]
    for_s = request["for_s"]
    counts = SenderCounts(iter(requests) if for_s is None else cycle(requests))
    loop, began_s = asyncio.get_running_loop(), time.perf_counter()
    made = [
        await loop.create_connection(
            lambda: BenchConnection(counts), request["host"], request["port"]
        )
        for _ in range(request["connections"])
    ]
    if for_s is not None:
        await asyncio.sleep(for_s)
        counts.requests = iter(())
    await asyncio.gather(*(sender.over for _, sender in made))
    took_s = time.perf_counter() - began_s
    return {"answered": counts.answered, "failed": counts.failed, "took_s": took_s}


if __name__ == "__main__":
    found = uvloop.run(send(json.load(sys.stdin)))
    print(json.dumps(found))
