"""`txaware token`: the token on standard output, its digest in the file."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cli_runs import PROGRAM, error_of, run, run_json
from txaware.auth import Tokens, digest_text
from txaware.model.topics import QueueName, TopicName

pytestmark = pytest.mark.usefixtures("here")

FILE = ("--file", "tokens.toml")
ROOT = Path(__file__).parents[2]


def made(*arguments: str) -> str:
    """The token that a command prints, alone on standard output."""
    text = run("token", "new", *arguments).stdout
    assert re.fullmatch(r"txa_[A-Za-z0-9_-]{43}\n", text)
    return text.strip()


def name_of(token: str) -> str:
    return Tokens.load("tokens.toml").principal(f"Bearer {token}").name


def test_a_token_is_printed_once_and_only_its_digest_is_kept(here: Path) -> None:
    token = made("ann", *FILE)
    kept = (here / "tokens.toml").read_text()
    assert token not in kept
    assert digest_text(token) in kept
    assert (here / "tokens.toml").stat().st_mode & 0o777 == 0o600
    assert name_of(token) == "ann"


@pytest.mark.parametrize(("umask", "is_told"), [(0o022, True), (0o077, False)])
def test_a_file_that_others_may_read_is_no_place_for_a_token(
    here: Path, umask: int, *, is_told: bool
) -> None:
    before = os.umask(umask)
    try:
        with (here / "billing.token").open("wb") as out:
            ended = subprocess.run(
                [*PROGRAM, "token", "new", "billing", *FILE],
                stdout=out,
                stderr=subprocess.PIPE,
                timeout=60,
                check=True,
            )
    finally:
        os.umask(before)
    assert (b"umask 077" in ended.stderr) is is_told
    assert name_of((here / "billing.token").read_text().strip()) == "billing"


def test_a_further_token_stands_beside_the_first() -> None:
    tokens = [made("ann", *FILE), made("bob", *FILE), made("ann", *FILE)]
    assert [name_of(token) for token in tokens] == ["ann", "bob", "ann"]


def test_the_options_are_the_rule() -> None:
    token = made(
        *("billing", *FILE, "--topic", "orders*", "--topic", "audit:*"),
        *("--verb", "publish", "--verb", "consume", "--group", "bill*"),
        *("--queue", "mail*", "--verb", "pop", "--table", "stock"),
        *("--transactional-id", "pay-*", "--transactions", "--monitor"),
    )
    caller = Tokens.load("tokens.toml").principal(f"Bearer {token}")
    assert caller.may("publish", TopicName("orders1"))
    assert caller.may("consume", TopicName("x", "audit"))
    assert not caller.may("admin", TopicName("orders1"))
    assert caller.may_use_group("default", "bills")
    assert caller.may_on_queue("pop", QueueName("mails"))
    assert not caller.may_on_queue("push", QueueName("mails"))
    assert caller.may_use_transactional_id("pay-1")
    assert caller.may_use_transactions
    assert not caller.may_use_long_transactions
    assert caller.may_monitor


def test_queues_and_tables_need_no_topics_beside_them() -> None:
    made("worker", *FILE, "--queue", "mail*", "--verb", "push", "--verb", "pop")
    made("reader", *FILE, "--table", "stock", "--verb", "consume")
    assert run("token", "check", *FILE).stdout.splitlines()[1:] == [
        "worker          1  push, pop on queues mail*",
        "reader          1  read tables stock",
    ]


@pytest.mark.parametrize(
    "text", ["docs/operations.md", "txaware/server/dashboard/index.html"]
)
def test_the_token_for_whoever_watches_sees_all_topics_and_queues(text: str) -> None:
    words = " ".join((ROOT / text).read_text().split())
    [options] = re.findall(
        r"txaware token new \w+ --file FILE (--monitor [^<`]+)", words
    )
    token = made("watcher", *FILE, *shlex.split(options))
    watcher = Tokens.load("tokens.toml").principal(f"Bearer {token}")
    assert watcher.may_monitor
    assert watcher.may_see(TopicName("x", "audit"))
    assert watcher.may_see_queue(QueueName("x", "audit"))


def test_long_is_said_of_whoever_may_use_transactions() -> None:
    token = made("spark", *FILE, "--transactions", "--long")
    spark = Tokens.load("tokens.toml").principal(f"Bearer {token}")
    assert spark.may_use_long_transactions
    wrong = run("token", "new", "ann", *FILE, "--long", code=2)
    assert "--long needs --transactions" in wrong.stderr


def test_what_rules_of_before_give_is_shown() -> None:
    made("ann", *FILE, "--transactions")
    file = Path("tokens.toml")
    file.write_text(file.read_text().replace("long = false\n", ""))
    assert "use transactions of up to a day" in run("token", "check", *FILE).stdout
    file.write_text(file.read_text().replace("transactions = true\n", "long = true\n"))
    assert "has long, and no transactions that may be it" in error_of(
        "token", "check", *FILE, code=2
    )


def test_without_a_file_the_lines_to_put_there_are_on_standard_error(
    here: Path,
) -> None:
    result = run("token", "new", "ann", "--topic", "*", "--verb", "consume")
    assert result.stderr == (
        "to be put into a tokens file:\n"
        "[principals.ann]\n"
        f'tokens = ["{digest_text(result.stdout.strip())}"]\n'
        "[[principals.ann.rules]]\n"
        'topics = ["*"]\n'
        'verbs = ["consume"]\n'
    )
    assert not list(here.iterdir())


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "Missing argument"),
        (["a b"], "'a b' is no name of a principal"),
        (["ann", "--verb", "admin"], "--verb needs --topic, --table or --queue"),
        (["ann", "--verb", "pop", "--topic", "x"], "--verb pop needs --queue"),
        (
            ["ann", "--verb", "consume", "--queue", "x"],
            "--queue needs --verb push, pop",
        ),
        (["ann", "--table", "x", "--monitor"], "--table needs --verb"),
        (["ann", "--topic", "x"], "--topic needs --verb, or --monitor"),
        (["ann", "--topic", "x", "--verb", "*"], "'*' is not one of 'admin', "),
        (["ann", "--topic", "x y", "--verb", "admin"], "'x y' is no pattern of a"),
        (["ann", "--group", "x y"], "'x y' is no pattern of a group"),
        (["ann", "--transactional-id", ""], "a pattern is not empty"),
        (["ann", "--token", "txa_x"], "No such option"),
    ],
)
def test_a_wrong_call_makes_no_token_and_no_file(
    arguments: list[str], text: str, here: Path
) -> None:
    assert text in error_of("token", "new", *arguments, *FILE, code=2)
    assert not (here / "tokens.toml").exists()


def test_a_known_principal_takes_no_rule(here: Path) -> None:
    made("ann", *FILE)
    before = (here / "tokens.toml").read_text()
    text = error_of("token", "new", "ann", *FILE, "--monitor", code=2)
    assert text.startswith("tokens.toml has ann already; its rules are changed there")
    assert (here / "tokens.toml").read_text() == before


def test_a_file_in_no_directory_is_said() -> None:
    assert "No such file" in error_of("token", "new", "ann", "--file", "none/tokens")


def test_check_lists_who_may_do_what_and_no_digests() -> None:
    made("ann", *FILE)
    made("ann", *FILE)
    made("root", *FILE, "--topic", "*:*", "--verb", "admin", "--monitor")
    made(
        *("billing", *FILE, "--topic", "orders*", "--topic", "audit:*"),
        *("--verb", "consume", "--verb", "publish", "--group", "bill*"),
        *("--transactional-id", "pay-*", "--transactions"),
    )
    result = run("token", "check", *FILE)
    assert result.stdout.splitlines() == [
        "PRINCIPAL  TOKENS  MAY",
        "ann             2  -",
        "root            1  admin on *:*; monitor; operate the server",
        "billing         1  publish, consume on orders*, audit:*; use groups bill*; "
        "use transactional ids pay-*; use transactions",
    ]
    ann, root, billing = run_json("token", "check", *FILE)
    assert ann == {"principal": "ann", "tokens": 2, "operator": False, "rules": []}
    assert root["operator"]
    assert billing["rules"] == [
        {
            "topics": ["orders*", "audit:*"],
            "verbs": ["publish", "consume"],
            "groups": ["bill*"],
            "tables": [],
            "queues": [],
            "transactional_ids": ["pay-*"],
            "transactions": True,
            "long": False,
            "monitor": False,
        }
    ]


def test_check_says_what_is_wrong_and_ends_with_2(here: Path) -> None:
    assert "cannot be read" in error_of("token", "check", *FILE, code=2)
    made("ann", *FILE)
    path = here / "tokens.toml"
    path.write_text(path.read_text() + "rule = 1\n")
    assert error_of("token", "check", *FILE, code=2) == (
        "tokens.toml: principals.ann: no such key: 'rule'; there are tokens, rules"
    )
    path.chmod(0o666)
    assert "other users may write tokens.toml" in error_of(
        "token", "check", *FILE, code=2
    )


def test_check_of_an_empty_file_says_so(here: Path) -> None:
    (here / "tokens.toml").touch(mode=0o644)
    result = run("token", "check", *FILE)
    assert result.stdout == ""
    assert "every user may read tokens.toml" in result.stderr
    assert "(no principals)" in result.stderr


def test_tokens_made_at_the_same_time_are_all_known() -> None:
    command = [sys.executable, "-m", "txaware", "token", "new", "ann", *FILE]
    made("ann", *FILE)
    running = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        for _ in range(3)
    ]
    for process in running:
        output, _ = process.communicate(timeout=60)
        assert name_of(output.decode().strip()) == "ann"
