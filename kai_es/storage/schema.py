"""The database's schema: migrations, and monthly partitions of the big tables."""

import datetime
import threading
from collections.abc import Iterable
from importlib import resources
from typing import Final

import sqlalchemy
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine

from kai_es.ports.errors import UnavailableError
from kai_es.storage.engine import SERVER_MIN, mapped, to_time

PARTITIONED: Final = (
    "allocation_interval",
    "request_interval",
    "cycle",
    "decision",
    "bind_attempt",
)
_LOCK_KEY: Final = 0x6B61692D6573  # "kai-es": advisory lock of schema changes

_alembic = threading.Lock()
"""Alembic keeps what it is at in globals: two migrations in one process must not meet."""


def upgrade(engine: Engine, revision: str = "head") -> None:
    """Bring the schema to a revision; harmless when it is there, and when two try at once.

    Raises:
        UnavailableError: database away, too old, or its schema is of a newer release.
    """
    with _alembic, mapped("migrating the database"), engine.begin() as connection:
        _check_server(connection)
        _lock(connection)
        _check_known(connection)
        command.upgrade(_config(connection), revision)


def downgrade(engine: Engine, revision: str) -> None:
    """Take the schema back to an older revision; `base` drops everything."""
    with _alembic, mapped("migrating the database back"), engine.begin() as connection:
        _lock(connection)
        command.downgrade(_config(connection), revision)


def current(engine: Engine) -> str | None:
    """Revision of the database, None = empty."""
    with mapped("reading the database's revision"), engine.connect() as connection:
        return MigrationContext.configure(connection).get_current_revision()


class Partitions:
    """Monthly partitions, made when a row needs them. One object per writer."""

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._new: set[str] = set()

    def ensure(self, connection: Connection, table: str, times_ms: Iterable[int]) -> None:
        """Have the partitions of `table` for these times, in the transaction of `connection`."""
        assert table in PARTITIONED, table
        for month in {_month(to_time(ms)) for ms in times_ms}:
            name = f"{table}_{month:%Y_%m}"
            if name not in self._known and name not in self._new:
                _create(connection, table, name, month)
                self._new.add(name)

    def committed(self) -> None:
        """The transaction that made partitions is durable."""
        self._known |= self._new
        self._new = set()

    def rolled_back(self) -> None:
        """It is not."""
        self._new = set()


def _create(connection: Connection, table: str, name: str, month: datetime.datetime) -> None:
    """Make one partition beside the table, then attach it: readers of the table are not locked."""
    _lock(connection)
    found = connection.execute(sqlalchemy.text("SELECT to_regclass(:name)"), {"name": name})
    if found.scalar() is not None:
        return
    after = _month(month + datetime.timedelta(days=31))
    connection.execute(sqlalchemy.text(f"CREATE TABLE {name} (LIKE {table} INCLUDING ALL)"))
    connection.execute(
        sqlalchemy.text(
            f"ALTER TABLE {table} ATTACH PARTITION {name}"
            f" FOR VALUES FROM ('{month.isoformat()}') TO ('{after.isoformat()}')"
        )
    )


def _month(time: datetime.datetime) -> datetime.datetime:
    return time.replace(day=1, hour=0, minute=0, second=0, microsecond=0)


def _lock(connection: Connection) -> None:
    """One schema change at a time; released with the transaction."""
    connection.execute(sqlalchemy.text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK_KEY})


def _check_server(connection: Connection) -> None:
    number = int(connection.execute(sqlalchemy.text("SHOW server_version_num")).scalar_one())
    if number // 10_000 < SERVER_MIN:
        raise UnavailableError(
            f"PostgreSQL {number // 10_000} is too old, want {SERVER_MIN} or newer"
        )


def _check_known(connection: Connection) -> None:
    """A revision that these migrations do not know was made by a newer release."""
    found = MigrationContext.configure(connection).get_current_revision()
    known = {script.revision for script in ScriptDirectory(_location()).walk_revisions()}
    if found is not None and found not in known:
        raise UnavailableError(
            f"the database has schema {found}, made by a newer kai-es: upgrade this one"
        )


def _config(connection: Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", _location().replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def _location() -> str:
    return str(resources.files("migrations"))
