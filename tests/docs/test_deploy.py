"""The files in examples/deploy name what there is, and systemd takes them."""

import configparser
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest

from tests.support.tephra_fixtures import missing
from txaware.cli.root import command

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "examples" / "deploy"
UNITS = sorted([*DEPLOY.glob("*.service"), *DEPLOY.glob("*.timer")])
SERVICES = sorted(DEPLOY.glob("*.service"))
HEALTH = DEPLOY / "txaware-health.service"
PROGRAM, PYTHON = "/opt/txaware/bin/txaware", "/opt/txaware/bin/python"


def check_call(arguments: list[str]) -> None:
    """The verb exists, and it and the group have the options that are named."""
    verb: click.Command | None = None
    values = 0
    options = {name: param for param in command.params for name in param.opts}
    rest = iter(arguments)
    for argument in rest:
        if argument.startswith("--"):
            option = options[argument]
            assert isinstance(option, click.Option)
            if not option.is_flag:
                next(rest)
        elif verb is None:
            verb = command.commands[argument]
            options = {name: param for param in verb.params for name in param.opts}
        else:
            values += 1
    assert verb is not None
    assert values <= sum(isinstance(param, click.Argument) for param in verb.params)


def unit(path: Path) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(path)
    return parser


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_a_unit_is_one(path: Path) -> None:
    sections = unit(path).sections()
    assert sections[0] == "Unit"
    assert sections[1] in ("Service", "Timer")


@pytest.mark.parametrize("path", SERVICES, ids=lambda path: path.name)
def test_a_service_calls_what_there_is(path: Path) -> None:
    start = unit(path)["Service"]["ExecStart"]
    program, *arguments = shlex.split(start)
    if path == HEALTH:
        assert program == PYTHON
        return
    assert program == PROGRAM
    check_call(arguments)


def test_systemd_takes_the_units(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        missing("there is no systemd-analyze")
    for path in UNITS:
        text = path.read_text().replace(PROGRAM, "/bin/true")
        text = text.replace(PYTHON, "/bin/true")
        (tmp_path / path.name).write_text(text)
    ran = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *map(str, tmp_path.iterdir())],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    about_ours = [line for line in ran.stderr.splitlines() if "txaware" in line]
    assert not about_ours, ran.stderr


def instructions() -> list[tuple[str, str]]:
    text = (DEPLOY / "Dockerfile").read_text()
    lines = re.sub(r"\\\n\s*", "", re.sub(r"(?m)^#.*\n", "", text)).splitlines()
    return [tuple(line.split(maxsplit=1)) for line in lines if line]  # type: ignore[misc]


def words(instruction: str) -> list[str]:
    (text,) = [text for name, text in instructions() if name == instruction]
    found: list[str] = json.loads(text[text.index("[") :])
    return found


def last(instruction: str) -> str:
    return dict(instructions())[instruction]


def test_the_image_runs_what_there_is() -> None:
    assert words("ENTRYPOINT") == ["txaware"]
    check_call(words("CMD"))
    python, flag, program = words("HEALTHCHECK")
    assert (python, flag) == ("python", "-c")
    compile(program, "HEALTHCHECK", "exec")
    assert "/ping'" in program


def test_the_image_copies_what_there_is_and_what_is_sent() -> None:
    sent = (DEPLOY / "Dockerfile.dockerignore").read_text().split("\n")
    for name, text in instructions():
        if name == "COPY" and not text.startswith("--from"):
            for source in text.split()[:-1]:
                assert (ROOT / source).exists()
                assert f"!{source}" in sent


def test_the_image_copies_all_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    copied = {
        source
        for name, text in instructions()
        if name == "COPY" and not text.startswith("--from")
        for source in text.split()[:-1]
    }
    assert set(wheel["only-include"]) <= copied


def test_the_tokens_are_made_and_read_in_a_directory_that_is_mounted() -> None:
    first_lines = (DEPLOY / "Dockerfile").read_text().partition("\nFROM ")[0]
    tokens = words("CMD")[words("CMD").index("--auth") + 1]
    assert f"token new ann \\\n#       --file {tokens} " in first_lines
    mounted = re.findall(r"-v \S+?:(\S+)", first_lines)
    directory = str(Path(tokens).parent)
    assert mounted == [directory, "/data", f"{directory}:ro"]


def health(port: int, *, timeout_s: float = 20) -> int:
    """How the service ends that asks a server at this port."""
    program = shlex.split(unit(HEALTH)["Service"]["ExecStart"])[-1]
    program = program.replace("11015", str(port))
    program = program.replace("timeout=20", f"timeout={timeout_s}")
    command_line = [sys.executable, "-c", program]
    return subprocess.run(
        command_line, capture_output=True, check=False, timeout=60
    ).returncode


def test_a_server_that_hangs_is_not_well_and_one_that_is_not_there_is_let_be() -> None:
    with socket.create_server(("127.0.0.1", 0)) as hangs:
        port = hangs.getsockname()[1]
        assert health(port, timeout_s=0.1) == 1
    assert health(port) == 0


def test_what_is_not_well_is_restarted() -> None:
    shell, flag, script = shlex.split(unit(HEALTH)["Service"]["ExecStopPost"])
    assert (shell, flag) == ("+/bin/sh", "-c")
    script = script.replace("$$", "$").replace("systemctl", "echo")
    for result, told in (("success", ""), ("exit-code", "txaware.service")):
        ran = subprocess.run(
            ["/bin/sh", "-c", script],
            env={"SERVICE_RESULT": result},
            capture_output=True,
            check=True,
            text=True,
            timeout=60,
        )
        assert ran.stdout.strip().endswith(told)
        assert bool(ran.stdout) == bool(told)


def test_the_image_runs_as_nobody_in_particular() -> None:
    names = [name for name, _ in instructions()]
    assert names.index("USER") < names.index("ENTRYPOINT")
    assert dict(instructions())["USER"] == "txaware"
    assert dict(instructions())["EXPOSE"] == "11015"
    assert dict(instructions())["VOLUME"] == "/data"


def test_what_the_files_say_works_together(tmp_path: Path) -> None:
    tokens, data = tmp_path / "tokens.toml", tmp_path / "data"
    txaware = [sys.executable, "-m", "txaware"]
    made = subprocess.run(
        [*txaware, *("token", "new", "ann", "--file", str(tokens))],
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert made.stdout
    said = dict(zip(words("CMD")[1::2], words("CMD")[2::2], strict=True))
    said |= {"--data": str(data), "--auth": str(tokens), "--port": "0"}
    serve = [word for pair in said.items() for word in pair]
    environment = dict(pair.split("=", 1) for pair in last("ENV").split())
    del environment["PATH"], environment["TXAWARE_URL"]
    with subprocess.Popen(
        [*txaware, "serve", *serve],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | environment,
    ) as server:
        try:
            assert server.stdout is not None
            port = server.stdout.readline().strip().rpartition(":")[2]
            _, flag, program = words("HEALTHCHECK")
            subprocess.run(
                [sys.executable, flag, program.replace("11015", port)],
                check=True,
                timeout=60,
            )
            assert health(int(port)) == 0
            server.send_signal(signal.SIGHUP)
            url = f"leveldb:{data}"
            file = tmp_path / "latest.backup"
            for _ in range(2):
                subprocess.run(
                    [*txaware, "--url", url, "backup", "--overwrite", file],
                    check=True,
                    timeout=60,
                )
            assert file.stat().st_size > 100
            subprocess.run(
                [*txaware, "restore", file, f"leveldb:{tmp_path / 'new'}"],
                check=True,
                timeout=60,
            )
        finally:
            server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0
