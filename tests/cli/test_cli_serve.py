"""`txaware serve` as a process: its first line, its end, its files, its tokens."""

import gc
import http.client
import json
import os
import signal
import socket
import ssl
import stat
import subprocess
import sys
from contextlib import ExitStack, closing
from pathlib import Path
from typing import IO, Any

import pytest

import txaware
from tests.support.certificates import certificate, self_signed
from tests.support.cli_runs import PROGRAM, Serving, error_of, run, serving, start
from tests.support.concurrency import until
from txaware.cli.garbage import what_began_stays
from txaware.errors import BadRequest, Unavailable
from txaware.model.settings import Settings

pytestmark = pytest.mark.usefixtures("here")

PATIENCE_S = 20
TOPIC = "/v1/namespaces/default/topics/t"


def began_publish(server: Serving, body: bytes) -> socket.socket:
    """A publish whose body the server has begun to wait for."""
    head = (
        f"POST {TOPIC}/publish HTTP/1.1\r\nHost: {server.address[0]}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        f"Expect: 100-continue\r\n\r\n"
    )
    client = socket.create_connection(server.address, PATIENCE_S)
    client.sendall(head.encode())
    assert client.recv(1000).startswith(b"HTTP/1.1 100 ")
    return client


def test_the_first_line_says_where_and_others_are_served_there() -> None:
    with serving() as server:
        assert server.address[0] == "127.0.0.1"
        assert server.get("/ping") == 200
        run("topic", "create", "t", "--url", server.url)
        run("publish", "t", "one", "two", "--transaction", "--url", server.url)
        polled = run("poll", "t", "--raw", "--url", server.url)
        assert polled.stdout == "one\ntwo\n"


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.long)]
)
def test_a_signal_ends_it_with_0_and_nothing_more_to_say(number: int) -> None:
    with serving() as server:
        server.process.send_signal(number)
        assert server.ended() == (0, b"", b"")
    with txaware.connect("leveldb:data") as messaging:
        assert messaging.check().is_clean


def test_drain_answers_what_is_in_flight_and_long_polls_at_once() -> None:
    body = b'{"messages": ["late"]}'
    with serving() as server:
        run("topic", "create", "t", "--url", server.url)
        polling = server.connection()
        wait = json.dumps({"startFrom": None, "waitMs": 3_600_000})
        polling.request("POST", f"{TOPIC}/wait", wait)
        with began_publish(server, body) as publishing:
            server.process.send_signal(signal.SIGTERM)
            answer = polling.getresponse()
            assert json.loads(answer.read()) == {"ready": False}
            polling.close()
            assert until(lambda: not server.is_listening())
            publishing.sendall(body)
            assert publishing.recv(1000).startswith(b"HTTP/1.1 200 ")
        assert server.ended()[0] == 0
    with txaware.connect("leveldb:data") as messaging:
        assert [message.payload for message in messaging.poll("t")] == [b"late"]


def test_a_second_signal_does_not_wait() -> None:
    with serving() as server:
        run("topic", "create", "t", "--url", server.url)
        with began_publish(server, b"never sent"):
            server.process.send_signal(signal.SIGTERM)
            assert until(lambda: not server.is_listening())
            server.process.send_signal(signal.SIGINT)
            assert server.ended()[0] == 130


def test_the_server_file_leads_others_of_its_user_there_until_its_end(
    here: Path,
) -> None:
    file = here / "data" / "SERVER"
    with serving() as server:
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert json.loads(file.read_text())["url"] == server.url
        run("topic", "create", "t", "--url", "leveldb:data")
        ports = ("0", str(server.address[1]))
        told = [error_of("serve", "--data", "data", "--port", p, code=3) for p in ports]
        owner = f"by process {server.process.pid} at {server.url}"
        assert all(f"served already, {owner}: connect there" in each for each in told)
        server.process.send_signal(signal.SIGTERM)
        assert server.ended()[0] == 0
        assert not file.exists()
    assert run("topic", "list", "--url", "leveldb:data").stdout.count("\n") == 2


def test_the_file_of_a_server_that_was_killed_leads_nobody_astray(here: Path) -> None:
    with serving() as server:
        server.process.kill()
        server.ended()
    assert (here / "data" / "SERVER").exists()
    with txaware.connect("leveldb:data"):
        told = error_of("topic", "list", "--url", "leveldb:data", code=3)
    assert f"in use by process {os.getpid()}" in told


