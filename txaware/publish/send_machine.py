"""Decides what a sender does: what is queued, cut, under way, stored and given up.

Pure: it takes events and the time, and returns what to do. Whoever sends, waits and
wakes is elsewhere (`send_loop.py`), so that a history needs neither threads nor time.
"""

import heapq
import secrets
from collections import Counter, deque
from collections.abc import Callable, Iterator
from itertools import count, islice
from zlib import crc32

import attrs

from txaware.errors import (
    OutOfOrderSequence,
    ProducerFenced,
    PublisherClosed,
    TopicNotFound,
    Unavailable,
    leaves_no_doubt,
)
from txaware.model.messages import MessageId
from txaware.model.producers import MAX_PRODUCER_ID, SEQUENCES, ProducerIdentity
from txaware.publish.publisher import OVERHEAD_BYTES
from txaware.publish.send_batch import Extra, OnDone, SendBatch, SendLock, SentFuture
from txaware.publish.send_limits import NEVER_S, Retries, SendLimits
from txaware.publish.send_lines import Line, TopicLines

# A topic that takes nothing holds at most this part of the queue, beside others; one
# that does not exist never holds more, as others may come.
SHARE_OF_DOWN = 0.5
LOOK_AGAIN_S = 10.0
# The store forgets a sender that publishes nothing for an hour. What may be stored is
# sent again for so long, whatever the options say.
DOUBTFUL_S = 3000.0
# A batch that is not answered for so long leaves its turn to others, so that a server
# that hangs holds up nobody for longer.
SLOW_S = 5.0
# Each batch that is under way has the next one linger so many times longer.
LONGER = 4


@attrs.define
class Actions:
    """The result of a turn: what to do now, and when the next turn is at the latest.

    `over` are batches of which messages are over, for who tells their callers, and
    `settled` those that are over as a whole: what waits for a flush counts them until
    `callers_notified`.
    """

    send: list[SendBatch] = attrs.field(factory=list)
    count: list[str] = attrs.field(factory=list)
    over: list[SendBatch] = attrs.field(factory=list)
    settled: list[SendBatch] = attrs.field(factory=list)
    next_s: float = NEVER_S


