"""Tokens reach the server, and are shown by nothing that Spark shows or keeps."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
from pyspark.sql import SparkSession

import txaware
from tests.support.spark_fixtures import Shared
from txaware.auth import digest_text, new_token

pytestmark = pytest.mark.spark
ROOT = Path(__file__).parents[2]
RULE = (
    'topics = ["*:*"]\nverbs = ["admin", "publish", "consume"]\ngroups = ["*:*"]\n'
    "transactions = true\n"
)


@attrs.frozen
class Guarded:
    """A server that asks for a token, and three that it knows."""

    shared: Shared
    tokens: list[str]


@pytest.fixture
def site(spark: SparkSession, tmp_path: Path) -> Iterator[Guarded]:
    tokens = [new_token() for _ in range(3)]
    file = tmp_path / "tokens.toml"
    file.touch(mode=0o600)
    file.write_text(
        "".join(
            f'[principals.p{number}]\ntokens = ["{digest_text(token)}"]\n'
            f"[[principals.p{number}.rules]]\n{RULE}"
            for number, token in enumerate(tokens)
        )
    )
    with (
        txaware.connect("memory:") as messaging,
        messaging.serve(tokens=file) as server,
    ):
        for topic in ("t", "u"):
            messaging.create_topic(topic)
        yield Guarded(Shared(messaging, server.url, spark), tokens)


def token_file(folder: Path, token: str, name: str = "token") -> Path:
    file = folder / name
    file.touch(mode=0o600)
    file.write_text(token)
    return file


def test_a_token_comes_by_option_by_file_or_from_the_environment(
    site: Guarded, tmp_path: Path
) -> None:
    shared, (token, other, _) = site.shared, site.tokens
    file = token_file(tmp_path, other)
    ways: list[dict[str, Any]] = [{"token": token}, {"token_file": file}]
    for number, options in enumerate(ways):
        shared.save(shared.frame(str(number)), **options)
        assert shared.reader(topic="t", **options).load().count() == number + 1


@pytest.mark.parametrize("wrong", ["a-token-that-nobody-knows", "with a space", None])
def test_a_wrong_token_is_told_and_not_shown(site: Guarded, wrong: str | None) -> None:
    shared = site.shared
    options: dict[str, Any] = {} if wrong is None else {"token": wrong}
    with pytest.raises(Exception, match=r"NotAuthenticated|BadRequest") as saving:
        shared.save(shared.frame("1"), **options)
    reader = shared.reader(topic="t", **options)
    with pytest.raises(Exception, match=r"NotAuthenticated|BadRequest") as reading:
        reader.load().count()
    for caught in (saving, reading):
        assert wrong is None or wrong not in str(caught.value) + repr(caught.value)
    assert shared.published("t") == []


@pytest.mark.long
def test_no_page_plan_log_or_checkpoint_of_spark_has_a_token(
    site: Guarded, tmp_path: Path
) -> None:
    folder = tmp_path / "kept"
    folder.mkdir()
    for name, token in zip(("token", "other_token"), site.tokens, strict=False):
        token_file(folder, token, name)
    ran = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.support.spark_security_job",
            site.shared.url,
            folder,
        ],
        cwd=ROOT,
        env={**os.environ, "TXAWARE_TOKEN": site.tokens[2]},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    kept = {
        str(file): file.read_bytes()
        for file in folder.rglob("*")
        if file.is_file() and not file.name.endswith("token")
    }
    kept["printed"] = (ran.stdout + ran.stderr).encode()
    assert b"INFO DAGScheduler" in kept["printed"]
    for seen in (
        b"SparkListenerSQLExecutionStart",
        b"Details for Query",
        b"txaware",
    ):
        assert any(seen in content for content in kept.values()), seen
    for token in site.tokens:
        shown = [name for name, has in kept.items() if token.encode() in has]
        assert not shown, shown
    published = site.shared.published
    assert (len(published("t")), len(published("u"))) == (16, 24)
