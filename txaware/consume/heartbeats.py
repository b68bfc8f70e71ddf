"""The thread of a member: keeps its session alive, and brings news to its polls."""

import logging
import threading
from collections.abc import Callable, Iterable

import attrs

from txaware.errors import GroupNotFound, MemberFenced, TxAwareError
from txaware.model.group_service import GroupService
from txaware.model.groups import Beat, Joined, NamedPartition, PartitionPosition

log = logging.getLogger(__name__)

# The time until the next heartbeat, after one that was not answered.
AGAIN_S = 0.25

# An incarnation, the generation that it took up, and the partitions that it holds.
HeartbeatState = tuple[int, int, tuple[NamedPartition, ...]]


@attrs.frozen
class News:
    """Partitions to take, to leave and to read anew, up to a generation."""

    generation: int
    assign: tuple[PartitionPosition, ...]
    revoke: tuple[NamedPartition, ...]
    rewound: tuple[PartitionPosition, ...]

    @property
    def is_nothing(self) -> bool:
        """True when only the generation is another one."""
        return not (self.assign or self.revoke or self.rewound)


class Heartbeats:
    """The heartbeats of one member, in a thread of their own.

    A heartbeat says what was taken up, and no more. While there is news that nobody has
    taken up, it does not wait for more. All that is shared is under `changed`, which is
    told when there is news.
    """

    def __init__(
        self,
        groups: GroupService,
        group: str,
        *,
        poll_interval_s: float,
        clock_s: Callable[[], float],
    ) -> None:
        self.changed = threading.Condition()
        self.news: News | None = None
        self.fenced: Exception | None = None
        self.member = ""
        self.incarnation = self.generation = 0
        self._groups = groups
        self._group = group
        self._poll_interval_s = poll_interval_s
        self._clock_s = clock_s
        self._heartbeat_s = 0.0
        self._owned: tuple[NamedPartition, ...] = ()
        self._polled_s: float | None = None
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def joined(self, joined: Joined, held: Iterable[NamedPartition]) -> None:
        """Begins, or goes on, as an incarnation; what it got is news."""
        owned = tuple(held)
        with self.changed:
            self.member, self.incarnation = joined.member, joined.incarnation
            self.fenced, self._owned = None, owned
            self._heartbeat_s = joined.heartbeat_ms / 1000
            # What it held before may be somebody else's by now: it hears of that.
            pairs = {one.pair for one in owned}
            assign = tuple(one for one in joined.partitions if one.pair not in pairs)
            self.news = News(joined.generation, assign, (), ())
            self.changed.notify_all()
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, name=f"member {joined.member}", daemon=True
            )
            self._thread.start()

    def took_up(self, news: News, held: Iterable[NamedPartition]) -> None:
        """Has the next heartbeat say, at once, what is held from a generation on."""
        with self.changed:
            self._owned, self.generation = tuple(held), news.generation
            if self.news is not None:  # the next answer says all but rewinds again
                more = self.news.rewound[len(news.rewound) :]
                self.news = News(news.generation, (), (), more) if more else None
            self.changed.notify_all()

    def polls(self, *, is_polling: bool) -> None:
        """Notes the beginning or the end of a poll."""
        with self.changed:
            self._polled_s = None if is_polling else self._clock_s()

    def close(self) -> None:
        """Ends the thread; a heartbeat that waits ends by itself."""
        with self.changed:
            self._is_closed = True
            self.changed.notify_all()

    @property
    def _state(self) -> HeartbeatState:
        """The incarnation, generation and partitions that the next heartbeat names."""
        return self.incarnation, self.generation, self._owned

    def _run(self) -> None:
        while True:
            with self.changed:
                while not self._is_closed and self.fenced is not None:
                    self.changed.wait()
                if self._is_closed:
                    return
                # News that waits to be taken up would answer each heartbeat at once.
                state = self._state
                wait_s = 0.0 if self.news is not None else self._heartbeat_s
            if self._is_idle():
                self._let_go()
            elif not self._beat(*state, wait_s):
                self._rest(state, min(AGAIN_S, self._heartbeat_s))
            elif wait_s == 0:
                self._rest(state, self._heartbeat_s, while_news=True)

    def _beat(
        self,
        incarnation: int,
        generation: int,
        owned: tuple[NamedPartition, ...],
        wait_s: float,
    ) -> bool:
        """Sends one heartbeat; tells whether it was answered, or is over."""
        try:
            beat = self._groups.heartbeat(
                self._group,
                self.member,
                incarnation=incarnation,
                generation=generation,
                owned=owned,
                wait_s=wait_s,
            )
        except (MemberFenced, GroupNotFound) as error:
            self._end(incarnation, error)
            return True
        except TxAwareError as error:
            log.info("member %s is heard later: %s", self.member, error)
            return False
        except Exception:
            if not self._is_closed:  # the connection may be closed before the member
                log.exception("a heartbeat of member %s failed", self.member)
            return False
        with self.changed:
            if self._state == (incarnation, generation, owned):
                self._add(beat)
            elif incarnation == self.incarnation and beat.rewound:
                # The next answer says all else again, and knows what was taken up.
                news = self.news or News(self.generation, (), (), ())
                rewound = (*news.rewound, *beat.rewound)
                self.news = attrs.evolve(news, rewound=rewound)
                self.changed.notify_all()
        return True

    def _add(self, beat: Beat) -> None:
        """Keeps what is to be taken up; the last answer says all but rewinds."""
        before = () if self.news is None else self.news.rewound
        news = News(
            beat.generation,
            tuple(beat.assign),
            tuple(beat.revoke),
            (*before, *beat.rewound),
        )
        if news.is_nothing:
            self.generation, self.news = beat.generation, None
        else:
            self.news = news
            self.changed.notify_all()

    def _end(self, incarnation: int, error: Exception) -> None:
        with self.changed:
            if incarnation == self.incarnation:
                self.fenced = error
                self.changed.notify_all()

    def _is_idle(self) -> bool:
        with self.changed:
            if self._polled_s is None:
                return False
            return self._clock_s() - self._polled_s > self._poll_interval_s

    def _let_go(self) -> None:
        """Leaves the group for a program that does not poll."""
        why = (
            f"member {self.member} was not polled for {self._poll_interval_s:g} s "
            f"(poll_interval_s), and let go what it had"
        )
        incarnation = self.incarnation
        log.warning("%s", why)
        try:
            self._groups.leave_group(self._group, self.member, incarnation=incarnation)
        except TxAwareError as error:
            log.info("member %s could not leave: %s", self.member, error)
        self._end(incarnation, MemberFenced(why))

    def _rest(
        self, state: HeartbeatState, seconds: float, *, while_news: bool = False
    ) -> None:
        """Waits until something was taken up since, for so long at most.

        `while_news` says that it waits for news to be taken up.
        """
        with self.changed:
            until_s = self._clock_s() + seconds
            while self._state == state and self.fenced is None and not self._is_closed:
                if while_news and self.news is None:
                    return
                left_s = until_s - self._clock_s()
                if left_s <= 0:
                    return
                self.changed.wait(left_s)
