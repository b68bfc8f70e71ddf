"""Serves a store of several shards in HBase, as one of many equal servers.

Whoever has the head of the first shard is home, and tells all others what they have.
"""

import logging
import secrets
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress
from functools import partial
from typing import Any, Self

import attrs
import click

from coordinator import Coordinator
from coordinator.optional_ports import in_process
from txaware.auth import AuditLog
from txaware.cli.failures import Failure
from txaware.cli.session import Session
from txaware.cli.stop import Stop
from txaware.errors import BadRequest, TxAwareError, Unavailable
from txaware.messaging.hosted_coordinator import HostedCoordinator
from txaware.messaging.parts import Parts
from txaware.messaging.server_shards import opened_home, opened_member
from txaware.model.clock import system_clock_ms
from txaware.model.shards import HOME
from txaware.server.cluster.cluster_part import ClusterPart
from txaware.server.cluster.commit_parts import CommitParts
from txaware.server.cluster.home_session import HomeSession
from txaware.server.cluster.home_shards import HomeShards
from txaware.server.cluster.own_address import (
    is_named_otherwise,
    own_url,
    require_reached,
)
from txaware.server.cluster.own_word import require_heard
from txaware.server.cluster.producers_at_home import ask_home
from txaware.server.cluster.remote_rows import RemoteRows
from txaware.server.cluster.sealed_calls import SealedCalls
from txaware.server.cluster.server_map import ServerEntry, ServerMap, ShardEntry
from txaware.server.cluster.server_seal import token_of
from txaware.server.cluster.server_sessions import ServerSessions
from txaware.server.cluster.shard_holder import ShardHolder
from txaware.server.cluster.shard_uses import ShardUses
from txaware.server.cluster.topic_copies import HomeCopies
from txaware.server.parts_elsewhere import PartsElsewhere
from txaware.server.server import BACKLOG, Access, HttpServer, bound
from txaware.server.server_file import own_certificate
from txaware.service.administration import Administration
from txaware.shards.opening import make_further
from txaware.store.hbase.address import HBaseAddress
from txaware.store.hbase.connections import HBaseConnections
from txaware.store.hbase.ownership import Ownership, StoreInUse
from txaware.store.hbase.table import HBaseTable
from txaware.store.hbase.view import HBaseView
from txaware.store.shard_rows import StoreShards, secret_in, shards_in, store_secret

log = logging.getLogger(__name__)

TICK_S = 0.25
# Home is asked, and looked for, with such little patience: another may be it soon.
HOME_ANSWER_S, HOME_RETRY_S = 4.0, 0.5
# Others take the shards of a server that ends within this time, or nobody has them.
LEAVE_S = 10.0
# A server begins anew after that time where HBase did not answer.
ANEW_S = 1.0


def connections_to(session: Session) -> HBaseConnections:
    """Returns connections to the first shard of a store."""
    return HBaseConnections(
        HBaseAddress.parse(session.url),
        timeout_s=session.settings.hbase_timeout_s,
        patience_s=session.settings.hbase_patience_s,
    )


def is_sharded(session: Session) -> bool:
    """Tells whether a store in HBase has further shards, or is to have some."""
    if session.settings.shards > 1:
        return True
    with closing(connections_to(session)) as connections:
        try:
            return shards_in(HBaseView(connections)) is not None
        except BadRequest:  # nobody has opened it yet, or there are no tables
            return False


