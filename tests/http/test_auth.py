"""Who may do what: patterns, rules, and the tokens that stand for a principal."""

import hmac
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from txaware.auth import (
    ANYBODY,
    EVERYTHING,
    VERBS,
    Principal,
    Rule,
    Tokens,
    Verb,
    digest_text,
    new_token,
)
from txaware.auth.digests import digest
from txaware.auth.rights import REMEMBERED, NamePattern, Pattern
from txaware.errors import BadRequest, NotAuthenticated, NotAuthorized
from txaware.model.topics import QueueName, TopicName

ORDERS = TopicName("orders")
AUDIT = TopicName("trail", "audit")

# For each rule there is: what it is in the file, and what asks for it.
Need = Callable[[Principal], None]
NEEDS: dict[str, tuple[str, Need]] = {
    "admin": (
        'topics = ["orders"]\nverbs = ["admin"]',
        lambda caller: caller.require("admin", ORDERS),
    ),
    "publish": (
        'topics = ["or*"]\nverbs = ["publish"]',
        lambda caller: caller.require("publish", ORDERS),
    ),
    "consume": (
        'topics = ["default:*"]\nverbs = ["consume"]',
        lambda caller: caller.require("consume", ORDERS),
    ),
    "another namespace": (
        'topics = ["audit:*"]\nverbs = ["consume"]',
        lambda caller: caller.require("consume", AUDIT),
    ),
    "group": (
        'groups = ["bill*"]',
        lambda caller: caller.require_group("default", "billing"),
    ),
    "transactional id": (
        'transactional_ids = ["pay-*"]',
        lambda caller: caller.require_transactional_id("pay-1"),
    ),
    "transactions": (
        "transactions = true",
        lambda caller: caller.require_transactions(),
    ),
    "monitor": ("monitor = true", lambda caller: caller.require_monitor()),
    "operator": (
        'topics = ["*:*"]\nverbs = ["admin"]',
        lambda caller: caller.require_operator(),
    ),
}
INCLUDED = {("operator", "admin")}
TOKEN = {name: new_token() for name in NEEDS}


def header(token: str) -> str:
    return f"Bearer {token}"


def pattern(text: str) -> NamePattern:
    return NamePattern.parse(text, of="topic")


def principal(*patterns: str, verbs: tuple[Verb, ...] = VERBS) -> Principal:
    rule = Rule(topics=tuple(map(pattern, patterns)), verbs=frozenset(verbs))
    return Principal(name="ann", rules=(rule,))


@pytest.fixture
def tokens(tmp_path: Path) -> Tokens:
    """One principal for each rule, which has that rule and no other."""
    path = tmp_path / "tokens.toml"
    path.touch(mode=0o600)
    path.write_text(
        "\n".join(
            f'[principals.p{number}]\ntokens = ["{digest_text(TOKEN[name])}"]\n'
            f"[[principals.p{number}.rules]]\n{rule}"
            for number, (name, (rule, _)) in enumerate(NEEDS.items())
        )
    )
    return Tokens.load(path)


@pytest.mark.parametrize("name", NEEDS)
def test_the_right_token_lets_in(name: str, tokens: Tokens) -> None:
    _, need = NEEDS[name]
    need(tokens.principal(header(TOKEN[name])))
    need(ANYBODY)


