"""The store that brokers share: a folder, or a database, whose driver is loaded only if the settings name one. dr-ctl
reads the store's lock and never takes it, and reads whether a broker's process runs."""

from __future__ import annotations

import fcntl
import os
import re
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from shlex import quote
from typing import Any, Final
from urllib.parse import unquote

from dr_ctl.core.errors import BrokerError, Unreachable, UsageError
from dr_ctl.core.notation import shell_command
from dr_ctl.core.system import system
from dr_ctl.engine.plan import Goal
from dr_ctl.engine.ports import Failed, Outcome
from dr_ctl.processes.hooks import CommandContext
from dr_ctl.processes.secrets import resolve
from dr_ctl.settings.classic import ClassicSharedStore, Process, Store
from dr_ctl.settings.model import Installation
from dr_ctl.settings.parts import Secret

# The struct flock of Linux has type, whence, start, length and pid.
_FLOCK: Final = "hhqqi"
FRESH_S: Final = 2.0  # a process state is read again after this time: a gate reads fifty times a second
_STOPPED_EXIT: Final = 3  # the exit code of `systemctl is-active`, and of other status commands that follow the LSB


class LockUnreadable(BrokerError):
    remedy = "Make sure that this machine reaches the store of `store:`, with a login that may read it."


class SilentAndUnread(Unreachable):
    """A broker whose ports refuse while the lock cannot be read: it is unknown whether it waits for the store."""

    remedy = LockUnreadable.remedy

    def __init__(self, text: str, unread: str) -> None:
        super().__init__(f"{text}; and {unread}", refused=False)
        self.unread = unread


@dataclass(frozen=True, slots=True)
class LockSnapshot:
    """`holder` is the name in the lock, also after its lease has run out. `left_s` is the rest of the lease by the
    database's clock, `ahead_s` the lead of that clock before this machine's. `written` is False if no broker has ever
    written a lease. `renewed_s` is the time between renewals, `lasts_s` the longest lease; None if not seen yet."""

    held: bool
    holder: str | None = None
    left_s: float | None = None
    ahead_s: float | None = None
    written: bool = True
    renewed_s: float | None = None
    lasts_s: float | None = None

    @property
    def text(self) -> str:
        if not self.held:
            ran_out = f", the lease of {self.holder} has run out" if self.holder is not None else ""
            return f"nobody holds the store{ran_out}"
        lease = f", its lease lasts {self.left_s:.1f} s more" if self.left_s is not None else ""
        return f"{self.holder} holds the store{lease}" if self.holder is not None else "the store's lock is held"


@dataclass(frozen=True, slots=True)
class Lag:
    """The lag of a store's replica: `size` bytes of the store's journal, and the number of new messages among them."""

    size: int
    messages: int


