"""The verbs about topics as calls: pure, for a transport that waits."""

from collections.abc import Callable, Mapping
from typing import Any, Concatenate, ParamSpec

import attrs

from txaware.client.calls.call import Call, HttpAnswer, Steps, done
from txaware.client.calls.verb_calls import ServerCalls, call_of, steps_of
from txaware.model.signatures import signed_as
from txaware.model.topics import Topic, checked_changes
from txaware.protocol.topics import (
    CREATE_TOPIC,
    DESCRIBE_TOPIC,
    REPLACE_TOPIC,
    UPDATE_TOPIC,
)
from txaware.protocol.verb import Verb

P = ParamSpec("P")

WRONG_METHOD = 405


def _described(
    verb: Verb[P, Topic],
) -> Callable[Concatenate[Any, P], Steps[Topic]]:
    """Returns the method that yields the call of a verb, and asks how it stands now."""

    def steps(
        calls: ServerCalls, /, *args: P.args, **options: P.kwargs
    ) -> Steps[Topic]:
        request = verb.build_request(*args, **options)
        yield from calls.info()
        yield call_of(verb, request)
        topic: Topic = yield call_of(
            DESCRIBE_TOPIC, DESCRIBE_TOPIC.build_request(request.topic)
        )
        return topic

    return signed_as(verb.does)(steps)


class TopicCalls(ServerCalls):
    """Verbs about topics that yield their calls."""

    create_topic = _described(CREATE_TOPIC)
    topic = steps_of(DESCRIBE_TOPIC)

    def update_topic(
        self,
        topic: str,
        *,
        ttl_s: int | None = None,
        properties: Mapping[str, str | None] | None = None,
        compact: bool | None = None,
        partitions: int | None = None,
    ) -> Steps[Topic]:
        """Changes a topic, and then asks how it stands.

        A server of version 0.1.0 knows only how to replace everything: it is told what
        it has, with the changes.
        """
        request = UPDATE_TOPIC.build_request(
            topic,
            ttl_s=ttl_s,
            properties=properties,
            compact=compact,
            partitions=partitions,
        )
        update: Call[Any] = call_of(UPDATE_TOPIC, request)
        yield from self.info()
        if not (yield attrs.evolve(update, read=_is_known)):
            found = yield from self.topic(topic)
            named = checked_changes(properties, compact)
            found = found.changed(request.ttl_s, named)
            replaced = REPLACE_TOPIC.build_request(
                topic, ttl_s=found.ttl_s, properties=found.properties
            )
            yield call_of(REPLACE_TOPIC, replaced)
        return (yield from self.topic(topic))


def _is_known(answer: HttpAnswer) -> bool:
    """Returns False where the server does not know the method, and has done nothing."""
    if answer.status == WRONG_METHOD:
        return False
    done(answer)
    return True
