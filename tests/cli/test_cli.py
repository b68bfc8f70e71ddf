"""The command line as a whole: help, errors, exit codes, settings, logging."""

import logging
import os
import signal
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import txaware
from tests.support.cli_runs import error_of, run, run_json
from txaware.cli.demo.bank import Accounts
from txaware.cli.failures import ALIASES, Commands
from txaware.cli.root import KeyValue, command, logged_to_stderr
from txaware.errors import TransactionOutcomeUnknown, Unavailable
from txaware.messaging import Messaging

pytestmark = pytest.mark.usefixtures("here")


def every_verb(group: click.Group, *names: str) -> list[tuple[str, ...]]:
    found = []
    for name, verb in group.commands.items():
        if verb.hidden:  # an earlier name, which says what it is now
            continue
        found.append((*names, name))
        if isinstance(verb, click.Group):
            found += every_verb(verb, *names, name)
    return found


@pytest.mark.parametrize("names", every_verb(command), ids=" ".join)
def test_every_verb_has_a_help(names: tuple[str, ...]) -> None:
    text = run(*names, "--help").stdout
    assert f"Usage: txaware {' '.join(names)}" in text
    assert "Example:\n    " in text


def test_every_option_says_what_it_does() -> None:
    for names in every_verb(command):
        verb: click.Command = command
        for name in names:
            assert isinstance(verb, click.Group)
            verb = verb.commands[name]
        for option in verb.params:
            if isinstance(option, click.Option) and not option.hidden:
                assert option.help, f"{' '.join(names)} {option.name}"


def test_help_has_the_first_steps_completion_and_exit_codes() -> None:
    text = run("--help").stdout
    assert "txaware demo" in text
    assert 'eval "$(_TXAWARE_COMPLETE=bash_source txaware)"' in text
    assert "nobody knows whether it was committed" in text


def test_version_is_that_of_the_package() -> None:
    assert run("--version").stdout.startswith("txaware 0.")


def test_no_data_is_said_and_no_directory_is_made(here: Path) -> None:
    text = error_of("topic", "list")
    assert text == (
        "there is no data at leveldb:./data; name its place with --url, or begin "
        "with: txaware topic create NAME"
    )
    assert not list(here.iterdir())


def test_url_comes_before_the_verb_after_it_or_from_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run("--url", "leveldb:./a", "topic", "create", "x")
    assert run_json("topic", "list", "--url", "leveldb:./a")[0]["topic"] == "x"
    monkeypatch.setenv("TXAWARE_URL", "leveldb:./a")
    assert run_json("topic", "list")[0]["topic"] == "x"


def test_a_url_that_cannot_be_opened_is_a_wrong_call() -> None:
    assert "cannot be connected to" in error_of(
        "--url", "file:x", "topic", "list", code=2
    )


def test_a_path_that_cannot_be_a_directory_is_named(here: Path) -> None:
    (here / "file").write_text("")
    told = error_of("--url", "leveldb:./file/x", "topic", "create", "t", code=2)
    assert "file" in told


def test_a_directory_in_use_is_said_with_the_pid_of_its_owner(here: Path) -> None:
    with txaware.connect("leveldb:./data"):
        text = error_of("topic", "create", "x", code=3)
    assert f"in use by process {os.getpid()}" in text


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--set", "foo=1"], "no such setting: foo; there are "),
        (["--set", "cache_bytes=x"], "cache_bytes is a number, not 'x'"),
        (["--set", "cache_bytes=-1"], "cache_bytes is from 0 to"),
        (["--set", "cache_bytes"], "is not NAME=VALUE"),
        (["--settings", "none.toml"], "does not exist"),
    ],
)
def test_a_wrong_setting_is_a_wrong_call(arguments: list[str], text: str) -> None:
    assert text in error_of(*arguments, "topic", "list", code=2)


