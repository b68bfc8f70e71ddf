"""The jars of HBase: master, region server, ZooKeeper, Thrift1 and client."""

from pathlib import Path

from coordinator.java.jars import locked_jars

HBASE_JARS = locked_jars(Path(__file__).with_name("jars.lock"))

# Packages that HBase reaches by reflection, and that Java 17 closes by default.
OPENED = tuple(
    f"--add-opens=java.base/{package}=ALL-UNNAMED"
    for package in (
        "java.io",
        "java.lang",
        "java.lang.reflect",
        "java.net",
        "java.nio",
        "java.util",
        "java.util.concurrent",
        "sun.nio.ch",
    )
)