def test_hangup_takes_a_token_away_and_goes_on_in_a_new_audit_log(here: Path) -> None:
    file = ("--file", "tokens.toml")
    everything = ("--topic", "*:*", "--verb", "admin", "--monitor")
    run("token", "new", "bob", *file, *everything)
    without_ann = (here / "tokens.toml").read_text()
    ann = run("token", "new", "ann", *file, *everything).stdout.strip()
    log = here / "audit.log"
    with serving("--auth", "tokens.toml", "--audit-log", "audit.log") as server:
        assert server.get("/v1/namespaces", ann) == 200
        assert server.get("/v1/namespaces") == 401
        assert until(lambda: "no token was sent" in log.read_text())
        log.rename(here / "audit.old")
        (here / "tokens.toml").write_text(without_ann)
        server.process.send_signal(signal.SIGHUP)
        assert until(
            lambda: (
                server.get("/v1/namespaces", ann) == 401
                and log.exists()
                and "is not known" in log.read_text()
            )
        )
        server.process.send_signal(signal.SIGTERM)
        assert server.ended() == (0, b"", b"")


def test_a_token_comes_from_the_environment_or_a_file(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = ("--topic", "*", "--verb", "admin")
    token = run("token", "new", "ann", "--file", "tokens.toml", *rule).stdout
    with serving("--auth", "tokens.toml") as server:
        told = error_of("topic", "list", "--url", server.url)
        assert told.startswith("no token was sent")
        assert "TXAWARE_TOKEN, or in the file that TXAWARE_TOKEN_FILE names" in told
        monkeypatch.setenv("TXAWARE_TOKEN", token.strip())
        run("topic", "create", "t", "--url", server.url)
        told = error_of("groups", "list", "--url", server.url)
        assert "TXAWARE_TOKEN" not in told
        monkeypatch.delenv("TXAWARE_TOKEN")
        (here / "token").write_text(token)
        (here / "token").chmod(0o600)
        monkeypatch.setenv("TXAWARE_TOKEN_FILE", "token")
        assert run("topic", "list", "--url", server.url).stdout.count("\n") == 2


def test_tls_with_a_certificate_of_ones_own(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    self_signed(here, "IP:127.0.0.1")
    with serving("--certificate", "server.pem", "--key", "server.key") as server:
        assert server.url.startswith("https://127.0.0.1:")
        assert "certificate" in error_of("topic", "list", "--url", server.url, code=3)
        monkeypatch.setenv("TXAWARE_CA_FILE", "server.pem")
        run("topic", "create", "t", "--url", server.url)
        run("publish", "t", "safe", "--url", "leveldb:data")
        secure = ssl.create_default_context(cafile="server.pem")
        connection = http.client.HTTPSConnection(
            *server.address, context=secure, timeout=PATIENCE_S
        )
        connection.request("GET", "/ping")
        assert connection.getresponse().status == 200
        connection.close()
        assert run("poll", "t", "--raw", "--url", server.url).stdout == "safe\n"


@pytest.mark.long
def test_verbs_are_led_to_a_server_whose_certificate_is_for_another_name(
    here: Path,
) -> None:
    file = certificate(here, "server")
    with serving("--certificate", str(file)) as server:
        assert server.url.startswith("https://127.0.0.1:")
        run("topic", "create", "t", "--url", "leveldb:data")
        run("publish", "t", "safe", "--url", "leveldb:data")
        assert run("poll", "t", "--raw", "--url", "leveldb:data").stdout == "safe\n"
        assert run("check", "--data", "data").stdout.endswith("clean\n")
        run("backup", "all.backup", "--url", "leveldb:data")
        assert "certificate" in error_of("topic", "list", "--url", server.url, code=3)


def test_settings_come_as_for_other_verbs() -> None:
    with serving(
        before=("--set", "message_limit_bytes=1000"),
        env={"TXAWARE_REQUEST_LIMIT_BYTES": "2000"},
    ) as server:
        connection = server.connection()
        connection.request("GET", "/v1/server")
        limits = json.loads(connection.getresponse().read())["limits"]
        connection.close()
    assert (limits["messageBytes"], limits["requestBytes"]) == (1000, 2000)


@pytest.mark.long
def test_data_is_a_directory_or_an_address_and_else_that_of_url(here: Path) -> None:
    with serving("--data", "memory:") as server:
        assert server.get("/ping") == 200
    assert not list(here.iterdir())
    with serving("--data", "leveldb:there"):
        assert (here / "there").is_dir()
    process = start("--url", "leveldb:elsewhere", "serve", "--port", "0")
    with process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"listening on ")
        assert (here / "elsewhere" / "SERVER").exists()
        process.kill()


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["--host", "0.0.0.0"], 2, "can be reached from elsewhere, and there are no"),
        (["--host", "::"], 2, "can be reached from elsewhere, and there are no tokens"),
        (["--data", "hbase://host:9090"], 2, "is not hbase://HOST:PORT/PREFIX"),
        (["--data", "http://127.0.0.1:1"], 2, "http://127.0.0.1:1 is that of a server"),
        (["--auth", "none.toml"], 2, "does not exist"),
        (["--auth", "wrong.toml"], 2, "wrong.toml"),
        (["--key", "wrong.toml"], 2, "--key needs --certificate"),
        (["--certificate", "wrong.toml"], 2, "the certificate or"),
        (["--audit-log", "no/where"], 2, "cannot be opened"),
        (["--port", "65536"], 2, "65536 is not in the range"),
        (["--coordinator", "nothing:"], 2, "names no coordinator"),
        (["--host", "256.1.1.1", "--insecure"], 3, "256.1.1.1"),
    ],
)
def test_what_is_wrong_is_said(
    arguments: list[str], code: int, told: str, here: Path
) -> None:
    (here / "wrong.toml").write_text("?")
    (here / "wrong.toml").chmod(0o600)
    assert told in error_of("serve", *arguments, code=code)
    if "--coordinator" not in arguments:
        assert [path.name for path in here.iterdir()] == ["wrong.toml"]