@attrs.frozen(kw_only=True)
class _Listening:
    """The address of this server, and all that its lives have in common.

    It `is_heard` there once a word that it sent to that address came to itself.
    """

    session: Session
    options: dict[str, Any]
    entry: ServerEntry
    socket: socket.socket
    connections: HBaseConnections
    audit: AuditLog
    is_heard: threading.Event

    def require_heard(self, membership: ClusterPart, stop: Stop) -> None:
        """Raises `BadRequest` where somebody else answers at this server's address.

        Its first life asks that, before home hears of it.
        """
        if not self.is_heard.is_set():
            require_heard(
                self.entry.own,
                [self.entry.id],
                membership.seal,
                certificate=membership.certificate,
                pause=stop.pause,
            )
            self.is_heard.set()

    def access(self) -> Access:
        """Returns the access to a life of this server, with a socket of its own."""
        options = self.options
        return Access(
            host=options["host"],
            tokens=options["tokens"],
            is_insecure=options["insecure"],
            allow_plain_tokens=options["allow_plain_tokens"],
            certificate=options["certificate"],
            key=options["key"],
            audit=self.audit,
            sockets=(self.socket.dup(),),
        )

    def part(
        self, secret: bytes, server_map: ServerMap, *, is_home: bool
    ) -> ClusterPart:
        """Returns the part that this server has, which has no further shard yet."""
        certificate = self.options["certificate"]
        found = ClusterPart(
            self.entry.id,
            secret,
            server_map,
            token=token_of(secret),
            certificate=None if certificate is None else own_certificate(certificate),
            leads=is_home,
            shards=[HOME] if is_home else [],
        )
        found.uses = ShardUses()
        return found


def serve_shards(session: Session, options: dict[str, Any], stop: Stop) -> None:
    """Serves a store in HBase with others, until it is told to stop."""
    options = dict(options)
    settings, host = session.settings, options["host"]
    with ExitStack() as opened:
        own = opened.enter_context(bound(host, options["port"], backlog=BACKLOG))
        port = own.getsockname()[1]
        require_reached(host, port, settings)
        is_tls = options["certificate"] is not None
        url = own_url(host, port, settings, is_tls=is_tls)
        is_heard = threading.Event()
        if not is_named_otherwise(host, settings):
            is_heard.set()
        listening = _Listening(
            session=session,
            options=options,
            entry=ServerEntry(secrets.token_hex(4), url, url),
            socket=own,
            connections=opened.enter_context(closing(connections_to(session))),
            audit=opened.enter_context(closing(AuditLog(options["audit_log"]))),
            is_heard=is_heard,
        )
        _url_of_home(listening)  # raises where HBase is not there at all
        lives = opened.enter_context(closing(_Lives(listening, stop)))
        in_lives(lives.live, stop, say=partial(click.echo, err=True))


def in_lives(
    live: Callable[[Callable[[], None]], object],
    stop: Stop,
    *,
    say: Callable[[str], object],
) -> None:
    """Lives again and again until it is told to stop; says why a life has ended.

    HBase may be slow or away for a while: a table is not made in time, or a shard not
    taken. That is said once, and that it is over once a life calls what it was given.
    """
    said: type[Unavailable] | None = None

    def on_ready() -> None:
        nonlocal said
        if said is not None:
            said = None
            say("serves again")

    while not stop.requested:
        try:
            live(on_ready)
        except Unavailable as error:
            is_taken = isinstance(error, StoreInUse)
            if said is not type(error):
                said = type(error)
                each = "" if is_taken else f" each {ANEW_S:g} s until it can"
                say(f"begins anew{each}: {error}")
            if not is_taken:
                stop.pause(ANEW_S)


class _Lives:
    """The lives of this server, one after the other: as home, or beside it."""

    def __init__(self, listening: _Listening, stop: Stop) -> None:
        self._listening, self._stop = listening, stop
        self._said = _SaysOnce(listening.entry.own)
        self._home: HBaseTable | None = None

    def live(self, on_ready: Callable[[], None]) -> None:
        """Lives once; home that it has taken is that of the next life."""
        listening, stop = self._listening, self._stop

        def ready() -> None:
            self._said()
            on_ready()

        home, self._home = self._home or _home_or_none(listening, stop), None
        if home is not None:
            _Home(listening, home).lived(stop, ready)
        else:
            _Member(listening, keep=self._keep).lived(stop, ready)

    def close(self) -> None:
        """Gives home back where no life had it any more."""
        if self._home is not None:
            self._home.close()

    def _keep(self, home: HBaseTable) -> None:
        """Keeps home for the next life, also where the end of this one fails.

        It says that it lives from now on: nobody else would take it, nor this server.
        """
        self._home = home


