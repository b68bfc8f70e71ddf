"""The load of the shards of several servers, whose clients are killed, too.

python -m tests.support.cluster_load, as `tests.support.http_kill_load`.
"""

from tests.support import http_kill_load, partitions_load


class Client(http_kill_load.Client):
    """One thread of a client process; its producers are those of transactions."""

    def once(self) -> None:
        """Messages on two topics: a producer is not known at all servers yet."""
        self.both()

    def produced(self) -> None:
        """The same."""
        self.both()


if __name__ == "__main__":
    http_kill_load.Client = Client  # type: ignore[misc]
    partitions_load.begin()
