"""Java objects written for Tephra take part in transactions begun in Python."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from coordinator.context import TransactionContext, transaction
from coordinator.errors import ParticipantFailed, TransactionConflict
from coordinator.java.jars import cached_jars
from coordinator.java.participant import JavaParticipant
from coordinator.tephra import TephraCoordinator
from coordinator.tephra.local import TEPHRA_JARS
from tests.support.doubles import Recorder

pytestmark = pytest.mark.tephra

TABLE = """
import java.util.*;
import org.apache.tephra.*;

public class Table implements TransactionAware {
  public final List<String> calls = new ArrayList<>();
  public final List<byte[]> changes = new ArrayList<>();
  public boolean commits = true, undoes = true, nothing = false;
  public Transaction tx;
  public List<String> getCalls() { return calls; }
  public void change(byte[] key) { changes.add(key); }
  public void failWith(boolean commits, boolean undoes) {
    this.commits = commits; this.undoes = undoes;
  }
  public void changeNothing() { nothing = true; }
  public long pointer() { return tx.getWritePointer(); }
  public boolean sees(long pointer) { return tx.isVisible(pointer); }
  public void startTx(Transaction tx) { this.tx = tx; calls.add("start"); }
  public void updateTx(Transaction tx) { this.tx = tx; calls.add("update"); }
  public Collection<byte[]> getTxChanges() { return nothing ? null : changes; }
  public boolean commitTx() { calls.add("commit"); return commits; }
  public void postTxCommit() { calls.add("post"); }
  public boolean rollbackTx() throws Exception {
    calls.add("rollback");
    if (!undoes) throw new java.io.IOException("the disk is full");
    return true;
  }
  public String getTransactionAwareName() { return "java table"; }
}
"""


@pytest.fixture(scope="module")
def classes(javac: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the compiled table lies."""
    folder = tmp_path_factory.mktemp("classes")
    source = folder / "Table.java"
    source.write_text(TABLE)
    jars = ":".join(map(str, cached_jars(TEPHRA_JARS)))
    subprocess.run([javac, "-nowarn", "-cp", jars, str(source)], check=True)
    return folder


@pytest.fixture
def coordinator(classes: Path, tmp_path: Path) -> Any:
    """A Tephra whose JVM knows the table."""
    with TephraCoordinator(tmp_path / "tephra", classpath=[classes]) as coordinator:
        yield coordinator


@pytest.fixture
def table(coordinator: TephraCoordinator) -> Any:
    """A table in the JVM."""
    return coordinator.jvm.view.Table()


def test_a_java_table_and_a_python_one_commit_together(
    coordinator: TephraCoordinator, table: Any
) -> None:
    participant = JavaParticipant(table, coordinator.jvm)
    table.change(b"\0java\n\xff")
    other = Recorder(changes=[b"python"])
    loser = coordinator.start_short()
    with transaction(coordinator, participant, other) as context:
        pointer = context.transaction.write_pointer
        assert participant.transaction_aware_name == "java table"
        assert table.pointer() == pointer
    assert list(table.getCalls()) == ["start", "commit", "post"]
    assert coordinator.snapshot().is_visible(pointer)
    for key in (b"\0java\n\xff", b"python"):
        with pytest.raises(TransactionConflict):
            coordinator.can_commit(loser, [key])


def test_a_checkpoint_gives_the_java_table_the_new_pointer(
    coordinator: TephraCoordinator, table: Any
) -> None:
    participant = JavaParticipant(table, coordinator.jvm)
    with transaction(coordinator, participant) as context:
        first = context.transaction.write_pointer
        context.checkpoint()
        assert table.pointer() == context.transaction.write_pointer != first
        assert table.sees(first)
    assert list(table.getCalls()) == ["start", "commit", "update", "commit", "post"]


def test_a_java_table_that_cannot_write_rolls_back_all(
    coordinator: TephraCoordinator, table: Any
) -> None:
    table.failWith(False, True)
    other = Recorder()
    context = TransactionContext(
        coordinator, other, JavaParticipant(table, coordinator.jvm)
    )
    with pytest.raises(ParticipantFailed, match="java table"), context:
        pass
    assert list(table.getCalls()) == ["start", "commit", "rollback"]
    assert other.log[-1] == "rollback_tx table"
    now = coordinator.snapshot()
    assert not now.in_progress
    assert not now.invalids


def test_a_java_table_that_cannot_undo_makes_the_transaction_invalid(
    coordinator: TephraCoordinator, table: Any
) -> None:
    table.failWith(False, False)
    participant = JavaParticipant(table, coordinator.jvm)
    with pytest.raises(ParticipantFailed), transaction(coordinator, participant) as tx:
        pass
    assert tx.transaction.transaction_id in coordinator.snapshot().invalids
    with pytest.raises(ParticipantFailed, match=r"the disk is full \(IOException\)"):
        participant.rollback_tx()


def test_a_java_table_without_changes_may_answer_null(
    coordinator: TephraCoordinator, table: Any
) -> None:
    table.changeNothing()
    assert JavaParticipant(table, coordinator.jvm).get_tx_changes() == []


def test_tephras_write_fence_refuses_a_reader_that_began_before_it(
    tephra: TephraCoordinator,
) -> None:
    java = tephra.jvm.view
    fences = java.org.apache.tephra.visibility.VisibilityFence
    client = java.org.apache.tephra.inmemory.InMemoryTxSystemClient(
        tephra._tephra.manager
    )
    reader = JavaParticipant(fences.create(b"fence"), tephra.jvm)
    context = TransactionContext(tephra, reader)
    pointer = context.start().transaction_id
    assert reader.transaction_aware_name == "ReadFence"
    assert reader.get_tx_changes() == [b"fence" + pointer.to_bytes(8, "big")]
    fence = fences.prepareWait(b"fence", client)
    wait = fence.__getattr__("await")  # a word of Python's own
    wait(5, java.java.util.concurrent.TimeUnit.SECONDS)
    with pytest.raises(TransactionConflict):
        context.finish()
    with transaction(tephra, reader):
        pass
