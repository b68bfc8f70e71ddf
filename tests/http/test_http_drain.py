"""Raw sockets: a server that ends finishes what it began; and the same over TLS."""

import socket
import ssl
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import txaware
from tests.support.certificates import self_signed
from tests.support.concurrency import until
from tests.support.http_raw import (
    PING,
    Raw,
    Served,
    long_poll,
    one,
    poll,
    publish,
    serving,
)
from txaware.errors import BadRequest

MIB = 1 << 20


@contextmanager
def closing(here: Served) -> Iterator[threading.Thread]:
    """Closes the server meanwhile; it has to be closed at the end."""
    thread = threading.Thread(target=here.server.close)
    thread.start()
    yield thread
    thread.join(60)
    assert not thread.is_alive()


def refuses(here: Served) -> bool:
    """Whether nobody can connect any more."""
    try:
        with here.connect() as raw:
            return raw.send(PING).has_ended()
    except OSError:
        return True


def test_a_server_that_ends_finishes_what_is_in_flight() -> None:
    with serving() as here, here.connect() as slow, here.connect() as idle:
        slow.send(publish()[:-1])
        assert idle.ask(PING).status == 200
        assert until(lambda: here.in_flight == 1)
        with closing(here) as thread:
            assert idle.has_ended()
            assert until(lambda: refuses(here))
            assert thread.is_alive()
            answer = slow.ask(publish()[-1:])
            assert (answer.status, answer.headers["connection"]) == (200, "close")
            assert slow.has_ended()
        assert here.payloads() == [b"a"]


def test_long_polls_end_at_once_when_the_server_does() -> None:
    with serving() as here:
        held = [here.connect().send(long_poll(60_000)) for _ in range(20)]
        assert until(lambda: here.in_flight == 20)
        began_s = time.monotonic()
        with closing(here):
            assert [raw.response().body for raw in held] == [b"[]"] * 20
            assert [raw.has_ended() for raw in held] == [True] * 20
        assert time.monotonic() - began_s < 30  # and not the 60 of the polls
        for raw in held:
            raw.close()


def test_all_pipelined_requests_are_answered_before_the_end() -> None:
    with serving() as here, here.connect() as raw:
        raw.send(long_poll(20_000) + publish() * 20)
        assert until(lambda: here.in_flight == 1)
        with closing(here):
            answers = [raw.response() for _ in range(21)]
            assert {one.status for one in answers} == {200}
            assert raw.has_ended()
        assert len(here.payloads()) == 20


def test_a_page_that_is_being_read_is_read_to_its_end() -> None:
    with serving(poll_limit_bytes=64 * MIB) as here, here.connect() as raw:
        for _ in range(20):
            here.messaging.publish("t", [bytes(MIB)])
        raw.send(poll())
        assert raw.head()[0] == 200
        with closing(here):
            time.sleep(0.3)  # a server that ends at once has ended by then
            assert sum(map(len, raw.chunks())) > 20 * MIB
            assert raw.has_ended()


def test_a_client_that_takes_too_long_does_not_hold_the_end_up() -> None:
    with serving(drain_timeout_s=1) as here, here.connect() as raw:
        raw.send(publish()[:-1])
        assert until(lambda: here.in_flight == 1)
        began_s = time.monotonic()
        with closing(here):
            assert raw.response().status == 503
        assert 0.5 < time.monotonic() - began_s < 25  # and not the 30 of others
        assert here.payloads() == []


def test_half_a_head_does_not_hold_the_end_up() -> None:
    with serving() as here, here.connect() as raw:
        raw.send(PING + PING[:-2])
        assert raw.response().status == 200
        began_s = time.monotonic()
        with closing(here):
            assert raw.has_ended()
        assert time.monotonic() - began_s < 25  # and not the 30 of a drain


