"""`txaware serve`: the data and its coordinator for other processes, over HTTP."""

import ctypes
import logging
import resource
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import click

from txaware.auth import AuditLog, Tokens
from txaware.cli.failures import Failure
from txaware.cli.garbage import what_began_stays
from txaware.cli.session import Session, address_of, pass_session
from txaware.cli.stop import Stop, Stopped, stopped_by_signal
from txaware.errors import BadRequest, TxAwareError, Unavailable
from txaware.messaging import Messaging
from txaware.messaging.addresses import require_unserved
from txaware.messaging.parts import is_http
from txaware.store.hbase.ownership import StoreInUse

if TYPE_CHECKING:
    from txaware.server.server import HttpServer

log = logging.getLogger(__name__)

DEFAULT_PORT = 11015
MOST_PROCESSES = 64
# The time until it is noticed that the server's thread has ended.
LOOK_S = 1.0
# The interval at which a standby looks whether it may have the data.
STANDBY_LOOK_S = 0.25
# The parameter of glibc's `mallopt` for the size from which memory is mapped by itself.
M_MMAP_THRESHOLD = -3
# Memory of this size and above goes back to the system as soon as it is free.
MAPPED_BYTES = 512 << 10

file_option = click.Path(path_type=Path, exists=True, dir_okay=False)


@click.command()
@click.option(
    "--data",
    metavar="DIR|URL",
    help="What to serve: a directory, made where there is none, or an address as of "
    "--url, which is the default.",
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="The address to listen at; one that others reach needs --auth, and that "
    "--certificate.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=DEFAULT_PORT,
    show_default=True,
    help="The port to listen at; 0 for a free one.",
)
@click.option(
    "--coordinator", metavar="ADDRESS", help="Who decides; as before the verb."
)
@click.option(
    "--auth",
    "tokens",
    type=file_option,
    metavar="FILE",
    help="Let in only whoever has a token of FILE; `txaware token` makes it.",
)
@click.option(
    "--audit-log",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Append refused calls to FILE, a JSON object each; else they are logged.",
)
@click.option(
    "--insecure",
    is_flag=True,
    help="Without --auth: everybody who reaches the address may do anything.",
)
@click.option(
    "--allow-plain-tokens",
    is_flag=True,
    help="With --auth, without --certificate: let tokens come to --host in plain text, "
    "as a proxy in front speaks TLS, or nobody listens on that network.",
)
@click.option(
    "--certificate",
    type=file_option,
    metavar="FILE",
    help="Speak TLS with this certificate (PEM; a chain begins with its own).",
)
@click.option(
    "--key",
    type=file_option,
    metavar="FILE",
    help="The private key of --certificate, where that file does not hold it.",
)
@click.option(
    "--standby",
    is_flag=True,
    help="While another process has the data, wait, and take over once it has ended, "
    "or in HBase gives no sign of life; wait again when it is taken over.",
)
@click.option(
    "--processes",
    type=click.IntRange(1, MOST_PROCESSES),
    metavar="N",
    help="Serve a directory by N processes, each of which has shards of its own; "
    "missing shards are made.",
)
@click.option(
    "--no-frames",
    is_flag=True,
    help="Speak HTTP only: no connection goes on in frames, which carry many calls at "
    "once.",
)
@pass_session
def serve(
    session: Session,
    /,
    *,
    data: str | None,
    coordinator: str | None,
    standby: bool,
    processes: int | None,
    no_frames: bool,
    **options: Any,
) -> None:
    """Serve the data to other processes, until Ctrl-C or SIGTERM.

    The first line on standard output says where. Every other verb takes that address
    as its --url, and `leveldb:DIR` of the same user leads there too. It ends with 0
    once requests in flight are answered; a second signal does not wait for them.
    SIGHUP reads the tokens again, and goes on in a new audit log.

    With --standby it says on standard error whom it waits for, and listens nowhere
    meanwhile: its first line comes when it serves. Run two of them, and give clients
    both addresses: --url http://one:11015,http://two:11015. Two on one machine that
    serve a directory may have the same port.

    With --processes one process that has no data starts N others, and starts one anew
    that ends. Each answers at the address of all and at one of its own (GET
    /v1/servers), and passes on what is another one's. The first line comes when every
    shard is there.

    \b
    Example:
      txaware serve --data ./data
      txaware serve --data ./data --processes 4
      txaware serve --data hbase://127.0.0.1:9090/txaware --standby
      txaware serve --data /var/lib/txaware --host 0.0.0.0 --auth tokens.toml \\
          --certificate server.pem --key server.key
      txaware --url http://127.0.0.1:11015 topic create orders
    """
    if data is not None:
        session = attrs.evolve(session, url=address_of(data))
    if coordinator is not None:
        session = attrs.evolve(session, coordinator=coordinator)
    if no_frames:
        settings = attrs.evolve(session.settings, frames=False)
        session = attrs.evolve(session, settings=settings)
    if options["key"] is not None and options["certificate"] is None:
        raise click.UsageError("--key needs --certificate")
    if is_http(session.url):
        raise BadRequest(f"{session.url} is that of a server; serve a directory")
    if session.settings.allow_plain_tokens:
        options["allow_plain_tokens"] = True
    try:
        _load_and_check(options, binds=not standby)
    except Unavailable:  # mostly since the same data is served there already
        require_unserved(session.url)
        raise
    _open_more_files()
    _give_memory_back()
    if processes is not None:
        _serve_by_processes(session, processes, options, standby=standby)
        return
    if session.url.startswith("hbase:") and session.given is None:
        # Only this needs them.
        from txaware.cli.shard_servers import is_sharded, serve_shards

        if is_sharded(session):
            with stopped_by_signal(reloads=True) as stop, suppress(Stopped):
                serve_shards(session, options, stop)
            return
    audit_log = options.pop("audit_log")
    with stopped_by_signal(reloads=True) as stop, suppress(Stopped):
        while not stop.requested:
            try:
                with (
                    closing(AuditLog(audit_log)) as audit,
                    _owned(session, stop, standby=standby) as messaging,
                ):
                    _serve(messaging, stop, audit, options)
            except StoreInUse as error:
                if not standby:
                    raise
                click.echo(f"serves no more: {error}", err=True)


