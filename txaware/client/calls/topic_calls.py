"""The verbs about topics as calls: pure, for a transport that waits."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from txaware.client.calls.call import (
    EXIST_OK,
    Call,
    HttpAnswer,
    Steps,
    done,
    json_body,
    reading,
    reading_json,
)
from txaware.client.calls.server_calls import ServerCalls
from txaware.model.interfaces import UNCOMMITTED, Isolation, Start
from txaware.model.messages import Bounds
from txaware.model.requests import checked_flag, checked_isolation, checked_start
from txaware.model.topics import (
    Topic,
    TopicName,
    checked_changes,
    checked_namespace,
    checked_properties,
    checked_ttl_s,
)
from txaware.protocol.fields import start_field
from txaware.protocol.values import topic_from_json
from txaware.protocol.verb import Repeat

WRONG_METHOD = 405
_names, _bounds = reading_json(list[str]), reading_json(Bounds)


class TopicCalls(ServerCalls):
    """Verbs about topics that yield their calls."""

    def create_topic(
        self,
        topic: str,
        *,
        ttl_s: int | str | None = None,
        properties: Mapping[str, str] | None = None,
        exist_ok: bool = False,
    ) -> Steps[Topic]:
        """Creates a topic, and then asks how it stands."""
        path, checked = self._paths.topic(topic), checked_properties(properties)
        if checked_flag("exist_ok", exist_ok):
            path += EXIST_OK
        body = _body(None if ttl_s is None else checked_ttl_s(ttl_s), checked)
        yield from self.info()
        yield Call("PUT", path, done, body, repeat=Repeat.KEYED)
        return (yield from self.topic(topic))

    def update_topic(
        self,
        topic: str,
        *,
        ttl_s: int | str | None = None,
        properties: Mapping[str, str | None] | None = None,
    ) -> Steps[Topic]:
        """Changes a topic, and then asks how it stands.

        A server of version 0.1.0 knows only how to replace everything: it is told what
        it has, with the changes.
        """
        path = self._paths.topic(topic) + "/properties"
        changes = checked_changes(properties)
        ttl = None if ttl_s is None else checked_ttl_s(ttl_s)
        yield from self.info()
        body = _body(ttl, changes)
        if not (yield Call("PATCH", path, _is_known, body, repeat=Repeat.KEYED)):
            found = (yield from self.topic(topic)).changed(ttl, changes)
            body = _body(found.ttl_s, found.properties)
            yield Call("PUT", path, done, body, repeat=Repeat.KEYED)
        return (yield from self.topic(topic))

    def topic(self, topic: str) -> Steps[Topic]:
        """Asks for the topic as it stands."""
        path, namespace = self._paths.topic(topic), TopicName.parse(topic).namespace
        read = reading(lambda body: topic_from_json(namespace, body))
        found: Topic = yield Call("GET", path, read)
        return found

    def topics(self, namespace: str = "default") -> Steps[list[str]]:
        """Asks for the names of a namespace's topics."""
        path = f"/v1/namespaces/{checked_namespace(namespace)}/topics"
        names: list[str] = yield Call("GET", path, _names)
        return names

    def delete_topic(self, topic: str) -> Steps[None]:
        """Deletes a topic."""
        path = self._paths.topic(topic)
        yield from self.info()
        yield Call("DELETE", path, done, repeat=Repeat.KEYED)

    def bounds(
        self, topic: str, *, start: Start = None, isolation: Isolation = UNCOMMITTED
    ) -> Steps[Bounds]:
        """Asks where a topic begins and ends."""
        path = self._paths.topic(topic) + "/bounds"
        field = start_field(checked_start(start))
        asked = {} if field is None else {"startFrom": field}
        if checked_isolation(isolation) != UNCOMMITTED:
            asked["isolation"] = isolation
        if asked:
            path += "?" + urlencode(asked)
        bounds: Bounds = yield Call("GET", path, _bounds)
        return bounds


def _is_known(answer: HttpAnswer) -> bool:
    """Returns False where the server does not know the method, and has done nothing."""
    if answer.status == WRONG_METHOD:
        return False
    done(answer)
    return True


def _body(ttl_s: int | None, properties: Mapping[str, str | None]) -> bytes:
    fields: dict[str, Any] = {**properties}
    if ttl_s is not None:
        fields["ttl"] = ttl_s
    return json_body(**fields)
