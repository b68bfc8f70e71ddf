"""The base of the verbs as calls: the limits of the server, and turns of waiting."""

from txaware.client.calls.call import Paths, Steps
from txaware.client.link import Link
from txaware.client.server_info import ServerInfo, server_info


class ServerCalls:
    """Verbs that yield their calls; knows the limits of the server it once asked."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._paths = Paths()
        self._info: ServerInfo | None = None
        self._info_of: bytes | None = None

    def clock_s(self) -> float:
        """Returns the time by which turns are counted."""
        return self._link.clock_s()

    def info(self) -> Steps[ServerInfo]:
        """Asks for the limits of the server that answers now."""
        info = self._info
        if info is None or self._info_of != self._link.instance:
            info = self._info = yield server_info()
            self._info_of = self._link.instance
        return info

    def turn(self, wait_s: float, until_s: float) -> Steps[tuple[float, bool]]:
        """Returns how long to have the server wait now, and whether that is all."""
        if wait_s <= 0:
            return 0.0, True
        info = yield from self.info()
        left_s = max(0.0, until_s - self._link.clock_s())
        return min(left_s, info.long_poll_s), left_s <= info.long_poll_s