class FileLock:
    """Java uses POSIX file locks, and the system reports whether a process holds one. Reading changes nothing."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> LockSnapshot:
        try:
            with self._path.open("rb") as file:
                request = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
                lock_type, *_ = struct.unpack(_FLOCK, fcntl.fcntl(file, fcntl.F_GETLK, request))
        except OSError as error:
            raise LockUnreadable(f"the lock {self._path} cannot be read: {error.strerror or error}") from error
        return LockSnapshot(lock_type != fcntl.F_UNLCK)


class BrokerProcess:
    """`starts` is the command that starts the process, as a person types it; empty if the settings name none."""

    def __init__(self, settings: Process | None, place: CommandContext, name: str, site: str) -> None:
        self._settings, self._context, self._name = settings, place, name
        self._facts = {"site": site, "broker": name}
        self._last: tuple[float, bool | None] | None = None
        commands = {Goal.START: settings.start, Goal.STOP: settings.stop} if settings is not None else {}
        self.commands = {goal: command for goal, command in commands.items() if command is not None}
        start = self.commands.get(Goal.START)
        self.starts = f"cd {quote(str(place.folder))} && {shell_command(start)}" if start is not None else ""

    def runs(self, *, fresh_s: float = FRESH_S) -> bool | None:
        """Say whether the process runs, by a reading that is no older; None if no command shows it."""
        if self._settings is None:
            return None
        if self._last is None or system().monotonic() - self._last[0] >= fresh_s:
            subject = f"the state command of {self._name}"
            outcome = self._context.run(subject, self._settings.state, self._settings.timeout, self._facts)
            code = outcome.evidence.get("exit_code")
            known = code in (0, _STOPPED_EXIT)
            self._last = system().monotonic(), code == 0 if known else None
        return self._last[1]

    def send(self, goal: Goal) -> Outcome:
        if self._settings is None or goal not in self.commands:
            return Failed(f"the settings name no command to {goal.value} {self._name}")
        self._last = None
        subject = f"the {goal.value} command of {self._name}"
        return self._context.run(subject, self.commands[goal], self._settings.timeout, self._facts)


_CODED: Final = r"%[0-9A-Fa-f]{2}"
_USER: Final = rf"(?:[^:@/?#\[\]%\x00-\x20]|{_CODED})*"
_PASSWORD: Final = rf"(?:[^@/?#\[\]%\x00-\x20]|{_CODED})*"
_HOST: Final = rf"(?:\[[0-9A-Fa-f:.]+\]|(?:[\w.-]|{_CODED})+)(?::\d{{1,5}})?"
_PAIR: Final = rf"[a-z_]+=(?:[^&@#%\x00-\x20]|{_CODED})*"
_DSN: Final = re.compile(
    rf"(?P<scheme>[a-z]+)://(?:(?P<user>{_USER})(?::(?P<password>{_PASSWORD}))?@)?(?P<hosts>(?:{_HOST}(?:,{_HOST})*)?)"
    rf"(?:/(?P<name>{_USER}))?(?:\?{_PAIR}(?:&{_PAIR})*)?"
)
_HOST_AND_PORT: Final = re.compile(r"\[?(.+?)\]?(?::(\d+))?")
LAST_PORT: Final = 65535
CONNECT_S: Final = 2
ANSWER_S: Final = 3


class NotADsn(UsageError):
    remedy = (
        "As in `postgresql://user:password@host:5432/name`; encode what is neither a letter nor a digit in user and "
        "password, as %25 for a percent sign, %2F for a slash, %40 for an at sign."
    )


@dataclass(frozen=True, slots=True)
class Dsn:
    """An address that all drivers read in the same way. `text` is a secret; `encoded` is the password in it."""

    text: str
    scheme: str
    user: str
    encoded: str
    hosts: tuple[tuple[str, int | None], ...]
    name: str

    @classmethod
    def read(cls, text: str, schemes: tuple[str, ...]) -> Dsn:
        """Read an address. Raises `NotADsn`, which quotes nothing."""
        match = _DSN.fullmatch(text.strip())
        if match is None:
            raise NotADsn("the address of the store's database cannot be read, and is not shown: it is a secret")
        if match["scheme"] not in schemes:
            begins = ", ".join(f"{scheme}://" for scheme in schemes)
            raise NotADsn(f"the address of the store's database begins with none of {begins}")
        matches = [_HOST_AND_PORT.fullmatch(host) for host in match["hosts"].split(",")]
        hosts = tuple((unquote(host[1]), int(host[2]) if host[2] else None) for host in matches if host is not None)
        if any(port is not None and port > LAST_PORT for _, port in hosts):
            raise NotADsn(f"the address of the store's database names a port above {LAST_PORT}")
        user, name = (unquote(match[part] or "") for part in ("user", "name"))
        return cls(text.strip(), match["scheme"], user, match["password"] or "", hosts, name)

    @property
    def password(self) -> str:
        return unquote(self.encoded)

    def without_password(self, text: str) -> str:
        for secret in filter(None, (self.password, self.encoded)):
            text = text.replace(secret, "***")
        return text


@dataclass(frozen=True, slots=True)
class DatabaseKind:
    """A kind of database: its driver, the package extra with it, the connection's arguments, its clock in SQL."""

    driver: str
    extra: str
    connect_arguments: Callable[[Dsn], Mapping[str, Any]]
    now_ms: str


