"""What publishers and readers were told, step by step, for the checker of histories."""

from collections.abc import Sequence
from itertools import count

from tests.support.checker import FAIL, NEVER, OK, UNKNOWN, Poll, Publish, kinds
from txaware.errors import TransactionRefused, Unavailable
from txaware.messaging import Messaging
from txaware.model.messages import MessageId


class Told:
    """A history in one order of all events, as its test lets them happen."""

    def __init__(self) -> None:
        self.publishes: list[Publish] = []
        self.polls: list[Poll] = []
        self._now = count()
        self._ends: dict[tuple[str, str], MessageId] = {}

    def publish(self, messaging: Messaging, topics: Sequence[str], value: str) -> None:
        """Publishes a value to a topic; to several, in one transaction."""
        began, outcome = next(self._now), OK
        payload = value.encode()
        try:
            if len(topics) == 1:
                messaging.publish(topics[0], [payload])
            else:
                with messaging.transaction():
                    for topic in topics:
                        messaging.publisher(topic).publish(payload)
        except TransactionRefused:
            outcome = FAIL
        except Unavailable:
            outcome = UNKNOWN
        self.publishes.append(
            Publish(
                sent=tuple((topic, value) for topic in topics),
                outcome=outcome,
                began=began,
                asked=began,
                ended=NEVER if outcome == UNKNOWN else next(self._now),
                transactional=len(topics) > 1,
            )
        )

    def was_refused(self, topic: str, value: str) -> None:
        """Notes a value of a transaction that was rolled back."""
        began = next(self._now)
        self.publishes.append(
            Publish(
                sent=((topic, value),),
                outcome=FAIL,
                began=began,
                asked=began,
                ended=next(self._now),
                transactional=True,
            )
        )

    def poll(self, messaging: Messaging, topic: str, reader: str) -> None:
        """Reads all that is committed there, from where the reader came to."""
        began, start = next(self._now), self._ends.get((topic, reader))
        page = messaging.poll(
            topic, start=start, inclusive=start is None, isolation="committed"
        )
        self._ends[topic, reader] = MessageId(page.next)
        self.polls.append(
            Poll(
                reader=reader,
                topic=topic,
                start=start or b"",
                end=page.next,
                seen=tuple((one.id, one.payload.decode()) for one in page),
                began=began,
                ended=next(self._now),
            )
        )

    def wrong(self) -> set[str]:
        """The kinds of what is wrong with it."""
        return kinds(self.publishes, self.polls)
