"""A database that brokers share, read over its own driver, which is loaded only where the settings name one."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

from dr_ctl.core.clock import Clock
from dr_ctl.topologies.sharedstore.dsn import Dsn, NotADsn
from dr_ctl.topologies.sharedstore.lock import Lag, LockSeen, LockUnreadable

CONNECT_S: Final = 2
ANSWER_S: Final = 3


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of database: its driver, the extra with it, the connection arguments, the clock in milliseconds."""

    driver: str
    extra: str
    reached: Callable[[Dsn], Mapping[str, Any]]
    now_ms: str


def _postgresql(dsn: Dsn) -> Mapping[str, Any]:
    options = f"-c statement_timeout={1000 * ANSWER_S}"
    return {"conninfo": dsn.text, "connect_timeout": CONNECT_S, "options": options}


def _mysql(dsn: Dsn) -> Mapping[str, Any]:
    if len(dsn.hosts) != 1:
        raise NotADsn("the address of the store's database has to name one host")
    host, port = dsn.hosts[0]
    return {
        "host": host,
        "port": port or 3306,
        "user": dsn.user,
        "password": dsn.password,
        "database": dsn.name,
        "connect_timeout": CONNECT_S,
        "read_timeout": ANSWER_S,
        "write_timeout": ANSWER_S,
    }


_POSTGRESQL: Final = Kind("psycopg", "postgresql", _postgresql, "extract(epoch from clock_timestamp()) * 1000")
_MARIADB: Final = Kind("pymysql", "mariadb", _mysql, "unix_timestamp(now(3)) * 1000")
KINDS: Final[Mapping[str, Kind]] = {
    "postgresql": _POSTGRESQL,
    "postgres": _POSTGRESQL,
    "mysql": _MARIADB,
    "mariadb": _MARIADB,
}


class Database:
    """A connection, opened when first needed and again where it broke. Reads only. For several threads."""

    def __init__(self, dsn: Callable[[], str]) -> None:
        """`dsn` gives the secret that the address is."""
        self._dsn = dsn
        self._mutex = threading.Lock()
        self._open: tuple[Kind, Any] | None = None
        self._was_read = False

    def rows(self, query: Callable[[Kind], str]) -> Sequence[tuple[Any, ...]]:
        """Raises `LockUnreadable`."""
        with self._mutex:
            kind, connection = self._open or self._connected()
            try:
                with connection.cursor() as cursor:
                    cursor.execute(query(kind))
                    found: Sequence[tuple[Any, ...]] = cursor.fetchall()
            except import_module(kind.driver).Error as error:
                self._drop()
                raise LockUnreadable(f"the database of the store did not answer: {_line(error)}") from error
            return found

    def _connected(self) -> tuple[Kind, Any]:
        dsn = self._address()
        kind = KINDS[dsn.scheme]
        try:
            driver = import_module(kind.driver)
        except ImportError as error:
            text = f"the driver of the store's database is not installed: {kind.driver}"
            raise LockUnreadable(text, remedy=f"pip install 'dr-ctl[{kind.extra}]'") from error
        try:
            connection = driver.connect(autocommit=True, **kind.reached(dsn))
        except driver.Error as error:
            text = dsn.without_password(_line(error))
            raise LockUnreadable(f"the database of the store cannot be reached: {text}") from None
        self._open = kind, connection
        return self._open

    def _address(self) -> Dsn:
        """Raises `NotADsn` at first; an address that was read once and is wrong later ends no run."""
        try:
            dsn = Dsn.read(self._dsn(), tuple(KINDS))
        except NotADsn as error:
            if self._was_read:
                raise LockUnreadable(str(error), remedy=error.remedy) from None
            raise
        self._was_read = True
        return dsn

    def _drop(self) -> None:
        if self._open is not None:
            kind, connection = self._open
            self._open = None
            try:
                connection.close()
            except import_module(kind.driver).Error:
                return  # the connection is broken already

    def close(self) -> None:
        with self._mutex:
            self._drop()


class RowLock:
    """Implements `Lock`: the row names its holder and the end of its lease, both by the brokers' clocks."""

    def __init__(self, database: Database, table: str, clock: Clock) -> None:
        self._database, self._table, self._clock = database, table, clock
        self._mutex = threading.Lock()
        self._last: tuple[str, float, float] | None = None  # holder, the end of its lease, the time of the look
        self._renewed_s: float | None = None
        self._lasts_s: float | None = None

    def read(self) -> LockSeen:
        before = self._clock.now().timestamp()
        rows = self._database.rows(lambda kind: f"SELECT broker_name, time, {kind.now_ms} FROM {self._table}")  # noqa: S608 - a name by its pattern
        after = self._clock.now().timestamp()
        if len(rows) != 1:
            raise LockUnreadable(f"{self._table} has {len(rows)} rows instead of one")
        holder, ends_ms, now_ms = rows[0]
        left_s = (float(ends_ms or 0) - float(now_ms)) / 1000
        ahead_s = float(now_ms) / 1000 - (before + after) / 2
        held = holder is not None and left_s > 0
        if holder is None:
            return LockSeen(held, None, None, ahead_s, written=ends_ms is not None)
        with self._mutex:
            self._note(holder, float(ends_ms or 0) / 1000, float(now_ms) / 1000)
            return LockSeen(held, holder, left_s, ahead_s, renewed_s=self._renewed_s, lasts_s=self._lasts_s)

    def _note(self, holder: str, ends_s: float, now_s: float) -> None:
        """Two ends of one holder's lease are as far apart as its renewals, whatever its clock says. Between looks that
        lie further apart than half of that there may have been several renewals."""
        was, self._last = self._last, (holder, ends_s, now_s)
        if was is None or was[0] != holder:
            self._renewed_s, self._lasts_s = None, None
        elif ends_s - was[1] > 2 * (now_s - was[2]):
            self._renewed_s, self._lasts_s = ends_s - was[1], max(ends_s - now_s, self._lasts_s or 0.0)

    def close(self) -> None:
        self._database.close()


def counts(database: Database, messages: str) -> dict[str, int]:
    """How many messages of each queue lie in the store. Raises `LockUnreadable`."""
    rows = database.rows(lambda _: f"SELECT container, count(*) FROM {messages} GROUP BY container")  # noqa: S608 - as above
    return {str(name).removeprefix("queue://"): int(count) for name, count in rows if str(name).startswith("queue://")}


def lag(store: Database, replica: Database, messages: str) -> Lag:
    """How far a PostgreSQL replica is behind; the store is read first, so that messages that come meanwhile are no lag.
    Raises `LockUnreadable`."""
    [(written,)] = store.rows(lambda _: "SELECT pg_current_wal_lsn() - '0/0'::pg_lsn")
    [(replayed, last)] = replica.rows(
        lambda _: f"SELECT pg_last_wal_replay_lsn() - '0/0'::pg_lsn, coalesce(max(id), 0) FROM {messages}"  # noqa: S608
    )
    if replayed is None:
        raise LockUnreadable("what the settings name as the replica follows no other database")
    [(new,)] = store.rows(lambda _: f"SELECT count(*) FROM {messages} WHERE id > {int(last)}")  # noqa: S608 - a number
    return Lag(max(0, int(written - replayed)), int(new))


def _line(error: Exception) -> str:
    """The first line of an error: the rest repeats the address."""
    return str(error).strip().partition("\n")[0]
