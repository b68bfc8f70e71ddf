"""Data sets as rows; an access is published in the transaction that makes it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import attrs

import txaware
from txaware import from_json, to_json

ACCESSES = "accesses"
VERSIONS = "datasets"
FOREVER_S = 2_147_483_647


@attrs.frozen
class Access:
    """An access of a data set: who, in which run, and which version it was.

    A write is `made_from` versions of other data sets, such as `crm@3`.
    """

    what: Literal["read", "write"]
    dataset: str
    version: int
    who: str
    run: str
    made_from: list[str] = attrs.field(factory=list)

    @property
    def made(self) -> str:
        """The version by its name: `revenue@2`."""
        return f"{self.dataset}@{self.version}"


class Run:
    """The work of one run, inside of its transaction."""

    def __init__(self, datasets: "Datasets", who: str, name: str) -> None:
        self._datasets = datasets
        self._who = who
        self._name = name
        self._read: list[str] = []

    def read(self, dataset: str) -> int:
        """Returns the present version of a data set; 0 for one from elsewhere."""
        version = self._datasets.versions.get(dataset.encode()) or 0
        found = Access("read", dataset, version, self._who, self._name)
        self._read.append(found.made)
        self._datasets.accesses.publish(found, key=dataset.encode())
        return version

    def write(self, dataset: str) -> int:
        """Makes the next version of a data set from all that was read so far."""
        version = (self._datasets.versions.get(dataset.encode()) or 0) + 1
        self._datasets.versions.put(dataset.encode(), version)
        made_from = [*self._read]
        access = Access("write", dataset, version, self._who, self._name, made_from)
        self._datasets.accesses.publish(access, key=dataset.encode())
        return version


class Datasets:
    """The data sets of a place; a real one would keep their content, too."""

    def __init__(self, messaging: txaware.Messaging) -> None:
        messaging.create_topic(ACCESSES, ttl_s=FOREVER_S, exist_ok=True)
        self.accesses = messaging.topic(ACCESSES, type=Access)
        self.versions: txaware.Table[int] = messaging.table(
            VERSIONS, encode=to_json, decode=from_json
        )
        self._messaging = messaging

    @contextmanager
    def run(self, who: str, name: str) -> Iterator[Run]:
        """Yields a run; its versions and accesses are there at its end, or none is."""
        with self._messaging.transaction():
            yield Run(self, who, name)