class _SaysOnce:
    """Says where this server listens, once."""

    def __init__(self, url: str) -> None:
        self._url, self._has_said = url, False

    def __call__(self) -> None:
        if not self._has_said:
            self._has_said = True
            click.echo(f"listening on {self._url}")


def _home_or_none(listening: _Listening, stop: Stop) -> HBaseTable | None:
    """Takes home where it is nobody's; returns None where another server has it."""
    while True:
        if _url_of_home(listening) is not None:
            return None
        try:
            return _home_taken(listening, stop)
        except StoreInUse as error:
            log.info("%s", error)
        stop.pause(TICK_S)


def _url_of_home(listening: _Listening) -> str | None:
    """Returns the address of the server that has home, as far as it lives."""
    sign = Ownership(listening.connections).sign_of_owner()
    return None if sign is None else sign.url_for_us


def _home_taken(listening: _Listening, stop: Stop) -> HBaseTable:
    session = listening.session
    address = HBaseAddress.parse(session.url)
    return HBaseTable.open(
        address, session.settings, clock_ms=system_clock_ms, pause=stop.pause
    )


def _administration_of(parts: Parts) -> Administration:
    found = parts.administration
    assert isinstance(found, Administration)
    return found


@attrs.frozen
class _HomeParts:
    """Holds what home needs beside the store: its servers, and the ways to them."""

    known: StoreShards
    sessions: ServerSessions
    membership: ClusterPart
    calls: SealedCalls
    copies: HomeCopies

    @classmethod
    def opened(
        cls, opened: ExitStack, listening: _Listening, table: HBaseTable
    ) -> Self:
        """Makes them, to be closed with `opened`."""
        settings = listening.session.settings
        known = make_further(table, settings, least=settings.shards)
        sessions = ServerSessions(
            listening.entry,
            known.shards,
            silence_s=settings.server_silence_s,
            epoch=int(time.time()),
        )
        membership = listening.part(
            store_secret(table), sessions.server_map, is_home=True
        )
        membership.sessions = sessions
        calls = opened.enter_context(closing(SealedCalls(membership)))
        copies = opened.enter_context(
            closing(HomeCopies(membership, calls, wait_s=settings.forward_wait_s))
        )
        return cls(known, sessions, membership, calls, copies)


class _Home:
    """A life of this server as home, which has the coordinator and gives shards."""

    def __init__(self, listening: _Listening, table: HBaseTable) -> None:
        self._listening = listening
        self._table = table
        self._settings = listening.session.settings

    def lived(self, stop: Stop, on_ready: Callable[[], None]) -> None:
        """Serves until it is told to stop, or has lost home."""
        with ExitStack() as opened:
            not_opened = opened.enter_context(ExitStack())
            not_opened.callback(self._table.close)
            home = _HomeParts.opened(opened, self._listening, self._table)
            not_opened.pop_all()  # whoever opens it closes it, too
            parts, home.membership.copies = opened_home(
                self._table,
                self._listening.session.coordinator,
                self._settings,
                system_clock_ms,
                known=home.known,
                keep_elsewhere=home.copies.keep,
                read_elsewhere=partial(RemoteRows, calls=home.calls),
            )
            opened.enter_context(closing(parts))
            shards, server = self._begun(opened, home, parts)
            self._listening.require_heard(home.membership, stop)
            while not stop.wait(TICK_S):
                if shards.look():
                    on_ready()
                if stop.must_reload():
                    server.reload()
                self._table.require_owned()
                if not server.is_running:
                    raise Failure("the server has ended; its log says why")
            shards.leave(LEAVE_S)

    def _begun(
        self, opened: ExitStack, home: _HomeParts, parts: Parts
    ) -> tuple[HomeShards, HttpServer]:
        """Begins to serve, and to give shards to servers."""
        served, administration = parts.served, _administration_of(parts)
        assert served is not None
        topics, here = served.service.handles.topics, in_process(parts.coordinator)
        wait_s = self._settings.forward_wait_s
        entries = served.write_entries
        if entries is not None:
            sent = CommitParts(served.service, home.calls, entries, wait_s=wait_s)
            writer = opened.enter_context(
                closing(PartsElsewhere(sent.publish, entries.persist))
            )
            served = attrs.evolve(served, parts_elsewhere=writer)
        shards = HomeShards(
            home.sessions,
            home.membership,
            administration,
            topics,
            here=here,
            wait_s=wait_s,
        )
        opened.enter_context(closing(shards))
        shards.keep_for(home.known.further)
        server = opened.enter_context(
            HttpServer(served, self._listening.access(), home.membership)
        )
        home.sessions.on_change.append(server.take_map)
        home.sessions.tell_facts(server.facts)
        home.copies.follow(topics)
        administration.hand_out_shards(shards.hand_out, home.membership.address_of)
        administration.give_shards_by(shards.give_to)
        return shards, server


