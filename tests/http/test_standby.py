"""`txaware serve --standby`: waits for the data, takes over, and clients follow."""

import signal
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import txaware
from tests.support.cli_runs import start
from tests.support.concurrency import PATIENCE_S, until
from tests.support.messagings import payloads
from tests.support.ports import free_port
from txaware.cli.root import command
from txaware.cli.stop import Stop
from txaware.errors import Unavailable
from txaware.messaging import Messaging
from txaware.model.settings import Settings
from txaware.server.server_file import read_server_file

QUIET = Settings(janitor_interval_s=0)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def stop(monkeypatch: pytest.MonkeyPatch) -> Stop:
    """Stops `txaware serve` in a thread, which no signal reaches."""
    found = Stop()
    monkeypatch.setattr(
        "txaware.cli.serve.stopped_by_signal", lambda **_: nullcontext(found)
    )
    return found


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set when a standby in a thread has looked and found an owner."""
    happened, pause = threading.Event(), Stop.pause

    def pausing(self: Stop, pause_s: float) -> None:
        happened.set()
        pause(self, min(pause_s, 0.01))

    monkeypatch.setattr(Stop, "pause", pausing)
    return happened


def standby(stack: ExitStack, stop: Stop, *options: str) -> "Future[Result]":
    """One in a thread; it is stopped at the end of the stack."""
    arguments = ["serve", "--data", "data", "--standby", *options]
    pool = stack.enter_context(ThreadPoolExecutor(1))
    stack.callback(setattr, stop, "requested", True)
    return pool.submit(CliRunner().invoke, command, arguments)


def opened() -> Messaging:
    return txaware.connect("leveldb:data", settings=QUIET)


def published(messaging: Messaging, payload: bytes) -> bool:
    """Whether it was acknowledged; what is not known is published once more."""
    try:
        messaging.publish("t", [payload])
    except Unavailable:
        return False
    return True


def test_after_a_kill_it_takes_over_and_clients_with_both_addresses_go_on() -> None:
    """A transaction that was begun at the first server is committed at the second."""
    ports = [free_port(), free_port()]
    url = ",".join(f"http://127.0.0.1:{port}" for port in ports)
    first = start("serve", "--data", "data", "--port", str(ports[0]))
    with first, ExitStack() as stack:
        stack.callback(first.kill)
        assert first.stdout is not None
        first.stdout.readline()
        options = ("--port", str(ports[1]), "--standby")
        second = stack.enter_context(start("serve", "--data", "data", *options))
        stack.callback(second.kill)
        assert second.stdout is not None
        assert second.stderr is not None
        said = second.stderr.readline().decode()
        where = f"http://127.0.0.1:{ports[0]}"
        assert said.startswith("on standby: ")
        assert f"by process {first.pid} at {where}" in said
        messaging = stack.enter_context(txaware.connect(url))
        messaging.create_topic("t")
        tx = messaging.coordinator.start_short(timeout_s=600)
        messaging.publish("t", [b"of a transaction"], transaction=tx)
        first.kill()
        assert until(lambda: published(messaging, b"plain"), timeout_s=3 * PATIENCE_S)
        messaging.coordinator.can_commit(tx, [])
        messaging.coordinator.commit(tx)
        listening = second.stdout.readline().decode()
        assert listening == f"listening on http://127.0.0.1:{ports[1]}\n"
        found = payloads(messaging.poll("t", isolation="committed"))
        assert found[0] == b"of a transaction"
        assert set(found[1:]) == {b"plain"}
        second.send_signal(signal.SIGTERM)
        assert second.wait(PATIENCE_S) == 0


def test_on_one_machine_it_may_have_the_port_of_the_owner(
    stop: Stop, waits: threading.Event
) -> None:
    with ExitStack() as stack:
        owner = stack.enter_context(opened())
        owner.create_topic("t")
        server = owner.serve()
        port = server.url.rpartition(":")[2]
        waiting = standby(stack, stop, "--port", port)
        assert waits.wait(PATIENCE_S)
        with txaware.connect(server.url) as messaging:
            messaging.publish("t", [b"before"])
            owner.close()
            messaging.publish("t", [b"after"])
            assert payloads(messaging.poll("t")) == [b"before", b"after"]
        stop.requested = True
        result = waiting.result(PATIENCE_S)
        assert result.exit_code == 0
        assert result.stdout == f"listening on {server.url}\n"


def test_it_ends_with_0_while_it_waits(stop: Stop, waits: threading.Event) -> None:
    with ExitStack() as stack, opened():
        waiting = standby(stack, stop)
        assert waits.wait(PATIENCE_S)
        stop.requested = True
        result = waiting.result(PATIENCE_S)
    assert (result.exit_code, result.stdout) == (0, "")
    (said,) = result.stderr.splitlines()
    assert said.startswith("on standby: ")
    assert "in use by process" in said


def test_where_nobody_has_the_data_it_serves_at_once(here: Path, stop: Stop) -> None:
    with ExitStack() as stack:
        serving = standby(stack, stop, "--port", "0")
        assert until(lambda: read_server_file(here / "data") is not None)
        stop.requested = True
        result = serving.result(PATIENCE_S)
    assert (result.exit_code, result.stderr) == (0, "")


def test_what_is_wrong_with_its_options_is_said_before_it_waits(here: Path) -> None:
    with opened():
        arguments = ["serve", "--data", "data", "--standby", "--host", "0.0.0.0"]
        result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 2
    assert "there are no tokens" in result.stderr


def test_a_token_taken_away_while_it_waited_is_refused(
    here: Path, stop: Stop, waits: threading.Event
) -> None:
    file = here / "tokens.toml"
    new = ["token", "new", "ann", "--file", str(file), "--monitor"]
    token = CliRunner().invoke(command, new).stdout.strip()
    with ExitStack() as stack:
        owner = stack.enter_context(opened())
        standby(stack, stop, "--port", "0", "--auth", str(file))
        assert waits.wait(PATIENCE_S)
        file.write_text("")
        owner.close()
        assert until(lambda: read_server_file(here / "data") is not None)
        found = read_server_file(here / "data")
        assert found is not None
        with (
            txaware.connect(found.url, token=token) as ann,
            pytest.raises(txaware.errors.NotAuthenticated),
        ):
            ann.topics()
