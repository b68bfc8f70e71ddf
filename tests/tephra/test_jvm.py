"""What Java throws in a JVM of ours: the error of its class here, and of no other."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from coordinator.errors import BadRequest, Unavailable
from coordinator.java.jvm import Jvm

pytestmark = [pytest.mark.tephra, pytest.mark.usefixtures("pyspark_hook")]

KINDS = {
    "IllegalArgumentException": BadRequest,
    "NumberFormatException": BadRequest,
}


@pytest.fixture(scope="module")
def jvm(java: str) -> Iterator[Jvm]:
    with Jvm([]) as opened:
        yield opened


def parse(jvm: Jvm) -> object:
    return jvm.call(jvm.view.java.lang.Integer.parseInt, "one", kinds=KINDS)


def construct(jvm: Jvm) -> object:
    return jvm.call(jvm.view.java.util.ArrayList, -1, kinds=KINDS)


def test_what_a_method_throws_keeps_its_class_beside_pyspark(jvm: Jvm) -> None:
    with pytest.raises(BadRequest, match=r'"one" \(NumberFormatException\)$'):
        parse(jvm)


def test_what_a_constructor_throws_keeps_its_class_beside_pyspark(jvm: Jvm) -> None:
    with pytest.raises(BadRequest, match=r"-1 \(IllegalArgumentException\)$"):
        construct(jvm)


def test_what_java_cannot_be_asked_is_unavailable(jvm: Jvm) -> None:
    with pytest.raises(Unavailable, match=r"noSuchMethod.* does not exist"):
        jvm.call(jvm.view.java.util.ArrayList().noSuchMethod, kinds=KINDS)


def break_off() -> None:
    raise ZeroDivisionError


@pytest.mark.parametrize("first", [parse, construct])
@pytest.mark.parametrize("becomes", [Unavailable, ZeroDivisionError])
def test_an_error_is_not_taken_for_one_that_is_just_being_handled(
    first: Callable[[Jvm], object], becomes: type[Exception], jvm: Jvm
) -> None:
    """An abort that fails after a refused commit is no refusal, say."""
    java: Any = jvm.view.java
    second = break_off if becomes is ZeroDivisionError else java.util.ArrayList().wrong
    try:
        first(jvm)
    except BadRequest:
        with pytest.raises(becomes):
            jvm.call(second, kinds=KINDS)
    else:
        pytest.fail("Java throws nothing")
