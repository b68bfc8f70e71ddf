"""Where the embedded coordinator decides otherwise than Tephra, on purpose.

Each row is a history, one step a line: a call, the name of a transaction, and change
keys. Up to its last step both sides answer the same; there they differ. Do not 'fix' a
row: each is a way to lose or to invent data that was seen on the real Tephra.
"""

import attrs


@attrs.frozen
class Difference:
    """A history whose last step ends otherwise here, and why."""

    name: str
    steps: tuple[str, ...]
    tephra: str
    ours: str
    why: str


WANTED = (
    Difference(
        "commit after a refused can_commit",
        (
            *("short a", "short b", "can_commit a k", "commit a", "can_commit b k"),
            "commit b",
        ),
        tephra="ok",
        ours="TransactionRefused",
        why="Tephra keeps no change set of what it refused, so nothing is left to "
        "conflict, and a lost update is committed.",
    ),
    Difference(
        "second commit after a conflict at commit",
        (
            *("short a", "short b", "can_commit a k", "can_commit b k", "commit a"),
            *("commit b", "commit b"),
        ),
        tephra="ok",
        ours="TransactionRefused",
        why="The same: the first refusal drops the change set.",
    ),
    Difference(
        "abort of an invalid transaction",
        ("short a", "invalidate a", "abort a", "state a"),
        tephra="visible",
        ours="invalid",
        why="Whoever invalidated it did so because something may be left of it; an "
        "abort that comes later, or twice, would show that to all readers.",
    ),
    Difference(
        "abort by a Transaction from before a checkpoint",
        ("short a", "checkpoint a", "abort_first a", "state a'"),
        tephra="in progress",
        ours="not visible",
        why="Tephra ends only the checkpoints that it is told of; the others block "
        "readers until they time out.",
    ),
    Difference(
        "abort of a pointer from the future",
        ("short a", "abort_future a", "short b", "see_future b"),
        tephra="visible",
        ours="not visible",
        why="An abort of an id that was never given out moves Tephra's read pointer "
        "ahead of its write pointer, and shows everything up to there.",
    ),
    Difference(
        "invalidate of a pointer that was never given out",
        ("invalidate_future a",),
        tephra="False",
        ours="TransactionNotInProgress",
        why="False means that it had ended, and settles a lost commit as a yes; who "
        "never gave it out cannot know that.",
    ),
    Difference(
        "truncation of a pointer that has just become invalid",
        ("short a", "invalidate a", "truncate a"),
        tephra="True",
        ours="False",
        why="Whoever lost the answer to a commit reads its fate from the invalid list, "
        "so a pointer stays there for settle_grace_s.",
    ),
)
