"""Rights and the rules that give them: rules add up, and all else is refused."""

import re
from collections.abc import Callable
from typing import Literal, Self, get_args

import attrs

from txaware.errors import BadRequest, NotAuthorized
from txaware.model.topics import DEFAULT_NAMESPACE, NamespacedName, TopicName

_NAMESPACE = re.compile(r"[A-Za-z0-9_*]+")
_NAMES = {
    "topic": re.compile(r"[A-Za-z0-9_*-]+"),
    "group": re.compile(r"[A-Za-z0-9_.*-]+"),
    "table": re.compile(r"[A-Za-z0-9_*-]+"),
    "queue": re.compile(r"[A-Za-z0-9_*-]+"),
}


def _single_stars(text: str) -> str:
    return re.sub(r"\*+", "*", text)


@attrs.frozen
class Pattern:
    """A text with stars, each of which stands for any text.

    The time of a match grows with the name only, however many stars there are.
    """

    text: str = attrs.field(converter=_single_stars)

    @property
    def is_everything(self) -> bool:
        """True when the pattern is a star alone."""
        return self.text == "*"

    def matches(self, name: str) -> bool:
        """Tells whether the pattern matches a name."""
        first, *middle = self.text.split("*")
        if not middle:
            return name == first
        last = middle.pop()
        at, end = len(first), len(name) - len(last)
        if at > end or not (name.startswith(first) and name.endswith(last)):
            return False
        for part in middle:
            found = name.find(part, at, end)
            if found < 0:
                return False
            at = found + len(part)
        return True


@attrs.frozen
class NamePattern:
    """A pattern of names in namespaces; `*:*` matches all of them."""

    namespace: Pattern
    name: Pattern

    @classmethod
    def parse(cls, text: str, *, of: str) -> Self:
        """Reads `name` or `namespace:name` of a `topic`, `group`, `table` or `queue`.

        The namespace is `default` where none is named, as with names themselves.
        """
        namespace, colon, name = text.rpartition(":")
        if not colon:
            namespace = DEFAULT_NAMESPACE
        if not _NAMESPACE.fullmatch(namespace) or not _NAMES[of].fullmatch(name):
            raise BadRequest(
                f"{text!r:.100} is no pattern of a {of}; `name` and `namespace:name` "
                f"are, with * for any text"
            )
        return cls(Pattern(namespace), Pattern(name))

    @property
    def is_everything(self) -> bool:
        """True when the pattern is `*:*`."""
        return self.namespace.is_everything and self.name.is_everything

    def matches(self, namespace: str, name: str) -> bool:
        """Tells whether the pattern matches a name in a namespace."""
        return self.namespace.matches(namespace) and self.name.matches(name)

    def __str__(self) -> str:
        if self.namespace.text == DEFAULT_NAMESPACE:
            return self.name.text
        return f"{self.namespace.text}:{self.name.text}"


# `admin` allows to create, update and delete a topic. It includes neither of the other
# verbs: a person who looks after topics need not read them. On `*:*` it makes an
# operator.
Verb = Literal["admin", "publish", "consume"]
# `manage` allows to create, change, empty and delete a queue, and not to see its items.
QueueVerb = Literal["push", "pop", "manage"]
VERBS: tuple[Verb, ...] = get_args(Verb)
QUEUE_VERBS: tuple[QueueVerb, ...] = get_args(QueueVerb)

# Callers choose the names, so the number of remembered decisions is bounded.
REMEMBERED = 4096


@attrs.frozen(kw_only=True)
class Rule:
    """A rule: verbs on topics, tables and queues that match, groups, permissions.

    On a table, `consume` allows to read rows, and `publish` to change them. Queues have
    verbs of their own: `push`, `pop` and `manage`. `long` is None where the rule does
    not say it, as rules did before it came: then its transactions may be long ones.
    """

    topics: tuple[NamePattern, ...] = ()
    verbs: frozenset[Verb | QueueVerb] = frozenset()
    groups: tuple[NamePattern, ...] = ()
    tables: tuple[NamePattern, ...] = ()
    queues: tuple[NamePattern, ...] = ()
    transactional_ids: tuple[Pattern, ...] = ()
    transactions: bool = False
    long: bool | None = None
    monitor: bool = False

    @property
    def gives_long_transactions(self) -> bool:
        """True when it allows transactions that run for a day."""
        return self.transactions and self.long is not False

    @property
    def makes_operator(self) -> bool:
        """True when the rule gives `admin` on every topic there can be."""
        everything = any(pattern.is_everything for pattern in self.topics)
        return everything and "admin" in self.verbs


