"""The lock of a command on the brokers: takes it, waits under it, releases it, and names other holders."""

import getpass
import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from dr_ctl import __version__
from dr_ctl.application.caller import Caller
from dr_ctl.application.installation import OpenInstallation
from dr_ctl.core.document import key
from dr_ctl.core.errors import BrokerError, DrCtlError, Stopped
from dr_ctl.core.findings import found
from dr_ctl.core.machine import boot_id
from dr_ctl.core.model import ExitCode, Finding, Json, Severity
from dr_ctl.core.notation import duration
from dr_ctl.core.system import stamp, system
from dr_ctl.engine.context import restored_handlers, stop_request
from dr_ctl.engine.holding import Lease, auto_renewed
from dr_ctl.engine.lease import LockDocument, LockReading, locked_error, rival_lock
from dr_ctl.engine.runs import Locked, Runs
from dr_ctl.topologies.registry import Snapshot
from dr_ctl.topologies.topology import BrokerSnapshot

READ_EVERY_S: Final = 5.0
LATE_S: Final = 60.0  # the most that a run may begin after its planned time


def author() -> dict[str, Json]:
    """Return the user (with sudo the person who called it; without a name the number), host and version."""
    try:
        user = os.environ.get("SUDO_USER") or getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return {"user": user, "host": socket.gethostname(), "version": __version__}


def _me(state: str, run: str = "", what: str = "") -> LockDocument:
    user, host, _ = map(str, author().values())
    return LockDocument(0, run, what, user, host, os.getpid(), state, boot_id())


def refuse_if_held(snapshot: Snapshot, runs: Runs) -> None:
    """Raise `Locked` if a broker has a live lock of another STATE."""
    if (rival := find_rival(snapshot, runs)) is not None:
        raise locked_error(*rival)


def find_rival(snapshot: Snapshot, runs: Runs) -> tuple[str, LockDocument] | None:
    """Return the live lock of another STATE, if any, and its broker."""
    me = _me(runs.known_identity())
    rivals = ((f"{reading.site}/{reading.pair}", rival_lock(reading, me)) for reading in snapshot.locks)
    return next(((name, rival) for name, rival in rivals if rival is not None), None)


@contextmanager
def locked(opened: OpenInstallation, snapshot: Snapshot, run: str, what: str, *, break_lock: bool) -> Iterator[Lease]:
    """Hold the lock on every broker that answered; raises `Locked`. A run that stays open keeps the lock until it
    expires, so that no other run begins at once."""
    me = _me(opened.runs.identity(), run, what)
    with auto_renewed(opened.topology.stores(), me) as lease:
        try:
            lease.take(_answering(snapshot), break_lock=break_lock)
            yield lease
        finally:
            if opened.runs.unfinished() is None:
                lease.release()


class Missed(DrCtlError):
    """The planned time of a run has passed, or cannot be kept."""

    exit_code = ExitCode.PRECHECK_FAILED
    finding = "DR-RUN-010"
    remedy = "`dr-ctl status`, then the same command with another --at."


def planned(title: str, at: datetime) -> str:
    """Make the title of a run that waits for its planned time, for people who find its lock."""
    return f"{title}, planned for {stamp(at)}: {_how_to_end(f'`kill {os.getpid()}`')}"


def _how_to_end(signal_text: str) -> str:
    return f"until then {signal_text} ends it, with nothing changed"


def wait(caller: Caller, lease: Lease, at: datetime, read: Callable[[], str | None]) -> None:
    """Hold the lock until the planned time. Raises `Missed` if `read` returns a reason against it, or the machine slept
    until later, `Locked` if another run has taken the lock, and `Stopped`. A closed terminal does not end the wait."""
    waited = f"while the run waited until {stamp(at)}; nothing was changed"
    left_s, read_s = (at - system().now()).total_seconds(), system().monotonic()
    with restored_handlers():
        stop = stop_request()
        how_long = f"waiting for {duration(max(0.0, left_s))}, until {stamp(at)}"
        caller.say(f"{how_long}, under the lock: {_how_to_end('Ctrl-C or SIGTERM')}")
        while (left_s := (at - system().now()).total_seconds()) > 0:
            stop.wait(min(left_s, 1.0))
            if stop.signum is not None:
                raise Stopped(stop.signum, f" {waited}")
            if (lost := lease.lost()) is not None:
                raise Locked(f"{lost}, {waited}")
            if system().monotonic() - read_s >= READ_EVERY_S:
                if (why := read()) is not None:
                    raise Missed(f"{why} {waited}")
                read_s = system().monotonic()
    if left_s < -LATE_S:
        why = "this machine slept, or its clock was set"
        raise Missed(f"{stamp(at)} passed {duration(-left_s)} ago: {why}, while the run waited; nothing was changed")