@pytest.mark.parametrize("name", NEEDS)
def test_every_foreign_token_is_refused(name: str, tokens: Tokens) -> None:
    _, need = NEEDS[name]
    for other, token in TOKEN.items():
        caller = tokens.principal(header(token))
        if other == name or (other, name) in INCLUDED:
            need(caller)
        else:
            with pytest.raises(NotAuthorized, match=f"{caller.name} may not ") as found:
                need(caller)
            assert not isinstance(found.value, NotAuthenticated)


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        (None, "no token was sent"),
        ("", "is not Bearer TOKEN"),
        ("Bearer", "is not Bearer TOKEN"),
        ("Bearer  ", "is not Bearer TOKEN"),
        ("Basic YW5uOmFubg==", "is not Bearer TOKEN"),
        (TOKEN["publish"], "is not Bearer TOKEN"),
        (f"Bearer{TOKEN['publish']}", "is not Bearer TOKEN"),
        (f"Bearer\t{TOKEN['publish']}", "is not Bearer TOKEN"),
    ],
)
def test_a_missing_token_is_said(sent: str | None, text: str, tokens: Tokens) -> None:
    with pytest.raises(NotAuthenticated, match=text):
        tokens.principal(sent)


@pytest.mark.parametrize(
    "wrong",
    [
        new_token(),
        TOKEN["publish"][:-1],
        TOKEN["publish"] + "x",
        TOKEN["publish"].upper(),
        digest_text(TOKEN["publish"]),
        digest(TOKEN["publish"]).decode("latin-1"),
        f"{TOKEN['publish']} {TOKEN['publish']}",
        f"{TOKEN['publish']}\n",
        "\x00" * 32,
        "ä\ud800\U0001f600",
        "x" * 100_000,
    ],
)
def test_every_wrong_token_is_refused_with_the_same_words(
    wrong: str, tokens: Tokens
) -> None:
    with pytest.raises(NotAuthenticated) as found:
        tokens.principal(header(wrong))
    assert str(found.value) == "this token is not known here; send a valid one"


@given(st.one_of(st.none(), st.text(), st.builds(header, st.text(min_size=1))))
def test_no_header_lets_in_or_ends_in_another_error(sent: str | None) -> None:
    with pytest.raises(NotAuthenticated):
        Tokens(Path("none.toml")).principal(sent)


def test_the_name_of_the_scheme_is_in_any_case(tokens: Tokens) -> None:
    for scheme in ("bearer", "BEARER", "Bearer "):
        assert tokens.principal(f"{scheme} {TOKEN['publish']}").name == "p1"


