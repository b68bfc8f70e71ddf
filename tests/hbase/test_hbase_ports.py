"""The ports of a local HBase: those that are named, kept, or free."""

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.support.cli_runs import error_of
from tests.support.ports import free_port
from txaware.errors import Unavailable
from txaware.local_hbase.readiness import kept_ports


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that somebody listens at."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield listening.getsockname()[1]


def test_ports_that_are_named_are_taken_and_the_others_are_kept(tmp_path: Path) -> None:
    first = kept_ports(tmp_path, {})
    assert kept_ports(tmp_path, {}) == first
    port = free_port()
    named = kept_ports(tmp_path, {"thrift": port, "zookeeper": first.thrift})
    assert named == attrs.evolve(first, thrift=port, zookeeper=first.thrift)
    assert len(set(attrs.astuple(named))) == 4
    assert kept_ports(tmp_path, {}) == named


def test_a_named_port_in_use_is_told_and_not_another_one(
    tmp_path: Path, taken: int
) -> None:
    with pytest.raises(Unavailable, match=f"port {taken} of 127.0.0.1 cannot be had"):
        kept_ports(tmp_path, {"thrift": taken})
    assert not list(tmp_path.iterdir())


def test_the_command_line_hands_ports_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {}

    class Refused:
        def __init__(self, directory: Path, **options: Any) -> None:
            given.update(options)

        def __enter__(self) -> None:
            raise Unavailable("not today")

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr("txaware.cli.hbase.LocalHBase", Refused)
    ports = ("--thrift-port", "9090", "--zookeeper-port", "2181")
    assert error_of("hbase", "run", str(tmp_path), *ports, code=3) == "not today"
    assert (given["thrift_port"], given["zookeeper_port"]) == (9090, 2181)
    error_of("hbase", "run", str(tmp_path), "--thrift-port", "0", code=2)