_ANY_NAME = (NamePattern(Pattern("*"), Pattern("*")),)
EVERYTHING = Rule(
    topics=_ANY_NAME,
    verbs=frozenset((*VERBS, *QUEUE_VERBS)),
    groups=_ANY_NAME,
    tables=_ANY_NAME,
    queues=_ANY_NAME,
    transactional_ids=(Pattern("*"),),
    transactions=True,
    long=True,
    monitor=True,
)


@attrs.frozen(kw_only=True)
class Rights:
    """The rights that a list of rules gives; decisions are remembered."""

    rules: tuple[Rule, ...] = ()
    may_use_transactions: bool = attrs.field(init=False, repr=False)
    may_use_long_transactions: bool = attrs.field(init=False, repr=False)
    may_monitor: bool = attrs.field(init=False, repr=False)
    is_operator: bool = attrs.field(init=False, repr=False)
    _remembered: dict[tuple[str, ...], bool] = attrs.field(
        factory=dict, init=False, repr=False, eq=False
    )

    @may_use_transactions.default
    def _any_transactions(self) -> bool:
        return any(rule.transactions for rule in self.rules)

    @may_use_long_transactions.default
    def _any_long(self) -> bool:
        return any(rule.gives_long_transactions for rule in self.rules)

    @may_monitor.default
    def _any_monitor(self) -> bool:
        return any(rule.monitor for rule in self.rules)

    @is_operator.default
    def _any_operator(self) -> bool:
        return any(rule.makes_operator for rule in self.rules)

    def may(self, verb: Verb, topic: TopicName) -> bool:
        """Tells whether the rules allow a verb on a topic, which may exist or not."""
        return self._decide(
            (verb, topic.namespace, topic.name),
            lambda rule: (
                verb in rule.verbs
                and any(one.matches(topic.namespace, topic.name) for one in rule.topics)
            ),
        )

    def may_see(self, topic: TopicName) -> bool:
        """Tells whether the rules allow anything at all with a topic, or monitor it."""
        return self._decide(
            ("see", topic.namespace, topic.name),
            lambda rule: (
                bool(rule.verbs.intersection(VERBS) or rule.monitor)
                and any(one.matches(topic.namespace, topic.name) for one in rule.topics)
            ),
        )

    def may_use_group(self, namespace: str, group: str) -> bool:
        """Tells whether the rules allow to read and move a group's positions."""
        return self._decide(
            ("group", namespace, group),
            lambda rule: any(one.matches(namespace, group) for one in rule.groups),
        )

    def may_on_table(self, verb: Verb, namespace: str, table: str) -> bool:
        """Tells whether the rules allow a verb on a table, which may have no row."""
        return self._decide(
            ("table", verb, namespace, table),
            lambda rule: (
                verb in rule.verbs
                and any(one.matches(namespace, table) for one in rule.tables)
            ),
        )

    def may_see_table(self, namespace: str, table: str) -> bool:
        """Tells whether the rules allow to read a table's rows, or to change them."""
        return self.may_on_table("consume", namespace, table) or self.may_on_table(
            "publish", namespace, table
        )

    def may_on_queue(self, verb: QueueVerb, queue: NamespacedName) -> bool:
        """Tells whether the rules allow a verb on a queue, which may exist or not.

        Operators manage all queues.
        """
        if verb == "manage" and self.is_operator:
            return True
        return self._decide(
            ("queue", verb, queue.namespace, queue.name),
            lambda rule: verb in rule.verbs and _names_queue(rule, queue),
        )

    def may_see_queue(self, queue: NamespacedName) -> bool:
        """Tells whether the rules allow anything with a queue, or to monitor it."""
        return self.is_operator or self._decide(
            ("see queue", queue.namespace, queue.name),
            lambda rule: (
                bool(rule.verbs.intersection(QUEUE_VERBS) or rule.monitor)
                and _names_queue(rule, queue)
            ),
        )

    def may_use_transactional_id(self, transactional_id: str) -> bool:
        """Tells whether the rules allow to publish under a transactional id."""
        return any(
            pattern.matches(transactional_id)
            for rule in self.rules
            for pattern in rule.transactional_ids
        )

    def _decide(self, key: tuple[str, ...], given_by: Callable[[Rule], bool]) -> bool:
        known = self._remembered.get(key)
        if known is not None:
            return known
        decision = any(map(given_by, self.rules))
        if len(self._remembered) >= REMEMBERED:
            self._remembered.clear()
        self._remembered[key] = decision
        return decision