@contextmanager
def _owned(session: Session, stop: Stop, *, standby: bool) -> Iterator[Messaging]:
    """Opens the messaging as the owner of the data, until the end of the block.

    If another process owns the data meanwhile, that is the error that is raised,
    whatever other errors follow from it.
    """
    if session.given is not None:
        yield session.given
        return
    messaging, lost = _own(session, stop, standby=standby), None
    try:
        yield messaging
    except StoreInUse as error:
        lost = error
        raise
    finally:
        with suppress(*(() if lost is None else (TxAwareError,))):
            messaging.close()


def _own(session: Session, stop: Stop, *, standby: bool) -> Messaging:
    """Waits until nobody else has the data, and opens it; says whom it waits for."""
    said = None
    while True:
        try:
            return session.own(stop.pause)
        except Unavailable as error:
            if not standby:
                raise
            if str(error) != said:
                said = str(error)
                click.echo(f"on standby: {said}", err=True)
        stop.pause(STANDBY_LOOK_S)


def _serve(
    messaging: Messaging, stop: Stop, audit: AuditLog, options: dict[str, Any]
) -> None:
    """Serves until it is told to stop, or has lost the data."""
    if options["tokens"] is not None:
        options["tokens"].reload()  # it may have waited for days
    with messaging.serve(audit=audit, **options) as server, what_began_stays():
        click.echo(f"listening on {server.url}")
        _wait(server, stop)
        log.info("drains")


def _serve_by_processes(
    session: Session, processes: int, options: dict[str, Any], *, standby: bool
) -> None:
    # Only this needs them.
    from txaware.cli.processes import serve_directory

    scheme, _, path = session.url.partition(":")
    if scheme != "leveldb" or session.given is not None:
        raise BadRequest(
            f"{session.url} is no directory: --processes serves one, and its processes "
            f"share the machine"
        )
    if standby:
        raise click.UsageError("--standby is for one process; --processes starts anew")
    with stopped_by_signal(reloads=True) as stop, suppress(Stopped):
        serve_directory(session, Path(path), processes, options, stop)


def _open_more_files() -> None:
    """Raises the limit of open files as far as allowed: each connection is one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _give_memory_back() -> None:
    """Has the system get the memory of large bodies and pages when they are gone.

    glibc raises its threshold with each large block that is freed, up to 32 MiB, and
    keeps what lies below: 300 pages of 8 MB that nobody read left 200 MB in use.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # other C libraries give it back, or have no say in it
        mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES)


def _load_and_check(options: dict[str, Any], *, binds: bool) -> None:
    """Checks the call before anything is opened: a refused one leaves no directory.

    The port may be that of an owner that has yet to end, so a standby tries no bind.
    """
    from txaware.server.server import Access  # only this command needs it

    if options["tokens"] is not None:
        options["tokens"] = Tokens.load(options["tokens"])
    Access(
        host=options["host"],
        port=options["port"],
        tokens=options["tokens"],
        is_insecure=options["insecure"],
        allow_plain_tokens=options["allow_plain_tokens"],
        certificate=options["certificate"],
        key=options["key"],
    ).try_out(binds=binds)


def _wait(server: "HttpServer", stop: Stop) -> None:
    while not stop.wait(LOOK_S):
        if stop.must_reload():
            server.reload()
        server.require_data()
        if not server.is_running:
            raise Failure("the server has ended; its log says why")
