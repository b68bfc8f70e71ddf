"""Addresses of the form hbase://HOST:PORT/PREFIX: a Thrift server, and our tables."""

import re

import attrs

from txaware.errors import BadRequest

_ADDRESS = re.compile(
    r"hbase://(?P<host>[^/:]+|\[[^\]/]+\]):(?P<port>[0-9]{1,5})"
    r"/(?P<prefix>(?:[A-Za-z0-9_]+:)?[A-Za-z0-9_][A-Za-z0-9_.-]*)/?"
)


@attrs.frozen
class HBaseAddress:
    """The address of HBase's Thrift server, and the prefix of our tables' names.

    A prefix `space:name` puts the tables into a namespace of HBase.
    """

    host: str
    port: int
    prefix: str

    @classmethod
    def parse(cls, url: str) -> "HBaseAddress":
        """Reads an address."""
        found = _ADDRESS.fullmatch(url)
        if found is None or not 0 < int(found["port"]) < 1 << 16:
            raise BadRequest(
                f"{url!r} is not hbase://HOST:PORT/PREFIX, the address of HBase's "
                f"Thrift server and what the names of the tables begin with"
            )
        return cls(found["host"].strip("[]"), int(found["port"]), found["prefix"])

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"hbase://{host}:{self.port}/{self.prefix}"

    def table(self, kind: str) -> bytes:
        """Returns the whole name of one of our tables."""
        return f"{self.prefix}_{kind}".encode("ascii")

    def shard(self, number: int) -> "HBaseAddress":
        """Returns the address of a further shard of this store."""
        return attrs.evolve(self, prefix=f"{self.prefix}.s{number}")
