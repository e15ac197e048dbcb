"""Judges the locks on the brokers, which let one run at a time act, from any host.

A lock is a document that a broker stores: in Artemis an internal queue, named by site and epoch, with the text in an
attribute. Creating one is atomic, so of two runs one gets it. The document's number is the epoch, one higher than every
epoch at any broker, so a run notices when its lock was taken over. The lock expires by the clock of its broker, the
only clock that all runs share. A released lock stays there, marked, so that the highest epoch is known.
`engine.holding` takes and holds the locks.

For brokers that cannot create a document atomically, `FolderStore` stores documents in files; such a lock holds for
this machine only.
"""

from __future__ import annotations

import itertools
import json
import os
import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Protocol

from dr_ctl.core import machine
from dr_ctl.core.document import document, key, read
from dr_ctl.core.errors import UNREADABLE, BrokerError
from dr_ctl.core.system import stamp, system
from dr_ctl.engine.disk import private
from dr_ctl.engine.runs import Locked, write_text

LOCK: Final = "lock"
# The text of a queue with a lock's name that dr-ctl did not make: it is no lock, but its epoch is in use.
NOBODYS: Final = "nobody's"
_NEVER: Final = 2**62
_GONE: Final = "nobody: it is gone"  # the `run` of a lock that was written and does not exist any more
_FAR_MS: Final = 50_000_000_000_000  # about 1 600 years: a later moment may have no date


