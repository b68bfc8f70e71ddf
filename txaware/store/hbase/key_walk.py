"""A walk through the keys of a table in large steps, which makes its outline."""

from functools import partial
from typing import Any

from txaware.keys import after
from txaware.store.hbase.connections import HBaseConnections
from txaware.store.hbase.salting import BUCKETS
from txaware.store.hbase.scanner import scanner
from txaware.store.hbase.schema import SALTED, kind_of
from txaware.store.outline import Outline, group_of

PAGE_ROWS = 256
# If a page tells of less than two topics, a look into each topic is not worse. The walk
# reads so many pages before it judges that.
FREE_PAGES = 32


def walk(connections: HBaseConnections, tag: bytes, outline: Outline) -> None:
    """Tells an outline of all rows whose keys begin with the byte of a table.

    Topics with few rows are read whole, by their keys alone, many of them in one call.
    After a page with one topic only, the rest of that topic is passed over. So the walk
    takes some calls for each bucket, and not for each topic.
    """
    if kind_of(tag) in SALTED:
        for bucket in range(BUCKETS):
            _Bucket(connections, tag, outline, bytes([bucket])).walk()
    else:
        _Bucket(connections, tag, outline, tag).walk()


class _Bucket:
    """Rows that lie in order, with a byte in place of their table's."""

    def __init__(
        self, connections: HBaseConnections, tag: bytes, outline: Outline, byte: bytes
    ) -> None:
        self._connections = connections
        self._table = connections.address.table(kind_of(tag))
        self._tag = tag
        self._outline = outline
        self._byte = byte

    def walk(self) -> None:
        """Reads pages to the end, or until that takes too many for the topics found."""
        at, pages, topics = self._tag, 0, 0
        while True:
            keys = self._connections.repeat(partial(self._page, at))
            self._outline.saw(keys)
            if len(keys) < PAGE_ROWS:
                return
            groups = {group_of(key) for key in keys}
            last = group_of(keys[-1])
            if len(groups) == 1 and last is not None:
                self._outline.passed_over(last)
                at = after(last)
            else:
                at = keys[-1] + b"\0"
            pages, topics = pages + 1, topics + len(groups)
            if pages > FREE_PAGES + topics // 2:
                self._outline.stopped_at(at)
                return

    def _page(self, start: bytes, client: Any) -> list[bytes]:
        """Reads a page of whole keys from `start` on."""
        wanted = self._connections.structs.TScan(
            startRow=self._byte + start[1:],
            stopRow=bytes([self._byte[0] + 1]),
            caching=PAGE_ROWS,
            filterString=b"KeyOnlyFilter()",
        )
        with scanner(client, self._table, wanted) as more:
            return [self._tag + row.row[1:] for row in more(PAGE_ROWS)]
