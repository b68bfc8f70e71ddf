"""The tokens file: what it says, who may write it, a reload; and a client's token."""

import logging
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from txaware.auth import (
    Tokens,
    digest_text,
    new_token,
    token_from_environment,
    tokens,
    tokens_file,
)
from txaware.auth.digests import digest
from txaware.auth.enrolment import Enrolment, enrol
from txaware.auth.tokens_file import (
    TokensFile,
    parse_tokens,
    read_tokens_file,
)
from txaware.errors import BadRequest, NotAuthenticated
from txaware.model.topics import TopicName

ORDERS = TopicName("orders")
OLD, NEW, THEIRS = new_token(), new_token(), new_token()


def section(name: str, *held: str, rule: str = "monitor = true") -> str:
    digests = ", ".join(f'"{digest_text(token)}"' for token in held)
    return (
        f"[principals.{name}]\ntokens = [{digests}]\n[[principals.{name}.rules]]\n"
        f"{rule}\n"
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "tokens.toml"
    path.touch(mode=0o600)
    path.write_text(section("ann", OLD) + section("bob", THEIRS))
    return path


def name_of(known: Tokens, token: str) -> str | None:
    try:
        return known.principal(f"Bearer {token}").name
    except NotAuthenticated:
        return None


def test_the_file_is_read_as_its_description_shows_it() -> None:
    assert tokens_file.__doc__ is not None
    shown = tokens_file.__doc__.partition("\n\n")[2].replace('"sha256:..."', "")
    [enrolled] = parse_tokens(shown.encode(), where="here")
    billing = enrolled.principal
    assert billing.name == "billing"
    assert billing.may("consume", TopicName("any", "audit"))
    assert billing.may("publish", TopicName("orders1"))
    assert not billing.may("admin", TopicName("orders1"))
    assert billing.may_use_group("default", "billing2")
    assert billing.may_use_transactional_id("billing-2")
    assert billing.may_use_transactions
    assert billing.may_monitor
    assert not billing.is_operator


GOOD_DIGEST = "sha256:" + "0a" * 32


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("x", "here is no TOML: "),
        ("a = " + "[" * 100_000, "here is no TOML: "),
        ("x = 1", "here: no such key: 'x'; there are principals"),
        ("principals = 1", "here: principals is not a table"),
        ("[principals]\np = 1", "here: principals.p is not a table"),
        ("[principals.'a b']", "here: 'a b' is no name of a principal; up to 64"),
        ("[principals.'']", "here: '' is no name of a principal"),
        ("[principals.'a\x7fb']", "here is no TOML"),
        ('[principals."a\\u001bb"]', r"here: 'a\x1bb' is no name of a principal"),
        ("[principals.p]", "here: principals.p: tokens is missing; it may be empty"),
        (
            "[principals.p]\ntoken = []",
            "principals.p: no such key: 'token'; there are ",
        ),
        ("[principals.p]\ntokens = 'x'", "principals.p.tokens is not a list of texts"),
        ("[principals.p]\ntokens = [1]", "principals.p.tokens is not a list of texts"),
        (
            "[principals.p]\ntokens = ['sha256:12']",
            "principals.p.tokens[0]: this is no sha256: with 64 hex digits",
        ),
        (
            f"[principals.p]\ntokens = ['{GOOD_DIGEST}', 'md5:{'0' * 64}']",
            "principals.p.tokens[1]: this is no sha256: with 64 hex digits",
        ),
        (
            f"[principals.p]\ntokens = ['{GOOD_DIGEST}0']",
            "principals.p.tokens[0]: this is no sha256: with 64 hex digits",
        ),
        (
            f"[principals.p]\ntokens = ['{OLD}']",
            "principals.p.tokens[0]: this is a token itself; only its sha256:...",
        ),
        (
            f"[principals.p]\ntokens = ['{GOOD_DIGEST}']\n"
            f"[principals.q]\ntokens = ['{GOOD_DIGEST.upper().replace('SHA', 'sha')}']",
            "here: principals.q.tokens has a token of principals.p again",
        ),
        (
            "[principals.p]\ntokens = []\nrules = 1",
            "principals.p.rules is not a list of tables",
        ),
        (
            "[principals.p]\ntokens = []\nrules = [1]",
            "principals.p.rules[0] is not a table",
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text: str, told: str) -> None:
    with pytest.raises(BadRequest) as found:
        parse_tokens(text.encode(), where="here")
    assert told in str(found.value)
    assert str(found.value).startswith("here")
    assert "txa_" not in str(found.value)


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ("topic = []", "rules[0]: no such key: 'topic'; there are topics, verbs, "),
        ("topics = ['a']", "rules[0] has topics, and neither verbs nor monitor"),
        ("verbs = ['admin']", "rules[0] has verbs, and no topics for them"),
        ("queues = ['a']", "rules[0] has queues, and neither verbs nor monitor"),
        (
            "queues = ['a']\nverbs = ['publish']",
            "rules[0] has queues, and none of push, pop, manage for them",
        ),
        (
            "topics = ['a']\nverbs = ['push']",
            "rules[0] has push, and no queues for it",
        ),
        ("topics = 'a'\nverbs = []", "rules[0].topics is not a list of texts"),
        (
            "topics = ['a', 'a b']\nverbs = []",
            "rules[0].topics[1]: 'a b' is no pattern of a topic; ",
        ),
        (
            "topics = ['a']\nverbs = ['pubish']",
            "rules[0].verbs[0]: 'pubish' is no verb; admin, publish, consume, push, ",
        ),
        (
            "topics = ['a']\nverbs = ['*']",
            "rules[0].verbs[0]: '*' is no verb; admin, publish, consume, push, ",
        ),
        ("groups = ['a/b']", "rules[0].groups[0]: 'a/b' is no pattern of a group; "),
        ("transactional_ids = ['']", "rules[0].transactional_ids[0]: a pattern is not"),
        ("transactions = 1", "rules[0].transactions is true or false, nothing else"),
        ("monitor = 'yes'", "rules[0].monitor is true or false, nothing else"),
    ],
)
def test_a_wrong_rule_is_said_with_its_principal_and_key(rule: str, told: str) -> None:
    with pytest.raises(BadRequest) as found:
        parse_tokens(section("ann", OLD, rule=rule).encode(), where="here")
    assert str(found.value).startswith(f"here: principals.ann.{told}")


