"""The rules of alarms: each has its limit, and says what to do.

The page, `txaware status` and the rules for Prometheus have these in common. Each says
in words of its own what is wrong, as each knows more or less of it.
"""

import attrs


@attrs.frozen
class AlarmRule:
    """A rule: what to do about a thing, and the time above which somebody should.

    `do` has its names in braces, and a limit of 0 is for what is no time.
    """

    do: str
    limit_s: int = 0

    @property
    def limit_ms(self) -> int:
        """The limit in milliseconds."""
        return self.limit_s * 1000

    def to_do(self, **names: str) -> str:
        """Returns what to do about the thing of these names."""
        return self.do.format_map(names)


TOPIC_BLOCKED = AlarmRule(
    "txaware transaction list says whose it is, and txaware transaction abort lets "
    "readers go on",
    limit_s=60,
)
EXPIRED_UNSEEN = AlarmRule(
    "readers were kept from them for as long as they lived: end what blocks {topic} "
    "earlier, or give it a longer time to live"
)
GROUP_LATE = AlarmRule(
    "start its readers, or delete the group where nobody needs it", limit_s=900
)
QUEUE_LATE = AlarmRule("start more workers", limit_s=900)
QUEUE_PAUSED = AlarmRule("txaware queue resume {queue} goes on")
LEASES_EXPIRE = AlarmRule(
    "workers die, or take longer than their leases: txaware queue stats {queue} says "
    "who has which job since when"
)
# `letters` are the arguments by which they are found.
DEAD_LETTERS = AlarmRule(
    "txaware queue peek {letters} says why, and txaware queue redrive {queue} sends "
    "them back"
)
OUTBOX_SET_ASIDE = AlarmRule(
    "txaware outbox list {database} says for which topic and why, and txaware outbox "
    "retry, send or discard ends it"
)
OUTBOX_WAITS = AlarmRule(
    "its relay is slower than the program, or is refused: its log says why",
    limit_s=300,
)
# A relay looks at its outbox every few seconds.
OUTBOX_ALONE = AlarmRule(
    "start its relay, txaware outbox relay {database} --every 1s: until then nothing "
    "is carried over, and no figure of it is true",
    limit_s=300,
)
PREPARED = AlarmRule(
    "txaware transaction prepared lists them; commit or rollback ends one, as the "
    "others of its decision ended"
)
HELD_BACK = AlarmRule("txaware transaction list says which participant keeps them")
FAILED_WRITES = AlarmRule(
    "look at the disk, or at the store's servers: the log has the error"
)
SLOW_SYNCS = AlarmRule(
    "each commit waits for the disk: see what else writes to it", limit_s=1
)
NOT_CLEANED_UP = AlarmRule(
    "run txaware janitor, or let the server do it: TXAWARE_JANITOR_INTERVAL_S; its log "
    "says why one failed",
    limit_s=10_800,
)
METRICS_MISSING = AlarmRule("the server's log says why")