def _names_queue(rule: Rule, queue: NamespacedName) -> bool:
    return any(one.matches(queue.namespace, queue.name) for one in rule.queues)


_DOING = {
    "admin": "create, change or delete",
    "publish": "publish to",
    "consume": "consume from",
}
_DOING_WITH_QUEUES = {"push": "push to", "pop": "pop from", "manage": "manage"}


@attrs.frozen(kw_only=True)
class Principal(Rights):
    """A caller with a name and rights.

    `may...` answers, and `require...` raises `NotAuthorized` with what is missing. The
    rules are those of the moment when `Tokens` gave the principal. Get it anew for each
    request: a token or a rule that was taken away is then gone at once.
    """

    name: str

    def require(self, verb: Verb, topic: TopicName) -> None:
        """Requires a verb on a topic."""
        if not self.may(verb, topic):
            raise self._refused(f"{_DOING[verb]} topic {topic}", f"{verb} there")

    def require_sight(self, topic: TopicName) -> None:
        """Requires any verb on a topic, or monitoring it."""
        if not self.may_see(topic):
            raise self._refused(f"see topic {topic}", "a verb there")

    def require_group(self, namespace: str, group: str) -> None:
        """Requires the right to use a consumer group."""
        if not self.may_use_group(namespace, group):
            named = NamespacedName(group, namespace)
            raise self._refused(f"use group {named}", "that group")

    def require_table(self, verb: Verb, namespace: str, table: str) -> None:
        """Requires a verb on a table."""
        if not self.may_on_table(verb, namespace, table):
            act = "read" if verb == "consume" else "change"
            named = NamespacedName(table, namespace)
            raise self._refused(f"{act} table {named}", f"{verb} there")

    def require_queue(self, verb: QueueVerb, queue: NamespacedName) -> None:
        """Requires a verb on a queue."""
        if not self.may_on_queue(verb, queue):
            act = _DOING_WITH_QUEUES[verb]
            raise self._refused(f"{act} queue {queue}", f"{verb} there")

    def require_queue_sight(self, queue: NamespacedName) -> None:
        """Requires any verb on a queue, or monitoring it."""
        if not self.may_see_queue(queue):
            raise self._refused(f"see queue {queue}", "a verb there")

    def require_transactions(self) -> None:
        """Requires the permission `transactions`."""
        if not self.may_use_transactions:
            raise self._refused("use transactions", "transactions")

    def require_monitor(self) -> None:
        """Requires the permission `monitor`."""
        if not self.may_monitor:
            raise self._refused("monitor the server", "monitor")

    def require_operator(self) -> None:
        """Requires `admin` on everything."""
        if not self.is_operator:
            raise self._refused("operate the server", "admin on *:*")

    def require_transactional_id(self, transactional_id: str) -> None:
        """Requires the right to use a transactional id."""
        if not self.may_use_transactional_id(transactional_id):
            raise self._refused(
                f"use transactional id {transactional_id!r:.100}", "that id"
            )

    def _refused(self, act: str, missing: str) -> NotAuthorized:
        return NotAuthorized(f"{self.name} may not {act}: no rule gives it {missing}")


# The caller of a server without authentication.
ANYBODY = Principal(name="anybody", rules=(EVERYTHING,))
# The caller of a server with authentication, without a token that is known there.
NOBODY = Principal(name="nobody")
