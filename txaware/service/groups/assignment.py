"""Decides which member of a group should have which partition; pure."""

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Protocol

import attrs

from txaware.model.groups import Assignment, Partition

# The partitions of each member, by topic, as an application assigns them.
OwnMap = Mapping[str, Mapping[str, Iterable[int]]]


@attrs.frozen
class Wish:
    """A share of topics, and partitions by their names, that a member asks for."""

    topics: frozenset[str]
    named: frozenset[Partition] = frozenset()


@attrs.frozen
class Question:
    """All that an assignment is made of.

    `counts` tells how many partitions each topic has, and `current` who has which; a
    partition that nobody has is not there.
    """

    wishes: Mapping[str, Wish]
    counts: Mapping[str, int]
    current: Mapping[Partition, str]
    own: OwnMap = attrs.field(factory=dict)

    def wanting(self, topic: str) -> list[str]:
        """Returns the members that share a topic, in the order of their names."""
        return sorted(n for n, wish in self.wishes.items() if topic in wish.topics)

    @property
    def named(self) -> dict[Partition, str]:
        """The partitions that members name for themselves.

        Of several members the one that has it keeps it, or else the first gets it.
        """
        found: dict[Partition, str] = {}
        for name in sorted(self.wishes):
            for pair in self.wishes[name].named:
                if pair[1] < self.counts.get(pair[0], 0):
                    found.setdefault(pair, name)
                    if self.current.get(pair) == name:
                        found[pair] = name
        return found

    def shared(self) -> dict[str, list[int]]:
        """Returns the partitions of each topic that nobody names for itself."""
        named, topics = self.named, set[str]()
        for wish in self.wishes.values():
            topics |= wish.topics
        return {
            topic: [
                n for n in range(self.counts.get(topic, 0)) if (topic, n) not in named
            ]
            for topic in sorted(topics)
        }


Target = dict[Partition, str]


class Strategy(Protocol):
    """Assigns partitions; of two members with the same topics none has two more."""

    def __call__(self, question: Question) -> Target:
        """Returns who should have which partition."""


def sticky(question: Question) -> Target:
    """Moves as few partitions as can be."""
    shared = question.shared()
    wanting = {topic: question.wanting(topic) for topic in shared}
    target = question.named
    loads = Counter(dict.fromkeys(question.wishes, 0))
    loads.update(target.values())
    left: list[Partition] = []
    for topic, numbers in shared.items():
        able = set(wanting[topic])
        for number in numbers:
            owner = question.current.get((topic, number))
            if owner in able:
                target[topic, number] = owner
                loads[owner] += 1
            elif able:
                left.append((topic, number))
    _fill(left, wanting, loads, target)
    _level(question, shared, wanting, loads, target)
    return target


def _fill(
    left: Iterable[Partition],
    wanting: Mapping[str, list[str]],
    loads: Counter[str],
    target: Target,
) -> None:
    """Gives partitions that nobody has to whoever has the least."""
    heaps: dict[str, list[tuple[int, str]]] = {}
    for topic, number in left:
        heap = heaps.get(topic)
        if heap is None:
            heap = heaps[topic] = [(loads[name], name) for name in wanting[topic]]
            heapq.heapify(heap)
        while heap[0][0] != loads[heap[0][1]]:  # it got more by another topic
            heapq.heapreplace(heap, (loads[heap[0][1]], heap[0][1]))
        name = heap[0][1]
        target[topic, number] = name
        loads[name] += 1
        heapq.heapreplace(heap, (loads[name], name))


def _level(
    question: Question,
    shared: Mapping[str, list[int]],
    wanting: Mapping[str, list[str]],
    loads: Counter[str],
    target: Target,
) -> None:
    """Moves partitions from members with more to those with at least two less."""
    has: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for topic, numbers in shared.items():
        for number in numbers:
            if (topic, number) in target:
                has[target[topic, number], topic].append(number)
    while (step := _step(question, wanting, loads, has)) is not None:
        giver, taker, topic = step
        number = has[giver, topic].pop()
        has[taker, topic].append(number)
        target[topic, number] = taker
        loads[giver] -= 1
        loads[taker] += 1


def _step(
    question: Question,
    wanting: Mapping[str, list[str]],
    loads: Counter[str],
    has: Mapping[tuple[str, str], list[int]],
) -> tuple[str, str, str] | None:
    """Finds the next move, from who has most to who has least and may take it."""
    least = {
        topic: min(names, key=lambda name: (loads[name], name))
        for topic, names in wanting.items()
        if names
    }
    for giver in sorted(question.wishes, key=lambda name: (-loads[name], name)):
        best: tuple[int, int, str] | None = None
        for topic in question.wishes[giver].topics:
            numbers = has.get((giver, topic))
            if not numbers or topic not in least:
                continue
            taker = least[topic]
            if loads[giver] - loads[taker] < 2:
                continue
            more = len(numbers) - len(has.get((taker, topic), ()))
            found = (loads[taker], -more, topic)
            if best is None or found < best:
                best = found
        if best is not None:
            return giver, least[best[2]], best[2]
    return None


def in_ranges(question: Question) -> Target:
    """Gives each member partitions that follow each other, topic by topic.

    One more goes to those that have the least so far.
    """
    target = question.named
    loads = Counter(target.values())
    for topic, numbers in question.shared().items():
        names = question.wanting(topic)
        if not names:
            continue
        each, more = divmod(len(numbers), len(names))
        favoured = set(sorted(names, key=lambda name: (loads[name], name))[:more])
        at = 0
        for name in names:
            size = each + (name in favoured)
            target.update(((topic, n), name) for n in numbers[at : at + size])
            loads[name] += size
            at += size
    return target


def in_turns(question: Question) -> Target:
    """Deals the partitions of all topics in turn, always to who has the least."""
    target = question.named
    loads, turns = Counter(target.values()), Counter[str]()
    for topic, numbers in question.shared().items():
        names = question.wanting(topic)
        for number in numbers if names else ():
            name = min(names, key=lambda name: (loads[name], turns[name], name))
            target[topic, number] = name
            loads[name] += 1
            turns[name] += 1
    return target


def by_map(question: Question) -> Target:
    """Assigns what the application says; a partition it leaves out, nobody has."""
    target: Target = {}
    for name, topics in question.own.items():
        if name not in question.wishes:
            continue
        for topic, numbers in topics.items():
            count = question.counts.get(topic, 0)
            target.update(((topic, n), name) for n in numbers if n < count)
    return target


STRATEGIES: Mapping[Assignment, Strategy] = {
    "sticky": sticky,
    "range": in_ranges,
    "roundrobin": in_turns,
    "own": by_map,
}
