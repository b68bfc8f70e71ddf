"""`df.write.format("txaware")`: one transaction for each save, all of it or nothing."""

import pytest

from tests.spark_fixtures import Shared

pytestmark = pytest.mark.spark


def save(shared: Shared, frame: object, **options: object) -> None:
    writer = frame.write.format("txaware").mode("append").option("url", shared.url)  # type: ignore[attr-defined]
    writer.options(**{name: str(value) for name, value in options.items()}).save()


def test_a_save_publishes_all_rows_at_once(shared: Shared) -> None:
    save(shared, shared.numbers(1000), topic="t")
    assert sorted(map(int, shared.published("t"))) == list(range(1000))
    assert len(shared.messaging.peek("t")) == 1
