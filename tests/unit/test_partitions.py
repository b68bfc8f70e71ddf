"""A key goes to one partition for ever, and a partition has a name of its own."""

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txaware.errors import BadRequest
from txaware.model.partitions import (
    name_of_rows,
    named_partition,
    partition_name,
    partition_of,
)
from txaware.model.topics import MOST_PARTITIONS, TopicName, checked_partitions

ORDERS = TopicName("orders")


def test_a_key_goes_where_its_crc32_says() -> None:
    assert partition_of(b"ann", 12) == zlib.crc32(b"ann") % 12 == 3
    assert partition_of(b"", 12) == 0
    assert partition_of(b"ann", 1) == 0


@given(st.binary(max_size=20), st.integers(1, MOST_PARTITIONS))
def test_a_key_goes_to_a_partition_that_is_there(key: bytes, partitions: int) -> None:
    assert 0 <= partition_of(key, partitions) < partitions


def test_a_name_is_that_of_a_topic_or_of_one_of_its_partitions() -> None:
    assert named_partition("orders") == (ORDERS, None)
    assert named_partition("orders.0") == (ORDERS, 0)
    assert named_partition("orders.3") == (ORDERS, 3)
    assert named_partition("shop:orders.12") == (TopicName("orders", "shop"), 12)


@given(st.from_regex(r"[A-Za-z0-9_-]+", fullmatch=True), st.integers(0, 70_000))
def test_the_name_of_a_partition_is_read_as_it_was_made(name: str, number: int) -> None:
    topic = TopicName(name, "shop")
    assert named_partition(partition_name(topic, number)) == (topic, number)


@pytest.mark.parametrize(
    "name",
    [
        "orders.",
        ".3",
        "orders.x",
        "orders.03",
        "orders.-1",
        "a.b.3",
        "orders.\uff13",
        3,
    ],
)
def test_no_other_name_has_a_dot(name: object) -> None:
    with pytest.raises(BadRequest):
        named_partition(name)


def test_a_topic_has_no_dot_in_its_name() -> None:
    with pytest.raises(BadRequest, match=r"'orders\.3' is no topic name"):
        TopicName.parse("orders.3")


def test_the_rows_of_each_partition_have_a_beginning_of_their_own() -> None:
    assert name_of_rows(ORDERS, 0) == ORDERS
    assert name_of_rows(ORDERS, 3).key == b"default:orders.3:"
    assert str(name_of_rows(TopicName("orders", "shop"), 3)) == "shop:orders.3"
    assert name_of_rows(ORDERS, 3) != name_of_rows(ORDERS, 4)
    assert name_of_rows(ORDERS, 3) != ORDERS


@pytest.mark.parametrize("partitions", [1, 12, MOST_PARTITIONS])
def test_a_number_of_partitions_is_a_whole_number(partitions: object) -> None:
    assert checked_partitions(partitions) == partitions


@pytest.mark.parametrize(
    "partitions", [0, -1, "0", "12", "x", "", 2.0, True, None, 65_536]
)
def test_wrong_numbers_of_partitions_are_refused(partitions: object) -> None:
    with pytest.raises(BadRequest, match="partitions"):
        checked_partitions(partitions)
