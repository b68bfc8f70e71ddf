"""Where a Tephra is, as ZooKeeper tells: asked once for all calls that fail."""

import pytest

from coordinator.errors import Unavailable
from coordinator.tephra.thrift_calls import ASK_AGAIN_S, ZooKeeperDiscovery
from tests.support.concurrency import at_once

TEPHRA = b'{"service":"transaction","hostname":"a","port":15165,"payload":[]}'


class ZooKeeper:
    """What is announced in it, or why it says nothing; and how often it was asked."""

    def __init__(self) -> None:
        self.asked, self.now_s = 0, 0.0
        self.announced: list[bytes] | None = None

    def __call__(self) -> list[bytes]:
        self.asked += 1
        if self.announced is None:
            raise Unavailable("ZooKeeper is away")
        return self.announced

    def discovery(self) -> ZooKeeperDiscovery:
        return ZooKeeperDiscovery("z:1", clock_s=lambda: self.now_s, announced=self)


def test_calls_that_fail_ask_together_and_not_at_once_again() -> None:
    zookeeper = ZooKeeper()
    find = zookeeper.discovery()
    found = at_once(find, find, find, find)
    assert [str(one) for one in found] == ["ZooKeeper is away"] * 4
    assert zookeeper.asked == 1
    zookeeper.announced = []
    with pytest.raises(Unavailable, match="ZooKeeper is away"):
        find()
    zookeeper.now_s += ASK_AGAIN_S
    for _ in range(2):
        with pytest.raises(Unavailable, match="no Tephra is announced"):
            find()
    assert zookeeper.asked == 2


def test_one_that_has_moved_is_found_in_a_moment() -> None:
    zookeeper = ZooKeeper()
    find = zookeeper.discovery()
    zookeeper.announced = [TEPHRA]
    assert find() == find() == ("a", 15165)
    zookeeper.announced = [TEPHRA.replace(b'"a"', b'"b"')]
    zookeeper.now_s += ASK_AGAIN_S
    assert find() == ("b", 15165)
    assert zookeeper.asked == 2