@attrs.frozen
class _MemberParts:
    """Holds what a server beside home needs beside the store: the ways to home.

    `own` are the shards that it has said to have; `greeting` are calls that are over
    soon, as home may be another server by then.
    """

    membership: ClusterPart
    calls: SealedCalls
    greeting: SealedCalls
    coordinator: str | Coordinator
    own: list[int]

    @classmethod
    def opened(
        cls, opened: ExitStack, listening: _Listening, url: str, secret: bytes
    ) -> Self:
        """Makes them for home at an address, to be closed with `opened`."""
        first = _first_map(listening.entry, url)
        membership = listening.part(secret, first, is_home=False)
        calls = opened.enter_context(closing(SealedCalls(membership)))
        greeting = opened.enter_context(
            closing(
                SealedCalls(
                    membership, answer_s=HOME_ANSWER_S, retry_for_s=HOME_RETRY_S
                )
            )
        )
        own: list[int] = []
        coordinator = _coordinator_of(opened, listening, membership, url, own)
        return cls(membership, calls, greeting, coordinator, own)

    @property
    def hosted(self) -> HostedCoordinator | None:
        """Home's coordinator; None where another one decides."""
        found = self.coordinator
        return found if isinstance(found, HostedCoordinator) else None

    def on_taken(self, shard: int) -> None:
        """Tells home that a shard is here."""
        self.own.append(shard)
        try:
            if self.hosted is not None:
                self.hosted.admission.greet()
        except BaseException:
            self.own.remove(shard)
            raise


def _coordinator_of(
    opened: ExitStack,
    listening: _Listening,
    membership: ClusterPart,
    url: str,
    own: Sequence[int],
) -> str | Coordinator:
    named = listening.session.coordinator
    if named not in (None, "embedded"):
        assert named is not None
        return named
    found = HostedCoordinator(
        url,
        membership.token,
        shards=own,
        seal=membership.seal.header(membership.id),
        certificate=membership.certificate,
    )
    opened.enter_context(closing(found))
    with suppress(Unavailable):  # it says so to whoever asks until it is there
        found.introduce()
    return found


