"""Sessions of SQLAlchemy in transactions, to each database."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, String, create_engine, select, text
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

import txaware
from tests.support.messagings import committed
from txaware import participants
from txaware.errors import BadRequest, MisusedTransaction
from txaware.messaging import Messaging
from txaware.participants import SqlalchemySession


class Base(DeclarativeBase):
    """The tables."""


class Order(Base):
    """An order."""

    __tablename__ = "orders"
    who: Mapped[str] = mapped_column(String(20), primary_key=True)


@pytest.fixture
def messaging(tmp_path: Path) -> Iterator[Messaging]:
    with txaware.connect(f"leveldb:{tmp_path / 'data'}") as opened:
        opened.create_topic("t")
        yield opened


@pytest.fixture(
    params=["sqlite", "postgres", "postgres outbox", "mysql", "mysql outbox"]
)
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    """An engine, as a user has one."""
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    if request.param != "sqlite":
        server = request.getfixturevalue(f"{request.param.partition(' ')[0]}_server")
        url = server.session_url
    engine = create_engine(url)
    Base.metadata.create_all(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def outbox(request: pytest.FixtureRequest) -> bool:
    """Whether the database decides."""
    return "outbox" in request.node.name


def taking_part(messaging: Messaging, session: Session, outbox: bool) -> Any:
    return participants.sqlalchemy(messaging, session, outbox=outbox, relay=False)


def orders(engine: Engine) -> list[str]:
    with Session(engine) as session:
        return list(session.scalars(select(Order.who).order_by(Order.who)))


def carried(messaging: Messaging, shop: SqlalchemySession) -> list[bytes]:
    """What is committed, once a relay has worked."""
    with messaging.transaction(shop):
        database: Any = shop._database
    if hasattr(database, "relay"):
        database.relay()
    return committed(messaging)


def test_a_session_commits_with_the_messages(
    messaging: Messaging, engine: Engine, outbox: bool
) -> None:
    with Session(engine) as session:
        shop = taking_part(messaging, session, outbox)
        for who in ("ann", "bob"):
            with messaging.transaction(shop):
                session.add(Order(who=who))
                messaging.publisher("t").publish(who.encode())
        with pytest.raises(ZeroDivisionError), messaging.transaction(shop):  # noqa: PT012
            session.add(Order(who="eve"))
            session.flush()
            messaging.publisher("t").publish(b"eve")
            assert 1 / 0
        assert not session.in_transaction()
        assert orders(engine) == ["ann", "bob"]
        assert carried(messaging, shop) == [b"ann", b"bob"]


def test_a_flush_that_fails_at_the_end_undoes_the_block(
    messaging: Messaging, engine: Engine, outbox: bool
) -> None:
    with Session(engine) as session:
        shop = taking_part(messaging, session, outbox)
        with messaging.transaction(shop):
            session.add(Order(who="ann"))
        with (  # noqa: PT012
            pytest.raises(Exception, match=r"(?i)unique|duplicate"),
            messaging.transaction(shop),
        ):
            messaging.publisher("t").publish(b"again")
            session.execute(text("INSERT INTO orders VALUES ('bob')"))
            session.expunge_all()
            session.add(Order(who="ann"))
        assert orders(engine) == ["ann"]
        assert carried(messaging, shop) == []


def test_a_session_that_has_begun_is_refused(
    messaging: Messaging, engine: Engine, outbox: bool
) -> None:
    with Session(engine) as session:
        session.add(Order(who="ann"))
        session.flush()
        shop = taking_part(messaging, session, outbox)
        with (
            pytest.raises(MisusedTransaction, match="began before the block"),
            messaging.transaction(shop),
        ):
            pass
        session.commit()
    assert orders(engine) == ["ann"]
    wrong: Any = engine.url
    with pytest.raises(BadRequest, match="no session"):
        participants.sqlalchemy(messaging, wrong)


def test_the_database_decides_where_it_was_asked_to_or_cannot_prepare(
    messaging: Messaging, engine: Engine, outbox: bool
) -> None:
    decides = outbox or engine.dialect.name == "sqlite"
    with Session(engine) as session:
        shop = taking_part(messaging, session, outbox)
        assert shop.decides is decides
        with messaging.transaction(shop):
            assert (shop.decides, shop.prepares) == (decides, not decides)
