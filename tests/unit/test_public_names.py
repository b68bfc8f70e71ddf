"""What a program meets: signatures that say their options, and public names."""

import inspect
import json
import pydoc
import subprocess
import sys
import typing
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any

import attrs
import pytest

import txaware
from txaware.client import HttpService
from txaware.client.calls.admin_calls import AdminCalls
from txaware.client.calls.service_calls import ServiceCalls
from txaware.consume.loop_plan import LoopPlan
from txaware.model.interfaces import MessagingService, OperatorService
from txaware.publish import AsyncPublisher, AtMostOncePublisher
from txaware.server.server import Access
from txaware.service.administration import Administration
from txaware.service.local import LocalService
from txaware.store.leveldb_binding import BINDING

# A backup goes to a file, and asyncio tells no progress.
HAVE_THEIR_OWN = {
    (txaware.Messaging, "backup"),
    *((txaware.AsyncMessaging, name) for name in ("check", "clean_up")),
    (txaware.AsyncMessaging, "topic"),  # with a type it awaits nothing
}
WHO_NAMES = [
    *(txaware.connect, txaware.connect_async, txaware.copy, txaware.retry_on_conflict),
    *(txaware.Messaging, txaware.AsyncMessaging, txaware.MessagingTransaction),
    *(txaware.AsyncTransaction, txaware.Publisher, txaware.TopicPublisher),
    *(txaware.Consumer, txaware.TopicConsumer, txaware.Subscriber, txaware.Delivery),
    *(txaware.AsyncPublisher, txaware.AtMostOncePublisher, txaware.DirectPublisher),
    *(txaware.Sender, txaware.AsyncSender),
    *(txaware.Page, txaware.Outgoing, txaware.TransactionContext),
]
# What a `Messaging` gives by itself.
GIVEN = {"service", "coordinator", "shares_journal", "clock_ms", "clock_s", "sleep"} | {
    *(
        "delivery",
        "pause",
        "way",
        "message_limit_bytes",
        "options",
        "begin",
        "target",
        "publish",
        "at_once",
        "groups",
        "client",
        "static",
        "in_partition",
        "require_newest",
    ),
}


def functions(of: Any) -> Iterator[Callable[..., Any]]:
    if not inspect.isclass(of):
        yield of
        return
    for name, value in inspect.getmembers_static(of):
        if name.startswith("_"):
            continue
        if isinstance(value, property):
            assert value.fget is not None
            yield value.fget
        elif isinstance(value, classmethod | staticmethod):
            yield value.__func__
        elif inspect.isfunction(value):
            yield value


def classes(hint: Any) -> Iterator[type]:
    arguments = hint if isinstance(hint, list) else typing.get_args(hint)
    for argument in arguments:
        yield from classes(argument)
    kind = typing.get_origin(hint) or hint
    if inspect.isclass(kind) and kind.__module__.split(".")[0] in {
        "txaware",
        "coordinator",
    }:
        yield kind


@pytest.mark.parametrize("one", WHO_NAMES, ids=lambda one: one.__name__)
def test_whatever_a_signature_names_is_public(one: Any) -> None:
    hidden = {
        f"{function.__qualname__}: {kind.__name__}"
        for function in functions(one)
        for name, hint in typing.get_type_hints(function, _globals(function)).items()
        for kind in classes(hint)
        if name != "self" and getattr(txaware, kind.__name__, None) is not kind
    }
    assert hidden == set()


def _globals(function: Callable[..., Any]) -> dict[str, Any]:
    found: dict[str, Any] = function.__globals__
    return {**found, "HttpServer": txaware.HttpServer}


def options(function: Any) -> dict[str, inspect.Parameter]:
    return {
        name: parameter
        for name, parameter in inspect.signature(function).parameters.items()
        if name not in {"self", *GIVEN}
    }