def test_a_port_in_use_is_said_and_nothing_stays_open(here: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        told = error_of("serve", "--data", "data", "--port", port, code=3)
        assert f"127.0.0.1:{port} cannot be listened at" in told
        assert not list(here.iterdir())
        messaging = txaware.connect("memory:")
        with messaging, pytest.raises(Unavailable, match="cannot be listened at"):
            messaging.serve(port=int(port))
    with txaware.connect("leveldb:data"):
        assert not (here / "data" / "SERVER").exists()


@pytest.mark.long
def test_a_server_file_that_cannot_be_written_is_said_and_ends_it(here: Path) -> None:
    (here / "data" / "SERVER" / "x").mkdir(parents=True)
    arguments = ("serve", "--data", "data", "--port", "0")
    ran = subprocess.run([*PROGRAM, *arguments], capture_output=True, timeout=60)
    assert (ran.returncode, ran.stdout) == (1, b"")
    assert b"Is a directory" in ran.stderr


def test_a_server_that_ended_by_itself_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fail(_: object, **__: object) -> None:
        raise OSError("no more")

    monkeypatch.setattr("uvicorn.Server.serve", fail)
    result = run("serve", "--data", "data", "--port", "0", code=1)
    assert result.stderr.endswith("Error: the server has ended; its log says why\n")


@pytest.fixture
def tokens_file(tmp_path: Path) -> Path:
    file = tmp_path / "tokens.toml"
    run("token", "new", "ann", "--file", str(file))
    return file


def test_tokens_come_from_elsewhere_with_tls_or_when_that_is_allowed(
    tokens_file: Path,
) -> None:
    there = ("--host", "0.0.0.0", "--auth", str(tokens_file))
    refusal = error_of("serve", "--data", "fresh", "--port", "0", *there, code=2)
    assert refusal == (
        "0.0.0.0 can be reached from elsewhere, and tokens would go there in plain "
        "text: name a certificate (--certificate), or say that a proxy in front speaks "
        "TLS or that nobody listens on that network (--allow-plain-tokens)"
    )
    assert not Path("fresh").exists()
    with serving(*there, "--allow-plain-tokens") as server:
        assert server.url.startswith("http://0.0.0.0:")


def test_a_program_that_serves_is_asked_the_same(tokens_file: Path) -> None:
    there: dict[str, Any] = {"host": "0.0.0.0", "tokens": tokens_file}
    with txaware.connect("memory:") as messaging:
        with pytest.raises(BadRequest, match="--allow-plain-tokens"):
            messaging.serve(**there)
        messaging.serve(**there, certificate=certificate(Path(), "own")).close()
        messaging.serve(**there, allow_plain_tokens=True).close()
    allowing = Settings(allow_plain_tokens=True)
    with txaware.connect("memory:", settings=allowing) as messaging:
        messaging.serve(**there).close()


def test_who_watches_is_answered_when_files_run_out() -> None:
    verb = ("serve", "--data", "data", "--port", "0")
    with subprocess.Popen(
        ["bash", "-c", 'ulimit -n 300 && exec "$@"', "-", *PROGRAM, *verb],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline().decode()
            server = Serving(process, line.removeprefix("listening on ").strip())
            with ExitStack() as idle:
                for _ in range(400):
                    idle.enter_context(socket.create_connection(server.address))
                with closing(server.connection()) as connection:
                    connection.request("GET", "/ping")
                    assert connection.getresponse().status == 200
        finally:
            process.kill()


@pytest.mark.long
def test_an_insecure_server_may_be_reached_from_elsewhere() -> None:
    with serving("--host", "0.0.0.0", "--insecure") as server:
        assert server.url.startswith("http://0.0.0.0:")
        run("topic", "create", "t", "--url", "leveldb:data")


@pytest.mark.long
def test_a_reader_of_the_first_line_may_go_away() -> None:
    process = start("serve", "--data", "data", "--port", "0")
    with process:
        try:
            out: IO[bytes] | None = process.stdout
            assert out is not None
            url = out.readline().split()[-1].decode()
            out.close()
            run("topic", "create", "t", "--url", url)
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) == 0
        finally:
            process.kill()


@pytest.mark.long
def test_a_client_that_is_killed_in_a_transaction_blocks_nobody_for_ever() -> None:
    with serving(before=("--set", "transaction_timeout_s=5")) as server:
        run("topic", "create", "t", "--url", server.url)
        client = start("publish", "t", "--transaction", "--url", server.url)
        with client:
            assert until(
                lambda: bool(run("transactions", "list", "--url", server.url).stdout)
            )
            client.kill()
        assert until(
            lambda: not run("transactions", "list", "--url", server.url).stdout
        )
        run("publish", "t", "next", "--url", server.url)
        polled = run("poll", "t", "--raw", "--url", server.url)
        assert polled.stdout == "next\n"


def test_help_names_what_there_is() -> None:
    text = run("serve", "--help").stdout
    for option in ("--data", "--host", "--port", "--auth", "--audit-log", "--insecure"):
        assert option in text


PAGES_THAT_WERE_FREED = """
import re
from pathlib import Path
from txaware.cli import serve

def resident_mib():
    status = Path("/proc/self/status").read_text()
    return int(re.findall(r"VmRSS:\\s+(\\d+) kB", status)[0]) >> 10

serve._give_memory_back()
MIB = 1 << 20
large = bytearray(8 * MIB)
del large
before_mib = resident_mib()
pages, between = [], []
for _ in range(100):
    pages.append(bytearray(b"x") * MIB)
    between.append(bytearray(b"x") * 60_000)
most_mib = resident_mib()
del pages
print(most_mib - before_mib, resident_mib() - before_mib)
"""


@pytest.mark.long
def test_memory_of_pages_goes_back_to_the_system_whatever_lies_between_them() -> None:
    child = subprocess.run(
        [sys.executable, "-c", PAGES_THAT_WERE_FREED],
        check=True,
        capture_output=True,
        text=True,
    )
    most_mib, left_mib = map(int, child.stdout.split())
    assert most_mib >= 90
    assert left_mib < 20


def test_the_collector_of_garbage_passes_over_what_a_server_began_with() -> None:
    before = gc.get_freeze_count()
    with what_began_stays():
        assert gc.get_freeze_count() > before + 10_000  # the modules, at least
        gc.collect()
    assert gc.get_freeze_count() == 0


def test_a_server_without_frames_grants_none() -> None:
    with serving("--no-frames") as server, txaware.connect(server.url) as messaging:
        assert messaging.status().transport == "http"
        assert messaging.topics() == []