def test_a_server_may_be_closed_twice_and_opened_again() -> None:
    with serving() as here:
        port = urlsplit(here.url).port or 0
        here.server.close()
        here.server.close()
        with here.messaging.serve(port=port) as again, Raw(again.url) as raw:
            assert raw.ask(publish()).status == 200
        assert here.payloads() == [b"a"]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Self-signed, for localhost."""
    made, key = self_signed(
        tmp_path_factory.mktemp("certificate"), "DNS:localhost,IP:127.0.0.1"
    )
    return {"certificate": made, "key": key}


@pytest.fixture
def secure(certificate: dict[str, Path]) -> Iterator[Served]:
    """A server that speaks TLS."""
    with serving(access=dict(certificate)) as opened:
        yield opened


def secured(here: Served, certificate: Path) -> Raw:
    """A connection with TLS, to whom the certificate names."""
    raw = here.connect()
    context = ssl.create_default_context(cafile=certificate)
    raw.secure(context, "localhost")
    return raw


def test_tls_requests_are_answered(
    secure: Served, certificate: dict[str, Path]
) -> None:
    assert secure.url.startswith("https://")
    with secured(secure, certificate["certificate"]) as raw:
        assert raw.ask(publish()).status == 200
        raw.send(publish(one(bytes(MIB))) + poll() + PING)
        answers = [raw.response() for _ in range(3)]
        assert [answer.status for answer in answers] == [200] * 3
        assert len(answers[1].body) > MIB
        assert raw.ask(publish(one(bytes(11 * MIB)))).status == 413
        assert raw.ask(b"nonsense\r\n\r\n").status == 400


def test_plain_http_at_a_tls_port_gets_nothing_and_harms_nobody(
    secure: Served, certificate: dict[str, Path]
) -> None:
    for data in (publish(), b"\x16\x03\x01", bytes(100_000), b"\x16\x03\x01\x02\0\1"):
        with secure.connect() as raw:
            try:
                raw.send(data).half_close()
                assert not raw.read_some(10).startswith(b"HTTP")
            except ConnectionError:
                pass
    with secured(secure, certificate["certificate"]) as raw:
        assert raw.ask(poll()).body == b"\0"


def test_tls_of_a_client_that_goes_harms_nobody(
    secure: Served, certificate: dict[str, Path], caplog: pytest.LogCaptureFixture
) -> None:
    for data in (long_poll(20_000), publish()[:-1], poll() * 50):
        raw = secured(secure, certificate["certificate"])
        raw.send(data)
        until(lambda: secure.in_flight, timeout_s=0.1)
        raw.socket.shutdown(socket.SHUT_RDWR)
        raw.close()
    assert until(lambda: not secure.in_flight)
    with secured(secure, certificate["certificate"]) as raw:
        assert raw.ask(PING).status == 200
    assert not caplog.records


def test_old_tls_is_refused(secure: Served) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    with secure.connect() as raw, pytest.raises((ssl.SSLError, ConnectionError)):
        raw.secure(context, "localhost")


def test_a_tls_server_that_ends_finishes_what_is_in_flight(
    secure: Served, certificate: dict[str, Path]
) -> None:
    with secured(secure, certificate["certificate"]) as raw:
        raw.send(publish()[:-1])
        assert until(lambda: secure.in_flight == 1)
        with closing(secure):
            time.sleep(0.3)  # a server that ends at once has ended by then
            assert raw.ask(publish()[-1:]).status == 200
    assert secure.payloads() == [b"a"]


@pytest.mark.parametrize("what", ["certificate", "key"])
def test_a_certificate_that_is_wrong_is_told_at_once(
    certificate: dict[str, Path], tmp_path: Path, what: str
) -> None:
    (tmp_path / "wrong.pem").write_text("nothing")
    with txaware.connect("memory:") as messaging:
        for path in (tmp_path / "wrong.pem", tmp_path / "absent.pem"):
            options: Any = certificate | {what: path}
            with pytest.raises(BadRequest, match="certificate"):
                messaging.serve(**options)
