"""Settings: from a file, the environment and flags, and what they have to be."""

from pathlib import Path
from typing import Any

import attrs
import pytest

from txaware.config import NAMES, PREFIX, Settings
from txaware.errors import BadRequest


def file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "txaware.toml"
    path.write_text(text)
    return path


def test_flags_go_above_the_environment_and_that_above_the_file(
    tmp_path: Path,
) -> None:
    path = file(tmp_path, "default_ttl_s = 1\npoll_limit_messages = 1\ncache_bytes=1")
    environment = {
        "TXAWARE_POLL_LIMIT_MESSAGES": "2",
        "TXAWARE_CACHE_BYTES": "2",
        "TXAWARE_OTHER": "x",
        "CACHE_BYTES": "9",
    }
    found = Settings.load(path, environment=environment, cache_bytes=3, topics=None)
    assert found.default_ttl_s == 1
    assert found.poll_limit_messages == 2
    assert found.cache_bytes == 3
    assert attrs.evolve(found, default_ttl_s=604_800) == Settings(
        poll_limit_messages=2, cache_bytes=3
    )


def test_without_anything_all_is_as_documented(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings.load(environment={}) == Settings()
    assert Settings().default_ttl_s == 604_800
    assert Settings().poll_limit_messages == 10_000
    assert Settings().poll_limit_bytes == 8 << 20
    monkeypatch.setenv("TXAWARE_DEFAULT_TTL_S", "5")
    assert Settings.load().default_ttl_s == 5


def test_text_in_the_environment_becomes_what_a_setting_is() -> None:
    found = Settings.load(
        environment={
            "TXAWARE_TOPICS": "5, a",
            "TXAWARE_COMPRESSION": "none",
            "TXAWARE_PRUNE_GRACE_S": "1.5",
            "TXAWARE_MAX_TRANSACTION_LIFETIME_S": "90000",
            "TXAWARE_JANITOR_INTERVAL_S": "0",
        }
    )
    assert found.topics == "5, a"
    assert found.compression == "none"
    assert found.prune_grace_s == 1.5
    assert found.max_transaction_lifetime_s == 90_000
    assert found.janitor_interval_s == 0


def test_a_setting_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="no such setting: ttl, x"):
        Settings.load(file(tmp_path, "x = 1\nttl = 2"), environment={})
    with pytest.raises(BadRequest, match="no such setting: port"):
        Settings.load(environment={}, port=1)


@pytest.mark.parametrize("text", ["x = ", "topics = [", "\0", "a = 1\na = 2"], ids=repr)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, text: str) -> None:
    with pytest.raises(BadRequest, match=r"txaware\.toml"):
        Settings.load(file(tmp_path, text), environment={})
    with pytest.raises(BadRequest, match="nowhere"):
        Settings.load(tmp_path / "nowhere", environment={})


WRONG: list[tuple[str, Any]] = [
    ("default_ttl_s", 0),
    ("default_ttl_s", -5),
    ("default_ttl_s", 1.5),
    ("default_ttl_s", "5"),
    ("default_ttl_s", True),
    ("default_ttl_s", None),
    ("default_ttl_s", 2**31),
    ("poll_limit_messages", 2.0),
    ("poll_limit_bytes", 0.5),
    ("cache_bytes", -1),
    ("cache_bytes", float("nan")),
    ("cache_bytes", float("inf")),
    ("prune_grace_s", float("nan")),
    ("prune_grace_s", float("inf")),
    ("prune_grace_s", -0.1),
    ("transaction_timeout_s", float("nan")),
    ("transaction_timeout_s", 0),
    ("max_transaction_lifetime_s", "abc"),
    ("max_transaction_lifetime_s", -1),
    ("max_transaction_lifetime_s", float("nan")),
]


@pytest.mark.parametrize(("name", "value"), WRONG, ids=str)
def test_a_setting_that_is_not_what_it_has_to_be_is_refused(
    name: str, value: Any
) -> None:
    with pytest.raises(BadRequest, match=name):
        Settings(**{name: value})


def test_a_file_whose_values_are_of_another_kind_is_refused(tmp_path: Path) -> None:
    for text in (
        'topics = ["a"]',
        "topics = 5",
        'cache_bytes = "5"',
        "compression = 1",
        'compression = "gzip"',
    ):
        with pytest.raises(BadRequest, match=text.split()[0]):
            Settings.load(file(tmp_path, text), environment={})


@pytest.mark.parametrize("text", ["", "x", "1_0", "1.5", "nan", "٣", "--5"], ids=repr)
def test_text_that_is_no_number_is_refused(text: str) -> None:
    environment = {"TXAWARE_CACHE_BYTES": text}
    with pytest.raises(BadRequest, match=r"(?i)cache_bytes"):
        Settings.load(environment=environment)


FLAGS = {"accept_damage", "allow_plain_tokens"}


def test_every_setting_has_a_unit_and_can_come_from_the_environment() -> None:
    units = ("_s", "_bytes", "_messages", "_bits", "_per_principal")
    counts = ("_threads", "_connections", "_requests")
    for name in NAMES - {"topics", "compression", *FLAGS}:
        assert name.endswith((*units, *counts))
        default = getattr(Settings(), name)
        found = Settings.load(environment={PREFIX + name.upper(): "7"})
        assert getattr(found, name) == 7
        assert default is None or isinstance(default, int | float)
