import re
import socket
import threading

import psycopg
import pytest
import sqlalchemy
from sqlalchemy import exc as sqlalchemy_exc

from kai_es.ports.errors import ConfigError, UnavailableError
from kai_es.storage import schema
from kai_es.storage.engine import connect_to, describe, mapped, to_ms, to_time

pytestmark = pytest.mark.postgres

TABLES = {
    *("projection_offset", "queue_version", "node_version", "allocation_interval"),
    *("request_interval", "capacity_interval", "rollup_level", "cycle", "decision"),
    *("pending_reason", "bind_attempt", "checkpoint"),
    *(f"{what}_{level}" for what in ("usage", "capacity") for level in ("hour", "day", "month")),
}


def _tables(engine):
    with engine.connect() as connection:
        return set(sqlalchemy.inspect(connection).get_table_names())


def test_upgrade_from_empty_and_again(empty_database):
    assert schema.current(empty_database) is None
    schema.upgrade(empty_database)
    assert _tables(empty_database) == {*TABLES, "alembic_version"}
    schema.upgrade(empty_database)
    assert schema.current(empty_database) == "0001"


def test_downgrade_and_upgrade_with_data(database):
    partitions = schema.Partitions()
    with database.begin() as connection:
        partitions.ensure(connection, "cycle", [1_764_442_800_123])
        connection.execute(
            sqlalchemy.text(
                'INSERT INTO projection_offset (projection, "offset", time)'
                " VALUES ('usage', 7, now())"
            )
        )
    schema.downgrade(database, "base")
    assert _tables(database) == {"alembic_version"}
    schema.upgrade(database)
    assert _tables(database) == {*TABLES, "alembic_version"}


def test_two_upgrades_at_once(empty_database):
    failures = []

    def run():
        engine = connect_to(empty_database.url.render_as_string(hide_password=False))
        try:
            schema.upgrade(engine)
        except (UnavailableError, AssertionError) as exc:
            failures.append(exc)
        finally:
            engine.dispose()

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert schema.current(empty_database) == "0001"


def test_schema_of_a_newer_release_is_refused(database):
    with database.begin() as connection:
        connection.execute(sqlalchemy.text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(UnavailableError, match="made by a newer kai-es"):
        schema.upgrade(database)


def test_partitions_are_made_once_by_two_writers(database):
    first, second = schema.Partitions(), schema.Partitions()
    times = [to_ms(to_time(0).replace(year=2026, month=month)) for month in (1, 2, 12)]
    for partitions in (first, second, first):
        with database.begin() as connection:
            partitions.ensure(connection, "decision", times)
        partitions.committed()
    with database.connect() as connection:
        found = connection.execute(
            sqlalchemy.text(
                "SELECT c.relname FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid"
                " WHERE i.inhparent = 'decision'::regclass ORDER BY 1"
            )
        )
        assert [row[0] for row in found] == [
            "decision_2026_01",
            "decision_2026_02",
            "decision_2026_12",
        ]


def test_rolled_back_partition_is_made_again(database):
    partitions = schema.Partitions()
    with database.connect() as connection:
        partitions.ensure(connection, "cycle", [0])
        connection.rollback()
    partitions.rolled_back()
    with database.begin() as connection:
        partitions.ensure(connection, "cycle", [0])
        assert connection.execute(sqlalchemy.text("SELECT to_regclass('cycle_1970_01')")).scalar()


def test_read_only_database_says_so(database):
    with database.connect() as connection:
        connection.execute(sqlalchemy.text("SET TRANSACTION READ ONLY"))
        with pytest.raises(UnavailableError, match="read-only"), mapped("writing"):
            connection.execute(sqlalchemy.text("DELETE FROM checkpoint"))


def test_missing_schema_says_so(empty_database):
    with (
        pytest.raises(UnavailableError, match="not migrated"),
        mapped("reading"),
        empty_database.connect() as connection,
    ):
        connection.execute(sqlalchemy.text("SELECT * FROM checkpoint"))


def test_wrong_statement_is_our_bug(database):
    with (
        pytest.raises(AssertionError, match="reading"),
        mapped("reading"),
        database.connect() as connection,
    ):
        connection.execute(sqlalchemy.text("SELEKT"))


@pytest.mark.parametrize(
    "url", ["postgresql://nobody@127.0.0.1:1/x", "postgresql://nobody@/x?host=/nowhere"]
)
def test_database_away(url):
    engine = connect_to(url)
    with pytest.raises(UnavailableError, match="away"), mapped("reading"), engine.connect():
        pass


def test_a_database_that_is_not_there_is_not_away(postgres_url):
    """The driver gives no SQLSTATE then."""
    url = sqlalchemy.make_url(postgres_url).set(database="nodb")
    engine = connect_to(url.render_as_string(hide_password=False))
    said = 'the database refuses us: .* database "nodb" does not exist; make it'
    with pytest.raises(UnavailableError, match=said), mapped("reading"), engine.connect():
        pass


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ('FATAL:  role "u" does not exist', "refuses us: .*; check the user"),
        ('FATAL:  role "u" is not permitted to log in', "refuses us: .*that it may log in"),
        ('FATAL:  permission denied for database "x"', "refuses us: .*CONNECT"),
        ('FATAL:  password authentication failed for user "u"', "refuses us: .*; check user and"),
        ("fe_sendauth: no password supplied", "refuses us: .*; give one: PGPASSWORD"),
        ('FATAL:  no pg_hba.conf entry for host "h", user "u"', "refuses us: .*mend its pg_hba"),
        ('FATAL:  Datenbank "x" existiert nicht', "away: connection .*existiert nicht$"),
        ("Connection refused", "is away: .*; nothing listens there; start PostgreSQL"),
        ("Connection timed out", "is away: .*; it says nothing; check host, port"),
        ("FATAL:  the database system is starting up", "is away: .*starting up$"),
    ],
)
def test_what_the_driver_says_of_a_connection_is_told_apart(text, meaning):
    begin = 'connection failed: connection to server at "h", port 5432 failed: '
    assert re.search(meaning, describe(psycopg.OperationalError(begin + text + "\n\tmore")))


def test_a_server_that_says_nothing_is_told_so():
    with socket.create_server(("127.0.0.1", 0), backlog=1) as silent:
        port = silent.getsockname()[1]
        engine = connect_to(f"postgresql://u@127.0.0.1:{port}/x?connect_timeout=2")
        with pytest.raises(UnavailableError, match=r"away: .* check host, port, firewall"):
            schema.current(engine)


@pytest.mark.parametrize("url", ["sqlite://", "postgresql", "mysql://u:secret@h/x"])
def test_address_that_is_none(url):
    with pytest.raises(ConfigError, match="database address") as caught:
        connect_to(url)
    assert "secret" not in str(caught.value)


def test_every_error_of_the_driver_has_a_meaning():
    """Away, refused, read-only, not migrated: said in words. Everything else is a bug of ours."""
    ours = ("0", "1", "2", "3", "42", "44", "54", "72", "P0")
    for kind in {type(psycopg.errors.lookup(name)("")) for name in psycopg.errors._sqlcodes}:
        exc = kind("text")
        assert describe(exc) is not None or exc.sqlstate.startswith(ours), exc.sqlstate
    for exc in (
        psycopg.OperationalError("gone"),
        psycopg.InterfaceError("closed"),
        sqlalchemy_exc.TimeoutError("pool"),
        sqlalchemy_exc.DisconnectionError("gone"),
        sqlalchemy_exc.ResourceClosedError("closed"),
    ):
        assert describe(exc), exc
