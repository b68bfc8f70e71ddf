"""Participants for what people have: their data changes together with the messages."""

from txaware.consume import Inbox
from txaware.participants.connections import mysql, postgres, sqlalchemy, sqlite
from txaware.participants.database_outbox import DatabaseOutbox
from txaware.participants.files import Files, files
from txaware.participants.mysql import Mysql
from txaware.participants.mysql_outbox import DecidingMysql
from txaware.participants.postgres import Postgres
from txaware.participants.postgres_outbox import DecidingPostgres
from txaware.participants.sqlalchemy import SqlalchemySession
from txaware.participants.sqlite import Sqlite

__all__ = [
    "DatabaseOutbox",
    "DecidingMysql",
    "DecidingPostgres",
    "Files",
    "Inbox",
    "Mysql",
    "Postgres",
    "SqlalchemySession",
    "Sqlite",
    "files",
    "mysql",
    "postgres",
    "sqlalchemy",
    "sqlite",
]
