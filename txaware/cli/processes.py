"""Serves data by several processes: a parent forks them, and has no data itself."""

import ctypes
import logging
import os
import secrets
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import attrs
import click

from coordinator import Coordinator
from coordinator.directory_lock import DirectoryInUse, DirectoryLock
from coordinator.optional_ports import in_process
from txaware.auth import AuditLog, new_token
from txaware.cli.failures import Failure, failure_of
from txaware.cli.garbage import keep_what_began
from txaware.cli.session import Session
from txaware.cli.stop import Stop, Stopped, stopped_by_signal
from txaware.errors import BadRequest, NotAuthorized, Unavailable
from txaware.messaging.hosted_coordinator import HostedCoordinator
from txaware.messaging.parts import Parts
from txaware.messaging.server_shards import opened_shards, shards_made
from txaware.model.clock import system_clock_ms
from txaware.model.settings import Settings
from txaware.model.shards import HOME
from txaware.server.cluster.cluster_part import ClusterPart
from txaware.server.cluster.commit_parts import CommitParts
from txaware.server.cluster.home_shards import wait_for_servers
from txaware.server.cluster.own_address import (
    is_named_otherwise,
    own_url,
    require_reached,
)
from txaware.server.cluster.own_word import require_heard
from txaware.server.cluster.parent_link import ParentLink, Sign, channel
from txaware.server.cluster.producers_at_home import ask_home
from txaware.server.cluster.remote_rows import RemoteRows
from txaware.server.cluster.sealed_calls import SealedCalls
from txaware.server.cluster.server_map import (
    ServerEntry,
    ServerMap,
    ShardEntry,
    written,
)
from txaware.server.cluster.server_seal import SECRET_BYTES, ServerSeal
from txaware.server.cluster.topic_copies import HomeCopies
from txaware.server.parts_elsewhere import PartsElsewhere
from txaware.server.server import BACKLOG, Access, HttpServer, bound
from txaware.server.server_file import own_certificate
from txaware.server.write_entries import shard_shown
from txaware.service.administration import Administration
from txaware.store.shard_rows import StoreShards

log = logging.getLogger(__name__)

MOST_PROCESSES = 64
TICK_S = 0.25
BEAT_S = 1.0
# Processes of a parent that was killed end with it; the next one waits for that.
TAKE_OVER_S = 3.0
# A child that ends at once is started anew after a pause, which grows.
SHORT_LIFE_S, FIRST_PAUSE_S, LONGEST_PAUSE_S = 5.0, 0.1, 5.0
# The time beyond that to drain, after which a child is killed.
END_S = 10.0
LOOK_S = 0.05
_PACKET_BYTES = 1 << 20
_SET_PARENT_DEATH_SIGNAL = 1  # of prctl

# Serves in a child until it is told to stop; by its place and its line to the parent.
ServeChild = Callable[["ChildPlace", ParentLink], None]


class ChildFailed(Failure):
    """Ends the parent as a child ended, before all were there."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]


@attrs.frozen(kw_only=True)
class ChildPlace:
    """The place of a child: its number, its sockets, and what all of them share."""

    index: int
    processes: int
    entry: ServerEntry
    sockets: tuple[socket.socket, socket.socket]
    secret: bytes = attrs.field(repr=False)
    token: str = attrs.field(repr=False)

    def membership(
        self, server_map: ServerMap, certificate: str | None, shards: Sequence[int]
    ) -> ClusterPart:
        """Returns the part that the child has in the cluster."""
        return ClusterPart(
            self.entry.id,
            self.secret,
            server_map,
            token=self.token,
            certificate=certificate,
            leads=self.index == 0,
            shards=shards,
        )

    def shards(self, numbers: Sequence[int]) -> list[int]:
        """Returns those of the shards that are this child's."""
        return [one for one in numbers if one % self.processes == self.index]


@attrs.define(eq=False)
class _Child:
    place: ChildPlace
    pid: int = 0
    line: socket.socket | None = None
    shards: list[int] | None = None
    epoch: int | None = None
    began_s: float = 0.0
    heard_s: float = 0.0
    short_lives: int = 0
    start_at_s: float = 0.0

    @property
    def is_there(self) -> bool:
        return self.pid != 0


