"""Steps of the example's scheduler that are programs: their ends, and what is said."""

import pytest

from examples.workflow_scheduler.command import (
    MOST_SAID_BYTES,
    MOST_TEXT_BYTES,
    CommandEnd,
    run_command,
)


def ended(*command: str, environment: dict[str, str] | None = None) -> CommandEnd:
    return run_command(command, environment or {}, look=lambda _: False, look_s=60)


def test_what_a_program_says_and_returns_is_kept() -> None:
    end = ended("sh", "-c", 'echo said; echo wrong >&2; echo "[1]" > $TXAWARE_RESULT')
    assert end == CommandEnd("succeeded", result=[1], text="said\nwrong\n")


@pytest.mark.parametrize(
    ("script", "error"),
    [
        ("printf '{'", "is no JSON"),
        ("printf '\\377'", "is no JSON"),
        ("head -c 70000 /dev/zero | tr '\\0' 1", "70000 bytes are more than 65536"),
        ("mkfifo $TXAWARE_RESULT; true", "is no file any more"),
        ("mkdir $TXAWARE_RESULT; true", "is no file any more"),
        ("ln -s /dev/zero $TXAWARE_RESULT; true", "is no file any more"),
    ],
)
def test_a_program_that_returns_what_cannot_be_stored_failed(
    script: str, error: str
) -> None:
    to = "" if script.endswith("true") else " > $TXAWARE_RESULT"
    end = ended("sh", "-c", f"echo said; {script}{to}")
    assert (end.state, end.text) == ("failed", "said\n")
    assert end.error.startswith("what it returned cannot be stored: ")
    assert error in end.error


@pytest.mark.parametrize(
    ("command", "environment", "error"),
    [
        (["nosuch"], {}, "nosuch cannot be run: No such file or directory"),
        (["/"], {}, "/ cannot be run: Permission denied"),
        (["true", "a\0b"], {}, "'true' cannot be run: embedded null byte"),
        (["true"], {"A=B": "c"}, "'true' cannot be run: illegal environment"),
    ],
)
def test_what_cannot_be_run_is_said(
    command: list[str], environment: dict[str, str], error: str
) -> None:
    end = ended(*command, environment=environment)
    assert end.state == "failed"
    assert end.error.startswith(error)


def test_a_program_that_was_killed_says_by_which_signal() -> None:
    assert ended("sh", "-c", "kill -9 $$").error == "it was ended by SIGKILL"
    assert ended("sh", "-c", "kill -40 $$").error == "it was ended by signal 40"
    assert ended("false").error == "it ended with 1"


def test_a_program_that_floods_its_log_has_the_end_of_it_kept() -> None:
    end = ended("sh", "-c", "yes a long line | head -c 5000000; echo last")
    assert end.state == "succeeded"
    assert len(end.text) <= MOST_SAID_BYTES
    assert end.text.endswith("last\n")


def test_what_is_too_long_for_an_environment_is_in_a_file() -> None:
    long = "é" * MOST_TEXT_BYTES
    script = 'echo "[\\"$SHORT\\",$(wc -c < $LONG_FILE),${#LONG}]" > $TXAWARE_RESULT'
    end = ended("sh", "-c", script, environment={"SHORT": "a", "LONG": long})
    assert (end.state, end.result) == ("succeeded", ["a", 2 * MOST_TEXT_BYTES, 0])


def test_a_child_that_goes_on_writing_beside_the_result_harms_nobody() -> None:
    script = (
        '(trap "" TERM; cd $(dirname $TXAWARE_RESULT) || exit'
        "; for n in $(seq 400); do echo > $n; done) > /dev/null 2>&1 & echo said"
    )
    assert ended("sh", "-c", script) == CommandEnd("succeeded", text="said\n")
