"""Other work queues on this machine, each durable before it answers."""

import json
import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import attrs

from tests.benchmarks.measure import peer, program
from tests.support.ports import free_port
from txaware.errors import MissingExtra

UP_WITHIN_S = 30
POSTGRES = "postgres"
# Where Debian's packages have the servers of PostgreSQL, by version.
SERVERS = Path("/usr/lib/postgresql")
# Pushes one, and takes it off in a transaction, as a worker does that works in it.
PUSH = "INSERT INTO jobs (payload) VALUES (%s)"
POP = (
    "DELETE FROM jobs WHERE id IN (SELECT id FROM jobs ORDER BY id "
    "FOR UPDATE SKIP LOCKED LIMIT %s) RETURNING payload"
)

Cycle = Callable[[int], Callable[[], object]]


@attrs.frozen
class Peer:
    """Something that this machine may have, and what installs it."""

    name: str
    installer: str
    package: str
    is_there: Callable[[], object]


def require(peers: Iterable[Peer]) -> None:
    """Raises `MissingExtra` with all that are missing, and how to install them."""
    missing = [one for one in peers if not one.is_there()]
    if not missing:
        return
    commands: dict[str, list[str]] = {}
    for one in missing:
        commands.setdefault(one.installer, []).append(shlex.quote(one.package))
    raise MissingExtra(
        f"this benchmark needs {', '.join(one.name for one in missing)}: "
        + "; ".join(
            f"{installer} {' '.join(packages)}"
            for installer, packages in commands.items()
        )
    )


def _from_pip(package: str, module: str) -> Peer:
    return Peer(package, "pip install", package, lambda: find_spec(module))


PERSIST_QUEUE = _from_pip("persist-queue", "persistqueue")


@attrs.frozen
class Postgres:
    """A server of this run; a call opens a connection."""

    dsn: str

    def __call__(self) -> Any:
        psycopg = peer("psycopg", package="psycopg[binary]")
        return psycopg.connect(self.dsn, autocommit=True)


def postgres_binaries() -> Path | None:
    """The newest server of Debian's packages, if there is one."""
    found = sorted(SERVERS.glob("*/bin/postgres"))
    return found[-1].parent if found else None


IN_POSTGRES = [
    Peer("PostgreSQL", "apt-get install", "postgresql", postgres_binaries),
    _from_pip("psycopg[binary]", "psycopg"),
]
PGMQ = _from_pip("pgmq", "pgmq")
IN_REDIS = [
    Peer(
        "Redis", "apt-get install", "redis-server", lambda: shutil.which("redis-server")
    ),
    _from_pip("redis", "redis"),
]


@contextmanager
def postgres(directory: Path, *, has_pgmq: bool = False) -> Iterator[Postgres]:
    """A server with a table of jobs, perhaps with pgmq; yields what connects to it."""
    peer("psycopg", package="psycopg[binary]")
    pgmq = pgmq_sql() if has_pgmq else None
    binaries = postgres_binaries()
    if binaries is None:
        raise MissingExtra(
            "this benchmark needs PostgreSQL: apt-get install postgresql"
        )
    home, port = directory / "postgres", free_port()
    home.mkdir()
    as_user: dict[str, Any] = {"cwd": "/"}
    if os.getuid() == 0:  # it refuses to run as root
        for above in (directory, directory.parent):  # made for this run alone
            above.chmod(0o711)
        shutil.chown(home, POSTGRES)
        as_user["user"] = POSTGRES
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run(
        [binaries / "initdb", "-D", home, "-A", "trust", "-U", "bench", "-N"],
        check=True,
        **as_user,
        **quiet,
    )
    options = {
        "listen_addresses": "127.0.0.1",
        "unix_socket_directories": str(home),
        "synchronous_commit": "on",
        "max_connections": "50",
    }
    command = [str(binaries / "postgres"), "-D", str(home), "-p", str(port)]
    for name, value in options.items():
        command += ["-c", f"{name}={value}"]
    server = subprocess.Popen(command, **as_user, **quiet)

    connect = Postgres(f"host=127.0.0.1 port={port} user=bench dbname=postgres")
    try:
        first = _up(connect)
        first.execute(
            "CREATE TABLE jobs (id bigserial PRIMARY KEY, payload bytea NOT NULL)"
        )
        if pgmq is not None:
            first.execute(pgmq)
            first.execute("SELECT pgmq.create('jobs')")
        first.close()
        yield connect
    finally:
        server.terminate()
        server.wait()