def facts(lease: Lease, reason: str | None) -> dict[str, Json]:
    broken: list[Json] = [document.described for document in lease.broken]
    at: list[Json] = list(lease.held_at())
    return {"epoch": lease.epoch, "at": at, "broken": broken, "reason": reason if broken else None}


# The following functions serve `status` and `validate`.


def newest_locks(snapshot: Snapshot) -> list[tuple[LockReading, LockDocument]]:
    """Return the newest lock of each broker, without released ones that name no paused queue."""
    newest = [(reading, reading.highest) for reading in snapshot.locks]
    return [(reading, lock) for reading, lock in newest if lock is not None and (lock.paused or not lock.released)]


@dataclass(frozen=True, slots=True)
class HeldLock:
    """The lock at one broker."""

    site: str
    pair: str
    epoch: int
    run: str | None
    what: str | None
    holder: str | None
    host: str | None
    pid: int | None
    live: bool
    released: bool
    left_s: float | None = field(metadata=key(digits=1))
    paused_before: Sequence[str]
    paused: Mapping[str, Sequence[str]]


def shown(snapshot: Snapshot) -> list[HeldLock]:
    return [
        HeldLock(
            reading.site,
            reading.pair,
            *(lock.epoch, lock.run, lock.what, lock.holder, lock.host, lock.pid),
            live=lock.live(reading.now_ms),
            released=lock.released,
            left_s=max(lock.expires_ms - reading.now_ms, 0) / 1000 if lock.holder else None,
            paused_before=lock.paused_before,
            paused=lock.paused,
        )
        for reading, lock in newest_locks(snapshot)
    ]


def holders(snapshot: Snapshot, runs: Runs, but: str | None = None) -> list[Finding]:
    """Report each run, except `but`, that holds a lock or never released it, once for all brokers. A run of this STATE
    that has ended could not reach a broker to release its lock, and is not reported."""
    findings: dict[str, Finding] = {}
    ended = {files.name for files in runs.all() if files.result.exists()}
    for reading, lock in newest_locks(snapshot):
        if lock.released or lock.run == but or lock.run in ended:
            continue
        live = lock.live(reading.now_ms)
        key, severity = ("DR-LOCK-003.held", Severity.INFO) if live else ("DR-LOCK-003.ran_out", Severity.WARNING)
        findings[lock.run] = found(key, severity=severity, holder=lock.described, host=lock.host, person=lock.holder)
    return list(findings.values())


def pausers(snapshot: Snapshot, broker: BrokerSnapshot) -> dict[str, str]:
    """Return the run that paused each queue of a broker, by the broker's lock."""
    at = broker.site, broker.pair
    locks = (lock for reading, lock in newest_locks(snapshot) if (reading.site, reading.pair) == at)
    return {queue: run for lock in locks for run, queues in lock.paused.items() for queue in queues}


def forbidden(opened: OpenInstallation, snapshot: Snapshot) -> dict[tuple[str, str], Finding]:
    """Report the brokers where this user may not create a lock, without creating one."""
    findings = {}
    for store in opened.topology.stores():
        with closing(store), suppress(BrokerError):
            why = store.why_forbidden() if (store.site, store.pair) in _answering(snapshot) else None
            if why is not None:
                findings[store.site, store.pair] = found("DR-LOCK-001", name=f"{store.site}/{store.pair}", why=why)
    return findings


def _answering(snapshot: Snapshot) -> set[tuple[str, str]]:
    return {(broker.site, broker.pair) for broker in snapshot.brokers if broker.silent is None}
