"""Options, addresses and columns are checked, and what is wrong is one sentence."""

import pickle
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types

import txaware
from tests.support.certificates import certificate
from txaware.auth import new_token
from txaware.errors import BadRequest, Unavailable
from txaware.messaging.parts import Reach
from txaware.model.messages import Outgoing
from txaware.model.requests import Payload
from txaware.server.server_file import ServerFile
from txaware.spark.addresses import StoreAddress
from txaware.spark.options import READ, READ_STREAM, WRITE, WRITE_STREAM, Options
from txaware.spark.storing import Extent, Storing, WrittenColumns

pytestmark = pytest.mark.spark
URL = "http://127.0.0.1:1"


def options(use: str | None = None, /, **texts: object) -> Options:
    return Options.of({name: str(text) for name, text in texts.items()}, use)


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.touch(mode=0o600)
    file.write_text("from-the-file\n")
    return file


# Options


@pytest.mark.parametrize(
    ("name", "meant"),
    [("timeout", "timeout_s"), ("saveid", "save_id"), ("URLS", "url")],
)
def test_an_option_close_to_a_known_one_is_refused(name: str, meant: str) -> None:
    with pytest.raises(BadRequest, match=rf"no option {name.lower()}; {meant} is one"):
        options(WRITE, **{name: "x"})


@pytest.mark.parametrize(
    ("use", "name", "told"),
    [
        (READ, "max_messages", "option max_messages is for a queue, or for readStrea"),
        (READ_STREAM, "save_id", "option save_id is for write, not for readStream"),
        (READ, "timeout_s", "option timeout_s is for write, writeStream, not for read"),
        (READ_STREAM, "pushdown", "option pushdown is for read, not for readStream"),
        (WRITE, "start", "option start is for read, readStream, not for write"),
        (WRITE_STREAM, "save_id", "option save_id is for write, not for writeStream"),
        (READ, "startingOffsets", "there is no option startingoffsets; read has url, "),
    ],
)
def test_an_option_that_would_do_nothing_is_refused(
    use: str, name: str, told: str
) -> None:
    with pytest.raises(BadRequest, match=told):
        options(use, url=URL, topic="t", **{name: "latest"})


def test_what_spark_adds_is_passed_over() -> None:
    names = {"path": "/p", "checkpointLocation": "/c", "queryName": "q"}
    for use in (READ, READ_STREAM, WRITE, WRITE_STREAM):
        assert options(use, url=URL, topic="t", **names).address() == StoreAddress(URL)


@pytest.mark.parametrize(
    ("use", "verb"),
    [(READ, "load"), (READ_STREAM, "load"), (WRITE, "save"), (WRITE_STREAM, "start")],
)
def test_a_path_is_refused_where_a_topic_was_meant(use: str, verb: str) -> None:
    told = (
        f"{verb}('orders') names a path, and topics have none: "
        f'.option("topic", "orders").{verb}() names a topic'
    )
    for more in ({}, {"topic": "orders"}):
        with pytest.raises(BadRequest, match=f"^{re.escape(told)}$"):
            options(use, url=URL, path="orders", **more)
    if verb == "load":
        with pytest.raises(BadRequest, match="names a path"):
            options(use, url=URL, path="./data")


def test_the_refusal_of_an_option_does_not_show_its_value() -> None:
    with pytest.raises(BadRequest) as caught:
        options(READ, tokens="hidden")
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize(
    ("read", "told"),
    [
        (lambda: options(topic="t").address(), "option url is missing"),
        (lambda: options(n="0").number("n"), "n is a whole number above 0, not '0'"),
        (lambda: options(n="1.5").number("n"), "whole number above 0, not '1.5'"),
        (lambda: options(n="nan").seconds("n"), "seconds above 0, not 'nan'"),
        (lambda: options(n="-1").seconds("n"), "seconds above 0, not '-1'"),
        (lambda: options(n="soon").seconds("n"), "seconds above 0, not 'soon'"),
        (lambda: options(n="yes").is_on("n"), "n is true or false, not 'yes'"),
        (lambda: options(n="c").one_of("n", "a", "b"), "n is a or b, not 'c'"),
    ],
)
def test_an_option_that_makes_no_sense_is_told(
    read: Callable[[], object], told: str
) -> None:
    with pytest.raises(BadRequest, match=told):
        read()


@pytest.mark.parametrize(
    ("use", "name"), [(WRITE, "save_id"), (READ, "start"), (READ_STREAM, "topics")]
)
def test_an_empty_option_is_refused(use: str, name: str) -> None:
    with pytest.raises(BadRequest, match=f"option {name} is empty"):
        options(use, url=URL, **{name: ""})


def test_an_empty_token_counts_as_not_given() -> None:
    found = options(READ, url=URL, token="", token_file="", coordinator="")
    assert found.address() == StoreAddress(URL)