def _postgresql(dsn: Dsn) -> Mapping[str, Any]:
    options = f"-c statement_timeout={1000 * ANSWER_S}"
    return {"conninfo": dsn.text, "connect_timeout": CONNECT_S, "options": options}


def _mysql(dsn: Dsn) -> Mapping[str, Any]:
    if len(dsn.hosts) != 1:
        raise NotADsn("the address of the store's database has to name one host")
    [(host, port)] = dsn.hosts
    arguments = {"host": host, "port": port or 3306, "user": dsn.user, "password": dsn.password, "database": dsn.name}
    return {**arguments, "connect_timeout": CONNECT_S, "read_timeout": ANSWER_S, "write_timeout": ANSWER_S}


_POSTGRESQL: Final = DatabaseKind("psycopg", "postgresql", _postgresql, "extract(epoch from clock_timestamp()) * 1000")
_MARIADB: Final = DatabaseKind("pymysql", "mariadb", _mysql, "unix_timestamp(now(3)) * 1000")
KINDS: Final[Mapping[str, DatabaseKind]] = {
    "postgresql": _POSTGRESQL,
    "postgres": _POSTGRESQL,
    "mysql": _MARIADB,
    "mariadb": _MARIADB,
}


class Database:
    """A connection that only reads; it is opened by the first query, and again after an error. Threads may share it."""

    def __init__(self, dsn: Callable[[], str]) -> None:
        """`dsn` returns the address, which is a secret."""
        self._dsn = dsn
        self._mutex = threading.Lock()
        self._open: tuple[DatabaseKind, Any] | None = None
        self._was_read = False

    def rows(self, query: Callable[[DatabaseKind], str]) -> Sequence[tuple[Any, ...]]:
        """Raises `LockUnreadable`."""
        with self._mutex:
            kind, connection = self._open or self._connect()
            try:
                with connection.cursor() as cursor:
                    cursor.execute(query(kind))
                    fetched: Sequence[tuple[Any, ...]] = cursor.fetchall()
            except import_module(kind.driver).Error as error:
                self._drop()
                raise LockUnreadable(f"the database of the store did not answer: {_first_line(error)}") from error
            return fetched

    def _connect(self) -> tuple[DatabaseKind, Any]:
        dsn = self._address()
        kind = KINDS[dsn.scheme]
        try:
            driver = import_module(kind.driver)
        except ImportError as error:
            text = f"the driver of the store's database is not installed: {kind.driver}"
            raise LockUnreadable(text, remedy=f"pip install 'dr-ctl[{kind.extra}]'") from error
        try:
            connection = driver.connect(autocommit=True, **kind.connect_arguments(dsn))
        except driver.Error as error:
            text = dsn.without_password(_first_line(error))
            raise LockUnreadable(f"the database of the store cannot be reached: {text}") from None
        self._open = kind, connection
        return self._open

    def _address(self) -> Dsn:
        """Read the address. Raises `NotADsn` only at first, so that an address that becomes wrong later ends no run."""
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
    """The row names its holder and the end of its lease, both by the brokers' clocks."""

    def __init__(self, database: Database, table: str) -> None:
        self._database, self._table = database, table
        self._mutex = threading.Lock()
        self._last: tuple[str, float, float] | None = None  # holder, the end of its lease, the time of the reading
        self._renewed_s: float | None = None
        self._lasts_s: float | None = None

    def read(self) -> LockSnapshot:
        before = system().now().timestamp()
        rows = self._database.rows(lambda kind: f"SELECT broker_name, time, {kind.now_ms} FROM {self._table}")  # noqa: S608 - a name by its pattern
        after = system().now().timestamp()
        if len(rows) != 1:
            raise LockUnreadable(f"{self._table} has {len(rows)} rows instead of one")
        holder, ends_ms, now_ms = rows[0]
        left_s = (float(ends_ms or 0) - float(now_ms)) / 1000
        ahead_s = float(now_ms) / 1000 - (before + after) / 2
        held = holder is not None and left_s > 0
        if holder is None:
            return LockSnapshot(held, None, None, ahead_s, written=ends_ms is not None)
        with self._mutex:
            self._note(holder, float(ends_ms or 0) / 1000, float(now_ms) / 1000)
            return LockSnapshot(held, holder, left_s, ahead_s, renewed_s=self._renewed_s, lasts_s=self._lasts_s)

    def _note(self, holder: str, ends_s: float, now_s: float) -> None:
        """The time between two ends of one holder's lease is the time between its renewals, whatever its clock shows.
        Between readings further apart than half of that time, there may have been several renewals."""
        before, self._last = self._last, (holder, ends_s, now_s)
        if before is None or before[0] != holder:
            self._renewed_s, self._lasts_s = None, None
        elif ends_s - before[1] > 2 * (now_s - before[2]):
            self._renewed_s, self._lasts_s = ends_s - before[1], max(ends_s - now_s, self._lasts_s or 0.0)


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


