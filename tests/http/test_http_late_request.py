"""A first try that arrives late, after its repeat, changes nothing any more."""

import socket
from contextlib import suppress

from tests.support.http_served import served
from tests.support.lossy_proxy import LossyProxy
from txaware.client import ClientSettings, HttpService, Link, Transport


class LateProxy(LossyProxy):
    """Keeps the first request that changes properties, and delivers it when told."""

    def __init__(self, url: str) -> None:
        self.kept = b""
        super().__init__(url, seed=0, one_in=0)

    def deliver(self) -> bytes:
        """Passes on what was kept, and answers how its answer begins."""
        with socket.create_connection(self._server, timeout=30) as line:
            line.sendall(self.kept)
            return line.recv(1 << 16)

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                if not self.kept and b"/properties HTTP/1.1" in data:
                    while not data.endswith(b"}"):
                        data += source.recv(1 << 16)
                    self.kept = data
                    break
                target.sendall(data)
        for line in (source, target):
            with suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)


def test_an_update_of_a_topic_that_comes_late_undoes_no_later_one() -> None:
    with served() as store, LateProxy(store.url) as proxy:
        store.messaging.create_topic("t")
        in_http = ClientSettings(frames=False)  # as the proxy reads it
        transport = Transport(Link(proxy.url, settings=in_http))
        service = HttpService(transport)
        assert service.update_topic("t", ttl_s=10).ttl_s == 10  # by a second try
        assert service.update_topic("t", ttl_s=1000).ttl_s == 1000
        assert proxy.kept.startswith(b"PATCH ")
        assert proxy.deliver().startswith(b"HTTP/1.1 200 ")
        assert store.messaging.topic("t").ttl_s == 1000
        transport.close()
