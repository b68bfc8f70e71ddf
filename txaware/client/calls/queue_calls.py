"""The verbs of work queues as calls: pure, for a transport that waits."""

from collections.abc import Iterable
from typing import Any

from msgspec import structs

from txaware.client.calls.call import (
    Steps,
)
from txaware.client.calls.verb_calls import ServerCalls, call_of, performed, steps_of
from txaware.model.queues import (
    Popped,
    QueueDescriptor,
    described,
)
from txaware.protocol.jobs import COMMIT_JOB, POP
from txaware.protocol.queues import (
    CREATE_QUEUE,
    PAUSE_QUEUE,
    RESUME_QUEUE,
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

    def pop(self, name: str, **options: Any) -> Steps[list[Popped]]:
        """Pops; at an older server a job is committed by a call of its own."""
        request = POP.build_request(name, **options)
        if (job := request.commits) is not None:
            info = yield from self.info()
            if not info.takes_commits:
                commit = COMMIT_JOB.build_request(name, job.id, job.lease)
                yield from performed(self, COMMIT_JOB, commit)
                request = structs.replace(request, commits=None)
        return (yield from performed(self, POP, request))

    def pause_queue(self, name: str, *, paused: bool) -> Steps[None]:
        """Has pops get nothing, or go on."""
        verb = PAUSE_QUEUE if paused else RESUME_QUEUE
        yield call_of(verb, verb.shape.build_request(name))


def _named(wanted: QueueDescriptor, named: Iterable[str]) -> dict[str, Any]:
    """Returns the settings that were named, as they are once they are checked."""
    return {key: getattr(wanted, key) for key in named}
