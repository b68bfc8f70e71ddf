"""Settings: from a file, the environment and flags, and what they have to be."""

import re
from pathlib import Path
from typing import Any

import attrs
import pytest

import txaware
from tests.support.cli_runs import error_of
from txaware.errors import BadRequest
from txaware.model.settings import NAMES, OTHER_VARIABLES, PREFIX, Settings


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


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("TXAWARE_CACHE_BYTE", "TXAWARE_CACHE_BYTES"),
        ("TXAWARE_CASHE_BYTES", "TXAWARE_CACHE_BYTES"),
        ("TXAWARE_cache_bytes", "TXAWARE_CACHE_BYTES"),
        ("TXAWARE_TOKNE", "TXAWARE_TOKEN"),
        ("TXAWARE_TOKENFILE", "TXAWARE_TOKEN_FILE"),
        ("TXAWARE_COMPRESION", "TXAWARE_COMPRESSION"),
        ("TXAWARE_CAFILE", "TXAWARE_CA_FILE"),
    ],
)
def test_a_variable_that_is_misspelt_is_refused(
    name: str, meant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = f"there is no variable {name}; did you mean {meant}?"
    with pytest.raises(BadRequest, match=re.escape(said)):
        Settings.load(environment={name: "5"})
    monkeypatch.setenv(name, "5")
    with pytest.raises(BadRequest, match=re.escape(said)):
        txaware.connect("memory:")
    with pytest.raises(BadRequest, match=re.escape(said)):
        txaware.connect_async("http://127.0.0.1:1")
    assert said in error_of("topic", "list", code=2)


def test_a_variable_of_somebody_else_is_left_alone() -> None:
    """As Kubernetes sets them for a service of that name."""
    names = "SERVICE_HOST SERVICE_PORT PORT PORT_11015_TCP PORT_11015_TCP_ADDR"
    names += " PORT_11015_TCP_PORT PORT_11015_TCP_PROTO SERVICE_PORT_HTTP OTHER HOME"
    found = Settings.load(environment={PREFIX + name: "x" for name in names.split()})
    assert found == Settings()


def test_every_variable_that_is_read_is_known() -> None:
    known = {PREFIX + name.upper() for name in NAMES} | OTHER_VARIABLES
    for package in ("txaware", "coordinator"):
        for path in (Path(txaware.__file__).parent.parent / package).rglob("*.py"):
            named = re.findall(r'"(TXAWARE_[A-Z_]*[A-Z])"', path.read_text())
            assert set(named) <= known, path
    for name in known:
        Settings.load(environment={name: "7"} if name in OTHER_VARIABLES else {})


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("cache_bytes", "64MB", "is a number, not '64MB'"),
        ("cache_bytes", "1.5", "is a whole number, not 1.5"),
        ("cache_bytes", "-1", "is from 0 to 1e+12, not -1"),
        ("compression", "gzip", "is snappy or none, not 'gzip'"),
        ("accept_damage", "yes", "is true or false, not 'yes'"),
    ],
)
def test_a_value_that_cannot_be_is_named_with_what_it_may_be(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    text: str,
    says: str,
) -> None:
    variable = PREFIX + name.upper()
    monkeypatch.setenv(variable, text)
    with pytest.raises(BadRequest, match=f"^{re.escape(f'{variable} {says}')}$"):
        txaware.connect("memory:")
    monkeypatch.delenv(variable)
    assert f"{name} {says}" in error_of(
        "--set", f"{name}={text}", "topic", "list", code=2
    )
    if text.replace(".", "").lstrip("-").isdigit():
        written = f"{name} = {text}"
    else:
        written, says = f'{name} = "{text}"', says.replace("a number", "a whole number")
    path = file(tmp_path, written)
    with pytest.raises(BadRequest, match=re.escape(f"{name} in {path} {says}")):
        Settings.load(path, environment={})


def test_a_setting_that_is_misspelt_is_asked_for(tmp_path: Path) -> None:
    path = file(tmp_path, "default_tll_s = 5")
    says = f"no such setting: default_tll_s in {path}; did you mean default_ttl_s?"
    with pytest.raises(BadRequest, match=re.escape(says)):
        Settings.load(path, environment={})
    told = error_of("--set", "cach_bytes=5", "topic", "list", code=2)
    assert told == "no such setting: cach_bytes; did you mean cache_bytes?"


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


FLAGS = {"accept_damage", "accept_unknown_pointers", "allow_plain_tokens", "frames"}


def test_every_setting_has_a_unit_and_can_come_from_the_environment() -> None:
    units = ("_s", "_bytes", "_messages", "_bits")
    per = ("_per_principal", "_per_queue", "_per_group", "_per_namespace")
    counts = ("_threads", "_connections", "_requests", *per)
    for name in NAMES - {
        "topics",
        "compression",
        "shards",
        "own_ports",
        "advertise",
        *FLAGS,
    }:
        assert name.endswith((*units, *counts))
        default = getattr(Settings(), name)
        found = Settings.load(environment={PREFIX + name.upper(): "7"})
        assert getattr(found, name) == 7
        assert default is None or isinstance(default, int | float)
