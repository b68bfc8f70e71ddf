"""Who calls: somebody with a name and rights, who is refused what none of them gives.

A refusal says the same of a topic that exists and of one that does not.
"""

import attrs

from txaware.auth.rights import EVERYTHING, Rights, Verb
from txaware.errors import NotAuthorized
from txaware.topics import TopicName

_DOING = {
    "admin": "create, change or delete",
    "publish": "publish to",
    "consume": "consume from",
}


@attrs.frozen(kw_only=True)
class Principal(Rights):
    """`may...` answers, and `require...` raises `NotAuthorized` with what is missing.

    It stands for the rules as they were when it was asked for: ask anew for every
    request, and a token that was taken away, or a rule, is gone at once.
    """

    name: str

    def require(self, verb: Verb, topic: TopicName) -> None:
        """It has to have that verb on the topic."""
        if not self.may(verb, topic):
            raise self._refused(f"{_DOING[verb]} topic {topic}", f"{verb} there")

    def require_sight(self, topic: TopicName) -> None:
        """It has to have any verb on the topic."""
        if not self.may_see(topic):
            raise self._refused(f"see topic {topic}", "a verb there")

    def require_group(self, namespace: str, group: str) -> None:
        """It has to be given the group."""
        if not self.may_use_group(namespace, group):
            raise self._refused(f"use group {namespace}:{group}", "that group")

    def require_transactions(self) -> None:
        """It has to be given `transactions`."""
        if not self.may_use_transactions:
            raise self._refused("use transactions", "transactions")

    def require_monitor(self) -> None:
        """It has to be given `monitor`."""
        if not self.may_monitor:
            raise self._refused("monitor the server", "monitor")

    def require_operator(self) -> None:
        """It has to have `admin` on everything."""
        if not self.is_operator:
            raise self._refused("operate the server", "admin on *:*")

    def require_transactional_id(self, transactional_id: str) -> None:
        """It has to be given the transactional id."""
        if not self.may_use_transactional_id(transactional_id):
            raise self._refused(
                f"use transactional id {transactional_id!r:.100}", "that id"
            )

    def _refused(self, act: str, missing: str) -> NotAuthorized:
        return NotAuthorized(f"{self.name} may not {act}: no rule gives it {missing}")


# Who calls a server without authentication.
ANYBODY = Principal(name="anybody", rules=(EVERYTHING,))
# Who calls one with it, without a token that is known there.
NOBODY = Principal(name="nobody")