class Parent:
    """Starts the processes, watches them, and tells each who has which shard.

    It has one thread and no data, so that a child that it forks is as a new process.
    """

    def __init__(
        self,
        places: Sequence[ChildPlace],
        shards: Sequence[int],
        serve: ServeChild,
        settings: Settings,
        *,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._children = [_Child(place) for place in places]
        self._shards = sorted(shards)
        self._serve = serve
        self._settings = settings
        self._clock_s = clock_s
        self._beat_s = min(BEAT_S, settings.server_silence_s / 4)
        self._selector = selectors.DefaultSelector()
        self._facts: dict[str, object] = {}
        # Greater than that of any parent before: no map changes once a second for long.
        self._epoch = int(time.time())
        self._instance = secrets.token_hex(8)
        self._is_ending = False
        self._failed: Sign | None = None

    def run(self, stop: Stop, on_ready: Callable[[], None]) -> None:
        """Runs until it is told to stop; calls `on_ready` once all shards are there."""
        was_ready = False
        try:
            for child in self._children:
                self._start(child)
            while not stop.requested:
                self._look(TICK_S)
                if self._failed is not None and not was_ready:
                    _raise_failure(self._failed)
                if not was_ready and self._is_ready:
                    was_ready = True
                    on_ready()
                if stop.must_reload():
                    self._signal(self._children, signal.SIGHUP)
        finally:
            self._end()

    @property
    def _is_ready(self) -> bool:
        """True once each child serves by a map that has a server for each shard."""
        return all(one.epoch == self._epoch for one in self._children) and all(
            one.shards is not None for one in self._children
        )

    # ---- the processes
    def _start(self, child: _Child) -> None:
        own, others = channel()
        sys.stdout.flush()
        sys.stderr.flush()
        parent_id = os.getpid()
        pid = os.fork()
        if pid == 0:
            own.close()
            self._be_child(child, others, parent_id)
        others.close()
        now_s = self._clock_s()
        child.pid, child.line = pid, own
        child.shards, child.epoch = None, None
        child.began_s, child.heard_s = now_s, now_s
        self._selector.register(own, selectors.EVENT_READ, child)
        self._send(child)
        log.info("process %d is server %s", pid, child.place.entry.id)

    def _be_child(self, child: _Child, line: socket.socket, parent_id: int) -> NoReturn:
        """Serves, in the child, and ends it."""
        code = 70
        try:
            _end_with(parent_id)
            for number in (signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)
            # Ctrl-C goes to all processes of a terminal; the parent says when to end.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            self._selector.close()
            for other in self._children:
                if other.line is not None:
                    other.line.close()
                if other is not child:
                    other.place.sockets[1].close()
            link = ParentLink(line, beat_s=self._beat_s)
            try:
                self._serve(child.place, link)
                code = 0
            except KeyboardInterrupt:
                code = 130
            except Exception as error:
                failure = failure_of(error)
                code = failure.exit_code
                log.error("server %s ends: %s", child.place.entry.id, failure.message)
                link.send(Sign(failed=failure.message, exit_code=code))
        finally:
            with suppress(Exception):
                logging.shutdown()
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def _look(self, timeout_s: float) -> None:
        """Hears what children say, for so long, and does what is due."""
        for key, _ in self._selector.select(timeout_s):
            self._hear(key.data)
        for child in self._children:
            if child.is_there:
                self._end_silent(child)
            elif not self._is_ending and self._clock_s() >= child.start_at_s:
                self._start(child)

    def _end_silent(self, child: _Child) -> None:
        """Kills a child that says nothing for long.

        Where the parent itself stood still, what was said meanwhile is heard first.
        """
        most_s = self._settings.server_silence_s
        if self._clock_s() - child.heard_s > most_s:
            self._hear(child)
        silent_s = self._clock_s() - child.heard_s
        if child.is_there and silent_s > most_s and not self._is_ending:
            log.error(
                "server %s, process %d, has been silent for %.1f s, and is killed",
                *(child.place.entry.id, child.pid, silent_s),
            )
            self._signal([child], signal.SIGKILL)
            self._gone(child)

    def _hear(self, child: _Child) -> None:
        """Takes all that a child has said; its end of the line closes with its life."""
        assert child.line is not None
        while True:
            try:
                packet = child.line.recv(_PACKET_BYTES, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except OSError:
                packet = b""
            if not packet:
                self._gone(child)
                return
            child.heard_s = self._clock_s()
            self._note(child, Sign.parse(packet))

    def _note(self, child: _Child, sign: Sign) -> None:
        if sign.failed is not None:
            self._failed = sign
        if sign.epoch is not None:
            child.epoch = sign.epoch
        if sign.facts is not None:
            self._facts = sign.facts
        if sign.made is not None:
            self._shards = sorted({*self._shards, *sign.made})
            self._change()
        if sign.shards is not None:
            child.shards = sign.shards
            self._shards = sorted({*self._shards, *sign.shards})
            self._change()

    def _gone(self, child: _Child) -> None:
        """Notes the end of a child, which is started anew."""
        assert child.line is not None
        self._selector.unregister(child.line)
        child.line.close()
        _, status = os.waitpid(child.pid, 0)
        lived_s = self._clock_s() - child.began_s
        if not self._is_ending:
            log.warning(
                "server %s, process %d, ended after %.1f s with %d",
                *(child.place.entry.id, child.pid, lived_s),
                os.waitstatus_to_exitcode(status),
            )
        child.short_lives = child.short_lives + 1 if lived_s < SHORT_LIFE_S else 0
        pause_s = 0.0
        if child.short_lives > 1:
            pause_s = min(FIRST_PAUSE_S * 2**child.short_lives, LONGEST_PAUSE_S)
        child.start_at_s = self._clock_s() + pause_s
        child.pid, child.line, child.shards, child.epoch = 0, None, None, None
        self._instance = secrets.token_hex(8)
        self._change()

    def _signal(self, children: Sequence[_Child], number: int) -> None:
        for child in children:
            if child.is_there:
                with suppress(ProcessLookupError):
                    os.kill(child.pid, number)

    # ---- the map
    def _change(self) -> None:
        """Makes a later map, and tells all."""
        self._epoch += 1
        for child in self._children:
            self._send(child)

    def _map(self) -> ServerMap:
        owners = {
            shard: child.place.entry.id
            for child in self._children
            for shard in child.shards or ()
        }
        return ServerMap(
            self._epoch,
            self._instance,
            tuple(child.place.entry for child in self._children),
            tuple(ShardEntry(one, owners.get(one)) for one in self._shards),
            self._facts,
        )

    def _send(self, child: _Child) -> None:
        """Sends the map; a child that stands still gets a later one, or is killed."""
        if child.line is not None:
            with suppress(OSError):
                child.line.send(written(self._map()), socket.MSG_DONTWAIT)

    # ---- the end
    def _end(self) -> None:
        """Ends the children, home last, as the others still ask it."""
        self._is_ending = True
        home = [one for one in self._children if one.place.index == HOME]
        others = [one for one in self._children if one.place.index != HOME]
        try:
            for some in (others, home):
                self._signal(some, signal.SIGTERM)
                self._wait_for(some, self._settings.drain_timeout_s + END_S)
        except BaseException:  # an interrupt does not wait for what is in flight
            self._signal(self._children, signal.SIGTERM)
            self._wait_for(self._children, END_S)
            raise
        finally:
            self._signal(self._children, signal.SIGKILL)
            self._wait_for(self._children, END_S)

    def _wait_for(self, children: Sequence[_Child], timeout_s: float) -> None:
        until_s = self._clock_s() + timeout_s
        while any(one.is_there for one in children) and self._clock_s() < until_s:
            self._look(LOOK_S)


def _end_with(parent_id: int) -> None:
    """Has the system kill this process when its parent ends, however that happens."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:  # elsewhere the end of the line tells
        prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent_id:
        os._exit(1)


@contextmanager
def own_sockets(
    processes: int, host: str, port: int, settings: Settings, *, is_tls: bool
) -> Iterator[tuple[list[ServerEntry], list[tuple[socket.socket, socket.socket]]]]:
    """Opens a socket for all, and one for each; returns the servers with theirs.

    They stay open here: what waits to be accepted as a child ends is its successor's.
    """
    ports = checked_ports(settings.own_ports, processes)
    with ExitStack() as opened:
        shared = opened.enter_context(bound(host, port, backlog=BACKLOG))
        apart = [
            opened.enter_context(bound(host, one, backlog=BACKLOG)) for one in ports
        ]
        require_reached(host, apart[0].getsockname()[1], settings)

        def url(one: socket.socket) -> str:
            return own_url(host, one.getsockname()[1], settings, is_tls=is_tls)

        entries = [
            ServerEntry(str(number), url(shared), url(own))
            for number, own in enumerate(apart, 1)
        ]
        yield entries, [(shared, own) for own in apart]


def checked_ports(text: str, processes: int) -> list[int]:
    """Reads a port for each process from `11016-11019` or `11016,11020`."""
    if not text:
        return [0] * processes
    first, is_range, last = text.partition("-")
    try:
        found = (
            list(range(int(first), int(last) + 1))
            if is_range
            else [int(one) for one in text.split(",")]
        )
    except ValueError as error:
        raise BadRequest(
            f"own_ports are ports as 11016-11019 or 11016,11020, not {text!r}"
        ) from error
    if not all(0 <= one <= 65_535 for one in found):
        raise BadRequest(f"own_ports are from 0 to 65535, not {text!r}")
    if len(found) < processes:
        raise BadRequest(
            f"own_ports name {len(found)} ports, and there are {processes} processes"
        )
    return found[:processes]


@contextmanager
def sole_parent(directory: Path, stop: Stop) -> Iterator[None]:
    """Keeps a second parent off the data, until the end of the block.

    The children hold the lock as well, so that nobody begins before all have ended.
    """
    until_s = time.monotonic() + TAKE_OVER_S
    place = directory / "servers"
    while True:
        try:
            lock = DirectoryLock(place)
            break
        except DirectoryInUse as error:
            if time.monotonic() > until_s:
                raise Unavailable(
                    f"{directory.absolute()} is served already, by process "
                    f"{error.holder} and those that it has started: connect there, or "
                    f"end it first"
                ) from error
        stop.pause(LOOK_S)
    try:
        yield
    finally:
        lock.release()


def serve_directory(
    session: Session,
    directory: Path,
    processes: int,
    options: dict[str, Any],
    stop: Stop,
) -> None:
    """Serves a directory by several processes, until it is told to stop."""
    settings = session.settings
    with (
        sole_parent(directory, stop),
        own_sockets(
            processes,
            options["host"],
            options["port"],
            settings,
            is_tls=options["certificate"] is not None,
        ) as (entries, sockets),
    ):
        known = _in_a_child(partial(_with_shards_made, session, processes))
        secret, token = os.urandom(SECRET_BYTES), new_token()
        places = [
            ChildPlace(
                index=index,
                processes=processes,
                entry=entry,
                sockets=pair,
                secret=secret,
                token=token,
            )
            for index, (entry, pair) in enumerate(zip(entries, sockets, strict=True))
        ]
        serve = partial(_serve_in_child, session, options, known)
        # What is there is shared with the children, as long as nobody changes it.
        keep_what_began()
        parent = Parent(places, known.shards, serve, settings)
        url, seal = entries[0].url, ServerSeal(secret)
        certificate = options["certificate"]

        def ready() -> None:
            if is_named_otherwise(options["host"], settings):
                ids = [one.id for one in entries]
                for address, servers in (
                    (url, ids),
                    *((one.own, [one.id]) for one in entries),
                ):
                    require_heard(
                        address,
                        servers,
                        seal,
                        certificate=certificate and own_certificate(certificate),
                        pause=stop.pause,
                    )
            click.echo(f"listening on {url}")

        parent.run(stop, ready)


def _with_shards_made(session: Session, processes: int) -> StoreShards:
    """Makes the shards that are missing, and returns all."""
    least = max(session.settings.shards, processes)
    return shards_made(session.url, session.settings, least=least)


def _in_a_child(act: Callable[[], StoreShards]) -> StoreShards:
    """Returns what is done in a process of its own: this one opens no data."""
    own, others = channel()
    parent_id = os.getpid()
    pid = os.fork()
    if pid == 0:
        own.close()
        _end_with(parent_id)
        sign = Sign(failed="it was interrupted", exit_code=130)
        try:
            found = act()
            sign = Sign(shards=[*found.shards], facts={"store": found.store})
        except Exception as error:
            failure = failure_of(error)
            sign = Sign(failed=failure.message, exit_code=failure.exit_code)
        finally:
            with suppress(Exception):
                others.send(sign.written())
            os._exit(0)
    others.close()
    with own:
        packet = own.recv(_PACKET_BYTES)
    os.waitpid(pid, 0)
    if not packet:
        raise Failure("the process that opened the data has ended without a word")
    sign = Sign.parse(packet)
    _raise_failure(sign)
    assert sign.shards is not None
    assert sign.facts is not None
    return StoreShards(sign.facts["store"], tuple(sign.shards))


def _raise_failure(sign: Sign) -> None:
    if sign.failed is not None:
        raise ChildFailed(sign.failed, sign.exit_code)


def _opened(
    session: Session,
    known: StoreShards,
    own: list[int],
    membership: ClusterPart,
    home_copies: HomeCopies,
    calls: SealedCalls,
    opened: ExitStack,
) -> Parts:
    """Opens the shards of one process; home's server decides, unless another does."""
    coordinator: str | Coordinator | None = session.coordinator
    if HOME not in own and coordinator in (None, "embedded"):
        coordinator = opened.enter_context(closing(_of_home(membership, own)))
    parts, membership.copies = opened_shards(
        session.url,
        coordinator,
        session.settings,
        system_clock_ms,
        known=known,
        numbers=own,
        token=None,
        keep_elsewhere=home_copies.keep,
        read_elsewhere=partial(RemoteRows, calls=calls),
    )
    opened.enter_context(closing(parts))
    administration = parts.administration
    assert isinstance(administration, Administration)
    here = in_process(parts.coordinator)
    if here is not None:
        elsewhere = [one for one in known.shards if one not in own]
        here.barrier.await_stores(map(shard_shown, elsewhere))
        administration.keep_for_shards(here=own, elsewhere=elsewhere)
        administration.clean_for(require_all=membership.require_all)
    elif isinstance(parts.coordinator, HostedCoordinator):
        administration.clean_for(report=parts.coordinator.report_needs)
    return parts


def _of_home(membership: ClusterPart, own: list[int]) -> Coordinator:
    """Returns the coordinator of home's server, for the shards of another one."""
    home = membership.map.server("1")
    assert home is not None
    coordinator = HostedCoordinator(
        home.own,
        membership.token,
        shards=own,
        seal=membership.seal.header(membership.id),
        certificate=membership.certificate,
    )
    # It says so to whoever asks until it is there; the parent looks who answers.
    with suppress(Unavailable, NotAuthorized):
        coordinator.introduce()
    return coordinator


def _open_new(
    place: ChildPlace,
    own: list[int],
    membership: ClusterPart,
    parts: Parts,
    link: ParentLink,
) -> None:
    """Opens shards of this process that were made since it began."""
    listed = [one.number for one in membership.map.shards]
    copies = membership.copies
    new = [one for one in place.shards(listed) if one not in own]
    if not new or copies is None:
        return
    for number in new:
        copies.open(number)
        own.append(number)  # the coordinator hears of it with the next greeting
    membership.take(new)
    link.send(Sign(own))


def _hand_out(
    made: list[int], *, membership: ClusterPart, parts: Parts, link: ParentLink
) -> None:
    """Has the processes open shards that home has made; waits until they have."""
    assert parts.served is not None
    elsewhere = [one for one in made if not membership.has(one)]
    parts.served.administration.keep_for_shards(here=[], elsewhere=elsewhere)
    link.send(Sign(made=made))
    wait_s = parts.served.settings.forward_wait_s
    wait_for_servers(made, lambda shard: membership.map.owner(shard), wait_s)


def _serve_in_child(
    session: Session,
    options: dict[str, Any],
    known: StoreShards,
    place: ChildPlace,
    link: ParentLink,
) -> None:
    """Serves the shards of one process, until it is told to stop."""
    given = dict(options)
    audit_log = given.pop("audit_log")
    first_map = link.start()
    certificate = given["certificate"]
    own = place.shards(known.shards)
    membership = place.membership(
        first_map,
        None if certificate is None else own_certificate(certificate),
        own,
    )
    access = Access(
        host=given["host"],
        tokens=given["tokens"],
        is_insecure=given["insecure"],
        allow_plain_tokens=given["allow_plain_tokens"],
        certificate=certificate,
        key=given["key"],
        sockets=place.sockets,
    )
    with (
        stopped_by_signal(reloads=True) as stop,
        suppress(Stopped),
        closing(AuditLog(audit_log)) as audit,
        closing(SealedCalls(membership)) as calls,
        closing(
            HomeCopies(membership, calls, wait_s=session.settings.forward_wait_s)
        ) as home_copies,
        ExitStack() as opened,
    ):
        parts = _opened(session, known, own, membership, home_copies, calls, opened)
        assert parts.served is not None
        access = attrs.evolve(access, audit=audit)
        served = parts.served
        entries = served.write_entries
        if HOME in own and len(known.shards) > 1 and entries is not None:
            sent = CommitParts(served.service, calls, entries)
            writer = PartsElsewhere(sent.publish, entries.persist)
            opened.enter_context(closing(writer))
            served = attrs.evolve(served, parts_elsewhere=writer)
        with HttpServer(served, access, membership) as server:
            facts = None
            if HOME in own:
                facts = server.facts
                home_copies.follow(parts.served.service.handles.topics)
                parts.served.administration.hand_out_shards(
                    partial(_hand_out, membership=membership, parts=parts, link=link),
                    membership.address_of,
                )
            else:
                ask_home(parts.served.service.producing.ids, calls)
            link.serve(server.call_soon, server.take_map, Sign(own, facts))
            try:
                while not stop.wait(TICK_S):
                    _open_new(place, own, membership, parts, link)
                    if stop.must_reload():
                        server.reload()
                    if not server.is_running:
                        raise Failure("the server has ended; its log says why")
            finally:
                link.end()
