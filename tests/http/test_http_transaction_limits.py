"""How long a transaction of a principal may be on a server, and how many are open."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

import txaware
from coordinator import codec
from coordinator.embedded.coordinator import EmbeddedCoordinator
from coordinator.interfaces import Coordinator
from coordinator.pointers import NO_POINTERS
from tests.support.coordinators import remote
from tests.support.doubles import Clock
from tests.support.http_access import TRANSACTIONS, Answer, Caller
from txaware.auth import digest_text, new_token
from txaware.client import ClientSettings, Link
from txaware.client.aio.async_messaging import AsyncMessaging
from txaware.errors import BadRequest, NotAuthorized, Unavailable
from txaware.messaging import Messaging
from txaware.model.clock import system_clock_ms
from txaware.model.settings import Settings
from txaware.server.owners import Owners
from txaware.server.server import HttpServer

DAY_S = 86_400
RULES = {"brief": "long = false", "lasting": "long = true", "unsaid": ""}


class Limited:
    """A server whose principals differ in what their rules say of `long`."""

    def __init__(
        self, messaging: Messaging, server: HttpServer, tokens: dict[str, str]
    ) -> None:
        self.messaging, self.server, self.tokens = messaging, server, tokens
        self.callers = {name: Caller(server.url, tokens.get(name)) for name in RULES}

    def begin(self, name: str, **body: object) -> Answer:
        return self.callers[name].ask("POST", TRANSACTIONS, body)

    def end(self, name: str, pointer: int, call: str) -> None:
        path = f"{TRANSACTIONS}/{pointer}/{call}"
        assert self.callers[name].ask("POST", path, {}).status == 200

    @property
    def owners(self) -> Owners:
        served = self.messaging._parts.served
        assert served is not None
        return served.owners

    def refused(self) -> dict[str, float]:
        return dict(self.owners.refusals())


def pointer_of(answer: Answer) -> int:
    assert answer.status == 200, answer.body
    return codec.decode(answer.body).transaction_id


@contextmanager
def limited(
    directory: Path,
    *,
    guarded: bool = True,
    coordinator: Coordinator | None = None,
    clock: Clock | None = None,
    **settings: Any,
) -> Iterator[Limited]:
    tokens = {name: new_token() for name in RULES} if guarded else {}
    file = directory / "tokens.toml"
    file.touch(mode=0o600)
    file.write_text(
        "".join(
            f'[principals.{name}]\ntokens = ["{digest_text(token)}"]\n'
            f"[[principals.{name}.rules]]\ntransactions = true\n{RULES[name]}\n"
            for name, token in tokens.items()
        )
    )
    chosen = Settings(**{"janitor_interval_s": 0, **settings})
    with (
        txaware.connect(
            "memory:",
            settings=chosen,
            coordinator=coordinator,
            clock_ms=clock or system_clock_ms,
        ) as messaging,
        messaging.serve(tokens=file if guarded else None) as server,
    ):
        site = Limited(messaging, server, tokens)
        try:
            yield site
        finally:
            for caller in site.callers.values():
                caller.close()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Limited]:
    with limited(tmp_path) as found:
        yield found


@pytest.mark.parametrize("timeout_s", [901, 1e9, 900.5])
@pytest.mark.parametrize("guarded", [True, False], ids=["tokens", "no tokens"])
def test_a_time_out_above_the_maximum_is_refused_whatever_the_permission(
    tmp_path: Path, guarded: bool, timeout_s: float
) -> None:
    with limited(tmp_path, guarded=guarded) as site:
        for name in RULES:
            answer = site.begin(name, type="short", timeoutS=timeout_s)
            assert answer.status == 400
            assert answer.json == {
                "error": "InvalidTransactionTimeout",
                "message": f"a time-out of {timeout_s:,.10g} s is too long: over the "
                f"network a short transaction may take 900 s at most "
                f"(max_transaction_timeout_s); what takes longer is a long one",
            }
        assert site.messaging.coordinator.snapshot().in_progress == NO_POINTERS
        for name in RULES:
            assert site.begin(name, type="short", timeoutS=900).status == 200
            assert site.begin(name, type="short").status == 200
        assert site.refused() == {"timeout": 3, "long": 0, "open": 0, "invalid": 0}


def test_a_long_transaction_needs_the_permission_long(site: Limited) -> None:
    answer = site.begin("brief", type="long")
    assert answer.status == 403
    assert answer.json["message"] == (
        "brief may not begin a long transaction: no rule gives it long = true"
    )
    assert site.begin("lasting", type="long").status == 200
    assert site.refused() == {"timeout": 0, "long": 1, "open": 0, "invalid": 0}


def test_rules_of_before_give_long_ones(
    site: Limited, caplog: pytest.LogCaptureFixture
) -> None:
    assert site.begin("unsaid", type="long").status == 200
    site.server.reload()
    (warning,) = [one for one in caplog.messages if "say nothing of long" in one]
    assert "rules of unsaid give" in warning


def test_without_tokens_everybody_may_begin_long_ones(tmp_path: Path) -> None:
    with limited(tmp_path, guarded=False) as site:
        assert site.begin("brief", type="long").status == 200


def test_the_maximum_is_a_setting_and_never_below_the_time_out_of_all(
    tmp_path: Path,
) -> None:
    with limited(
        tmp_path, max_transaction_timeout_s=10, transaction_timeout_s=20
    ) as site:
        assert site.begin("brief", type="short", timeoutS=20).status == 200
        assert site.begin("brief", type="short", timeoutS=21).status == 400
        token = site.tokens["brief"]
        with txaware.connect(site.server.url, token=token) as client:
            assert client.longest_timeout_s == 20
        assert site.messaging.longest_timeout_s is None


def test_the_program_that_serves_has_no_maximum(site: Limited) -> None:
    with site.messaging.transaction(timeout_s=DAY_S):
        pass
    with site.messaging.transaction(long=True):
        pass


WAYS: list[Callable[[], Coordinator | None]] = [
    lambda: None,
    lambda: remote(EmbeddedCoordinator()),
]


@pytest.mark.parametrize("elsewhere", WAYS, ids=["embedded", "elsewhere"])
def test_a_principal_has_so_many_open_and_no_more(
    tmp_path: Path, elsewhere: Callable[[], Coordinator | None]
) -> None:
    with limited(
        tmp_path,
        coordinator=elsewhere(),
        max_open_transactions_per_principal=4,
    ) as site:
        begun = [pointer_of(site.begin("brief")) for _ in range(4)]
        answer = site.begin("brief")
        assert answer.status == 429
        assert answer.headers["retry-after"] == "1"
        assert answer.json == {
            "error": "Unavailable",
            "message": "brief has as many transactions open as it may have at once, 4 "
            "(max_open_transactions_per_principal): end some of them, or wait until "
            "they time out",
        }
        assert site.begin("lasting").status == 200
        for pointer, call in zip(
            begun, ("commit", "abort", "invalidate"), strict=False
        ):
            site.end("brief", pointer, call)
            assert site.begin("brief").status == 200
            assert site.begin("brief").status == 429
        # Nobody tells the server of this one.
        site.messaging.coordinator.invalidate(begun[3])
        assert site.begin("brief").status == 200
        assert site.refused()["open"] == 4


def test_what_has_timed_out_is_not_open_any_more(tmp_path: Path) -> None:
    clock = Clock()
    with limited(tmp_path, clock=clock, max_open_transactions_per_principal=2) as site:
        for _ in range(2):
            assert site.begin("brief", type="short", timeoutS=5).status == 200
        assert site.begin("brief").status == 429
        clock.advance_s(6)
        assert site.begin("brief").status == 200


def test_a_principal_abandons_so_many_and_no_more(tmp_path: Path) -> None:
    clock = Clock()
    with limited(
        tmp_path, clock=clock, max_invalid_transactions_per_principal=2
    ) as site:
        for _ in range(2):
            assert site.begin("brief", type="short", timeoutS=5).status == 200
            clock.advance_s(6)
            assert site.messaging.coordinator.invalid_size()
        answer = site.begin("brief")
        assert (answer.status, answer.headers["retry-after"]) == (429, "1")
        assert answer.json["message"] == (
            "of the transactions of brief, 2 timed out or were invalidated, as many as "
            "may be remembered (max_invalid_transactions_per_principal): they are "
            "forgotten 86,400 s after their end"
        )
        assert site.begin("lasting").status == 200
        clock.advance_s(86_400)
        site.messaging.clean_up()
        assert site.begin("brief").status == 200
        assert site.refused()["invalid"] == 1


def test_a_transaction_is_not_checkpointed_for_ever(tmp_path: Path) -> None:
    with limited(tmp_path, max_open_transactions_per_principal=1) as site:
        site.owners._remembered = 2
        pointer = pointer_of(site.begin("brief"))
        path = f"{TRANSACTIONS}/{pointer}/checkpoint"
        answers = [site.callers["brief"].ask("POST", path, {}) for _ in range(4)]
        assert [one.status for one in answers] == [200, 200, 429, 429]
        site.end("brief", pointer, "abort")


def test_one_that_is_refused_takes_no_place(tmp_path: Path) -> None:
    with limited(tmp_path, max_open_transactions_per_principal=1) as site:
        for wrong in ({"type": "x"}, {"timeoutS": -1}, {"no": 1}):
            assert site.begin("brief", **wrong).status == 400
        assert site.begin("brief").status == 200


def test_a_further_pointer_of_one_that_was_begun_before_is_ended(
    tmp_path: Path,
) -> None:
    with (
        EmbeddedCoordinator() as elsewhere,
        limited(tmp_path, coordinator=remote(elsewhere)) as site,
    ):
        pointer = elsewhere.start_short().transaction_id
        path = f"{TRANSACTIONS}/{pointer}/checkpoint"
        (further,) = site.callers["brief"].ask("POST", path, {}).json["pointers"]
        for ended in (further, pointer):
            site.end("brief", ended, "invalidate")


def test_a_client_is_told_and_comes_again_when_there_is_room(tmp_path: Path) -> None:
    with limited(tmp_path, max_open_transactions_per_principal=1) as site:
        url, token = site.server.url, site.tokens["brief"]
        with txaware.connect(url, token=token) as client:
            with pytest.raises(NotAuthorized, match="may not begin a long transaction"):
                client.coordinator.start_long()
            tx = client.coordinator.start_short()
            with closing(Caller(url, token)) as other:
                assert other.ask("POST", TRANSACTIONS, {}).status == 429

            async def begin() -> None:
                link = Link(url, token=token, settings=ClientSettings(retry_for_s=0))
                async with AsyncMessaging(link) as messaging:
                    with pytest.raises(BadRequest, match="900 s at most"):
                        async with messaging.transaction(timeout_s=1000):
                            pass
                    with pytest.raises(Unavailable, match="at once, 1 "):
                        async with messaging.transaction():
                            pass

            asyncio.run(begin())
            client.coordinator.abort(tx)
            with client.transaction():
                pass


def test_what_was_not_begun_is_counted_for_prometheus(tmp_path: Path) -> None:
    with limited(
        tmp_path, guarded=False, max_open_transactions_per_principal=1
    ) as site:
        assert [site.begin("brief").status for _ in range(3)] == [200, 429, 429]
        text = site.callers["brief"].ask("GET", "/metrics").body.decode()
    assert 'txaware_refused_transactions_total{reason="open"} 2.0' in text
    assert 'txaware_refused_transactions_total{reason="long"} 0.0' in text