class _Member:
    """A life of this server beside home, of which it hears what to have."""

    def __init__(
        self, listening: _Listening, *, keep: Callable[[HBaseTable], None]
    ) -> None:
        self._listening = listening
        self._keep = keep
        self._settings = listening.session.settings

    def lived(self, stop: Stop, on_ready: Callable[[], None]) -> None:
        """Serves until it is told to stop, or is home: then it has that kept."""
        listening = self._listening
        url, secret, known = self._found_home(stop)
        with ExitStack() as opened:
            member = _MemberParts.opened(opened, listening, url, secret)
            parts, member.membership.copies = opened_member(
                listening.connections,
                member.coordinator,
                self._settings,
                system_clock_ms,
                known=known,
            )
            opened.enter_context(closing(parts))
            assert parts.served is not None
            if member.hosted is not None:
                report = member.hosted.report_needs
                _administration_of(parts).clean_for(report=report)
            ask_home(parts.served.service.producing.ids, member.calls)
            holder = self._holder(opened, member)
            server = opened.enter_context(
                HttpServer(parts.served, listening.access(), member.membership)
            )
            listening.require_heard(member.membership, stop)
            session = self._session(opened, member, holder, server)
            while not stop.wait(TICK_S):
                if session.refused is not None:
                    raise session.refused
                if session.has_begun.is_set():
                    on_ready()
                if stop.must_reload():
                    server.reload()
                if not server.is_running:
                    raise Failure("the server has ended; its log says why")
                if session.is_home_away:
                    found = self._home_or_moved(stop, server, member.membership)
                    if found is not None:
                        self._keep(found)  # what is open here may end with an error
                        _forsake_home(server, member.membership, member.hosted)
                        return
            _leave(session, holder)

    def _holder(self, opened: ExitStack, member: _MemberParts) -> ShardHolder:
        """Returns what takes shards and gives them back, as home says."""
        copies, uses = member.membership.copies, member.membership.uses
        assert copies is not None
        assert uses is not None
        holder = ShardHolder(
            member.membership,
            copies,
            uses,
            on_taken=member.on_taken,
            before_giving=member.own.remove,
            drain_s=self._settings.forward_wait_s,
        )
        return opened.enter_context(closing(holder))

    def _session(
        self,
        opened: ExitStack,
        member: _MemberParts,
        holder: ShardHolder,
        server: HttpServer,
    ) -> HomeSession:
        """Begins the session at home, which tells of all servers and their shards."""

        def take_map(server_map: ServerMap) -> None:
            server.take_map(server_map)
            home = server_map.home
            if member.hosted is not None and home is not None:
                member.hosted.move(home.own)

        session = HomeSession(
            self._listening.entry,
            member.membership,
            member.greeting,
            holds=holder.holds,
            follow=holder.follow,
            take_map=take_map,
        )
        opened.enter_context(closing(session))
        holder.on_change = session.say_hello
        return session

    def _found_home(self, stop: Stop) -> tuple[str, bytes, StoreShards]:
        """Returns where home is, and what it keeps for its servers."""
        view = HBaseView(self._listening.connections)
        while True:
            url = _url_of_home(self._listening)
            secret, known = secret_in(view), shards_in(view)
            if url is not None and secret is not None and known is not None:
                return url, secret, known
            if url is None:
                raise StoreInUse("home is at no server just now")
            stop.pause(TICK_S)

    def _home_or_moved(
        self, stop: Stop, server: HttpServer, membership: ClusterPart
    ) -> HBaseTable | None:
        """Takes home where that is nobody's any more, or learns where it is now."""
        try:
            return _home_taken(self._listening, stop)
        except StoreInUse as error:
            url, home = error.served_at, membership.map.home
            if url is not None and (home is None or home.own != url):
                server.take_map(_moved_home(membership.map, url))
        except TxAwareError as error:
            log.info("home is not taken: %s", error)
        return None


def _leave(session: HomeSession, holder: ShardHolder) -> None:
    """Has home give the shards of this server to others, while there is one."""
    session.leave()
    until_s = time.monotonic() + LEAVE_S
    while holder.holds() and time.monotonic() < until_s:
        if session.is_home_away:
            break
        time.sleep(TICK_S)


def _forsake_home(
    server: HttpServer, membership: ClusterPart, hosted: HostedCoordinator | None
) -> None:
    """Ends what waits for the former home, which this server is now.

    That one may stand still, or its address may have a process that is not home: a life
    that ends would wait for its answers first.
    """
    before = membership.map.home
    if before is not None:
        server.call_soon(partial(membership.lose, before.own))
    if hosted is not None:
        hosted.forsake()


def _first_map(own: ServerEntry, home_url: str) -> ServerMap:
    """Returns a map that knows home's address alone."""
    home = ServerEntry("home", home_url, home_url)
    return ServerMap(0, own.id, (home, own), (ShardEntry(HOME, home.id),))


def _moved_home(server_map: ServerMap, url: str) -> ServerMap:
    """Returns the same map with home at another address."""
    home = ServerEntry("home", url, url)
    servers = [one for one in server_map.servers if one.id != home.id]
    known = next((one for one in servers if one.own == url), None)
    shards = [one for one in server_map.shards if one.number != HOME]
    at_home = ShardEntry(HOME, home.id if known is None else known.id)
    return ServerMap(
        server_map.epoch,
        server_map.instance,
        (*servers, home) if known is None else tuple(servers),
        (at_home, *shards),
        server_map.facts,
    )