class SendMachine:
    """The state of a sender; each call is made under its lock.

    `wake` is called before a change that has the next turn come earlier.
    """

    def __init__(
        self,
        limits: SendLimits,
        retries: Retries,
        *,
        lock: SendLock,
        wake: Callable[[], object],
    ) -> None:
        self.limits = limits
        self.lock = lock
        self._batch_bytes = limits.batch_limit_bytes
        self._batch_messages = limits.batch_limit_messages
        self.waiting = 0
        self.held_bytes = 0
        self.is_closed = False
        # True while room depends on more than the bytes that are held.
        self.is_tight = limits.queue_limit_messages < NEVER_S
        self.counts: Counter[str] = Counter()
        self.topics: dict[str, TopicLines] = {}
        # A set of callers and not a count: an interrupt may keep one from leaving.
        self._blocked: set[object] = set()
        self._failing = 0
        self._retries = retries
        self._wake = wake
        self._next_s = NEVER_S
        self._identity = _drawn()
        self._to_visit: dict[Line, None] = {}
        # Lines that wait until fewer batches are under way, in their order, and when
        # they are looked at all the same.
        self._queued: dict[Line, float] = {}
        self._to_count: dict[str, None] = {}
        self._counting = 0  # topics that are counted now
        self._open: dict[Line, None] = {}
        self._lines: dict[SendBatch, Line] = {}  # of those under way
        # Those that are not slow yet, and when they went out.
        self._fresh: dict[SendBatch, float] = {}
        self._timers: list[tuple[float, int, Line]] = []
        self._serial = count()
        self._over: list[SendBatch] = []
        self._settled: list[SendBatch] = []
        self._flushes = 0
        self._unsettled: Counter[int] = Counter()

    # Of callers.

    def close(self) -> None:
        """Takes no more messages; what was taken goes out at once."""
        self.is_closed = self.is_tight = True
        self.hurry()
        self.lock.notify_all()

    def require_open(self) -> None:
        """Raises `PublisherClosed` once it is closed."""
        if self.is_closed:
            raise PublisherClosed("the sender is closed, and took nothing")

    def has_room(self, topic: str, size_bytes: int) -> bool:
        """Tells whether a message fits; what is down leaves room for the others."""
        if not self.waiting:
            return True
        limits = self.limits
        held_bytes = self.held_bytes + size_bytes
        if (
            held_bytes > limits.queue_limit_bytes
            or self.waiting >= limits.queue_limit_messages
        ):
            return False
        lines = self.topics.get(topic)
        if lines is None or not lines.failing:
            return True
        share_bytes = limits.queue_limit_bytes * SHARE_OF_DOWN
        down = [one for one in self.topics.values() if one.failing]
        if len(down) == len(self.topics) and not lines.is_missing:
            return True
        return sum(one.held_bytes for one in down) + size_bytes <= share_bytes

    def put(
        self,
        topic: str,
        payload: bytes,
        key: bytes | None,
        size_bytes: int,
        now_s: float,
        extra: Extra | None = None,
        on_done: OnDone | None = None,
        number: int | None = None,
    ) -> SentFuture:
        """Takes a message, which was checked, and for which there is room.

        It goes to the partition of its key, unless the `number` of one is named.
        """
        lines = self.topics.get(topic)
        if lines is None:
            lines = self._new_topic(topic)
        # As `line_of` does, without a call.
        if number is not None or not lines.row:
            line = lines.line_of(key, number)
        elif lines.partitions == 1:
            line = lines.row[0]
        elif key is not None:
            line = lines.row[crc32(key) % lines.partitions]
        else:
            line = lines.loose
        batch = line.open or self._opened(line, now_s)
        at, batch_bytes = len(batch.payloads), batch.size_bytes + size_bytes
        if batch_bytes >= self._batch_bytes or at + 1 >= self._batch_messages:
            if at and (batch_bytes > self._batch_bytes or at >= self._batch_messages):
                batch = self._opened(line, now_s)
                at, batch_bytes = 0, size_bytes
            if batch_bytes >= self._batch_bytes or at + 1 >= self._batch_messages:
                self._visit_soon(line)
        future = SentFuture(batch, at)
        # Without a call, so that no interrupt (Ctrl-C) comes between.
        if extra is not None:
            batch.extras[at] = extra
        if on_done is not None:
            batch.on_done[at] = on_done
        if number is not None:
            batch.numbers[at] = number
        batch.last_s = now_s
        batch.size_bytes = batch_bytes
        self.held_bytes += size_bytes
        self.waiting += 1
        batch.keys += (key,)
        batch.payloads += (payload,)
        return future

    def drop_oldest(self, topic: str) -> bool:
        """Drops the oldest message of a topic that is not under way yet."""
        lines = self.topics.get(topic)
        if lines is None:
            return False
        found: tuple[Line, SendBatch] | None = None
        for line in (lines.loose, *lines.lines.values()):
            for batch in line.batches:
                is_new = batch.is_open and batch.waiting
                if is_new and (found is None or batch.taken_s < found[1].taken_s):
                    found = line, batch
                if is_new:
                    break
        if found is None:
            return False
        _, batch = found
        size_bytes = batch.drop_oldest() + OVERHEAD_BYTES
        batch.size_bytes -= size_bytes
        self._freed(size_bytes, 1)
        self.counts["dropped"] += 1
        self._over.append(batch)
        self._wake()
        return True

    def hurry(self) -> None:
        """Has all that is open go out without a linger."""
        for line in list(self._open):
            if line.open is not None:
                line.open.hurried = True
            self._visit_soon(line)

    def block(self, caller: object) -> None:
        """Has all go out without a linger while a caller waits for room."""
        self.hurry()
        self._blocked.add(caller)
        self.is_tight = True

    def unblock(self, caller: object) -> None:
        """Lets batches linger again, once no other caller waits."""
        self._blocked.discard(caller)
        self._judge_tight()

    def flush(self) -> int:
        """Begins a flush of all that was taken; returns its number."""
        self._flushes += 1
        self.hurry()
        return self._flushes

    def is_flushed(self, flush: int) -> bool:
        """Tells whether all is over, and told, that was taken before a flush began."""
        return min(self._unsettled, default=flush) >= flush

    # Of the loop.

    def turn(self, now_s: float) -> Actions:
        """Returns what is to do now.

        The order is: what was answered or is given up, topics to count, what has waited
        for its turn, what is tried again, and what is new.
        """
        while self._timers and self._timers[0][0] <= now_s:
            self._to_visit[heapq.heappop(self._timers)[2]] = None
        while self._fresh and next(iter(self._fresh.values())) <= now_s - SLOW_S:
            del self._fresh[next(iter(self._fresh))]
        actions = Actions()
        while self._queued and not self._is_busy:
            line = next(iter(self._queued))
            del self._queued[line]
            actions.send.extend(self._visit(line, now_s))
        if self._failing:
            again = [line for line in self._to_visit if line.error is not None]
            self._to_visit = dict.fromkeys(again) | self._to_visit
        while self._to_visit:
            line = next(iter(self._to_visit))
            del self._to_visit[line]
            if line.number is None:
                self._visit_loose(line, now_s)
            elif self._is_busy:
                self._queue(line, now_s)
            else:
                actions.send.extend(self._visit(line, now_s))
        actions.count = self._topics_to_count()
        actions.over, self._over = self._over, []
        actions.settled, self._settled = self._settled, []
        actions.next_s = self._timers[0][0] if self._timers else NEVER_S
        if self._queued and self._fresh:
            slow_s = next(iter(self._fresh.values())) + SLOW_S
            actions.next_s = min(actions.next_s, slow_s)
        self._next_s = actions.next_s
        return actions

    def callers_notified(self, settled: list[SendBatch]) -> None:
        """Takes that the callers of settled batches were told."""
        self.lock.notify_all()
        for batch in settled:
            self._leave_flush(batch)

    def abandon(self, error: BaseException) -> Actions:
        """Takes no more messages, and ends all that it has with an error."""
        self.close()
        for topic in self.topics.values():
            for line in (topic.loose, *topic.lines.values()):
                for batch in line.batches:
                    if batch.is_open:
                        self._cut(line, batch)
                    if not batch.is_answered:
                        batch.error = error
                        self.counts["given_up"] += len(batch.payloads)
                    self._settle(batch)
                line.batches.clear()
        return Actions(over=self._over, settled=self._settled)

    def counted(self, topic: str, partitions: int, now_s: float) -> None:
        """Takes how many partitions a topic has; what waited for that goes to them."""
        lines = self._answered(topic, now_s)
        self._fine(lines.loose)
        before, gone = lines.partitions, lines.row[partitions:]
        if not gone:
            lines.count(partitions)
            if not before:
                self._place_all(lines)
        elif _are_gone(gone):
            lines.count(partitions)
            for line in gone:
                self._leave(line)
        self._visit_soon(lines.loose)

    def not_counted(self, topic: str, error: BaseException, now_s: float) -> None:
        """Takes why the partitions could not be counted, which is tried again."""
        lines = self._answered(topic, now_s)
        if lines.partitions:
            return  # what was known is good enough
        if not lines.loose.batches:
            self._forget(lines)
            return
        loose = lines.loose
        tries = loose.in_flight = loose.in_flight + 1  # nothing of it is under way
        if self._retries.allow(error, tries):
            self._fails(loose, error, now_s + self._retries.pause_s(tries))
        else:
            for batch in list(loose.batches):
                self._give_up(loose, batch, error)
            self._pop_over(loose)
            self._forget(lines)

    def stored(self, batch: SendBatch, first: MessageId, now_s: float) -> None:
        """Takes that a batch is stored, and the id of its first message."""
        line = self._returned(batch)
        batch.first = first
        self.counts["messages"] += len(batch.payloads)
        if batch.producer is line.producer:
            line.is_begun = True
        self._fine(line)
        self._pop_over(line)

    def failed(self, batch: SendBatch, error: BaseException, now_s: float) -> None:
        """Takes why a try failed: the batch is sent again, or given up."""
        line = self._returned(batch)
        batch.tries += 1
        is_order = isinstance(error, OutOfOrderSequence | ProducerFenced)
        if is_order and batch.base is not None:
            self._out_of_order(line, batch, error, now_s)
        elif self._retries.allow(error, batch.tries):
            self.counts["retries"] += 1
            if not leaves_no_doubt(error):
                batch.doubt(now_s)
            again_s = now_s + self._retries.pause_s(batch.tries)
            self._fails(line, error, again_s)
            if isinstance(error, TopicNotFound) and not line.topic.is_asked:
                self._to_count[line.topic.name] = None  # it may have fewer now
            if again_s >= self._expires_s(batch):
                self._give_up(line, batch, error)
        else:
            if not leaves_no_doubt(error):
                batch.doubt(now_s)
            self._give_up(line, batch, error)
        if batch.producer is not line.producer and not batch.is_in_doubt:
            batch.base = batch.producer = None
        self._pop_over(line)

    # Lines.

    def _new_topic(self, topic: str) -> TopicLines:
        self._wake()
        self._to_count[topic] = None
        return self.topics.setdefault(topic, TopicLines(topic))

    def _opened(self, line: Line, now_s: float) -> SendBatch:
        if line.open is not None:
            line.open.hurried = True
            self._visit_soon(line)
        batch = SendBatch(line.topic.name, self.lock, now_s)
        batch.flush = self._flushes
        batch.partition = line.number or 0
        if self._blocked or self.is_closed:
            batch.hurried = True
        self._visit_at(line, now_s + (0 if batch.hurried else self.limits.linger_s))
        self._unsettled[self._flushes] += 1
        self._open[line] = None
        line.batches.append(batch)
        line.open = batch
        return batch

    def _visit_soon(self, line: Line) -> None:
        if line not in self._to_visit:
            self._wake()
            self._to_visit[line] = None

    def _visit_at(self, line: Line, time_s: float) -> None:
        if time_s < self._next_s:
            self._wake()
            self._next_s = time_s
        heapq.heappush(self._timers, (time_s, next(self._serial), line))

    @property
    def _is_busy(self) -> bool:
        return len(self._fresh) >= self.limits.most_under_way

    def _queue(self, line: Line, now_s: float) -> None:
        """Has a line wait for its turn; gives up what has waited for too long."""
        if line.batches and now_s >= self._expires_s(line.batches[0]):
            most = self.limits.most_under_way
            busy = Unavailable(f"{most} other batches were under way for too long")
            self._expire(line, now_s, line.error or busy)
        if not line.batches or now_s < self._queued.get(line, -NEVER_S):
            return
        oldest = line.batches[0]
        self._queued[line] = NEVER_S  # it is visited when what is under way is back
        if not oldest.is_under_way:
            self._queued[line] = self._expires_s(oldest)
            self._visit_at(line, self._queued[line])

    def _visit(self, line: Line, now_s: float) -> Iterator[SendBatch]:
        """Yields the batches of a line that go out now."""
        self._expire(line, now_s, line.error)
        self._count_again(line.topic, now_s)
        most = self.limits.in_flight if line.is_begun else 1
        if line.error is not None:
            if line.in_flight:
                return  # it is visited again when those are back
            if now_s < line.pause_until_s:
                self._visit_at(
                    line, min(line.pause_until_s, self._expires_s(line.batches[0]))
                )
                return
            most = 1
        # Of the oldest ones only: the store would not know the repeat of an older one.
        for batch in list(islice(line.batches, most)):
            if batch.is_under_way or batch.is_answered:
                continue
            if batch.is_open and not self._is_due(line, batch, now_s):
                return
            if batch.is_open:
                self._cut(line, batch)
                if not batch.payloads:
                    self._visit_soon(line)  # what is behind it may go now
                    continue
            self._number(line, batch)
            batch.is_under_way = True
            batch.was_first = batch is line.batches[0]
            line.in_flight += 1
            self._lines[batch] = line
            self._fresh[batch] = now_s
            yield batch
        self._pop_over(line)

    def _is_due(self, line: Line, batch: SendBatch, now_s: float) -> bool:
        limits = self.limits
        if (
            batch.hurried
            or batch.size_bytes >= limits.batch_limit_bytes
            or len(batch.payloads) >= limits.batch_limit_messages
        ):
            return True
        # What is under way is waited for with the rest, for a while: few large batches
        # take less time than many small ones.
        longer = 1 + LONGER * line.in_flight
        due_s = batch.taken_s + limits.linger_s * longer
        if due_s > now_s:
            self._visit_at(line, due_s)
        return due_s <= now_s

    def _cut(self, line: Line, batch: SendBatch) -> None:
        if line.open is batch:
            self._open.pop(line, None)
            line.open = None
        batch.cut()
        if not batch.payloads:
            batch.first = MessageId()  # all of it was taken back

    def _number(self, line: Line, batch: SendBatch) -> None:
        """Gives a batch its place in the sequence of the line's producer."""
        if batch.base is not None:
            return
        if line.producer is None:
            line.producer = self._identity
        batch.producer, batch.base = line.producer, line.next
        line.next = (line.next + len(batch.payloads)) % SEQUENCES

    def _returned(self, batch: SendBatch) -> Line:
        line = self._lines.pop(batch)
        self._fresh.pop(batch, None)
        batch.is_under_way = False
        line.in_flight -= 1
        self._visit_soon(line)
        if line.topic.loose.batches and line.topic.partitions:
            self._visit_soon(line.topic.loose)
        return line

    def _fine(self, line: Line) -> None:
        if line.error is not None:
            line.error = None
            line.topic.failing -= 1
            self._failing -= 1
            self._judge_tight()
        if line.number is None:
            line.in_flight = 0

    def _fails(self, line: Line, error: BaseException, again_s: float) -> None:
        if line.error is None:
            line.topic.failing += 1
            self._failing += 1
            self._judge_tight()
        line.error = error
        line.pause_until_s = again_s
        self._visit_soon(line)

    def _judge_tight(self) -> None:
        self.is_tight = (
            self.is_closed
            or self._failing > 0
            or bool(self._blocked)
            or self.limits.queue_limit_messages < NEVER_S
        )

    def _out_of_order(
        self, line: Line, batch: SendBatch, error: BaseException, now_s: float
    ) -> None:
        """Sends a batch again that came before its turn.

        If it was the oldest one when it went out, those before it are not there, and
        never will be. Then the line goes on under a new producer. What may be stored
        under the old one, in a request that is still on its way, is never sent under
        another: it would be there twice.
        """
        if not batch.was_first:
            self._fails(line, error, now_s)
            return
        is_new = (
            batch.producer is line.producer and not line.is_begun and not batch.base
        )
        if is_new and not batch.is_in_doubt:
            self._give_up(line, batch, error)
        elif batch.is_in_doubt:
            self._give_up(line, batch, _lost_place(batch, error))
        else:
            self._begin_anew(line)

    def _begin_anew(self, line: Line) -> None:
        """Draws another producer, for all that is surely not stored by the old one."""
        line.producer = self._identity = _drawn()
        line.next = 0
        line.is_begun = False
        for batch in line.batches:
            if not (batch.is_under_way or batch.is_in_doubt or batch.is_answered):
                batch.base = batch.producer = None

    # The end of batches.

    def _expires_s(self, batch: SendBatch) -> float:
        expires_s = batch.last_s + self.limits.give_up_after_s
        if batch.doubted_s is None:
            return expires_s
        return min(expires_s, batch.doubted_s + DOUBTFUL_S)

    def _expire(self, line: Line, now_s: float, error: BaseException | None) -> None:
        """Gives up what waits for too long in a line that takes nothing: an `error`."""
        while error is not None and line.batches:
            batch = line.batches[0]
            if batch.is_under_way or now_s < self._expires_s(batch):
                return
            self._give_up(line, batch, error)
            self._pop_over(line)

    def _give_up(self, line: Line, batch: SendBatch, error: BaseException) -> None:
        if batch.is_open:
            self._cut(line, batch)
        batch.error = error
        self.counts["given_up"] += len(batch.payloads)
        if batch.base is None or batch.producer is not line.producer:
            return
        after = (batch.base + len(batch.payloads)) % SEQUENCES
        if line.next == after and not batch.is_in_doubt:
            line.next = batch.base  # as if it had never been
        else:
            self._begin_anew(line)

    def _pop_over(self, line: Line) -> None:
        """Settles what is over, in order: what was answered early waits for others."""
        while line.batches and line.batches[0].is_answered:
            self._settle(line.batches.popleft())
        if not line.batches:
            self._fine(line)

    def _settle(self, batch: SendBatch) -> None:
        self._freed(batch.size_bytes, batch.cut_count)
        batch.settle(error=batch.error)
        self._over.append(batch)
        self._settled.append(batch)

    def _leave_flush(self, batch: SendBatch) -> None:
        self._unsettled[batch.flush] -= 1
        if not self._unsettled[batch.flush]:
            del self._unsettled[batch.flush]

    def _freed(self, size_bytes: int, messages: int) -> None:
        self.lock.notify_all()
        self.held_bytes -= size_bytes
        self.waiting -= messages

    # What has no partition yet.

    def _topics_to_count(self) -> list[str]:
        free = max(0, self.limits.most_under_way - self._counting)
        wanted = list(islice(self._to_count, free))
        self._counting += len(wanted)
        for topic in wanted:
            del self._to_count[topic]
            self.topics[topic].is_asked = True
        return wanted

    def _answered(self, topic: str, now_s: float) -> TopicLines:
        lines = self.topics[topic]
        lines.is_asked, lines.asked_s = False, now_s
        self._counting -= 1
        return lines

    def _count_again(self, topic: TopicLines, now_s: float) -> None:
        """Asks from time to time whether partitions were added."""
        if now_s - topic.asked_s > LOOK_AGAIN_S and not topic.is_asked:
            self._to_count[topic.name] = None

    def _visit_loose(self, line: Line, now_s: float) -> None:
        topic = line.topic
        if topic.partitions:
            self._distribute(topic, now_s)
            return
        error = line.error
        if error is None and topic.name in self._to_count:
            error = Unavailable("other topics were counted for too long")
        self._expire(line, now_s, error)
        if topic.is_asked:
            return
        if not line.batches:
            self._forget(topic)
            return
        again_s = self._expires_s(line.batches[0])
        if line.error is None or now_s >= line.pause_until_s:
            self._to_count[topic.name] = None
            if len(self._to_count) + self._counting <= self.limits.most_under_way:
                return  # it is counted in this turn
        else:
            again_s = min(line.pause_until_s, again_s)
        self._visit_at(line, again_s)

    def _forget(self, topic: TopicLines) -> None:
        """Forgets a topic that may not exist, and of which nothing waits."""
        if self.topics.get(topic.name) is topic:
            self._to_count.pop(topic.name, None)
            del self.topics[topic.name]

    def _place_all(self, topic: TopicLines) -> None:
        """Gives what waited for the number of partitions to these."""
        loose, only = topic.loose, topic.line(0)
        waiting = list(loose.batches)
        loose.batches.clear()
        is_open = self._open.pop(loose, self) is None
        opened, loose.open = loose.open, None
        if topic.partitions > 1 or any(batch.numbers for batch in waiting):
            for batch in waiting:
                self._place(topic, batch)
            return
        only.batches.extend(waiting)
        only.open = opened
        if is_open:
            self._open[only] = None
        self._visit_soon(only)

    def _place(self, topic: TopicLines, batch: SendBatch) -> None:
        """Gives the messages of a batch to the partitions of their keys."""
        for at, place in batch.places():
            line = topic.line_of(batch.keys[place], batch.numbers.get(at))
            size_bytes = batch.size_of(place) + OVERHEAD_BYTES
            to = line.open
            if (
                to is None
                or to.size_bytes + size_bytes > self._batch_bytes
                or len(to.payloads) >= self._batch_messages
            ):
                to = self._opened(line, batch.taken_s)
                self._visit_soon(line)
            if to.flush > batch.flush:
                self._leave_flush(to)
                to.flush = batch.flush
                self._unsettled[to.flush] += 1
            to.hurried |= batch.hurried
            to.last_s = max(to.last_s, batch.last_s)
            to.take(batch, at, place, size_bytes)
        self._leave_flush(batch)
        batch.leave()

    def _leave(self, line: Line) -> None:
        """Gives what waits for a partition that is gone to the others.

        What names that partition waits on, and so does what may be stored in it.
        """
        kept, others = deque[SendBatch](), list[SendBatch]()
        for batch in line.batches:
            stays = batch.is_answered or batch.is_in_doubt
            (kept if stays else others).append(batch)
        line.batches = kept
        for batch in others:
            if batch.is_open:
                self._cut(line, batch)
            moved = [
                batch.size_of(place) + OVERHEAD_BYTES for _, place in batch.places()
            ]
            self._freed(batch.size_bytes - sum(moved), batch.cut_count - len(moved))
            self._place(line.topic, batch)
            if batch.on_done:
                self._over.append(batch)  # of messages that were taken back
        self._begin_anew(line)
        self._pop_over(line)

    def _distribute(self, topic: TopicLines, now_s: float) -> None:
        """Gives whole batches of messages without a key to partitions that take one."""
        loose = topic.loose
        while loose.batches:
            batch = loose.batches[0]
            if batch.is_open and not self._is_due(loose, batch, now_s):
                return
            line = topic.writable()
            if line is None:
                if not self._expired(topic, batch, now_s):
                    return
                continue
            loose.batches.popleft()
            if batch.is_open:
                self._cut(loose, batch)
            batch.partition = line.number or 0
            place = len(line.batches) - (line.open is not None)
            line.batches.insert(place, batch)
            self._visit_soon(line)

    def _expired(self, topic: TopicLines, batch: SendBatch, now_s: float) -> bool:
        """Gives up a batch that no partition has taken for too long."""
        errors = [line.error for line in topic.row if line.error is not None]
        if len(errors) < topic.partitions:
            return False  # one of them goes on
        if now_s < self._expires_s(batch):
            self._visit_at(topic.loose, self._expires_s(batch))
            return False
        self._give_up(topic.loose, batch, errors[0])
        self._pop_over(topic.loose)
        return True


def _are_gone(lines: list[Line]) -> bool:
    """Tells whether a topic has lost these partitions: it was made anew with fewer.

    The store has said so of one of them, so that this is no stale count. While a
    request to one is under way its messages may still be stored there.
    """
    is_told = any(isinstance(line.error, TopicNotFound) for line in lines)
    return is_told and not any(line.in_flight for line in lines)


def _drawn() -> ProducerIdentity:
    """Draws a producer, which its first publish opens."""
    drawn = secrets.randbelow(MAX_PRODUCER_ID) + 1
    return ProducerIdentity(drawn, by_client=True, is_sender=True)


def _lost_place(batch: SendBatch, error: BaseException) -> Unavailable:
    return Unavailable(
        f"whether {len(batch.payloads)} messages to {batch.topic} are stored is not "
        f"known: messages before them were given up ({error})"
    )
