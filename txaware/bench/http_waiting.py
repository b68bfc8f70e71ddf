"""Figures d and e over HTTP: how soon messages arrive, and what waiting costs."""

import socket
import statistics
import time
from contextlib import ExitStack
from urllib.parse import urlsplit

from txaware.bench.commits import (
    RECEIVED,
    polled,
    received_s,
    transaction_of_one,
)
from txaware.bench.http_reading import POLL
from txaware.bench.measure import Figure, in_turns, p99
from txaware.bench.server import BenchServer, more_files, serving
from txaware.bench.trial import PAYLOAD, Measured, Trial
from txaware.messaging import Messaging, connect
from txaware.protocol.formats import MSGPACK, PollRequest, encode_poll

P50_S, P99_S = 0.003, 0.015
LONG_POLLS, WAIT_S, SETTLED_S = 1000, 30, 2.0
POLLS_MIB, OPEN_S, CPU_SHARE = 150.0, 10.0, 0.01
CLIENT_RESTS_S = 0.005
OK = b"HTTP/1.1 200 "


def received(trial: Trial) -> list[Figure]:
    """Figure d."""
    times = trial.count(1000 * RECEIVED) // 1000
    late_s: list[float] = []

    def ours() -> float:
        took_s = received_s(
            transaction_of_one(messaging),
            polled(messaging),
            times,
            rests_s=CLIENT_RESTS_S,
        )
        late_s.append(p99(took_s))
        return statistics.median(took_s)

    with (
        serving(trial.directory / "http-received", trial.settings) as server,
        connect(server.url) as messaging,
    ):
        messaging.create_topic("t")
        found = in_turns(
            trial.rounds, bare=lambda: _bare_s(server.url, times), ours=ours
        )
    name, p50_s = "d) begin to received by a waiting consumer", found["ours"]
    return [
        Figure(
            f"{name}, p50",
            "s",
            p50_s,
            [P50_S] * len(p50_s),
            f"{P50_S * 1000:g} ms",
            at_most=1,
        ),
        Figure(
            f"{name}, p99",
            "s",
            late_s,
            [P99_S] * len(late_s),
            f"{P99_S * 1000:g} ms",
            at_most=1,
        ),
        Figure(
            f"{name}, p50, beside",
            "s",
            p50_s,
            found["bare"],
            "p50 of an empty POST",
        ),
    ]


def _bare_s(url: str, times: int) -> float:
    """Returns how long an empty POST takes over one connection: half take less."""
    took_s = []
    with _opened(url) as opened:
        for _ in range(times):
            began_s = time.perf_counter()
            opened.sendall(_request("/ping", b""))
            _require_ok(opened.recv(4096))
            took_s.append(time.perf_counter() - began_s)
    return statistics.median(took_s)


def long_polls(trial: Trial) -> list[Figure]:
    """Figure e."""
    more_files()
    open_s = max(1.0, OPEN_S * trial.scale)
    with serving(trial.directory / "http-waiting", trial.settings) as server:
        with connect(server.url) as messaging:
            messaging.create_topic("t")
            messaging.publish("t", [PAYLOAD])
            messaging.poll("t", isolation="committed")
            mib, cpu_s, answered_s = _waiting(server, messaging, open_s)
        bare_s = _bare_s(server.url, LONG_POLLS)
    name = f"e) {LONG_POLLS:,} long polls open at once"
    limit_s = CPU_SHARE * open_s
    return [
        Figure(f"{name}, memory", "MiB", [mib], [POLLS_MIB], "150 MiB", at_most=1),
        Figure(
            f"{name}, processor in {open_s:g} s",
            "s",
            [cpu_s],
            [limit_s],
            f"{CPU_SHARE:.0%} of one",
            at_most=1,
        ),
        Figure(
            f"{name}, all answered after one publish",
            "s",
            [answered_s],
            [LONG_POLLS * bare_s],
            "as many empty POSTs, one by one",
        ),
    ]


def _waiting(
    server: BenchServer, messaging: Messaging, open_s: float
) -> tuple[float, float, float]:
    start = messaging.bounds("t").next
    poll_request = PollRequest(start=start, isolation="committed", wait_s=WAIT_S)
    request, before_mib = (
        _request(POLL, encode_poll(poll_request)),
        server.resident_mib(),
    )
    with ExitStack() as stack:
        waiting = [stack.enter_context(_opened(server.url)) for _ in range(LONG_POLLS)]
        for one in waiting:
            one.sendall(request)
        time.sleep(min(SETTLED_S, open_s))
        before_s = server.cpu_s()
        time.sleep(open_s)
        cpu_s = server.cpu_s() - before_s
        mib = server.resident_mib() - before_mib
        began_s = time.perf_counter()
        messaging.publish("t", [PAYLOAD])
        for one in waiting:
            _require_ok(one.recv(4096))
        return mib, cpu_s, time.perf_counter() - began_s


def _opened(url: str) -> socket.socket:
    address = urlsplit(url)
    opened = socket.create_connection((address.hostname, address.port), WAIT_S + 10)
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return opened


def _request(path: str, body: bytes) -> bytes:
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\n"
        f"Content-Type: {MSGPACK.media_type}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def _require_ok(answer: bytes) -> None:
    if not answer.startswith(OK):
        raise RuntimeError(f"the server answered {answer[:200]!r}")


WAITING = [
    Measured(
        "d",
        "One thread begins a transaction, publishes and commits; another waits in "
        "poll(isolation='committed', wait_s=...); both by the Python client in one "
        "process. From before the begin until the poll has returned, of 300 in each "
        "round. At most 3 ms (p50) and 15 ms (p99), on a quiet machine; beside an "
        "empty POST over one connection.",
        received,
    ),
    Measured(
        "e",
        "1,000 polls wait, each on a connection of its own: what the server has in "
        "memory above what it had before, and the time of a processor that it takes in "
        "10 s. At most 150 MiB, and 1% of a processor. Then one message comes, and "
        "all are answered.",
        long_polls,
    ),
]
