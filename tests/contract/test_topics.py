"""Topics: names, properties, generations, and what survives a deletion."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.messagings import Site, payloads
from txaware.errors import BadRequest, TopicExists, TopicNotFound
from txaware.messaging import Messaging
from txaware.model.messages import MessageId, PublishResponse
from txaware.model.topics import (
    MAX_TTL_S,
    Topic,
    TopicName,
    data_prefix,
    expand_names,
    valid_names,
)

WEEK_S = 604_800


@pytest.fixture
def topics(site: Site) -> Messaging:
    """Every implementation in turn, without any topic."""
    return site.messaging


def test_a_topic_is_created_once(topics: Messaging) -> None:
    """Scenario 1."""
    assert topics.create_topic("t1").generation == 1
    with pytest.raises(TopicExists, match="t1 exists"):
        topics.create_topic("t1")


def test_a_topic_that_exists_may_be_named_as_far_as_it_is_known(
    topics: Messaging,
) -> None:
    made = topics.create_topic("t1", exist_ok=True)
    assert (made.generation, made.ttl_s) == (1, WEEK_S)
    topics.update_topic("t1", ttl_s=60, properties={"owner": "ann"})
    topics.publish("t1", [b"a"])
    for named in (
        {},
        {"ttl_s": 60},
        {"properties": {"owner": "ann"}},
        {"ttl_s": 60, "properties": {"publishing": "any"}},
    ):
        found = topics.create_topic("t1", exist_ok=True, **named)
        assert found == topics.topic("t1")
    assert payloads(topics.poll("t1")) == [b"a"]


@pytest.mark.parametrize(
    ("named", "differs"),
    [
        ({"ttl_s": 5}, "its ttl_s is 60, not 5;"),
        ({"properties": {"owner": "bob"}}, "its property owner is 'ann', not 'bob';"),
        (
            {"ttl_s": 5, "properties": {"publishing": "plain", "of": "x"}},
            "its ttl_s is 60, not 5 and its property publishing is 'any', not 'plain' "
            "and its property of is None, not 'x';",
        ),
    ],
    ids=repr,
)
def test_a_topic_that_is_not_as_named_says_what_differs(
    topics: Messaging, named: Any, differs: str
) -> None:
    made = topics.create_topic("t1", ttl_s=60, properties={"owner": "ann"})
    with pytest.raises(TopicExists, match=f"topic t1 exists already, and {differs}"):
        topics.create_topic("t1", exist_ok=True, **named)
    assert topics.topic("t1") == made


def test_many_who_create_a_topic_at_once_and_may_find_it_get_the_same(
    topics: Messaging,
) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = [
            pool.submit(topics.create_topic, "t1", ttl_s=60, exist_ok=True)
            for _ in range(40)
        ]
        assert {one.result().generation for one in made} == {1}


def test_a_topic_that_was_deleted_is_made_anew_where_it_may_exist(
    topics: Messaging,
) -> None:
    topics.create_topic("t1", ttl_s=60)
    topics.delete_topic("t1")
    made = topics.create_topic("t1", ttl_s=5, exist_ok=True)
    assert (made.generation, made.ttl_s) == (2, 5)


@pytest.mark.parametrize("flag", [1, "yes", None])
def test_whether_a_topic_may_exist_is_true_or_false(
    topics: Messaging, flag: Any
) -> None:
    with pytest.raises(BadRequest, match="exist_ok is True or False, not "):
        topics.create_topic("t1", exist_ok=flag)
    with pytest.raises(BadRequest, match="exist_ok is True or False, not "):
        topics.create_queue("t1", exist_ok=flag)
    assert topics.topics() == topics.queues() == []


def test_every_call_on_an_absent_topic_says_that_there_is_none(
    topics: Messaging,
) -> None:
    """Scenario 2."""
    topics.create_topic("gone")
    topics.delete_topic("gone")
    response = PublishResponse(5, 0, 0, 0, 0)
    for name in ("absent", "gone", "ns:absent"):
        calls: list[Any] = [
            lambda name=name: topics.topic(name),
            lambda name=name: topics.update_topic(name),
            lambda name=name: topics.delete_topic(name),
            lambda name=name: topics.publish(name, [b"a"]),
            lambda name=name: topics.publish(name, [], transaction=5),
            lambda name=name: topics.store(name, [b"a"], transaction=5),
            lambda name=name: topics.poll(name),
            lambda name=name: topics.poll(name, wait_s=5),
            lambda name=name: topics.rollback(name, response),
            lambda name=name: topics.position("g", name),
            lambda name=name: topics.save_position("g", name, None, transaction=5),
            lambda name=name: topics.bounds(name),
        ]
        for call in calls:
            with pytest.raises(TopicNotFound, match=f"{name} does not exist"):
                call()


@pytest.mark.parametrize(
    "ttl",
    [
        *("0", "-1", "5", "abc", "5.0", "", " 5", "5\n", "٣", "9" * 5000),
        *(0, -1, MAX_TTL_S + 1, str(MAX_TTL_S + 1), 5.0, True, {}, [], b"5"),
    ],
    ids=lambda ttl: repr(ttl)[:12],
)
def test_a_ttl_that_is_no_whole_number_of_seconds_changes_nothing(
    topics: Messaging, ttl: Any
) -> None:
    """Scenario 3."""
    with pytest.raises(BadRequest, match="ttl"):
        topics.create_topic("t", ttl_s=ttl)
    assert topics.topics() == []
    topics.create_topic("t", ttl_s=7)
    with pytest.raises(BadRequest, match="ttl"):
        topics.update_topic("t", ttl_s=ttl)
    assert topics.topic("t").ttl_s == 7


@pytest.mark.parametrize(
    "properties", [{"a": "\ud800"}, {"\udfff": "b"}, {"a": "\ude00\ud83d"}], ids=ascii
)
def test_a_property_that_cannot_be_printed_changes_nothing(
    topics: Messaging, properties: dict[str, str]
) -> None:
    with pytest.raises(BadRequest, match="half of a surrogate pair") as caught:
        topics.create_topic("t", properties=properties)
    str(caught.value).encode()
    assert topics.topics() == []
    topics.create_topic("t", properties={"a": "\U0001f600"})
    with pytest.raises(BadRequest, match="half of a surrogate pair"):
        topics.update_topic("t", properties=properties)
    assert topics.topic("t").properties == {"a": "\U0001f600"}


@pytest.mark.parametrize("ttl", [1, 5, MAX_TTL_S])
def test_a_ttl_is_a_number(topics: Messaging, ttl: int) -> None:
    """Scenario 4."""
    topics.create_topic("t", ttl_s=ttl)
    assert topics.topic("t") == Topic(TopicName("t"), 1, ttl, {})


def test_a_topic_without_a_ttl_has_the_default_one(site: Site) -> None:
    """Scenario 5."""
    assert site.messaging.create_topic("t").ttl_s == WEEK_S
    messaging = site.open(default_ttl_s=60)
    assert messaging.create_topic("u").ttl_s == 60


def test_an_update_changes_what_it_names_and_leaves_the_rest(
    topics: Messaging,
) -> None:
    topics.create_topic("t", ttl_s=7, properties={"x": "y", "owner": "shop"})
    topics.update_topic("t", properties={"x": "z", "new": ""})
    kept = {"x": "z", "owner": "shop", "new": ""}
    assert topics.topic("t") == Topic(TopicName("t"), 1, 7, kept)
    assert topics.update_topic("t", ttl_s=9).ttl_s == 9
    assert topics.topic("t") == Topic(TopicName("t"), 1, 9, kept)
    assert topics.update_topic("t") == topics.topic("t")
    assert topics.topic("t") == Topic(TopicName("t"), 1, 9, kept)


def test_an_update_takes_away_a_property_that_it_sets_to_none(
    topics: Messaging,
) -> None:
    topics.create_topic("t", ttl_s=7, properties={"x": "y", "owner": "shop"})
    topics.update_topic("t", properties={"x": None, "absent": None})
    assert topics.topic("t") == Topic(TopicName("t"), 1, 7, {"owner": "shop"})


@pytest.mark.parametrize(
    "wrong",
    [
        *({"ttl": None}, {"generation": None}, {"ttl": "5"}, {5: None}, {"x": 5}),
        *({"\ud800": None}, {"publishing": "never"}, {"x": ["a"]}, {"x": False}),
    ],
    ids=ascii,
)
def test_an_update_that_is_wrong_anywhere_changes_nothing(
    topics: Messaging, wrong: Any
) -> None:
    created = topics.create_topic("t", ttl_s=7, properties={"owner": "shop"})
    with pytest.raises(BadRequest):
        topics.update_topic("t", ttl_s=9, properties={"owner": None, **wrong})
    assert topics.topic("t") == created


def test_updates_at_once_lose_nothing_of_each_other(topics: Messaging) -> None:
    topics.create_topic("t")
    names = [f"p{number}" for number in range(20)]

    def update(name: str) -> None:
        topics.update_topic("t", properties={name: "set"})

    with ThreadPoolExecutor(4) as threads:
        assert len(list(threads.map(update, names))) == len(names)
    assert topics.topic("t").properties == dict.fromkeys(names, "set")


def test_each_creation_after_a_deletion_is_the_next_generation(
    topics: Messaging,
) -> None:
    """Scenario 7."""
    for generation in range(1, 6):
        assert topics.create_topic("t").generation == generation
        assert topics.topic("t").generation == generation
        topics.delete_topic("t")
        with pytest.raises(TopicNotFound):
            topics.topic("t")
        with pytest.raises(TopicNotFound):
            topics.delete_topic("t")


def test_a_creation_that_is_refused_changes_no_property(topics: Messaging) -> None:
    """Scenario 8."""
    topics.create_topic("t", ttl_s=1)
    with pytest.raises(TopicExists):
        topics.create_topic("t", ttl_s=2, properties={"x": "y"})
    assert topics.topic("t") == Topic(TopicName("t"), 1, 1, {})


@pytest.mark.parametrize(
    "name",
    ["a.b", "a b", "", "ns-a:t", "ns:", ":t", "a:b:c", "t\n", "é", "a/b", "t\0"],
)
def test_other_names_are_refused(topics: Messaging, name: str) -> None:
    """Scenario 9."""
    with pytest.raises(BadRequest, match="name"):
        topics.create_topic(name)
    with pytest.raises(BadRequest, match="name"):
        topics.poll(name)


@pytest.mark.parametrize("name", [None, 5, b"t", ["t"]])
def test_a_name_is_text(topics: Messaging, name: Any) -> None:
    with pytest.raises(BadRequest, match="str"):
        topics.create_topic(name)


def test_a_name_may_be_long(topics: Messaging) -> None:
    name = "n" * 3000
    topics.create_topic(name)
    topics.publish(name, [b"a"])
    assert payloads(topics.poll(name)) == [b"a"]
    assert topics.topics() == [name]


def test_topics_are_listed_in_the_order_of_their_keys(topics: Messaging) -> None:
    """Scenario 10."""
    for name in ["T3", "a", "t", "t-", "t_", "ta", "t1", "t10", "t2"]:
        topics.create_topic(name)
        topics.create_topic(f"other:{name}x")
    assert topics.topics() == ["T3", "a", "t-", "t10", "t1", "t2", "t", "t_", "ta"]
    topics.delete_topic("t1")
    assert "t1" not in topics.topics()


def test_a_namespace_that_was_never_used_has_no_topics(topics: Messaging) -> None:
    """Scenario 11."""
    topics.create_topic("ns1:t")
    for namespace in ("ns", "ns10", "never", "default"):
        assert topics.topics(namespace) == []
    assert topics.topics("ns1") == ["t"]
    for wrong in ("a-b", "", "a:b", None):
        with pytest.raises(BadRequest, match="namespace"):
            topics.topics(wrong)  # type: ignore[arg-type]


def test_the_bare_name_is_the_one_in_the_default_namespace(topics: Messaging) -> None:
    topics.create_topic("default:t")
    with pytest.raises(TopicExists):
        topics.create_topic("t")
    topics.create_topic("other:t")
    topics.publish("default:t", [b"a"])
    assert payloads(topics.poll("t")) == [b"a"]
    assert payloads(topics.poll("other:t")) == []
    assert str(topics.topic("default:t").topic) == "t"
    assert str(topics.topic("other:t").topic) == "other:t"


def test_a_topic_whose_name_begins_like_another_is_another(topics: Messaging) -> None:
    for name in ("t", "t-", "tt", "t:t", "tt:t"):
        topics.create_topic(name)
        topics.publish(name, [name.encode()])
    for name in ("t", "t-", "tt", "t:t", "tt:t"):
        assert payloads(topics.poll(name)) == [name.encode()]


@pytest.mark.parametrize(
    "properties",
    [
        *({"a": 5}, {5: "a"}, {"a": {}}, {"a": None}),
        *({"ttl": "5"}, {"generation": "2"}, {"publishing": "none"}),
    ],
    ids=repr,
)
def test_properties_are_a_flat_map_of_text(topics: Messaging, properties: Any) -> None:
    with pytest.raises(BadRequest):
        topics.create_topic("t", properties=properties)
    assert topics.topics() == []


def test_a_topic_survives_a_restart_and_so_does_its_deletion(lasting: Site) -> None:
    """Scenario 59."""
    messaging = lasting.messaging
    messaging.create_topic("kept", ttl_s=5, properties={"x": 'é"\U0001f600'})
    for _ in range(50):
        messaging.create_topic("t")
        messaging.delete_topic("t")
    for again in (lasting.open, lasting.crash):
        messaging = again()
        assert messaging.topics() == ["kept"]
        assert messaging.topic("kept").ttl_s == 5
        assert messaging.topic("kept").properties == {"x": 'é"\U0001f600'}
        with pytest.raises(TopicNotFound):
            messaging.topic("t")
    assert messaging.create_topic("t").generation == 51


def test_a_deleted_topic_hides_its_messages_from_the_next(topics: Messaging) -> None:
    """Scenarios 44 and 45; 60 for rows that are older, as old, and deleted."""
    ids: list[MessageId] = []
    for number in range(10):
        topics.create_topic("t")
        assert payloads(topics.poll("t")) == []
        topics.publish("t", [b"%d" % number])
        for start in (None, 0, *ids):
            (message,) = topics.poll("t", start=start, inclusive=False)
            assert message.payload == b"%d" % number
        assert all(message.id > earlier for earlier in ids)
        ids.append(message.id)
        topics.delete_topic("t")
        with pytest.raises(TopicNotFound):
            topics.poll("t")


def test_a_topic_that_is_created_again_has_the_new_properties(
    topics: Messaging,
) -> None:
    """Scenario 46."""
    topics.create_topic("t", ttl_s=5, properties={"x": "y"})
    topics.delete_topic("t")
    topics.create_topic("t", ttl_s=6)
    assert topics.topic("t") == Topic(TopicName("t"), 2, 6, {})


@pytest.mark.foreign_pointers
def test_what_a_topic_accepts_is_a_property(topics: Messaging) -> None:
    topics.create_topic("both")
    topics.create_topic("tx", properties={"publishing": "transactional"})
    topics.create_topic("plain", properties={"publishing": "plain"})
    topics.publish("both", [b"a"])
    topics.publish("both", [b"b"], transaction=5)
    topics.publish("tx", [b"b"], transaction=5)
    topics.publish("plain", [b"a"])
    with pytest.raises(BadRequest, match="in transactions only"):
        topics.publish("tx", [b"a"])
    for messages in ([b"b"], []):
        with pytest.raises(BadRequest, match="no messages in transactions"):
            topics.publish("plain", messages, transaction=5)
    with pytest.raises(BadRequest, match="no messages in transactions"):
        topics.store("plain", [b"b"], transaction=5)
    assert payloads(topics.poll("tx")) == [b"b"]
    assert payloads(topics.poll("plain")) == [b"a"]
    topics.update_topic("tx", properties={"publishing": None})
    topics.publish("tx", [b"a"])


def test_topics_of_the_settings_exist_from_the_start(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    site.messaging.create_topic("audit", ttl_s=5)
    messaging = site.open(topics="audit, metrics:2,not.valid")
    assert messaging.topics() == ["audit", "metrics0", "metrics1"]
    assert messaging.topic("audit").generation == 1
    assert "not.valid" in caplog.text
    if site.kind == "leveldb":
        assert messaging.topic("audit").ttl_s == 5


def test_a_list_of_names_stands_for_more() -> None:
    """Scenario 86."""
    text = "  topic-1, topic_2 ,prefix:10,invalid.name"
    names = list(expand_names(text))
    assert names[:3] == ["topic-1", "topic_2", "prefix0"]
    assert names[-2:] == ["prefix9", "invalid.name"]
    assert len(list(valid_names(names))) == 12


def test_the_bytes_of_a_topic_and_the_prefix_of_its_rows() -> None:
    topic = Topic(TopicName("t", "ns"), 3, 5, {"x": "z"})
    assert topic.to_bytes() == b'{"generation": "3", "ttl": "5", "x": "z"}'
    assert topic.prefix == b"ns:t:\x00\x00\x00\x03"
    assert data_prefix(TopicName("t"), 258) == b"default:t:\x00\x00\x01\x02"


@settings(deadline=None)
@given(
    st.integers(-(2**31), 2**31 - 1),
    st.integers(1, MAX_TTL_S),
    st.dictionaries(
        st.text().filter(lambda key: key not in ("ttl", "generation")), st.text()
    ),
)
def test_a_topic_is_what_its_bytes_say(
    generation: int, ttl_s: int, properties: dict[str, str]
) -> None:
    topic = Topic(TopicName("t"), generation, ttl_s, properties)
    assert Topic.from_bytes(TopicName("t"), topic.to_bytes()) == topic
    assert json.loads(topic.to_bytes())["ttl"] == str(ttl_s)


@pytest.mark.in_process
def test_a_change_that_was_interrupted_is_read_again(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be written all the same, and nobody may go on with what was before."""
    messaging, table = site.messaging, site.table
    messaging.create_topic("interrupted")
    set_value = table.compare_and_set

    def interrupted(*args: Any) -> bool:
        set_value(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(table, "compare_and_set", interrupted)
    with pytest.raises(KeyboardInterrupt):
        messaging.delete_topic("interrupted")
    monkeypatch.undo()
    with pytest.raises(TopicNotFound):
        messaging.publish("interrupted", [b"lost"])
    assert messaging.create_topic("interrupted").generation == 2
    messaging.publish("interrupted", [b"kept"])
