"""The files that HBase reads at its start: hbase-site.xml and log4j.properties."""

from collections.abc import Mapping
from pathlib import Path
from xml.sax.saxutils import escape

from txaware.local_hbase.readiness import HOST, Ports

Settings = Mapping[str, str | int]

LOG4J = """\
log4j.rootLogger=WARN,err
log4j.appender.err=org.apache.log4j.ConsoleAppender
log4j.appender.err.target=System.err
log4j.appender.err.layout=org.apache.log4j.PatternLayout
log4j.appender.err.layout.ConversionPattern=%d{ISO8601} %p [%t] %c{2}: %m%n
"""


def write_configuration(
    folder: Path, directory: Path, ports: Ports, settings: Settings
) -> None:
    """Writes into `folder` the files for an HBase on `directory`; `settings` win."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "hbase-site.xml").write_text(site_xml(directory, ports, settings))
    (folder / "log4j.properties").write_text(LOG4J)


def site_xml(directory: Path, ports: Ports, settings: Settings) -> str:
    """Returns the text of hbase-site.xml."""
    values = {
        **_places(directory),
        **_listening(ports),
        **_on_one_disk(),
        **_small(),
        **settings,
    }
    properties = "".join(
        f"<property><name>{escape(name)}</name>"
        f"<value>{escape(str(value))}</value></property>\n"
        for name, value in values.items()
    )
    return f"<configuration>\n{properties}</configuration>\n"


def _places(directory: Path) -> Settings:
    return {
        "hbase.rootdir": (directory / "data").as_uri(),
        "hbase.tmp.dir": str(directory / "tmp"),
        "hadoop.tmp.dir": str(directory / "tmp" / "hadoop"),
        "hbase.zookeeper.property.dataDir": str(directory / "zookeeper"),
    }


def _listening(ports: Ports) -> Settings:
    """Returns settings to listen on 127.0.0.1 only, and without web pages."""
    return {
        "hbase.cluster.distributed": "false",
        "hbase.localcluster.port.ephemeral": "false",
        "hbase.zookeeper.quorum": HOST,
        "hbase.zookeeper.property.clientPort": ports.zookeeper,
        "hbase.zookeeper.property.clientPortAddress": HOST,
        "hbase.master.hostname": "localhost",
        "hbase.master.ipc.address": HOST,
        "hbase.master.port": ports.master,
        "hbase.master.info.port": -1,
        "hbase.regionserver.hostname": "localhost",
        "hbase.unsafe.regionserver.hostname": "localhost",
        "hbase.regionserver.ipc.address": HOST,
        "hbase.regionserver.port": ports.region_server,
        "hbase.regionserver.info.port": -1,
        "hbase.regionserver.thrift.ipaddress": HOST,
        "hbase.regionserver.thrift.port": ports.thrift,
        "hbase.thrift.info.port": -1,
    }


def _on_one_disk() -> Settings:
    """Returns settings for a log that survives `kill -9` without HDFS.

    HBase asks a file system whether it can sync. A local one says no, and HBase would
    not start. With these settings the kernel has what was written: it is safe from a
    kill, but not from a loss of power.
    """
    return {
        "hbase.wal.provider": "filesystem",
        "hbase.unsafe.stream.capability.enforce": "false",
    }


def _small() -> Settings:
    """Returns settings for few threads, and a cluster that waits for no others."""
    return {
        "hbase.regionserver.handler.count": 8,
        "hbase.regionserver.metahandler.count": 4,
        "hbase.master.handler.count": 8,
        "hbase.thrift.minWorkerThreads": 4,
        "hbase.thrift.maxWorkerThreads": 64,
        "hbase.master.wait.on.regionservers.interval": 100,
        "hbase.master.wait.on.regionservers.timeout": 500,
        "hbase.regionserver.msginterval": 500,
        # A server that hears nothing from ZooKeeper for so long ends itself. HBase's
        # ten seconds on one machine pass when it is busy, or a process is paused.
        "zookeeper.session.timeout.localHBaseCluster": 40_000,
        # Compacted files leave their folder within a second, not within two minutes.
        "hbase.hfile.compaction.discharger.interval": 1000,
    }
