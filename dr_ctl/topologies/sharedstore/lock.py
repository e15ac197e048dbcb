"""The lock of a shared store, looked at and never taken, and the process of a broker that may hold it."""

import fcntl
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from shlex import join, quote
from typing import Final, Protocol

from dr_ctl.core.errors import BrokerError, Unreachable
from dr_ctl.core.system import Clock
from dr_ctl.engine.goals import Goal
from dr_ctl.engine.ports import Outcome, Refused
from dr_ctl.processes.hooks import Place
from dr_ctl.settings.classic import Process

# struct flock of Linux: type, whence, start, length, pid.
_FLOCK: Final = "hhqqi"
FRESH_S: Final = 2.0  # a word on it is believed so long: a gate looks fifty times a second
_STOPPED_EXIT: Final = 3  # exit code of `systemctl is-active`, and of every status command that keeps to the LSB


class LockUnreadable(BrokerError):
    """The holder of the store is not known."""

    remedy = "See that this machine reaches what `store:` names, with a login that may read it."


class SilentAndUnread(Unreachable):
    """A broker whose ports refuse, and the lock could not be read: whether that broker waits cannot be told."""

    remedy = LockUnreadable.remedy

    def __init__(self, text: str, unread: str) -> None:
        super().__init__(f"{text}; and {unread}", refused=False)
        self.unread = unread


@dataclass(frozen=True, slots=True)
class LockSnapshot:
    """A look at the lock. `holder` is the name in the lock, also after its lease has run out, None if the lock has no
    name. `left_s` is how long the lease lasts by the database's clock, `ahead_s` how far that clock is ahead of this
    machine's; a file has neither. `process` is the process that holds a file, if on this machine. `written` is False
    where no broker ever wrote a lease into the row. `renewed_s` is the time between two renewals, and `lasts_s` the
    longest lease, where looks of this command have shown them."""

    held: bool
    holder: str | None = None
    left_s: float | None = None
    ahead_s: float | None = None
    process: int | None = None
    written: bool = True
    renewed_s: float | None = None
    lasts_s: float | None = None

    @property
    def text(self) -> str:
        """In words."""
        if not self.held:
            ran_out = f", the lease of {self.holder} has run out" if self.holder is not None else ""
            return f"nobody holds the store{ran_out}"
        lease = f", its lease lasts {self.left_s:.1f} s more" if self.left_s is not None else ""
        return f"{self.holder} holds the store{lease}" if self.holder is not None else "the store's lock is held"


@dataclass(frozen=True, slots=True)
class Lag:
    """The lag of a store's replica: `size` bytes of its journal, and so many new messages among them."""

    size: int
    messages: int


class Lock(Protocol):
    """One lock. Looking at it changes nothing."""

    def read(self) -> LockSnapshot:
        """Look once. Raises `LockUnreadable`."""

    def close(self) -> None: ...


class FileLock:
    """Implements `Lock`: Java locks a file as POSIX has it, and the system says whether somebody does."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> LockSnapshot:
        try:
            at = os.open(self._path, os.O_RDONLY)
            try:
                asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
                lock_type, _, _, _, process = struct.unpack(_FLOCK, fcntl.fcntl(at, fcntl.F_GETLK, asked))
            finally:
                os.close(at)
        except OSError as error:
            raise LockUnreadable(f"the lock {self._path} cannot be read: {error.strerror or error}") from error
        held = lock_type != fcntl.F_UNLCK
        return LockSnapshot(held, process=process if held and process > 0 else None)

    def close(self) -> None: ...


class BrokerProcess:
    def __init__(self, settings: Process | None, place: Place, name: str, site: str, clock: Clock) -> None:
        self._settings, self._place, self._name, self._clock = settings, place, name, clock
        self._facts = {"site": site, "broker": name}
        self._last: tuple[float, bool | None] | None = None

    @property
    def commands(self) -> frozenset[Goal]:
        """The goals that have a command in the settings."""
        if self._settings is None:
            return frozenset()
        words = {Goal.START: self._settings.start, Goal.STOP: self._settings.stop}
        return frozenset(goal for goal, each in words.items() if each is not None)

    @property
    def starts(self) -> str:
        """The command that starts it, as a person types it; empty where the settings name none."""
        if self._settings is None or self._settings.start is None:
            return ""
        return f"cd {quote(str(self._place.folder))} && {join(self._settings.start)}"

    def runs(self, *, fresh_s: float = FRESH_S) -> bool | None:
        """Whether the process runs, by an answer that is no older; returns None where no command says so."""
        if self._settings is None:
            return None
        if self._last is None or self._clock.monotonic() - self._last[0] >= fresh_s:
            what = f"the state command of {self._name}"
            outcome = self._place.run(what, self._settings.state, self._settings.timeout, self._facts)
            code = outcome.evidence.get("exit_code")
            known = code in (0, _STOPPED_EXIT)
            self._last = self._clock.monotonic(), code == 0 if known else None
        return self._last[1]

    def send(self, goal: Goal) -> Outcome:
        """Start or stop the process; a later look shows the effect."""
        words = (
            None if self._settings is None else {Goal.START: self._settings.start, Goal.STOP: self._settings.stop}[goal]
        )
        if self._settings is None or words is None:
            return Refused(f"the settings name no command to {goal.value} {self._name}")
        self._last = None
        return self._place.run(f"the {goal.value} command of {self._name}", words, self._settings.timeout, self._facts)