@pytest.mark.parametrize(
    ("method", "origins"),
    [
        ("subscribe", [LoopPlan, txaware.Delivery]),
        ("async_publisher", [AsyncPublisher]),
        ("at_most_once_publisher", [AtMostOncePublisher]),
    ],
)
def test_a_signature_says_all_options_as_they_are(
    method: str, origins: list[Any]
) -> None:
    shown = options(getattr(txaware.Messaging, method))
    meant: dict[str, inspect.Parameter] = {}
    for origin in origins:
        meant |= options(origin)
    assert shown.keys() == meant.keys()
    for name, parameter in shown.items():
        assert parameter.default == meant[name].default, name


def test_serve_says_all_options_of_its_access() -> None:
    shown = options(txaware.Messaging.serve)
    meant = {field.name: field.default for field in attrs.fields(Access)}
    meant["insecure"] = meant.pop("is_insecure")
    del meant["sockets"]  # those that a parent process has opened
    assert {name: one.default for name, one in shown.items()} == meant


PUBLISH_ONE = [
    *("Publisher.publish", "TopicPublisher.publish", "DirectPublisher.publish"),
    *("AsyncPublisher.publish", "AtMostOncePublisher.publish", "Sender.send"),
    *("AsyncSender.send", "AsyncSender.send_and_wait", "Producer.publish"),
    *("AsyncProducer.publish", "TransactionalProducer.publish"),
    *("AsyncTransactionalProducer.publish", "TypedTopic.publish"),
    *("AsyncTypedTopic.publish", "Outbox.publish", "AsyncOutbox.publish"),
    *("Outbox.push", "AsyncOutbox.push", "Queue.push", "Queue.push_once"),
    *("AsyncQueue.push", "AsyncQueue.push_once", "Pusher.push", "AsyncPusher.push"),
]


@pytest.mark.parametrize("call", PUBLISH_ONE)
def test_whatever_publishes_one_message_shows_the_options_of_one(call: str) -> None:
    shown = inspect.signature(attrgetter(call)(txaware)).parameters
    for name, kind in txaware.MessageOptions.__annotations__.items():
        assert shown[name].kind is inspect.Parameter.KEYWORD_ONLY
        assert (shown[name].default, shown[name].annotation) == (None, kind)


def test_an_option_that_messages_do_not_have_is_named() -> None:
    with txaware.connect("memory:") as messaging:
        messaging.create_topic("t")
        publishers: list[Any] = [
            *(messaging.publisher("t"), messaging.direct_publisher("t")),
            *(messaging.async_publisher("t"), messaging.at_most_once_publisher("t")),
        ]
        for publisher in publishers:
            for wrong in ({"kee": None}, {"key": b"k", "kee": b"k"}):
                with pytest.raises(TypeError, match="no option kee, but key, head"):
                    publisher.publish(b"a", **wrong)
        with pytest.raises(TypeError, match="no option more, but key, headers, "):
            publishers[0].publish(b"a", more={})
        with messaging.producer() as producer, pytest.raises(TypeError, match="kee"):
            producer.publish("t", [b"a"], kee=b"k")  # type: ignore[call-arg]
        assert messaging.poll("t") == []


def test_the_options_of_a_sender_are_those_that_type_checkers_know() -> None:
    meant = dict(inspect.signature(txaware.SenderOptions).parameters)
    del meant["encode"]
    known = txaware.SenderLimits.__annotations__
    assert known == {name: one.annotation for name, one in meant.items()}


def test_no_public_signature_hides_options() -> None:
    hiding = [
        function.__qualname__
        for one in (txaware.Messaging, txaware.AsyncMessaging)
        for function in functions(one)
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind is inspect.Parameter.VAR_KEYWORD
    ]
    assert hiding == []