class SharedStore:
    """The store for one command. Connections are opened by the first query."""

    def __init__(
        self, settings: Store, lock: FileLock | RowLock, messages: Database | None, replica: Database | None
    ) -> None:
        self.settings, self.lock = settings, lock
        self._messages, self._replica = messages, replica

    @classmethod
    def of(cls, installation: Installation) -> SharedStore:
        store = installation.of(ClassicSharedStore).store

        def open_database(secret: Secret) -> Database:
            return Database(lambda: resolve(secret, installation.file.parent))

        if store.dsn is None:
            return cls(store, FileLock(installation.path(str(store.lock))), None, None)
        messages = open_database(store.dsn)
        replica = open_database(store.replica.dsn) if store.replica is not None else None
        return cls(store, RowLock(messages, store.table), messages, replica)

    def read_lock(self) -> tuple[LockSnapshot | None, str]:
        """Return the lock, or None and the reason why it was not read."""
        try:
            return self.lock.read(), ""
        except LockUnreadable as error:
            return None, str(error)

    def counts(self) -> dict[str, int] | None:
        """Count each queue's messages in the store; return None for a store of files. Raises `LockUnreadable`."""
        if self._messages is None:
            return None
        query = f"SELECT container, count(*) FROM {self.settings.messages} GROUP BY container"  # noqa: S608 - as above
        rows = [(str(name), int(count)) for name, count in self._messages.rows(lambda _: query)]
        return {name.removeprefix("queue://"): count for name, count in rows if name.startswith("queue://")}

    def lag(self) -> Lag | None:
        """Return the lag of a PostgreSQL replica, or None if unknown. The store is read first, so that messages that
        arrive meanwhile do not count as lag."""
        if self._messages is None or self._replica is None:
            return None
        table = self.settings.messages
        query = f"SELECT pg_last_wal_replay_lsn() - '0/0'::pg_lsn, coalesce(max(id), 0) FROM {table}"  # noqa: S608
        try:
            [(written,)] = self._messages.rows(lambda _: "SELECT pg_current_wal_lsn() - '0/0'::pg_lsn")
            [(replayed, last)] = self._replica.rows(lambda _: query)
            if replayed is None:  # the replica of the settings follows no other database
                return None
            new_after = f"SELECT count(*) FROM {table} WHERE id > {int(last)}"  # noqa: S608 - a number
            [(new,)] = self._messages.rows(lambda _: new_after)
        except LockUnreadable:
            return None
        return Lag(max(0, int(written - replayed)), int(new))

    def close(self) -> None:
        for database in (self._messages, self._replica):
            if database is not None:
                database.close()
