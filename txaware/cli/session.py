"""What the options before a verb say: which data, and how it is opened."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import click

from txaware.addresses import open_parts
from txaware.clock import system_clock_ms
from txaware.config import NAMES, Settings, did_you_mean, from_text
from txaware.errors import BadRequest, TxAwareError
from txaware.messaging import Messaging, connect

DEFAULT_URL = "leveldb:./data"
_ADDRESS = re.compile("[a-z][a-z0-9+]*:.*")


class NoData(TxAwareError):
    """There is nothing at that place; only `topic create` makes something there."""


@attrs.frozen
class Session:
    """Opens what `--url` names; or serves one that is `given`, and leaves it open."""

    url: str = DEFAULT_URL
    coordinator: str | None = None
    settings: Settings = attrs.field(factory=Settings)
    given: Messaging | None = None

    @contextmanager
    def open(self, *, create: bool = False, **settings: Any) -> Iterator[Messaging]:
        """The messaging, for one verb; `settings` are those that the verb needs.

        Whoever only looks does not leave an empty directory behind.
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
        """The messaging as the owner of the data, which nobody else may be meanwhile.

        An owner in HBase that gives no sign of life is watched, and taken over from
        after 12 s; `pause` is called between two looks, and ends it by what it raises.
        """
        parts = open_parts(
            self.url, self.coordinator, self.settings, system_clock_ms, pause=pause
        )
        return Messaging(parts)

    def require_data(self) -> None:
        """Raises where there is nothing yet."""
        scheme, _, path = self.url.partition(":")
        if scheme == "leveldb" and path and not (Path(path) / "LOCK").exists():
            raise NoData(
                f"there is no data at {self.url}; name its place with --url, or begin "
                f"with: txaware topic create NAME"
            )


def address_of(data: str) -> str:
    """What --data names: a directory may be named with or without its scheme."""
    return data if _ADDRESS.fullmatch(data) else f"leveldb:{data}"


pass_session = click.make_pass_decorator(Session)


def accept_url(verb: click.Command) -> None:
    """`--url` may come after the verb as well."""
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
    """From a file, the environment, and the `--set` pairs above all."""
    unknown = pairs.keys() - NAMES
    if unknown:
        asked = did_you_mean(min(unknown), "", NAMES) if len(unknown) == 1 else ""
        raise BadRequest(
            f"no such setting: {', '.join(sorted(unknown))}"
            + (asked or f"; there are {', '.join(sorted(NAMES))}")
        )
    flags: dict[str, Any] = {
        name: from_text(name, text) for name, text in pairs.items()
    }
    return Settings.load(path, **flags)