def test_settings_come_from_a_file_and_flags_go_above_it(here: Path) -> None:
    (here / "s.toml").write_text('topics = "a, b"\ndefault_ttl_s = 60\n')
    run("--settings", "s.toml", "--set", "default_ttl_s=90", "topic", "create", "c")
    assert [(t["topic"], t["ttl_s"]) for t in run_json("topic", "list")] == [
        ("a", 90),
        ("b", 90),
        ("c", 90),
    ]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (TransactionOutcomeUnknown("nobody knows"), 4),
        (Unavailable("not now"), 3),
        (txaware.BadRequest("wrong"), 2),
        (txaware.TransactionConflict("somebody else was faster"), 1),
        (PermissionError(13, "Permission denied", "x"), 1),
        (KeyError("x"), 70),
    ],
)
def test_every_kind_of_error_has_its_exit_code(
    error: Exception, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise error

    with txaware.connect("memory:") as messaging:
        monkeypatch.setattr(messaging, "topics", fail)
        text = error_of("topic", "list", code=code, obj=messaging)
    assert str(error.args[-1]) in text


def test_what_an_error_adds_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    error = txaware.ParticipantFailed("could not write")
    error.add_note("then it could not undo")

    def fail(*_: object) -> None:
        raise error

    with txaware.connect("memory:") as messaging:
        monkeypatch.setattr(messaging, "topics", fail)
        text = error_of("topic", "list", obj=messaging)
    assert text == "could not write; then it could not undo"


def test_ctrl_c_ends_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    with txaware.connect("memory:") as messaging:
        monkeypatch.setattr(
            messaging, "topics", lambda _: signal.raise_signal(signal.SIGINT)
        )
        assert not run("topic", "list", code=130, obj=messaging).stdout


def test_logs_are_key_value_lines_with_what_was_given_beside_the_message() -> None:
    record = logging.LogRecord(
        "txaware.x", logging.INFO, "f", 1, 'said "%s"', ("a\nb",), None
    )
    record.rows = 3
    assert KeyValue().format(record).split(" ", 1)[1] == (
        r'level=info logger=txaware.x message="said \"a\nb\"" rows=3'
    )


def test_a_logged_error_is_one_line_and_a_traceback_only_when_debugging() -> None:
    try:
        raise ValueError("no")
    except ValueError as error:
        info = (ValueError, error, error.__traceback__)
    record = logging.LogRecord("txaware.x", logging.ERROR, "f", 1, "m", (), info)
    line = KeyValue().format(record)
    assert line.endswith("error=ValueError('no')")
    with logged_to_stderr("debug"):
        assert "traceback=" in KeyValue().format(record)


def test_logging_goes_to_standard_error_and_ends_with_the_command() -> None:
    run("topic", "create", "x")
    result = run("--log-level", "info", "janitor", "--json")
    assert 'message="cleaned up"' in result.stderr
    assert "cleaned up" not in result.stdout
    assert not run("janitor", "--json").stderr
    handlers = logging.getLogger("txaware").handlers
    assert not [one for one in handlers if isinstance(one, logging.StreamHandler)]


def test_a_messaging_that_is_given_stays_open() -> None:
    with txaware.connect("memory:") as messaging:
        run("topic", "create", "x", obj=messaging)
        assert isinstance(messaging, Messaging)
        assert messaging.topics() == ["x"]


def test_what_is_not_as_promised_ends_the_demo(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(Accounts, "rollback_tx", lambda _: True)
    result = run("demo", "--directory", str(tmp_path / "d"), code=1)
    assert "'ann 88, bob 12' should be 'ann 95, bob 5'" in result.stderr
    assert "as promised, in" not in result.stdout


def test_the_words_of_before_still_do() -> None:
    found = [((old,), (new,)) for old, new in ALIASES.items()]
    for before, now in [*found, (("queue", "drop"), ("queue", "delete"))]:
        assert now in every_verb_or_group()
        assert before not in every_verb_or_group()
        old, new = (run(*words, "--help").stdout for words in (before, now))
        assert old.partition("\n")[2] == new.partition("\n")[2]


def every_verb_or_group() -> set[tuple[str, ...]]:
    verbs = {*every_verb(command)}
    return verbs | {names[:1] for names in verbs}


def test_a_verb_that_has_a_word_of_before_as_its_name_is_found() -> None:
    """The benchmarks of producers are `producers`; nothing there is `producer`."""

    @click.group(cls=Commands)
    def measures() -> None:
        """Measures."""

    @measures.command()
    def producers() -> None:
        """Measures producers."""
        click.echo("measured")

    assert CliRunner().invoke(measures, ["producers"]).output == "measured\n"
    assert "producers" in CliRunner().invoke(measures, ["--help"]).output
