"""A real HBase on this machine, and HBase's own Admin, from pinned jars."""

from txaware.local_hbase.admin import HBaseAdmin
from txaware.local_hbase.server import LocalHBase

__all__ = ["HBaseAdmin", "LocalHBase"]
