"""The verbs of work queues as calls: pure, for a transport that waits."""

from collections.abc import Iterable
from typing import Any

from txaware.client.calls.call import (
    Steps,
)
from txaware.client.calls.server_calls import ServerCalls
from txaware.client.calls.verb_calls import call_of, steps_of
from txaware.model.queues import (
    QueueDescriptor,
    described,
)
from txaware.protocol.jobs import (
    CLOSE_PUSHER,
    COMMIT_JOB,
    END_HANDLED,
    EXTEND_JOB,
    PIPE_FOR,
    PIPES_FOR,
    POP,
    PUSH,
    RELEASE_JOBS,
    ROLLBACK_JOB,
)
from txaware.protocol.queues import (
    BROWSE_QUEUE,
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
    browse_queue = steps_of(BROWSE_QUEUE)
    queue_stats = steps_of(QUEUE_STATS)
    redrive = steps_of(REDRIVE)
    push = steps_of(PUSH)
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


def _named(wanted: QueueDescriptor, named: Iterable[str]) -> dict[str, Any]:
    """Returns the settings that were named, as they are once they are checked."""
    return {key: getattr(wanted, key) for key in named}