def test_a_known_and_an_unknown_token_are_compared_by_the_same_steps(
    tokens: Tokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = []
    real = hmac.compare_digest

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((len(one), len(other)))
        return real(one, other)

    monkeypatch.setattr(hmac, "compare_digest", compare)
    for sent in (TOKEN["publish"], new_token(), "x", TOKEN["publish"][:-1]):
        try:
            tokens.principal(header(sent))
        except NotAuthenticated:
            continue
    assert compared == [(32, 32)] * 4


def test_what_is_found_and_not_equal_is_refused(tokens: Tokens) -> None:
    caller = tokens.principal(header(TOKEN["publish"]))
    wrong = {digest(TOKEN["publish"]): (bytes(32), caller)}
    tokens._known = wrong
    with pytest.raises(NotAuthenticated):
        tokens.principal(header(TOKEN["publish"]))


def test_a_plain_token_is_kept_nowhere(tokens: Tokens) -> None:
    extra = new_token()
    tokens.admit(extra, ANYBODY)
    for token in (*TOKEN.values(), extra):
        tokens.principal(header(token))
        assert token not in repr(vars(tokens))


def test_a_token_is_long_random_and_known_for_what_it_is() -> None:
    made = {new_token() for _ in range(100)}
    assert len(made) == 100
    for token in made:
        assert re.fullmatch(r"txa_[A-Za-z0-9_-]{43}", token)


def test_a_token_that_is_admitted_stays_through_a_reload(tokens: Tokens) -> None:
    extra = new_token()
    tokens.admit(extra, ANYBODY)
    assert tokens.reload()
    assert tokens.principal(header(extra)) is ANYBODY
    assert tokens.principal(header(TOKEN["publish"])).name == "p1"


def test_a_refusal_says_what_is_missing() -> None:
    caller = Principal(name="ann")
    told = []
    for _, need in NEEDS.values():
        with pytest.raises(NotAuthorized) as found:
            need(caller)
        told.append(str(found.value))
    others: list[Callable[[], None]] = [
        lambda: caller.require_sight(ORDERS),
        lambda: caller.require_group("audit", "billing"),
        lambda: caller.require_table("consume", "default", "stock"),
        lambda: caller.require_queue("pop", QueueName("mail")),
    ]
    for ask in others:
        with pytest.raises(NotAuthorized) as found:
            ask()
        told.append(str(found.value))
    assert told == [
        "ann may not create, change or delete topic orders: "
        "no rule gives it admin there",
        "ann may not publish to topic orders: no rule gives it publish there",
        "ann may not consume from topic orders: no rule gives it consume there",
        "ann may not consume from topic audit:trail: no rule gives it consume there",
        "ann may not use group billing: no rule gives it that group",
        "ann may not use transactional id 'pay-1': no rule gives it that id",
        "ann may not use transactions: no rule gives it transactions",
        "ann may not monitor the server: no rule gives it monitor",
        "ann may not operate the server: no rule gives it admin on *:*",
        "ann may not see topic orders: no rule gives it a verb there",
        "ann may not use group audit:billing: no rule gives it that group",
        "ann may not read table stock: no rule gives it consume there",
        "ann may not pop from queue mail: no rule gives it pop there",
    ]


def test_a_refusal_of_a_long_transactional_id_is_short_and_printable() -> None:
    with pytest.raises(NotAuthorized) as found:
        Principal(name="ann").require_transactional_id("\n\x1b" * 1000)
    assert len(str(found.value)) < 200
    assert str(found.value).isprintable()


def test_a_topic_is_seen_by_whoever_monitors_it() -> None:
    orders = (NamePattern.parse("orders", of="topic"),)
    caller = Principal(name="ann", rules=(Rule(topics=orders, monitor=True),))
    assert caller.may_see(ORDERS)
    assert not caller.may_see(AUDIT)
    assert not any(caller.may(verb, ORDERS) for verb in VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_a_topic_is_seen_by_whoever_has_any_verb_on_it(verb: Verb) -> None:
    caller = principal("orders", verbs=(verb,))
    caller.require_sight(ORDERS)
    assert caller.may_see(ORDERS)
    assert not caller.may_see(AUDIT)
    assert [other for other in VERBS if caller.may(other, ORDERS)] == [verb]


def test_verbs_of_one_rule_are_not_on_the_topics_of_another() -> None:
    caller = Principal(
        name="ann",
        rules=(
            *principal("orders", verbs=("publish",)).rules,
            *principal("audit:*", verbs=("consume",)).rules,
        ),
    )
    assert caller.may("publish", ORDERS)
    assert caller.may("consume", AUDIT)
    assert not caller.may("consume", ORDERS)
    assert not caller.may("publish", AUDIT)


@pytest.mark.parametrize("text", ["*", "default:*", "a*:*", "*:a*", "**:*a*"])
def test_admin_on_less_than_everything_makes_no_operator(text: str) -> None:
    assert not principal(text).is_operator


def test_admin_on_everything_makes_an_operator_who_may_not_read() -> None:
    operator = principal("*:**", verbs=("admin",))
    assert operator.is_operator
    assert operator.may("admin", AUDIT)
    assert not operator.may("consume", AUDIT)
    assert not operator.may_monitor
    assert not operator.may_use_transactions
    assert not principal("*:*", verbs=("publish", "consume")).is_operator


def test_a_star_alone_is_all_of_the_default_namespace() -> None:
    caller = principal("*")
    assert caller.may("publish", ORDERS)
    assert not caller.may("publish", AUDIT)


def test_topics_of_the_same_name_are_told_apart_by_their_namespaces() -> None:
    caller = principal("audit:orders")
    assert caller.may("publish", TopicName("orders", "audit"))
    assert not caller.may("publish", ORDERS)
    assert caller.may("publish", TopicName("orders", "audit"))


def test_a_group_belongs_to_its_namespace() -> None:
    groups = tuple(NamePattern.parse(one, of="group") for one in ("g.1", "audit:x*"))
    caller = Principal(name="ann", rules=(Rule(groups=groups),))
    assert caller.may_use_group("default", "g.1")
    assert caller.may_use_group("audit", "x-1")
    assert not caller.may_use_group("audit", "g.1")
    assert not caller.may_use_group("default", "x-1")
    assert not caller.may_use_group("default", "gx1")


def test_a_decision_on_a_group_is_not_taken_for_one_on_a_topic() -> None:
    caller = Principal(name="ann", rules=(Rule(groups=EVERYTHING.groups),))
    assert caller.may_use_group("default", "orders")
    assert not any(caller.may(verb, ORDERS) for verb in VERBS)
    other = principal("*:*")
    assert other.may("consume", ORDERS)
    assert not other.may_use_group("default", "orders")


def test_decisions_stay_right_and_few_when_many_names_are_asked_for() -> None:
    caller = principal("a*1", verbs=("publish",))
    for _ in range(2):
        for number in range(2 * REMEMBERED):
            topic = TopicName(f"a{number}")
            assert caller.may("publish", topic) == str(number).endswith("1")
            assert len(caller._remembered) <= REMEMBERED


def test_principals_with_the_same_rules_are_equal_whatever_they_remember() -> None:
    caller = principal("a")
    caller.may("publish", ORDERS)
    assert caller == principal("a")
    assert hash(caller) == hash(principal("a"))


names = st.text("ab", max_size=8)
patterns = st.text("ab*", max_size=8)


@given(patterns, names)
@example("*", "")
@example("", "")
@example("a*a", "a")
@example("ab*ba", "aba")
@example("*ab*ab*", "abab")
@example("a*ab*b", "aabb")
@example("*b*b", "ab")
@example("*b*b*", "b")
def test_a_star_stands_for_any_text(text: str, name: str) -> None:
    """The same as the regular expression that says so."""
    expected = re.fullmatch(re.escape(text).replace(r"\*", ".*"), name) is not None
    assert Pattern(text).matches(name) == expected


@given(st.lists(names, min_size=1, max_size=5), names)
def test_a_pattern_matches_whatever_its_stars_are_replaced_by(
    parts: list[str], between: str
) -> None:
    assert Pattern("*".join(parts)).matches(between.join(parts))


@given(st.from_regex(r"[A-Za-z0-9_-]+", fullmatch=True), st.sampled_from(["", "ns:"]))
def test_a_name_without_stars_is_a_pattern_of_itself_only(
    name: str, namespace: str
) -> None:
    topic = TopicName.parse(namespace + name)
    found = pattern(namespace + name)
    assert str(found) == str(topic)
    assert found.matches(topic.namespace, topic.name)
    assert not found.matches(topic.namespace, topic.name + "x")
    assert not found.matches(topic.namespace + "x", topic.name)


def test_many_stars_against_a_long_name_take_no_time() -> None:
    """A regular expression would not end here."""
    assert not Pattern("*a" * 40 + "*b").matches("a" * 100_000)


@pytest.mark.parametrize(
    "text",
    ["", ":", "a:", ":a", "a:b:c", "a b", "a.b", "a-b:c", "ä", "a\n", "[a]", "a?"],
)
def test_what_can_match_no_name_is_no_pattern(text: str) -> None:
    with pytest.raises(BadRequest, match="is no pattern of a topic"):
        pattern(text)


def test_anybody_may_everything() -> None:
    assert all(ANYBODY.may(verb, AUDIT) for verb in VERBS)
    assert ANYBODY.may_use_group("x", "y")
    assert ANYBODY.may_use_transactional_id("any\nthing")
    assert ANYBODY.may_use_transactions
    assert ANYBODY.may_monitor
    assert ANYBODY.is_operator