def test_a_file_that_is_not_utf8_or_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="is no TOML"):
        parse_tokens(b"\xff", where="here")
    with pytest.raises(BadRequest, match=r"none\.toml cannot be read: No such file"):
        Tokens.load(tmp_path / "none.toml")
    with pytest.raises(BadRequest, match="cannot be read: Is a directory"):
        Tokens.load(str(tmp_path))


def test_an_empty_file_lets_nobody_in(path: Path) -> None:
    path.write_text("")
    assert name_of(Tokens.load(path), OLD) is None


def test_digests_are_not_in_what_is_shown_of_a_principal(path: Path) -> None:
    caller = Tokens.load(path).principal(f"Bearer {OLD}")
    for shown in (repr(read_tokens_file(path)), repr(caller)):
        assert "ann" in shown
        assert repr(digest(OLD)) not in shown
        assert digest(OLD).hex() not in shown


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_other_users_may_write_is_refused(path: Path, mode: int) -> None:
    known = Tokens.load(path)
    path.chmod(mode)
    with pytest.raises(BadRequest, match=r"other users may write .*; chmod go-w"):
        Tokens.load(path)
    assert not known.reload()
    assert name_of(known, OLD) == "ann"


@pytest.mark.parametrize(("mode", "warned"), [(0o600, 0), (0o640, 0), (0o644, 1)])
def test_a_file_that_everybody_may_read_is_warned_of(
    path: Path, mode: int, warned: int, caplog: pytest.LogCaptureFixture
) -> None:
    path.chmod(mode)
    assert name_of(Tokens.load(path), OLD) == "ann"
    assert len(caplog.messages) == warned
    assert all("every user may read" in text for text in caplog.messages)


def test_a_file_that_belongs_to_another_user_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    enrolled = read_tokens_file(path).enrolled
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    for owner, is_taken in ((1000, True), (0, True), (1001, False)):
        file = TokensFile(enrolled, owner)
        monkeypatch.setattr(tokens, "read_tokens_file", lambda _, file=file: file)
        if is_taken:
            assert name_of(Tokens.load(path), OLD) == "ann"
        else:
            with pytest.raises(BadRequest, match="belongs to user 1001, who may write"):
                Tokens.load(path)


