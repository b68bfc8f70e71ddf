"""The verbs of work queues as calls: pure, for a transport that waits."""

import math
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote_plus

from txaware.client.calls.call import (
    Steps,
    done,
)
from txaware.client.calls.request_fit import msgpack_call, require_fit
from txaware.client.calls.server_calls import ServerCalls
from txaware.client.calls.verb_calls import call_of, steps_of
from txaware.errors import BadRequest
from txaware.model.queues import (
    QueueDescriptor,
    checked_delay_s,
    checked_priority,
    described,
)
from txaware.model.requests import (
    Payload,
    checked_payloads,
)
from txaware.model.topics import QueueName
from txaware.protocol.formats import PublishRequest, encode_publish
from txaware.protocol.jobs import (
    CLOSE_PUSHER,
    COMMIT_JOB,
    END_HANDLED,
    EXTEND_JOB,
    PIPE_FOR,
    PIPES_FOR,
    POP,
    RELEASE_JOBS,
    ROLLBACK_JOB,
)
from txaware.protocol.queues import (
    CREATE_QUEUE,
    DELETE_QUEUE,
    DESCRIBE_QUEUE,
    LIST_QUEUES,
    PAUSE_QUEUE,
    PEEK_QUEUE,
    QUEUE_STATS,
    REDRIVE,
    RESUME_QUEUE,
    TRUNCATE_QUEUE,
    UPDATE_QUEUE,
)
from txaware.protocol.verb import Repeat


class QueueCalls(ServerCalls):
    """All verbs of a `QueueService`."""

    def create_queue(
        self, name: str, *, exist_ok: bool = False, **options: Any
    ) -> Steps[QueueDescriptor]:
        """Creates a queue; one that exists is answered only with `exist_ok`."""
        named = _named(described(name, options), options)
        return self._create(name, exist_ok=exist_ok, **named)

    def update_queue(self, name: str, **settings: Any) -> Steps[QueueDescriptor]:
        """Changes a queue."""
        wanted = described(name, settings, verb="update_queue")
        return self._update(name, **_named(wanted, settings))

    _create = steps_of(CREATE_QUEUE)
    _update = steps_of(UPDATE_QUEUE)
    queue_descriptor = steps_of(DESCRIBE_QUEUE)
    queues = steps_of(LIST_QUEUES)
    delete_queue = steps_of(DELETE_QUEUE)
    truncate_queue = steps_of(TRUNCATE_QUEUE)
    peek_queue = steps_of(PEEK_QUEUE)
    queue_stats = steps_of(QUEUE_STATS)
    redrive = steps_of(REDRIVE)
    pipe_for = steps_of(PIPE_FOR)
    pipes_for = steps_of(PIPES_FOR)
    close_pusher = steps_of(CLOSE_PUSHER)
    pop = steps_of(POP)
    commit_job = steps_of(COMMIT_JOB)
    end_handled = steps_of(END_HANDLED)
    rollback_job = steps_of(ROLLBACK_JOB)
    extend_job = steps_of(EXTEND_JOB)
    release_jobs = steps_of(RELEASE_JOBS)

    def pause_queue(self, name: str, *, paused: bool) -> Steps[None]:
        """Has pops get nothing, or go on."""
        verb = PAUSE_QUEUE if paused else RESUME_QUEUE
        yield call_of(verb, verb.shape.asked(name))

    def push(
        self,
        name: str,
        messages: Iterable[Payload],
        *,
        pusher: str = "",
        delay_s: float = 0,
        priority: int = 0,
    ) -> Steps[None]:
        """Makes one request, whatever its size, so that all stays in one piece.

        It is keyed, so that a repeat pushes nothing twice.
        """
        asked = _push_fields(pusher, delay_s, priority)
        path = f"{_path(name)}/push?{_query(asked)}"
        info = yield from self.info()
        payloads = checked_payloads(messages, limit_bytes=info.message_bytes)
        if not len(payloads):
            raise BadRequest("a push has items")
        body = encode_publish(PublishRequest(None, payloads))
        require_fit(len(payloads), len(body), info)
        yield msgpack_call(path, body, done, repeat=Repeat.KEYED)


def _named(wanted: QueueDescriptor, named: Iterable[str]) -> dict[str, Any]:
    """Returns the settings that were named, as they are once they are checked."""
    return {key: getattr(wanted, key) for key in named}


def _path(name: str) -> str:
    queue = QueueName.parse(name)
    return f"/v1/namespaces/{queue.namespace}/queues/{queue.name}"


def _push_fields(pusher: str, delay_s: float, priority: int) -> dict[str, Any]:
    return {
        "pusher": _text("pusher", pusher),
        "delayMs": _ms(checked_delay_s(delay_s)),
        "priority": checked_priority(priority),
    }


def _query(fields: dict[str, Any]) -> str:
    # As `urlencode` makes it, which takes more than twice as long.
    return "&".join(
        f"{name}={quote_plus(str(value))}" for name, value in fields.items()
    )


def _ms(seconds: float) -> int:
    return math.ceil(seconds * 1000)


def _text(name: str, text: object) -> str:
    if not isinstance(text, str):
        raise BadRequest(f"{name} is a text, not {text!r:.100}")
    return text