def test_what_is_not_given_has_its_default() -> None:
    found = options(topic="", n="")
    assert found.text("topic") is None
    assert found.number("n") is None
    assert found.seconds("n") is None
    assert not found.is_on("n")
    assert found.one_of("n", "a", "b") == "a"


# Addresses and tokens


def test_the_token_comes_from_its_option_or_a_file(token_file: Path) -> None:
    assert options(url=URL, token="told").address().token == "told"
    found = options(url=URL, token_file=token_file, token="told").address()
    assert found.token == "from-the-file"


def test_a_token_file_that_cannot_be_used_is_told(token_file: Path) -> None:
    with pytest.raises(BadRequest, match="/none cannot be read: No such file"):
        options(url=URL, token_file="/none").address()
    token_file.chmod(0o644)
    with pytest.raises(BadRequest, match="others may read it") as caught:
        options(url=URL, token_file=token_file).address()
    assert "from-the-file" not in str(caught.value)


def test_the_environment_is_read_where_the_driver_is(
    monkeypatch: pytest.MonkeyPatch, token_file: Path
) -> None:
    monkeypatch.setenv("TXAWARE_TOKEN_FILE", str(token_file))
    assert StoreAddress(URL).resolved().token == "from-the-file"
    monkeypatch.setenv("TXAWARE_TOKEN", "from-the-environment")
    assert StoreAddress(URL).resolved().token == "from-the-environment"
    assert StoreAddress(URL, token="told").for_tasks().token == "told"


def test_no_repr_shows_a_token() -> None:
    found = options(url=URL, topic="t", token="hidden")
    address = found.address()
    storing = Storing(address, 1, WrittenColumns("t"))
    shown = [
        found,
        address,
        storing,
        Reach(URL, "hidden"),
        StoreAddress.of(Reach(URL, "x")),
    ]
    assert "hidden" not in repr(shown) + str(shown)
    assert pickle.loads(pickle.dumps(address)).token == "hidden"


def test_memory_is_not_reached_by_other_processes() -> None:
    with pytest.raises(BadRequest, match="memory: is inside one process, and Spark's"):
        StoreAddress("memory:").resolved()


def test_a_directory_that_nobody_serves_is_told(tmp_path: Path) -> None:
    url = f"leveldb:{tmp_path}"
    with pytest.raises(Unavailable, match=r"served by nobody.*txaware serve --data"):
        StoreAddress(url).resolved()
    with txaware.connect(url), pytest.raises(Unavailable, match="served by nobody"):
        StoreAddress(url).resolved()


def test_a_directory_that_is_not_there_is_told_with_its_whole_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    told = f"and {tmp_path}/data is no directory here.*--data {tmp_path}/data"
    with pytest.raises(Unavailable, match=told):
        StoreAddress("leveldb:data").resolved()
    (tmp_path / "data").mkdir()
    with pytest.raises(Unavailable, match=r"leveldb:data is served by nobody\. It has"):
        StoreAddress("leveldb:data").resolved()


def test_a_directory_whose_server_was_killed_is_served_by_nobody(
    tmp_path: Path,
) -> None:
    killed = subprocess.Popen(["true"])
    killed.wait()
    ServerFile(URL, killed.pid, new_token()).write(tmp_path)
    with pytest.raises(Unavailable, match="served by nobody"):
        StoreAddress(f"leveldb:{tmp_path}").resolved()


def test_a_directory_is_reached_by_its_server_with_the_token_of_that(
    tmp_path: Path,
) -> None:
    url = f"leveldb:{tmp_path}"
    with txaware.connect(url) as messaging, messaging.serve() as server:
        found = StoreAddress(url, token="of something else").resolved()
        assert found.url == server.url
        assert found == StoreAddress.of(messaging.reach())


def test_tasks_trust_the_certificate_of_the_owner_of_a_directory(
    tmp_path: Path,
) -> None:
    url, file = f"leveldb:{tmp_path / 'data'}", certificate(tmp_path, "one")
    with txaware.connect(url) as messaging, messaging.serve(certificate=file):
        messaging.create_topic("t")
        for address in (StoreAddress(url), StoreAddress.of(messaging.reach())):
            sent = pickle.loads(pickle.dumps(address.for_tasks()))
            assert "CERTIFICATE" not in repr(sent)
            with sent.open() as led:
                assert led.topics() == ["t"]


def test_tasks_never_ask_a_coordinator() -> None:
    address = StoreAddress(URL, "tephra://host:1", "told")
    assert address.resolved().coordinator == "tephra://host:1"
    assert address.for_tasks() == StoreAddress(URL, None, "told")


# Columns


BINARY, INT, STRING = types.BinaryType(), types.IntegerType(), types.StringType()
STRUCT = types.StructType([types.StructField("a", INT)])


def columns(option: str | None = None, **kinds: types.DataType) -> WrittenColumns:
    fields = [types.StructField(name, kind) for name, kind in kinds.items()]
    return WrittenColumns.of(types.StructType(fields), option)


