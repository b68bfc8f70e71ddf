"""The sequence of a producer in one topic: its calls go out in order, and together."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from queue import SimpleQueue

from txaware.errors import RequestTooLarge, Unavailable, leaves_no_doubt
from txaware.model.interfaces import Payload
from txaware.model.messages import MessageId
from txaware.model.producers import SEQUENCES

# Calls that wait while a request is under way go out as one, up to so much.
MOST_MESSAGES, MOST_BYTES = 1_000, 1 << 20

# Publishes messages from a sequence on, and returns their ids.
Send = Callable[[int, list[Payload]], list[MessageId]]


# The size of a call that goes out with no other: nobody asks for it.
ALONE = 0


class SequenceCall:
    """A call that waits: its messages, and how it ended.

    `carried` are the same messages as they go out, with the context of a trace: a
    repeat of a call has the same messages, and another context.
    """

    def __init__(
        self,
        messages: list[Payload],
        size_bytes: int,
        sequence: int | None,
        *,
        caller: object = None,
        carried: list[Payload] | None = None,
    ) -> None:
        self.messages = messages
        self.carried = messages if carried is None else carried
        self.size_bytes = size_bytes
        self.sequence = sequence
        self.caller = threading.get_ident() if caller is None else caller
        self.ids: list[MessageId] | None = None
        self.error: BaseException | None = None
        self._turn: SimpleQueue[None] | None = None

    @property
    def is_over(self) -> bool:
        """True once it has an answer."""
        return self.ids is not None or self.error is not None

    def queue(self) -> None:
        """Has it wait behind others; most calls never do."""
        self._turn = SimpleQueue()

    def wait(self) -> None:
        """Waits until it is over, or leads, if it was queued."""
        if self._turn is not None:
            self._turn.get()

    def wake(self) -> None:
        """Has its thread look; it is over, or leads. A second time does no harm."""
        if self._turn is not None:
            self._turn.put(None)

    def result(self) -> list[MessageId]:
        """Returns the ids; raises why there are none."""
        if self.error is not None:  # first: somebody may have settled it since
            raise self.error
        if self.ids is None:
            raise Unavailable("the publish was interrupted")
        return self.ids


class TopicSequence:
    """The calls to one topic: one request is under way, and the next is collected.

    The first that waits leads: it sends what has come together. After a request whose
    outcome is unknown, the next call begins with the same request again. So nothing is
    missing, and nothing is there twice. If the next call of that thread or task has the
    same messages, it is taken for a repeat.

    An interrupt (Ctrl-C) may come in any step of the thread that leads. What that does
    at its end is therefore done again where it was interrupted, and does no harm then.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self._lock = threading.Lock()
        self._waiting: deque[SequenceCall] = deque()
        self._leader: object = None  # a call, or the messages of one that is alone
        self._next = 0
        self._doubtful: tuple[int, list[SequenceCall]] | None = None
        # Of each thread or task: the call that failed, and is stored after all.
        self._settled: dict[object, SequenceCall] = {}

    def publish_alone(
        self, messages: list[Payload], sequence: int | None
    ) -> list[MessageId] | None:
        """Sends a call that comes while there is no other one; None if there is.

        It does what `take` and `finish` do, in a third of the time: most calls are so.
        Its messages need not be checked: whoever sends them does.
        """
        leads: object = None
        try:
            with self._lock:
                doubts = self._doubtful is not None or self._settled
                if self._leader is not None or doubts:
                    return None
                leads = self._leader = messages
            base = self._next if sequence is None else sequence
            try:
                ids = self._send(base, messages)
                if base == self._next:  # and not a repeat by hand
                    self._next = (base + len(messages)) % SEQUENCES
            except BaseException as error:
                if not leaves_no_doubt(error):
                    call = SequenceCall(messages, ALONE, sequence)
                    self._doubtful = base, [call]
                raise
            return ids
        finally:
            if leads is not None:
                try:
                    self._hand_on(leads)
                except BaseException:  # an interrupt, and others wait for this
                    self._hand_on(leads)
                    raise

    def publish(self, call: SequenceCall) -> list[MessageId]:
        """Takes a call, and finishes it."""
        try:
            self.take(call)
            return self.finish(call)
        except BaseException:
            self._hand_on(call)
            raise

    def take(self, call: SequenceCall) -> None:
        """Gives a call its place behind all that came before; does not wait."""
        with self._lock:
            if self._leader is None:
                self._leader = call
            else:
                call.queue()
            self._waiting.append(call)

    def finish(self, call: SequenceCall) -> list[MessageId]:
        """Sends a call that was taken, alone or with others; returns its ids."""
        try:
            call.wait()
            if not call.is_over:
                with self._lock:
                    calls = self._together()
                self._send_after_doubt(calls)
            return call.result()
        finally:
            self._hand_on(call)

    def _hand_on(self, leader: object) -> None:
        """Tells the calls that are over, and has the next one lead.

        A call that was not sent is withdrawn. A second time it does nothing.
        """
        with self._lock:
            waiting = self._waiting
            if isinstance(leader, SequenceCall) and leader in waiting:
                waiting.remove(leader)
            if self._leader is not leader:
                return
            while waiting and waiting[0].is_over:
                waiting[0].wake()
                waiting.popleft()
            if waiting:
                waiting[0].wake()
            self._leader = waiting[0] if waiting else None

    def _together(self) -> list[SequenceCall]:
        """Returns the calls that go out together; one with a sequence goes alone."""
        calls = [self._waiting[0]]
        messages, size_bytes = len(calls[0].messages), calls[0].size_bytes
        if calls[0].sequence is not None:
            return calls
        for call in islice(self._waiting, 1, None):
            messages += len(call.messages)
            size_bytes += call.size_bytes
            is_too_much = messages > MOST_MESSAGES or size_bytes > MOST_BYTES
            if call.sequence is not None or is_too_much:
                break
            calls.append(call)
        return calls

    def _send_after_doubt(self, calls: list[SequenceCall]) -> None:
        try:
            if self._doubtful is not None:
                self._settle(*self._doubtful)
            if self._settled:
                calls = [call for call in calls if not self._is_repeat(call)]
            if calls:
                self._send_together(calls)
        except BaseException as error:
            for call in calls:
                if not call.is_over:
                    call.error = _error_for_all(error)
            if not isinstance(error, Exception):
                raise

    def _settle(self, base: int, calls: list[SequenceCall]) -> None:
        """Sends a request again whose outcome is unknown."""
        failed = [call for call in calls if call.ids is None]
        try:
            self._deliver(base, calls)
        except Exception as error:
            if leaves_no_doubt(error):
                self._doubtful = None
            raise
        self._settled = {call.caller: call for call in failed}

    def _is_repeat(self, call: SequenceCall) -> bool:
        """Gives a call the ids of the one before, if that failed and is stored."""
        before = self._settled.pop(call.caller, None)
        if call.sequence is not None or before is None:
            return False
        if before.messages != call.messages:
            return False
        call.ids = before.ids
        return True

    def _send_together(self, calls: list[SequenceCall]) -> None:
        base = self._next if calls[0].sequence is None else calls[0].sequence
        try:
            self._deliver(base, calls)
        except RequestTooLarge:
            if len(calls) == 1:
                raise
            for call in calls:
                self._send_together([call])
        except BaseException as error:
            if not leaves_no_doubt(error):
                self._doubtful = base, calls
            raise

    def _deliver(self, base: int, calls: Sequence[SequenceCall]) -> None:
        messages = calls[0].carried
        if len(calls) > 1:
            messages = [message for call in calls for message in call.carried]
        ids = self._send(base, messages)
        self._doubtful = None  # it was sent before all else
        if base == self._next:  # and not a repeat by hand
            self._next = (base + len(messages)) % SEQUENCES
        at = 0
        for call in calls:
            call.ids = ids[at : at + len(call.messages)]
            at += len(call.messages)


def _error_for_all(error: BaseException) -> BaseException:
    """Returns the error for all calls of a request; an interrupt is of one thread."""
    if isinstance(error, Exception):
        return error
    return Unavailable("another thread was interrupted while it published this")
