"""`txaware participant`: what a crash left in files."""

from pathlib import Path

import pytest

import txaware
from tests.support.cli_runs import error_of, run
from txaware import participants

pytestmark = pytest.mark.usefixtures("here")

RECOVER = ("participants", "recover")


def killed_after_the_commit(*names: str) -> int:
    """The pointer of a transaction whose files are not in place yet."""
    with (
        txaware.connect("leveldb:./data") as messaging,
        participants.files(messaging, "out", name="of the shop") as files,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(files, "_apply", lambda pointer: None)
        with messaging.transaction() as tx:
            for name in names:
                files.write(name, b"late")
        return tx.transaction.transaction_id


def test_files_are_recovered_and_skipped() -> None:
    killed_after_the_commit("a")
    assert run(*RECOVER, "out").stdout == "0 transactions still open\n"
    assert Path("out/a").read_bytes() == b"late"
    pointer = killed_after_the_commit("b")
    Path("out/b").mkdir()
    said = error_of(*RECOVER, "out", code=1)
    assert f"transaction {pointer} has committed, and its file 'b' cannot" in said
    assert "--skip" in said
    put_by = Path(f"out/.txaware/{pointer}.skipped").absolute()
    assert run(*RECOVER, "out", "--skip").stdout == (
        f"skipped: what was to be done is in {put_by}\n0 transactions still open\n"
    )
    assert run(*RECOVER, "out").stdout == "0 transactions still open\n"
    with txaware.connect("leveldb:./data") as messaging:
        assert [keeper.name for keeper in messaging.keepers()] == ["of the shop"]


def test_what_is_no_place_of_participants_is_one_sentence() -> None:
    run("topic", "create", "t")
    Path("empty").mkdir()
    for place in ("empty", "away", "shop.db"):
        said = error_of(*RECOVER, place, code=2)
        assert f"{place} is neither the address of a PostgreSQL" in said
    assert not list(Path("empty").iterdir())