@pytest.mark.parametrize(
    ("kinds", "told"),
    [
        ({"topic": STRING}, r"has a column payload .*; this one has topic\. select\("),
        ({"payload": BINARY, "kee": BINARY}, "this one has payload, kee"),
        ({"payload": BINARY, "key": INT}, "column key is binary or string, not int"),
        ({"payload": BINARY, "headers": STRING}, "headers is a map of string"),
        (
            {"payload": BINARY, "headers": types.MapType(STRING, INT)},
            "headers is a map of string to binary or string, not map<string,int>",
        ),
        ({"payload": BINARY, "id": BINARY, "k": INT}, r"\. drop\('id', 'k'\) leaves"),
        ({"Payload": BINARY}, "this one has Payload"),
        ({"payload": INT}, "column payload is binary or string, not int"),
        ({"payload": STRUCT}, r"not struct<a:int>; cast it, or use to_json"),
        ({"payload": STRING, "topic": INT}, "column topic is string, not int"),
        ({"payload": STRING, "expire_after_s": STRING}, "of seconds, not string"),
        ({"payload": STRING, "expire_after_s": types.BooleanType()}, "not boolean"),
    ],
)
def test_columns_that_nobody_could_publish_are_refused(
    kinds: dict[str, types.DataType], told: str
) -> None:
    with pytest.raises(BadRequest, match=told):
        columns("t", **kinds)


def test_rows_need_a_topic() -> None:
    with pytest.raises(BadRequest, match="neither an option topic nor a column topic"):
        columns(payload=STRING)
    with pytest.raises(BadRequest, match="topic"):
        columns("no/topic", payload=STRING)


def batch(**arrays: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(arrays)


def test_rows_go_to_their_topics_in_their_order() -> None:
    found = columns("rest", topic=STRING, payload=STRING).messages(
        batch(topic=["a", None, "b", "a"], payload=["1", "2", "3", "4"])
    )
    assert list(found) == [("a", [b"1", b"4"]), ("rest", [b"2"]), ("b", [b"3"])]


def test_texts_become_bytes_of_utf_8_and_may_be_empty() -> None:
    [(_, found)] = columns("t", payload=STRING).messages(batch(payload=["ä", ""]))
    assert found == ["ä".encode(), b""]


@pytest.mark.parametrize("kind", [BINARY, STRING])
def test_rows_have_keys_and_headers(kind: types.DataType) -> None:
    found = columns("t", payload=BINARY, key=kind, headers=types.MapType(STRING, kind))
    value: Any = (lambda data: data) if kind is BINARY else bytes.decode
    arrow = pa.binary() if kind is BINARY else pa.string()
    rows = batch(
        payload=[b"1", b"2", b"3"],
        key=pa.array([value(b"k"), None, value(b"")], arrow),
        headers=pa.array(
            [None, [("a", value(b"b"))], None], pa.map_(pa.string(), arrow)
        ),
    )
    assert list(found.messages(rows)) == [
        (
            "t",
            [
                Outgoing(b"1", b"k"),
                Outgoing(b"2", None, {"a": b"b"}),
                Outgoing(b"3", b""),
            ],
        )
    ]


def test_the_extent_of_rows_tells_their_keys_and_headers_apart() -> None:
    one = Outgoing(b"a", b"k", {"h": b"v"})
    others: list[Payload] = [
        *(b"a", Outgoing(b"a", b"k"), Outgoing(b"a", b""), Outgoing(b"ka")),
        Outgoing(b"a", None, {"h": b"v"}),
    ]
    sums = [Extent.of("t", [each]).total for each in (one, *others)]
    assert len({*sums}) == len(sums)
    assert Extent.of("t", [Outgoing(b"a")]) == Extent.of("t", [b"a"])


def test_every_row_may_have_a_lifetime_of_its_own() -> None:
    found = columns("t", payload=BINARY, expire_after_s=INT)
    rows = batch(payload=[b"1", b"2"], expire_after_s=[60, None])
    assert list(found.messages(rows)) == [
        ("t", [Outgoing(b"1", expire_after_s=60), b"2"])
    ]


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ({"payload": [None, "1", None], "topic": ["a"] * 3}, "2 rows have no payload"),
        ({"payload": ["1", "2"], "topic": ["a", None]}, "a row has no topic; option"),
        ({"payload": ["1"], "topic": ["a b"]}, "a b"),
    ],
)
def test_rows_that_cannot_be_published_are_refused(
    rows: dict[str, object], told: str
) -> None:
    with pytest.raises(BadRequest, match=told):
        list(columns(topic=STRING, payload=STRING).messages(batch(**rows)))


def test_no_rows_are_no_messages() -> None:
    nothing = batch(payload=pa.array([], pa.string()))
    assert list(columns("t", payload=STRING).messages(nothing)) == []