@dataclass(frozen=True, slots=True)
class LockDocument:
    """A lock's record of its run. Times are by the clock of the broker that stores the document. `state` identifies the
    state directory, `boot` the start of the machine. `paused_before` has the queues that were paused before the run,
    which no run resumes. `paused` has those that runs paused, by run: the next run resumes those of a dead run too.
    `last_hash` and `count` are the last hash and the number of lines of the journal."""

    epoch: int
    run: str
    what: str = ""
    holder: str = ""
    host: str = ""
    pid: int = 0
    state: str = ""
    boot: str = ""
    start_ms: int = field(default=0, metadata=key("start"))
    expires_ms: int = field(default=0, metadata=key("expires"))
    released: bool = False
    paused_before: tuple[str, ...] = ()
    paused: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    last_hash: str = ""
    count: int = 0

    @property
    def described(self) -> str:
        if not self.holder:
            return f"{self.run} (epoch {self.epoch})"
        since = stamp(datetime.fromtimestamp(self.start_ms / 1000, UTC))
        return f"{self.run} ({self.what}; {self.holder} on {self.host}, process {self.pid}, since {since})"

    def live(self, now_ms: int) -> bool:
        return not self.released and now_ms < self.expires_ms

    def same(self, other: LockDocument) -> bool:
        """Say whether both are the same lock, maybe with other contents."""
        own_id, other_id = ((lock.epoch, lock.run, lock.host, lock.pid, lock.state) for lock in (self, other))
        return own_id == other_id

    def to_text(self) -> str:
        return json.dumps(document(self), ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def of_text(cls, epoch: int, text: str) -> LockDocument:
        """Read a document; an unreadable document counts as the lock of an unknown run, and never expires."""
        try:
            row = json.loads(text)
            lock = read(cls, {**row, "epoch": epoch})
            if document(lock).keys() - {*row, "epoch"} or abs(lock.start_ms) > _FAR_MS:
                raise ValueError("a field of a lock is missing")
        except UNREADABLE:
            return cls(epoch=epoch, run="a run whose lock cannot be read", expires_ms=_NEVER)
        return lock


@dataclass(frozen=True, slots=True)
class LockReading:
    """The locks of one broker at one moment of its clock; `taken` has further epochs that are in use."""

    site: str
    pair: str
    now_ms: int
    documents: tuple[LockDocument, ...]
    taken: frozenset[int] = frozenset()

    @property
    def highest(self) -> LockDocument | None:
        return max(self.documents, key=lambda lock: lock.epoch, default=None)


class Forbidden(BrokerError):
    """The broker does not let this user create a document."""


class Store(Protocol):
    """The documents of one broker. Every method may raise `BrokerError`."""

    site: str
    pair: str

    def read(self, kind: str) -> tuple[int, Sequence[tuple[int, str]]]:
        """Return the broker's clock, and the documents of a kind by number at that moment, with `NOBODYS` as the text
        of those that a client may have made."""

    def recent(self, kind: str) -> tuple[float, int, Sequence[tuple[int, str]]] | None:
        """Return the age in seconds of the newest reading for any purpose, and its result as `read` has it."""

    def create(self, kind: str, number: int, text: str) -> bool:
        """Create a document atomically: of several runs that try, one succeeds. Raises `Forbidden`."""

    def update(self, kind: str, number: int, text: str) -> None:
        """Overwrite a document; raises if it does not exist."""

    def delete(self, kind: str, number: int) -> None:
        """Remove a document; raises if it does not exist."""

    def why_forbidden(self) -> str | None:
        """Say why no document can be created there, without an attempt; None if no reason is known."""

    def close(self) -> None: ...


def rival_lock(reading: LockReading, me: LockDocument, broken: Collection[LockDocument] = ()) -> LockDocument | None:
    """Return the live lock of another run, if any. A lock that was broken at one broker is broken at all."""
    newest = sorted(reading.documents, key=lambda lock: -lock.epoch)
    live = (lock for lock in newest if lock.live(reading.now_ms) and not has_ended(lock, me))
    return next((lock for lock in live if not any(lock.same(other) for other in broken)), None)


def has_ended(lock: LockDocument, me: LockDocument) -> bool:
    """Say whether the run of a lock has ended, even without a release: its process does not exist any more, and it ran
    in this STATE, on this machine since its start. A copy of the disk has the same STATE on another machine."""
    if not me.state or lock.state != me.state:
        return False
    if not lock.boot:
        return True  # without a boot id: this run holds the lock of STATE, so no other run of STATE lives
    on_this_machine = (lock.host, lock.boot) == (me.host, me.boot)
    return on_this_machine and (lock.pid == me.pid or not machine.process_lives(lock.pid))


def next_epoch(readings: Iterable[LockReading]) -> int:
    snapshot = list(readings)
    highest = max((lock.epoch for reading in snapshot for lock in reading.documents), default=0)
    taken = frozenset[int]().union(*(reading.taken for reading in snapshot))
    return next(number for number in itertools.count(highest + 1) if number not in taken)


def replaced_by(reading: LockReading, me: LockDocument) -> LockDocument | None:
    """Return the lock of another run that replaced this run's lock; None while this run still holds its own."""
    others = [lock for lock in reading.documents if lock.epoch >= me.epoch and not lock.same(me)]
    if others:
        return max(others, key=lambda lock: lock.epoch)
    return None if any(lock.same(me) for lock in reading.documents) else LockDocument(me.epoch, _GONE)


def inherited_pauses(reading: LockReading) -> dict[str, tuple[str, ...]]:
    """Return by run the queues that are still paused since that run; the next run must resume them."""
    paused: dict[str, tuple[str, ...]] = {}
    for lock in reading.documents:
        for run, names in lock.paused.items():
            paused[run] = tuple(sorted({*paused.get(run, ()), *names}))
    return paused


def read_locks(store: Store) -> LockReading:
    return _read(store, *store.read(LOCK))


def recent_reading(store: Store) -> tuple[float, LockReading] | None:
    """Return the locks by a recent reading for another purpose, with the age of that reading in seconds."""
    if (recent := store.recent(LOCK)) is None:
        return None
    ago_s, now_ms, texts = recent
    return ago_s, _read(store, now_ms, texts)


def _read(store: Store, now_ms: int, texts: Sequence[tuple[int, str]]) -> LockReading:
    documents = tuple(LockDocument.of_text(epoch, text) for epoch, text in texts if text != NOBODYS)
    return LockReading(
        store.site, store.pair, now_ms, documents, frozenset(epoch for epoch, text in texts if text == NOBODYS)
    )


def locked_error(name: str, document: LockDocument) -> Locked:
    if document.run == _GONE:
        see = "Search that broker's log for queues named dr-ctl.lock…; then run the same command again."
        return Locked(
            f"the lock at {name} could not be taken: it was written, but the broker does not have it", remedy=see
        )
    remedy = "Wait for it to end. Only if its process has certainly ended: --break-lock --reason TEXT; a lock that "
    remedy += "is not renewed expires within a minute."
    return Locked(f"another run holds the lock at {name}: {document.described}", remedy=remedy)


class FolderStore:
    """Implements `Store`."""

    def __init__(self, folder: Path, site: str, pair: str) -> None:
        """`folder` is for all documents of an installation, such as STATE/documents."""
        self.site, self.pair = site, pair
        self._folder = folder / site / pair

    def read(self, kind: str) -> tuple[int, Sequence[tuple[int, str]]]:
        """Return this machine's clock, the only one for these documents, and the documents."""
        now_ms = int(system().now().timestamp() * 1000)
        documents: list[tuple[int, str]] = []
        try:
            for path in self._folder.glob(f"{kind}.*"):
                number = path.name.removeprefix(f"{kind}.")
                with suppress(FileNotFoundError):  # removed since by another run
                    documents += [(int(number), path.read_text("utf-8", "replace"))] if number.isdecimal() else []
        except OSError as error:
            raise BrokerError(f"the documents in {self._folder} cannot be read: {error}") from error
        return now_ms, sorted(documents)

    def recent(self, kind: str) -> None:
        """Return nothing: no reading of a broker has these documents."""

    def create(self, kind: str, number: int, text: str) -> bool:
        path = self._path(kind, number)
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        try:
            private(self._folder)
            write_text(temporary, text)
            os.link(temporary, path)
        except FileExistsError:
            return False
        except OSError as error:
            raise BrokerError(f"{path} cannot be written: {error}") from error
        finally:
            temporary.unlink(missing_ok=True)
        return True

    def update(self, kind: str, number: int, text: str) -> None:
        path = self._path(kind, number)
        if not path.exists():
            raise BrokerError(f"{path} does not exist any more")
        try:
            write_text(path, text)
        except OSError as error:
            raise BrokerError(f"{path} cannot be written: {error}") from error

    def delete(self, kind: str, number: int) -> None:
        try:
            self._path(kind, number).unlink()
        except OSError as error:
            raise BrokerError(f"{self._path(kind, number)} cannot be removed: {error}") from error

    def why_forbidden(self) -> str | None:
        return "its brokers create nothing atomically, so documents are kept on this machine"

    def close(self) -> None:
        """Do nothing: no file stays open."""

    def _path(self, kind: str, number: int) -> Path:
        return self._folder / f"{kind}.{number}"
