"""The connection to PostgreSQL: engine, error map, times.

No exception of SQLAlchemy or psycopg leaves `storage`: every public function of an adapter runs in
`mapped()`.
"""

import contextlib
import datetime
from collections.abc import Iterator
from types import MappingProxyType
from typing import Final, NoReturn

import psycopg
import sqlalchemy
from sqlalchemy import Engine
from sqlalchemy import engine as sqlalchemy_engine
from sqlalchemy import exc as sqlalchemy_exc

from kai_es.ports.errors import ConfigError, UnavailableError

POOL_SIZE: Final = 4
"""Connections of one process: a projector each, one for usage queries, one for a report."""
CONNECT_TIMEOUT_S: Final = 5
STATEMENT_TIMEOUT_S: Final = 300
"""A statement that runs longer is a bug or a lock that nobody lets go."""
LOCK_TIMEOUT_S: Final = 5
IDLE_TIMEOUT_S: Final = 10
"""A transaction whose process says nothing for so long is ended by the server: its process was
stopped, or its machine is gone, and whoever took over waits for its locks."""
ALIVE: Final = MappingProxyType(
    {
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 20_000,
    }
)
"""A server whose machine is gone says nothing, and the system would wait for it for two hours."""
EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
SERVER_MIN: Final = 15
"""Oldest PostgreSQL that the statements are tested against."""

READ_ONLY: Final = (
    "the database is read-only: it is a standby, or default_transaction_read_only is on; "
    "writes go on by themselves once it accepts them"
)
_READ_ONLY: Final = "25006"
_LOCKED: Final = (
    "another session holds a lock that this needs, for seconds now; wait for it, or end it "
    "(pg_stat_activity, pg_locks)"
)
_SAID: Final = MappingProxyType({_READ_ONLY: READ_ONLY, "55P03": _LOCKED})
_REFUSED: Final = ("28", "3D", "42501", "0P")
_AWAY: Final = ("08", "25", "40", "53", "55", "57", "58", "F0", "XX", "HV")
_NO_START: Final = (
    ('database "', "does not exist", "make it (createdb NAME), or name another (--database)"),
    ("role ", "", "check the user of --database, and that it may log in"),
    ("password authentication failed", "", "check user and password of --database"),
    ("no password supplied", "", "give one: PGPASSWORD, a passfile, or in --database"),
    ("no pg_hba.conf entry", "", "the server lets nobody in from here: mend its pg_hba.conf"),
    ("permission denied", "", "grant the user CONNECT on it"),
    ("not currently accepting connections", "", "allow them (ALTER DATABASE)"),
)
"""What a server says to who wants to begin, and what to do. The driver tells of the beginning in
words alone, without an SQLSTATE; in other languages they stand without advice."""
_NO_SERVER: Final = (
    ("Connection refused", "nothing listens there; start PostgreSQL, or check host and port"),
    ("timeout expired", f"it says nothing for {CONNECT_TIMEOUT_S} s; check host, port, firewall"),
    ("timed out", "it says nothing; check host, port, firewall"),
    ("failed to resolve host", "check the host of --database"),
)
_WANTED: Final = "want postgresql://user@host:5432/database"
_MISSING: Final = frozenset({"42P01", "42703", "3F000"})


def connect_to(url: str) -> Engine:
    """An engine for a database address such as `postgresql://user@host/db`; connects lazily.

    Raises:
        ConfigError: not a PostgreSQL address.
    """
    try:
        parsed = sqlalchemy.make_url(url)
    except sqlalchemy_exc.ArgumentError as exc:
        raise ConfigError(f"database address {_no_secret(url)!r}: {_WANTED}") from exc
    if parsed.get_backend_name() not in ("postgresql", "postgres"):
        raise ConfigError(f"database address {_no_secret(url)!r}: {_WANTED}")
    engine = sqlalchemy.create_engine(
        parsed.set(drivername="postgresql+psycopg"),
        pool_size=POOL_SIZE,
        max_overflow=POOL_SIZE,
        pool_pre_ping=True,
        connect_args={
            "connect_timeout": CONNECT_TIMEOUT_S,
            "application_name": "kai-es",
            **ALIVE,
            "options": "-c timezone=UTC"
            f" -c statement_timeout={STATEMENT_TIMEOUT_S * 1000}"
            f" -c lock_timeout={LOCK_TIMEOUT_S * 1000}"
            f" -c idle_in_transaction_session_timeout={IDLE_TIMEOUT_S * 1000}",
        },
    )
    sqlalchemy.event.listen(engine, "handle_error", _reconnect_if_read_only)
    return engine


@contextlib.contextmanager
def mapped(doing: str) -> Iterator[None]:
    """Turn database errors into those of `ports.errors`. `doing` says what failed, for people.

    Raises:
        UnavailableError: the database is away, refuses us, is read-only, full or not migrated.
        AssertionError: it refused a statement of ours.
    """
    try:
        yield
    except (sqlalchemy_exc.SQLAlchemyError, psycopg.Error) as exc:
        _raise(exc, doing)


def to_time(ms: int) -> datetime.datetime:
    """Milliseconds since the epoch as an exact `timestamptz` value."""
    return EPOCH + datetime.timedelta(milliseconds=ms)


def to_ms(time: datetime.datetime) -> int:
    """The inverse of `to_time`; microseconds are cut."""
    return (time - EPOCH) // datetime.timedelta(milliseconds=1)


def _reconnect_if_read_only(context: sqlalchemy_engine.ExceptionContext) -> None:
    """A session stays read-only after the database no longer is, or is it on a former primary."""
    if getattr(context.original_exception, "sqlstate", None) == _READ_ONLY:
        context.is_disconnect = True


def _raise(exc: BaseException, doing: str) -> NoReturn:
    original = exc.orig if isinstance(exc, sqlalchemy_exc.DBAPIError) else exc
    problem = describe(original if isinstance(original, BaseException) else exc)
    if problem is None:
        raise AssertionError(f"{doing}: {exc}") from exc
    raise UnavailableError(f"{doing}: {problem}") from exc


def describe(exc: BaseException) -> str | None:
    """What a person should know of a database error; None = the statement itself is wrong."""
    state = getattr(exc, "sqlstate", None) or ""
    text = str(exc).strip().split("\n", 1)[0]
    if state in _SAID:
        return _SAID[state]
    if state in _MISSING:
        return (
            f"the database is not migrated to this release ({text}); the parts that write it "
            "(`kai-es run usage history checkpoint`) do that when they start"
        )
    if state.startswith(_REFUSED):
        return f"the database refuses us: {text}; check address, user, password and rights"
    if state.startswith(_AWAY):
        return f"the database is away or overloaded: {text}"
    if not state and isinstance(
        exc,
        psycopg.OperationalError
        | psycopg.InterfaceError
        | sqlalchemy_exc.TimeoutError
        | sqlalchemy_exc.DisconnectionError
        | sqlalchemy_exc.ResourceClosedError,
    ):
        return _beginning(text)
    return None


def _beginning(text: str) -> str:
    """What the driver says of a connection that does not come about, and what to do."""
    text = text.removeprefix("connection failed: ")
    said = text.rpartition("failed: ")[2].removeprefix("FATAL:").lstrip()
    for begin, end, fix in _NO_START:
        if begin in said and said.endswith(end):
            return f"the database refuses us: {text}; {fix}"
    for words, fix in _NO_SERVER:
        if words in text:
            return f"the database is away: {text}; {fix}"
    return f"the database is away: {text}"


def _no_secret(url: str) -> str:
    head, at, tail = url.rpartition("@")
    return f"…@{tail}" if at else head or tail
