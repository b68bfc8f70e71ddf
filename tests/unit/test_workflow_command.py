"""Steps of the example's scheduler that are programs: their ends, and what is said."""

import pytest

from examples.workflow_scheduler.command import CommandEnd, run_command


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
    ],
)
def test_a_program_that_returns_what_cannot_be_stored_failed(
    script: str, error: str
) -> None:
    end = ended("sh", "-c", f"echo said; {script} > $TXAWARE_RESULT")
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
    assert ended("false").error == "it ended with 1"