def postgres_cycle(connect: Callable[[], Any], payload: bytes, batch: int) -> Cycle:
    """Pushes and pops `batch` items, with a connection for each thread."""

    def make(_: int) -> Callable[[], object]:
        connection = connect()

        def cycle() -> None:
            with connection.cursor() as cursor:
                if batch == 1:
                    cursor.execute(PUSH, (payload,))
                else:
                    with cursor.copy("COPY jobs (payload) FROM STDIN") as copied:
                        for _ in range(batch):
                            copied.write_row((payload,))
                cursor.execute(POP, (batch,))
                cursor.fetchall()

        return cycle

    return make


def pgmq_sql() -> str:
    """The SQL of pgmq, which its package for Python has in a file."""
    found = find_spec("pgmq")
    if found is None or not found.submodule_search_locations:
        raise MissingExtra("this benchmark needs pgmq: pip install pgmq")
    home = Path(found.submodule_search_locations[0])
    return (home / "sql" / "pgmq.sql").read_text()


def pgmq_cycle(connect: Callable[[], Any], payload: bytes, batch: int) -> Cycle:
    """Sends `batch` messages, reads as many with a lease, and deletes them."""
    text = json.dumps(payload.decode())

    def make(_: int) -> Callable[[], object]:
        connection = connect()

        def cycle() -> None:
            with connection.cursor() as cursor:
                cursor.execute(
                    "SELECT pgmq.send_batch('jobs', %s::jsonb[])", ([text] * batch,)
                )
                cursor.execute("SELECT msg_id FROM pgmq.read('jobs', 30, %s)", (batch,))
                ids = [row[0] for row in cursor.fetchall()]
                cursor.execute("SELECT pgmq.delete('jobs', %s::bigint[])", (ids,))

        return cycle

    return make


@contextmanager
def redis(directory: Path) -> Iterator[Callable[[], Any]]:
    """A server that syncs every command; yields what opens a connection."""
    client = peer("redis", package="redis")
    server_program = program("redis-server", package="redis-server")
    home, port = directory / "redis", free_port()
    home.mkdir()
    options = {
        "--port": str(port),
        "--bind": "127.0.0.1",
        "--dir": str(home),
        "--appendonly": "yes",
        "--appendfsync": "always",
        "--save": "",
    }
    flat = [text for pair in options.items() for text in pair]
    server = subprocess.Popen([server_program, *flat], stdout=subprocess.DEVNULL)

    def connect() -> Any:
        return client.Redis(port=port)

    def opened() -> Any:
        connection = connect()
        connection.ping()
        return connection

    try:
        _up(opened).xgroup_create("jobs", "workers", mkstream=True)
        yield connect
    finally:
        server.terminate()
        server.wait()


def redis_cycle(connect: Callable[[], Any], payload: bytes, batch: int) -> Cycle:
    """Adds `batch` entries, reads as many for a group, and acknowledges them."""

    def make(number: int) -> Callable[[], object]:
        connection, name = connect(), f"worker-{number}"

        def cycle() -> None:
            with connection.pipeline(transaction=False) as pipeline:
                for _ in range(batch):
                    pipeline.xadd("jobs", {"p": payload})
                pipeline.execute()
            found = connection.xreadgroup("workers", name, {"jobs": ">"}, count=batch)
            ids = [item for _, items in found for item, _ in items]
            if ids:
                connection.xack("jobs", "workers", *ids)
                connection.xdel("jobs", *ids)

        return cycle

    return make


@contextmanager
def persist_queue(directory: Path, payload: bytes) -> Iterator[Callable[[], object]]:
    """A queue in SQLite; yields what puts, gets and acknowledges one item."""
    persistqueue = peer("persistqueue", package="persist-queue")
    queue = persistqueue.SQLiteAckQueue(
        str(directory / "persist-queue"), auto_commit=True, multithreading=True
    )

    def cycle() -> None:
        queue.put(payload)
        queue.ack(queue.get())

    try:
        yield cycle
    finally:
        queue.close()


def _up(connect: Callable[[], Any]) -> Any:
    until_s = time.monotonic() + UP_WITHIN_S
    while time.monotonic() < until_s:
        with suppress(Exception):
            return connect()
        time.sleep(0.05)
    return connect()
