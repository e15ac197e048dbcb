"""A database that brokers share, read over its own driver, which is loaded only where the settings name one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from dr_ctl.core.clock import Clock
from dr_ctl.topologies.sharedstore.lock import Lag, LockSeen, LockUnreadable

CONNECT_S: Final = 2
ANSWER_S: Final = 3


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of database: its driver, the extra with it, the connection arguments, the clock in milliseconds."""

    driver: str
    extra: str
    reached: Callable[[str], Mapping[str, Any]]
    now_ms: str


def _postgresql(dsn: str) -> Mapping[str, Any]:
    options = f"-c statement_timeout={1000 * ANSWER_S}"
    return {"conninfo": dsn, "connect_timeout": CONNECT_S, "options": options}


def _mysql(dsn: str) -> Mapping[str, Any]:
    parts = urlsplit(dsn)
    return {
        "host": parts.hostname,
        "port": parts.port or 3306,
        "user": unquote(parts.username or ""),
        "password": unquote(parts.password or ""),
        "database": parts.path.strip("/"),
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
        dsn = self._dsn()
        kind = KINDS.get(urlsplit(dsn).scheme)
        if kind is None:
            raise LockUnreadable(f"the store's dsn begins with none of {', '.join(f'{each}://' for each in KINDS)}")
        try:
            driver = import_module(kind.driver)
        except ImportError as error:
            text = f"the driver of the store's database is not installed: {kind.driver}"
            raise LockUnreadable(text, remedy=f"pip install 'dr-ctl[{kind.extra}]'") from error
        try:
            connection = driver.connect(autocommit=True, **kind.reached(dsn))
        except driver.Error as error:
            raise LockUnreadable(f"the database of the store cannot be reached: {_line(error)}") from error
        self._open = kind, connection
        return self._open

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
        return LockSeen(held, holder, left_s if holder is not None else None, ahead_s)

    def close(self) -> None:
        self._database.close()


def counts(database: Database, messages: str) -> Mapping[str, int]:
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
