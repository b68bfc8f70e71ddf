"""Serves a store over HTTP: a thread with an event loop, from start to drain."""

import asyncio
import logging
import os
import secrets
import socket
import ssl
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

import attrs
import uvicorn
import uvloop

from coordinator.threads import JoinableThread, SafeFuture, turns
from txaware.auth import EVERYTHING, AuditLog, Principal, Tokens, new_token
from txaware.errors import BadRequest, Unavailable
from txaware.model.loopback import is_local
from txaware.protocol.frames import VERSION, Hello
from txaware.server.admission import Admission, AnswerMemory, Bodies
from txaware.server.app import AsgiApp
from txaware.server.cluster.cluster_part import ClusterPart
from txaware.server.cluster.commit_parts import parts_route
from txaware.server.cluster.forwarding import Forwarding
from txaware.server.cluster.home_session import session_route
from txaware.server.cluster.own_word import word_route
from txaware.server.cluster.peers import Peers
from txaware.server.cluster.producers_at_home import producer_route
from txaware.server.cluster.remote_rows import rows_route
from txaware.server.cluster.remote_view import ViewRoutes
from txaware.server.cluster.server_map import ServerMap
from txaware.server.cluster.shard_finder import ShardFinder
from txaware.server.cluster.topic_copies import copy_route
from txaware.server.cluster.whole_topics import stored_route
from txaware.server.connection import CUT_S, Connection
from txaware.server.connection_limits import ConnectionLimits
from txaware.server.direct_lane import Lane
from txaware.server.failures import HiddenPaths
from txaware.server.frame_connection import FrameLimits, FrameRules
from txaware.server.idempotency import INSTANCE, Idempotency
from txaware.server.metrics.exposition import Exposition
from txaware.server.request_rules import Origins, RequestRules
from txaware.server.routes import all_performers, all_routes
from txaware.server.routes.unguarded import server_facts
from txaware.server.routes.verb_routes import frame_routes
from txaware.server.routing import Route
from txaware.server.served import Served
from txaware.server.server_context import (
    Outcomes,
    ServerContext,
    Stopping,
    Threads,
)
from txaware.server.server_file import ServerFile, own_certificate

log = logging.getLogger(__name__)

BACKLOG = 2048
# Programs of this machine find a server that listens at every address there.
LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}
MOST_PORT = 65_535
AUDIT_FLUSH_S = 1.0
TICK_S = 1.0
FIRST_PAUSE_S = 0.001


@attrs.frozen(kw_only=True)
class Access:
    """The address to listen at, and who may use the server; see `txaware serve`."""

    host: str = "127.0.0.1"
    port: int = 0
    tokens: Tokens | None = None
    audit: AuditLog | None = None
    is_insecure: bool = False
    allow_plain_tokens: bool = False
    certificate: str | Path | None = None
    key: str | Path | None = None
    # Those that listen already: that of all servers of a cluster, and an own one.
    sockets: tuple[socket.socket, ...] = ()

    def check(self) -> None:
        """Refuses an address that others reach, unless somebody said that it is meant.

        Without tokens others could do anything. Without TLS anybody on the way could
        read the tokens.
        """
        if is_local(self.host):
            return
        is_plain = self.certificate is None and not self.allow_plain_tokens
        if self.tokens is not None and is_plain:
            raise BadRequest(
                f"{self.host} can be reached from elsewhere, and tokens would go there "
                f"in plain text: name a certificate (--certificate), or say that a "
                f"proxy in front speaks TLS or that nobody listens on that network "
                f"(--allow-plain-tokens)"
            )
        if self.tokens is None and not self.is_insecure:
            raise BadRequest(
                f"{self.host} can be reached from elsewhere, and there are no tokens: "
                f"name a file of them (--auth), or say that everybody may do anything "
                f"(--insecure)"
            )

    def try_out(self, *, binds: bool = True) -> None:
        """Raises what would keep a server from its start, before data is opened."""
        self.check()
        if self.certificate is not None:
            try:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(self.certificate, self.key)
            except OSError as error:
                raise _wrong_certificate(error) from error
        if binds:
            bound(self.host, self.port).close()


