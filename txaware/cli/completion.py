"""Completes names of topics, queues and groups, of the data that `--url` names."""

from collections.abc import Callable, Iterable

import click
from click.shell_completion import CompletionItem

from txaware.cli.session import DEFAULT_URL, Session
from txaware.messaging import Messaging
from txaware.model.topics import DEFAULT_NAMESPACE

NAMESPACE = "namespace"

Names = Callable[[Messaging, str], Iterable[str]]

# By the group of verbs, and the argument; "" stands for all groups.
_KINDS: dict[tuple[str, str], Names] = {
    ("topic", "name"): Messaging.topics,
    ("topic", "names"): Messaging.topics,
    ("queue", "name"): Messaging.queues,
    ("", "topic"): Messaging.topics,
    ("", "group"): lambda messaging, namespace: [
        *(found.group for found in messaging.groups(namespace)),
        *(lag.group for lag in messaging.metrics().groups),
    ],
}


class Name(click.types.StringParamType):
    """A name that the shell completes by those that are there."""

    def __init__(self, names: Names) -> None:
        self._names = names

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Returns the names that begin so; none where the data cannot be opened.

        What fails is not told: it would come between the words of a command line.
        """
        url = ctx.params.get("url") or ctx.find_root().params.get("url") or DEFAULT_URL
        namespace = ctx.params.get(NAMESPACE) or DEFAULT_NAMESPACE
        try:
            with Session(url).open() as messaging:
                found = sorted(set(self._names(messaging, namespace)))
        except Exception:
            return []
        return [CompletionItem(name) for name in found if name.startswith(incomplete)]


def complete_names(verb: click.Command, *, within: str = "") -> None:
    """Has the shell complete names in a verb, or in all verbs of a group.

    A verb that creates something takes a name that is not there yet.
    """
    if isinstance(verb, click.Group):
        for name, one in verb.commands.items():
            if name != "create":
                complete_names(one, within=verb.name or "")
        return
    for param in verb.params:
        names = _KINDS.get((within, str(param.name))) or _KINDS.get(
            ("", str(param.name))
        )
        if isinstance(param, click.Argument) and names is not None:
            param.type = Name(names)