@pytest.mark.parametrize("port", [MessagingService, OperatorService])
def test_a_verb_has_the_signature_of_its_port_wherever_it_is(port: type) -> None:
    classes = [
        *(txaware.Messaging, txaware.AsyncMessaging, LocalService, Administration),
        *(HttpService, txaware.HttpAdministration, ServiceCalls, AdminCalls),
    ]
    for verb in functions(port):
        if isinstance(vars(port).get(verb.__name__), property):
            continue
        meant = inspect.signature(verb).parameters
        for one in classes:
            method = getattr(one, verb.__name__, None)
            if method is None or (one, verb.__name__) in HAVE_THEIR_OWN:
                continue
            shown = inspect.signature(method).parameters
            assert [*shown][: len(meant)] == [*meant], (one, verb.__name__)
            for name, parameter in meant.items():
                assert shown[name].default == parameter.default, (one, verb.__name__)
                assert shown[name].kind == parameter.kind, (one, verb.__name__)
            is_awaited = one is txaware.AsyncMessaging
            assert inspect.iscoroutinefunction(method) == is_awaited, verb.__name__


def test_help_shows_the_options_of_a_verb_and_says_what_it_does() -> None:
    text = pydoc.plain(pydoc.render_doc(txaware.Messaging.create_topic))
    assert "ttl_s: int | None = None" in text
    assert "Creates a topic, or the next generation of one that was deleted." in text
    text = pydoc.plain(pydoc.render_doc(txaware.AsyncMessaging.poll))
    in_one_line = " ".join(text.split()).replace("( ", "(")  # many, from 3.13 on
    assert "async poll(self, topic: str, *, start: " in in_one_line
    assert "it sees the block's snapshot" in text


def test_dir_shows_the_public_names_only() -> None:
    assert dir(txaware) == txaware.__all__
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        txaware.nothing  # type: ignore[attr-defined]  # noqa: B018


def test_connect_says_all_addresses() -> None:
    text = inspect.getdoc(txaware.connect) or ""
    for address in (
        *("memory:", "leveldb:PATH", "hbase://HOST:PORT/PREFIX", "http://HOST:PORT"),
        *("https://", "tephra:DIR", "tephra://HOST:PORT", "tephra+zk://HOSTS"),
    ):
        assert f"`{address}`" in text


# What an import costs each of Spark's daemons, and few programs use.
LATER = (
    *("txaware.server.server", "txaware.server.app", "txaware.server.routes"),
    *("txaware.server.openapi", "txaware.server.metrics", "txaware.server.dashboard"),
    *("txaware.client", "txaware.protocol", "httpcore", "asyncio"),
    *("uvicorn", "uvloop", "prometheus_client", "click"),
    *(BINDING, "happybase", "py4j", "thriftpy2", "pyspark", "pyarrow"),
    *("txaware.cli", "txaware.spark", "txaware.bench", "txaware.local_hbase"),
)
IMPORT = """
import json, sys
import txaware
at_once = sorted(sys.modules)
with txaware.connect("memory:") as messaging:
    messaging.create_topic("t")
    messaging.publish("t", [b"a"])
opened = sorted(sys.modules)
found = txaware.connect_async.__module__, txaware.HttpServer.__name__
print(json.dumps([at_once, opened, found]))
"""


def test_an_import_leaves_the_server_and_the_clients_for_later() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", IMPORT], capture_output=True, text=True, check=True
    )
    at_once, opened, found = json.loads(ran.stdout)
    assert "txaware.messaging" in at_once
    assert [name for name in LATER if name in at_once] == []
    assert [name for name in LATER if name in opened] == []
    assert found == ["txaware.client.aio.async_messaging", "HttpServer"]


def test_the_command_line_begins_without_a_client() -> None:
    text = "import json, sys, txaware.cli.root; print(json.dumps(sorted(sys.modules)))"
    ran = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, check=True
    )
    begun = json.loads(ran.stdout)
    assert "txaware.cli.topic" in begun
    later = ("txaware.client", "txaware.protocol.verb", "httpcore", "uvicorn", BINDING)
    assert [name for name in later if name in begun] == []