class Listener(uvicorn.Server):
    """Stops when it is told to; uvicorn's own looks ten times a second."""

    def __init__(self, config: uvicorn.Config, stopping: Stopping) -> None:
        super().__init__(config)
        self._stopping = stopping

    async def main_loop(self) -> None:
        """Keeps the date of the answers, until it has to stop."""
        must_stop = asyncio.Event()
        self._stopping.register(must_stop)
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                await asyncio.wait_for(must_stop.wait(), TICK_S)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Listens no more, and waits for what is in flight."""
        for server in self.servers:
            server.close()
        for listening in sockets or ():
            listening.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        drain_s = self.config.timeout_graceful_shutdown or 0
        end_s = time.monotonic() + drain_s + 2 * CUT_S
        pause_s = FIRST_PAUSE_S
        while self._is_busy and not self.force_exit and time.monotonic() < end_s:
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, CUT_S)
        if not self.force_exit and (tasks := self.server_state.tasks):
            log.error("Cancel %d running task(s), the time to drain is up", len(tasks))
            for task in tasks:
                task.cancel()

    @property
    def _is_busy(self) -> bool:
        return bool(self.server_state.connections or self.server_state.tasks)


class HttpServer:
    """A server that listens from its making to `close`, in threads of its own.

    One that nobody closes ends with the main thread.
    """

    def __init__(
        self,
        served: Served,
        access: Access,
        membership: ClusterPart | None = None,
    ) -> None:
        if served.settings.allow_plain_tokens:
            access = attrs.evolve(access, allow_plain_tokens=True)
        access.check()
        self._membership = membership
        self.instance = (
            secrets.token_hex(8) if membership is None else membership.map.instance
        )
        self._served = served
        self._access = access
        self._audit = access.audit or AuditLog()
        self._stopping = Stopping()
        self._owner = os.getpid()
        self._closing = threading.Lock()
        self._is_closed = self._has_ended = False
        self._answers = AnswerMemory(served.settings)
        self._limits = ConnectionLimits(served.settings)
        self._config = self._configured()
        self._certificate = (
            None if access.certificate is None else own_certificate(access.certificate)
        )
        self._sockets = access.sockets or (
            bound(access.host, access.port, backlog=BACKLOG),
        )
        self._socket_name: tuple[str, int] = self._sockets[0].getsockname()[:2]
        self._server = Listener(self._config, self._stopping)
        self._loop = uvloop.new_event_loop()
        self._thread = JoinableThread(target=self._run, name="txaware-http")
        self._server_file: ServerFile | None = None
        self._rules: RequestRules | None = None
        self.facts: dict[str, Any] = {}
        self._began: Future[None] = SafeFuture()
        self._thread.start()
        _open.add(self)
        try:
            self._began.result()
            self._server_file = self._made_known()
        except BaseException:
            self.close()
            raise

    @property
    def url(self) -> str:
        """Its address; that of all servers of its cluster."""
        if self._membership is not None:
            return self._membership.entry.url
        return self._url(self._socket_name[0])

    def _url(self, host: str) -> str:
        shown = f"[{host}]" if ":" in host else host
        scheme = "http" if self._access.certificate is None else "https"
        return f"{scheme}://{shown}:{self._socket_name[1]}"

    @property
    def is_running(self) -> bool:
        """True while it listens or drains; what else ended it is in the log."""
        return self._thread.is_alive()

    def require_data(self) -> None:
        """Raises where another process has taken over what is served here."""
        if self._served.require_owned is not None:
            self._served.require_owned()

    def take_map(self, server_map: ServerMap) -> None:
        """Takes a later map of the cluster; for any thread."""
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._take_map, server_map)

    def _take_map(self, server_map: ServerMap) -> None:
        assert self._membership is not None
        self._membership.change(server_map)
        self.instance = self._membership.map.instance
        if self._rules is not None:
            self._rules.repeats.instance = self.instance
        self._config.headers = [("txaware-instance", self.instance)]
        self._config.encoded_headers = [(INSTANCE, self.instance.encode())]
        state = self._server.server_state
        state.default_headers = [
            header for header in state.default_headers if header[0] != INSTANCE
        ] + self._config.encoded_headers

    def call_soon(self, act: Callable[[], object]) -> None:
        """Has the event loop do something; for any thread."""
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(act)

    def reload(self) -> None:
        """Reads the tokens again, and goes on in new log files (SIGHUP)."""
        if self._access.tokens is not None:
            self._access.tokens.reload()
        self._audit.reopen()

    def close(self) -> None:
        """Ends what waits, lets what is in flight finish, and listens no more."""
        if os.getpid() != self._owner:
            self._close_sockets()  # a forked child's copies; the rest is its parent's
            return
        with self._closing:
            if self._has_ended:
                return
            self._is_closed = True
            self._make_unknown()
            self._server.should_exit = True
            with suppress(RuntimeError):  # the loop has ended by itself
                self._loop.call_soon_threadsafe(self._stopping.set)
            try:
                self._drain()
            finally:
                self._audit.close()
            self._has_ended = True  # or a second close finishes what is left
            _open.discard(self)

    def _drain(self) -> None:
        """Waits for the thread; an interrupt does not wait for what is in flight."""
        try:
            self._thread.join()
        except BaseException:
            self._server.force_exit = True
            self._thread.join()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else "listening"
        connections = len(self._server.server_state.connections)
        return f"<HttpServer {self.url} {state}, {connections} connections>"

    @property
    def for_others(self) -> ServerFile | None:
        """The address and token for other processes of this machine."""
        return None if self._is_closed else self._server_file

    def _made_known(self) -> ServerFile:
        """Leads other processes of this user here, with a token of their own."""
        host = self._socket_name[0]
        local_url = self._url(LOOPBACK.get(host, host))
        membership = self._membership
        token = new_token() if membership is None else membership.token
        file = ServerFile(local_url, os.getpid(), token, self._certificate)
        if self._access.tokens is not None:
            owner = Principal(name="owner of the data", rules=(EVERYTHING,))
            self._access.tokens.admit(file.token, owner)
        elsewhere = self._url(socket.gethostname() if host in LOOPBACK else host)
        if membership is not None:
            if not membership.leads:
                return file
            elsewhere = membership.entry.own
        self._lead_others(file, elsewhere)
        self._served.known.append((file, elsewhere))
        return file

    def _make_unknown(self) -> None:
        """Leads others to another server of the same data, if there is one."""
        served, file = self._served, self._server_file
        if file is None:
            return
        served.known[:] = [each for each in served.known if each[0] != file]
        if served.known:
            self._lead_others(*served.known[-1])
            return
        if served.directory is not None:
            file.remove(served.directory)
        if served.announce is not None:
            served.announce(None)

    def _lead_others(self, file: ServerFile, elsewhere: str) -> None:
        if self._served.directory is not None:
            file.write(self._served.directory)
        if self._served.announce is not None:
            self._served.announce(elsewhere)

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._serve())
        except Exception as error:
            log.exception("the server at %s ended", self.url)
            if not self._began.done():
                self._began.set_exception(error)
        finally:
            self._close_sockets()  # nobody shall wait for an answer that never comes

    def _close_sockets(self) -> None:
        for one in self._sockets:
            one.close()

    async def _serve(self) -> None:
        turns.call_soon = self._loop.call_soon
        with Threads(self._served.settings.server_threads) as threads:
            self._config.loaded_app = self._app(threads)
            self._began.set_result(None)
            telling = asyncio.create_task(self._tell_refusals())
            try:
                await self._server.serve(sockets=[*self._sockets])
            finally:
                if self._rules is not None and self._rules.forwarding is not None:
                    self._rules.forwarding.close()
                left: list[Any] = [*self._server.server_state.connections]
                for connection in left:  # an interrupt did not wait for them
                    connection.cut()
                telling.cancel()
                threads.drop()

    async def _tell_refusals(self) -> None:
        """Writes how many lines of the audit log were left out, when no more come."""
        while True:
            await asyncio.sleep(AUDIT_FLUSH_S)
            self._audit.flush()

    def _app(self, threads: Threads) -> AsgiApp:
        """Puts together what answers, from the routes outwards."""
        served = self._served
        server_context = self._server_context(threads)
        admission = Admission(served.settings)
        exposition = Exposition(
            served.service,
            served.administration,
            served.overview,
            admission,
            refusals=served.owners.refusals,
            shares=served.groups.shares,
            clock_ms=served.clock_ms,
        )
        rules = self._request_rules(server_context, admission, exposition)
        if self._membership is not None:
            rules.forwarding = self._forwarding(self._membership, rules)
        self._rules = rules
        self.facts = server_facts(server_context)
        app = AsgiApp(rules, Bodies(served.settings))
        if served.settings.frames:
            app.frames = self._frames(server_context, app.lane)
        return app

    def _server_context(self, threads: Threads) -> ServerContext:
        served = self._served
        return ServerContext(
            service=served.service,
            tables=served.tables,
            queues=served.queues,
            groups=served.groups,
            administration=served.administration,
            coordinator=served.coordinator,
            settings=served.settings,
            clock_ms=served.clock_ms,
            instance=self.instance,
            threads=threads,
            outcomes=Outcomes(self._loop),
            stopping=self._stopping,
            owners=served.owners,
            answers=self._answers,
            write_entries=served.write_entries,
            parts_elsewhere=served.parts_elsewhere,
            shares_journal=served.shares_journal,
            hidden_paths=HiddenPaths.of(served.directory),
            membership=self._membership,
            url=self.url,
        )

    def _request_rules(
        self,
        server_context: ServerContext,
        admission: Admission,
        exposition: Exposition,
    ) -> RequestRules:
        access, membership = self._access, self._membership
        has_tokens = access.tokens is not None
        routes = all_routes(
            server_context,
            self._served.overview,
            exposition,
            needs_tokens=has_tokens,
        )
        if membership is not None:
            routes += _routes_of_cluster(server_context, membership)
        return RequestRules(
            routes,
            admission=admission,
            repeats=Idempotency(self.instance, time.monotonic),
            observer=exposition,
            origins=Origins(only_local=not has_tokens and not access.is_insecure),
            hidden_paths=server_context.hidden_paths,
            tokens=access.tokens,
            audit=self._audit,
            seal=None if membership is None else membership.seal,
        )

    def _forwarding(self, membership: ClusterPart, rules: RequestRules) -> Forwarding:
        served = self._served
        peers = Peers(membership, silence_s=served.settings.server_silence_s)
        return Forwarding(
            membership,
            ShardFinder(membership, served.service.handles, peers),
            peers,
            served.coordinator,
            served.settings,
            rules,
        )

    def _frames(self, server_context: ServerContext, lane: Lane) -> FrameRules:
        settings = self._served.settings
        limits = FrameLimits(settings)
        return FrameRules(
            lane,
            frame_routes(all_performers(server_context)),
            limits,
            Hello(
                VERSION,
                f"txaware {version('txaware')}",
                self.instance,
                streams=limits.most_of_connection,
            ),
            settings,
            self._answers,
            self._limits,
            server_context.outcomes,
        )

    def _configured(self) -> uvicorn.Config:
        settings, access = self._served.settings, self._access
        shared = {
            "settings": settings,
            "stopping": self._stopping,
            "limits": self._limits,
            "answers": self._answers,
        }
        protocol: Any = type("Connection", (Connection,), shared)
        config = uvicorn.Config(
            _not_yet,
            http=protocol,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            headers=[("txaware-instance", self.instance)],
            timeout_keep_alive=settings.idle_timeout_s,  # type: ignore[arg-type]
            timeout_graceful_shutdown=settings.drain_timeout_s,  # type: ignore[arg-type]
            ssl_certfile=access.certificate,
            ssl_keyfile=access.key,
        )
        try:
            config.load()
        except OSError as error:
            raise _wrong_certificate(error) from error
        return config


_open: weakref.WeakSet[HttpServer] = weakref.WeakSet()


def _close_open() -> None:
    """Closes what nobody closed, while the threads that answer are still there.

    Python ends the pools of `concurrent.futures` with the main thread, and waits for
    all other threads then. What is registered last is called first.
    """
    for server in list(_open):
        server.close()


threading._register_atexit(_close_open)  # type: ignore[attr-defined]


async def _not_yet(_: object, __: object, ___: object) -> None:
    raise Unavailable("the server is starting")


def _wrong_certificate(error: OSError) -> BadRequest:
    return BadRequest(f"the certificate or its key is wrong: {error}")


def bound(host: str, port: int, *, backlog: int | None = None) -> socket.socket:
    """Returns a socket at that address; it listens where it has a `backlog`."""
    if type(port) is not int or not 0 <= port <= MOST_PORT:
        raise BadRequest(f"a port is from 0 to {MOST_PORT}, not {port!r}")
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        with ExitStack() as on_failure:
            found = on_failure.enter_context(socket.socket(family))
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            found.bind((host, port))
            if backlog is not None:
                found.listen(backlog)
            on_failure.pop_all()
    except OSError as error:
        raise Unavailable(f"{host}:{port} cannot be listened at: {error}") from error
    return found


def _routes_of_cluster(
    server_context: ServerContext, membership: ClusterPart
) -> list[Route]:
    """Returns the routes by which servers of the same data ask each other."""
    return [
        copy_route(server_context, membership),
        parts_route(server_context, membership),
        producer_route(server_context, membership),
        stored_route(server_context),
        rows_route(server_context, membership),
        *ViewRoutes(server_context, membership).routes(),
        session_route(membership),
        word_route(membership),
    ]
