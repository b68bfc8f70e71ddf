"""The options before a verb, which say what data is opened, and how."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import click

from txaware.errors import BadRequest, TxAwareError
from txaware.messaging import Messaging, connect
from txaware.messaging.addresses import open_parts
from txaware.model.clock import system_clock_ms
from txaware.model.settings import NAMES, Settings, did_you_mean, from_text

DEFAULT_URL = "leveldb:./data"
_ADDRESS = re.compile("[a-z][a-z0-9+]*:.*")


class NoData(TxAwareError):
    """There is nothing at that place; `topic create` and a few others begin there."""


@attrs.frozen
class Session:
    """An opener of what `--url` names; a messaging that is `given` stays open."""

    url: str = DEFAULT_URL
    coordinator: str | None = None
    settings: Settings = attrs.field(factory=Settings)
    given: Messaging | None = None

    @contextmanager
    def open(self, *, create: bool = False, **settings: Any) -> Iterator[Messaging]:
        """Opens the messaging for one verb; `settings` are those that the verb needs.

        A verb that only looks leaves no empty directory behind.
        """
        if self.given is not None:
            yield self.given
            return
        if not create:
            self.require_data()
        with connect(
            self.url,
            coordinator=self.coordinator,
            settings=attrs.evolve(self.settings, **settings),
        ) as messaging:
            yield messaging

    def own(self, pause: Callable[[float], None]) -> Messaging:
        """Opens the messaging as the data's owner; nobody else may own it meanwhile.

        An owner in HBase that gives no sign of life is watched, and taken over from
        after 12 s; `pause` is called between two looks, and ends it by what it raises.
        """
        parts = open_parts(
            self.url, self.coordinator, self.settings, system_clock_ms, pause=pause
        )
        return Messaging(parts)

    def require_data(self) -> None:
        """Raises if there is no data yet."""
        scheme, _, path = self.url.partition(":")
        if scheme == "leveldb" and path and not (Path(path) / "LOCK").exists():
            raise NoData(
                f"there is no data at {self.url}; name its place with --url, or begin "
                f"with: txaware topic create NAME"
            )


def address_of(data: str) -> str:
    """Returns the address that --data names; a directory may leave out its scheme."""
    return data if _ADDRESS.fullmatch(data) else f"leveldb:{data}"


pass_session = click.make_pass_decorator(Session)


def accept_url(verb: click.Command) -> None:
    """Accepts `--url` after the verb as well."""
    if isinstance(verb, click.Group):
        for one in verb.commands.values():
            accept_url(one)
    elif not any("--url" in param.opts for param in verb.params):
        verb.params.append(
            click.Option(
                ["--url"],
                expose_value=False,
                callback=_use_url,
                help="Where the data is; as before the verb.",
            )
        )


def _use_url(ctx: click.Context, _: click.Parameter, url: str | None) -> None:
    if url is not None:
        ctx.obj = attrs.evolve(ctx.obj, url=url)


def load_settings(path: str | None, pairs: dict[str, str]) -> Settings:
    """Loads settings from a file, the environment, and last the `--set` pairs."""
    unknown = pairs.keys() - NAMES
    if unknown:
        suggestion = did_you_mean(min(unknown), "", NAMES) if len(unknown) == 1 else ""
        raise BadRequest(
            f"no such setting: {', '.join(sorted(unknown))}"
            + (suggestion or f"; there are {', '.join(sorted(NAMES))}")
        )
    flags: dict[str, Any] = {
        name: from_text(name, text) for name, text in pairs.items()
    }
    return Settings.load(path, **flags)