def test_a_token_is_changed_without_a_gap_and_the_old_one_is_gone_at_once(
    path: Path,
) -> None:
    known = Tokens.load(path)
    assert (name_of(known, OLD), name_of(known, NEW)) == ("ann", None)
    path.write_text(section("ann", NEW, OLD))
    assert known.reload()
    assert (name_of(known, OLD), name_of(known, NEW)) == ("ann", "ann")
    assert name_of(known, THEIRS) is None
    path.write_text(section("ann", NEW))
    assert known.reload()
    assert (name_of(known, OLD), name_of(known, NEW)) == (None, "ann")


def test_a_rule_that_is_taken_away_is_gone_at_once(path: Path) -> None:
    path.write_text(
        section("ann", OLD, rule='topics = ["*"]\nverbs = ["consume", "publish"]')
    )
    known = Tokens.load(path)
    assert known.principal(f"Bearer {OLD}").may("publish", ORDERS)
    path.write_text(section("ann", OLD, rule='topics = ["*"]\nverbs = ["consume"]'))
    assert known.reload()
    caller = known.principal(f"Bearer {OLD}")
    assert not caller.may("publish", ORDERS)
    assert caller.may("consume", ORDERS)


@pytest.mark.parametrize("wrong", ["x", section("ann", NEW, rule="x = 1"), None])
def test_a_reload_of_a_wrong_file_changes_nothing_and_is_logged(
    path: Path, wrong: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    known = Tokens.load(path)
    if wrong is None:
        path.unlink()
    else:
        path.write_text(wrong)
    assert not known.reload()
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert "not reloaded, those of before stay: " in caplog.text
    assert str(path) in caplog.text
    assert (name_of(known, OLD), name_of(known, NEW)) == ("ann", None)


WRITTEN = f"""\
# who may what

[principals.ann] # of the shop
# her laptop
tokens = [
    "{digest_text(OLD)}", # old
]
[[principals.ann.rules]]
monitor = true

[principals."bob@home"]
tokens = []
"""


def test_a_further_token_is_added_and_all_else_stays_as_it_was(path: Path) -> None:
    path.write_text(WRITTEN)
    path.chmod(0o640)
    enrol(path, Enrolment(principal="ann", token=NEW, rule={}))
    enrol(path, Enrolment(principal="bob@home", token=THEIRS, rule={}))
    known = Tokens.load(path)
    assert [name_of(known, token) for token in (OLD, NEW, THEIRS)] == [
        "ann",
        "ann",
        "bob@home",
    ]
    left = path.read_text()
    for token, before, after in ((NEW, "    ", ",\n"), (THEIRS, "", "")):
        left = left.replace(f'{before}"{digest_text(token)}"{after}', "")
    assert left == WRITTEN
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_new_principal_is_added_at_the_end(path: Path) -> None:
    path.write_text(WRITTEN)
    rule: dict[str, list[str] | bool] = {
        "topics": ["orders*"],
        "verbs": ["publish"],
        "monitor": True,
    }
    enrol(path, Enrolment(principal="c.d", token=NEW, rule=rule))
    assert path.read_text().startswith(WRITTEN)
    caller = Tokens.load(path).principal(f"Bearer {NEW}")
    assert caller.name == "c.d"
    assert caller.may("publish", ORDERS)
    assert caller.may_monitor


def test_a_file_that_is_made_is_read_by_its_owner_only(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        made = tmp_path / "made.toml"
        enrol(made, Enrolment(principal="ann", token=NEW, rule={}))
    finally:
        os.umask(old)
    assert made.stat().st_mode & 0o777 == 0o600
    assert made.read_text().startswith("[principals.ann]\n")
    assert [one.name for one in tmp_path.iterdir()] == ["made.toml"]


def test_a_link_to_a_file_stays_one(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.toml"
    link.symlink_to(path)
    enrol(link, Enrolment(principal="ann", token=NEW, rule={}))
    assert link.is_symlink()
    assert name_of(Tokens.load(path), NEW) == "ann"


def test_tokens_that_are_added_at_the_same_time_are_all_there(path: Path) -> None:
    made = [new_token() for _ in range(32)]
    start = threading.Barrier(8)

    def add(some: list[str]) -> None:
        start.wait()
        for token in some:
            enrol(path, Enrolment(principal="ann", token=token, rule={}))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, [made[at::8] for at in range(8)]))
    known = Tokens.load(path)
    assert {name_of(known, token) for token in (OLD, *made)} == {"ann"}


@pytest.mark.parametrize(
    "text",
    [
        "principals.ann = {tokens = []}\n",
        "[principals]\nann.tokens = []\n",
        "[principals.bob]\ntokens = []\n[[principals.bob.rules]]\ntransactional_ids = "
        '["""\n[principals.ann]\ntokens = ["""]\n[principals.ann]\ntokens = []\n',
        "[principals]\nann = {tokens = [], rules = []}\n",
        "[principals.'ann']\n'tokens' = []\n",
    ],
)
def test_a_token_is_added_however_its_principal_is_written(
    path: Path, text: str
) -> None:
    path.write_text(text)
    enrol(path, Enrolment(principal="ann", token=NEW, rule={}))
    assert name_of(Tokens.load(path), NEW) == "ann"
    assert path.read_text().replace(f'"{digest_text(NEW)}"', "") == text


def test_a_file_that_takes_no_further_section_is_left_alone(path: Path) -> None:
    text = "principals = {bob = {tokens = []}}\n"
    path.write_text(text)
    with pytest.raises(BadRequest, match="in a way that cannot be added to"):
        enrol(path, Enrolment(principal="ann", token=NEW, rule={}))
    assert path.read_text() == text


@pytest.mark.parametrize("text", ["x", section("ann", OLD, rule="topics = ['*']")])
def test_a_file_that_is_wrong_is_not_added_to(path: Path, text: str) -> None:
    path.write_text(text)
    with pytest.raises(BadRequest, match=r"tokens\.toml"):
        enrol(path, Enrolment(principal="eve", token=NEW, rule={}))
    assert path.read_text() == text


def test_when_the_disk_refuses_the_file_is_as_before(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = path.read_text()

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="No space left"):
        enrol(path, Enrolment(principal="eve", token=NEW, rule={}))
    assert path.read_text() == before
    assert [one.name for one in path.parent.iterdir()] == ["tokens.toml"]


def test_the_token_of_a_client_comes_from_a_variable_then_from_a_file(
    tmp_path: Path,
) -> None:
    file = tmp_path / "token"
    file.touch(mode=0o600)
    file.write_text(f"  {NEW}\n")
    in_file = {"TXAWARE_TOKEN_FILE": str(file)}
    assert token_from_environment({}) is None
    assert token_from_environment({"TXAWARE_TOKEN": "", "TXAWARE_TOKEN_FILE": ""}) is (
        None
    )
    assert token_from_environment({"TXAWARE_TOKEN": OLD, **in_file}) == OLD
    assert token_from_environment(in_file) == NEW


def test_the_process_own_environment_is_the_usual_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TXAWARE_TOKEN", OLD)
    assert token_from_environment() == OLD


@pytest.mark.parametrize("text", ["a b", "a\r\nHost: x", "\n", "ä", "x" * 5000, "\x00"])
def test_what_no_header_can_carry_is_no_token_and_is_not_repeated(
    text: str, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.touch(mode=0o600)
    file.write_text(text, newline="")
    for environment in ({"TXAWARE_TOKEN": text}, {"TXAWARE_TOKEN_FILE": str(file)}):
        with pytest.raises(BadRequest, match="holds no token") as found:
            token_from_environment(environment)
        assert text not in str(found.value) or len(text) == 1


@pytest.mark.parametrize(
    ("mode", "owner", "is_taken"),
    [
        (0o600, 1000, True),
        (0o400, 0, True),
        (0o440, 0, True),  # as an orchestrator mounts a secret
        (0o640, 0, True),
        (0o640, 1000, False),
        (0o604, 1000, False),
        (0o604, 0, False),
        (0o660, 0, False),
        (0o620, 1000, False),
    ],
)
def test_a_token_file_that_others_may_read_is_refused(
    mode: int,
    owner: int,
    is_taken: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = tmp_path / "token"
    file.write_text(NEW)
    status = list(file.stat())
    status[0], status[4] = 0o100000 | mode, owner
    monkeypatch.setattr(os, "fstat", lambda _: os.stat_result(status))
    environment = {"TXAWARE_TOKEN_FILE": str(file)}
    if is_taken:
        assert token_from_environment(environment) == NEW
    else:
        with pytest.raises(BadRequest, match="others may read it; chmod 600"):
            token_from_environment(environment)


def test_a_token_file_that_is_not_there_is_said() -> None:
    with pytest.raises(BadRequest, match="/none/token cannot be read: No such file"):
        token_from_environment({"TXAWARE_TOKEN_FILE": "/none/token"})
