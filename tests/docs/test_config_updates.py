"""The settings of the examples: every instance applies every change, once."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import txaware
from examples.config_updates.program import Program
from examples.config_updates.settings import CONFIG, Config
from tests.support.concurrency import until
from txaware import Messaging

INSTANCES = 50


@pytest.fixture
def messaging(store_url: str) -> Iterator[Messaging]:
    with txaware.connect(store_url) as opened:
        yield opened


@contextmanager
def running(programs: list[Program]) -> Iterator[None]:
    threads = [threading.Thread(target=program.run) for program in programs]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for program in programs:
            program.close()
        for thread in threads:
            thread.join()


def all_applied(config: Config) -> bool:
    return not any(one.missing for one in config.progress())


def applied_by(program: Program, caplog: pytest.LogCaptureFixture) -> list[str]:
    """What its log says that it applied, in its order."""
    name = f"program.{program.name}"
    return [one.getMessage() for one in caplog.records if one.name == name]


def test_fifty_instances_apply_every_change_in_one_order(
    messaging: Messaging, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="program")
    config = Config(messaging)
    programs = [Program(messaging, f"web-{number}") for number in range(INSTANCES)]
    for program in programs:
        program.step()
    with running(programs):
        for number in range(10):
            config.set(workers=number, paused=number % 2 == 0)
        assert until(lambda: all_applied(config))
        assert len([*config.progress()]) == INSTANCES
    expected = [
        line
        for number in range(10)
        for line in (f"workers is {number}", f"paused is {number % 2 == 0}")
    ]
    for program in programs:
        assert applied_by(program, caplog) == expected
        assert program.settings == {"workers": 9, "paused": False}
        assert not program.is_paused
    assert [*config.progress()] == []


def test_a_late_one_gets_the_newest_of_each(messaging: Messaging) -> None:
    config = Config(messaging)
    config.set(workers=1, log_level="WARNING")
    config.set(workers=2)
    messaging.clean_up()
    late = Program(messaging, "late")
    assert [one.missing for one in config.progress()] == [("log_level", "workers")]
    assert late.step() == 2
    assert late.settings == {"workers": 2, "log_level": "WARNING"}
    assert late.log.level == logging.WARNING
    config.set(reload=1)
    config.remove("workers")
    assert (late.step(), late.reloads) == (2, 1)
    assert late.settings == {"log_level": "WARNING", "reload": 1}


def test_what_fails_to_be_applied_is_not_applied_for_others(
    messaging: Messaging,
) -> None:
    config = Config(messaging)
    config.set(log_level="no level")
    program = Program(messaging, "a")
    with pytest.raises(ValueError, match="Unknown level"):
        program.step()
    assert [one.missing for one in config.progress()] == [("log_level",)]
    config.set(log_level="ERROR")
    assert program.step() == 1


def test_settings_that_were_set_at_once_are_there_at_once(messaging: Messaging) -> None:
    config = Config(messaging)
    with messaging.transaction():
        messaging.publisher(CONFIG).publish(b"1", key=b"a")
        messaging.publisher(CONFIG).publish(b"2", key=b"b")
        assert config.values() == {}
    assert config.values() == {"a": 1, "b": 2}
