"""Runs that the monitor makes by itself if its options permit that, by its own readings: it unfences the site that
served last and came back closed, reinstates a lost site that is back, and restores a quarantine that a restart has
ended.

STATE stores the site that served last, for a monitor that is restarted.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import ClassVar, Final

from dr_ctl.agents.exposing import AutomaticRun
from dr_ctl.application.caller import Caller
from dr_ctl.application.result import Result, of_error
from dr_ctl.application.run import run
from dr_ctl.core.document import document, read_file
from dr_ctl.core.errors import DrCtlError, Stopped
from dr_ctl.core.model import ExitCode, Role
from dr_ctl.core.system import system
from dr_ctl.engine.context import restored_handlers
from dr_ctl.engine.debts import Debt, DebtKind
from dr_ctl.engine.disk import private
from dr_ctl.engine.lease import LockDocument
from dr_ctl.engine.operations import FAILOVER, REINSTATE, UNFENCE
from dr_ctl.engine.plan import RunOptions, Spec
from dr_ctl.engine.roles import renamed_sites, roles_text
from dr_ctl.engine.runs import write
from dr_ctl.rpo.core.starts import same_start
from dr_ctl.topologies.registry import Snapshot
from dr_ctl.topologies.topology import BrokerSnapshot

LET_IN_AGAIN: Final = "DR-RETURN-004"
RETRY_RUN_S: Final = 60.0  # the pause after a failed run
RETRY_REFUSED_S: Final = 10.0  # the pause after a refusal, which may pass soon, as while a link attaches
UNWATCHED: Final = timedelta(minutes=15)  # after a longer gap between two readings the serving site is unknown
CLOSED_S: Final = 10.0
"""A broker that ends may show closed listeners for a moment; a person has closed a broker that stays so."""


@dataclass(frozen=True, slots=True)
class Served:
    """The last site that was the only serving one, with the starts of its brokers by pair, and the newest epoch of a
    lock then. `seen` is the newest reading that does not contradict this."""

    site: str
    starts: Mapping[str, str]
    epoch: int
    seen: datetime


def newest_lock(snapshot: Snapshot) -> LockDocument | None:
    return max(
        (lock for reading in snapshot.locks for lock in reading.documents), key=lambda lock: lock.epoch, default=None
    )


def served_after(snapshot: Snapshot, before: Served | None, now: datetime) -> Served | None:
    """Return the site that served last, by a further reading; None if a person has to decide."""
    opened = {broker.site for broker in snapshot.brokers if broker.role is Role.SERVING}
    if len(opened) > 1:
        return None
    lock = newest_lock(snapshot)
    for site in opened:
        starts = {broker.pair: broker.start for broker in snapshot.brokers_at(site) if _serves(broker) and broker.start}
        if len(starts) == len(snapshot.brokers_at(site)):
            return Served(site, starts, lock.epoch if lock is not None else 0, now)
    if before is None or opened - {before.site}:
        return None
    # An unfence of that site takes an epoch too, and moves nothing.
    is_unfence = lock is not None and _is_past_unfence(lock, snapshot, before.site) and lock.epoch == before.epoch + 1
    return replace(before, epoch=before.epoch + is_unfence, seen=now)


def _is_past_unfence(lock: LockDocument, snapshot: Snapshot, site: str) -> bool:
    """Say whether an unfence of the site took the lock and has ended: the lock is released or has expired."""
    live = any(at.same(lock) and at.live(reading.now_ms) for reading in snapshot.locks for at in reading.documents)
    return lock.what == f"{UNFENCE} of {site}" and not live


def why_not_unfenced(snapshot: Snapshot, served: Served) -> str | None:
    """Say why not to open the site that served last and came back closed; the command checks the rest."""
    site, lock = served.site, newest_lock(snapshot)
    others = [broker for broker in snapshot.brokers if broker.site != site]
    if not all(broker.role is Role.STANDBY and broker.silent is None for broker in others):
        return f"the other site was not seen closed: {roles_text(snapshot)}"
    if any(debt.lost_site == site for debt in snapshot.debts):
        return f"{site} was lost before, and the other site served"
    has_ended = lock is None or lock.released or _is_past_unfence(lock, snapshot, site)
    if lock is not None and (lock.epoch != served.epoch or not has_ended):
        return f"a run took the lock since {site} was seen serving, or never ended: {lock.described}"
    at_site = (at for reading in snapshot.locks if reading.site == site for at in reading.documents)
    if lock is not None and lock.epoch not in {at.epoch for at in at_site}:
        return f"the newest lock is not at {site}: {lock.described}"
    return None


def _serves(broker: BrokerSnapshot) -> bool:
    return broker.role is Role.SERVING and not broker.kept_out


def _is_closed(broker: BrokerSnapshot) -> bool:
    """Say whether listeners are closed, or open with a lasting fence."""
    is_up = broker.silent is None and broker.role in (Role.STANDBY, Role.SERVING)
    return is_up and not _serves(broker)


def _not_restarted(broker: BrokerSnapshot, served: Served) -> bool:
    """Say whether the broker was not restarted since, as far as readings show."""
    before = served.starts.get(broker.pair)
    return broker.start is None or before is None or same_start(broker.start, before)


def reinstatable(snapshot: Snapshot) -> tuple[str, ...]:
    """Return the lost sites that answer and need no decision of a person."""
    answering = {site for site, role in snapshot.roles.items() if role in (Role.STANDBY, Role.SERVING)}
    return tuple(sorted({debt.lost_site for debt in _certain(snapshot)} & answering))


def sites_let_in_again(snapshot: Snapshot) -> tuple[str, ...]:
    """Return the site that took over, if a restart or a takeover there has ended the quarantine of the lost site."""
    if all(finding.id != LET_IN_AGAIN for finding in snapshot.findings()):
        return ()
    return tuple(sorted({debt.kept_at for debt in _certain(snapshot) if debt.kind is DebtKind.QUARANTINE}))


def _certain(snapshot: Snapshot) -> list[Debt]:
    """Return the debts kept at the site that took over, which has the highest epoch and serves in the same reading."""
    if renamed_sites(snapshot) is not None or len({debt.kept_at for debt in snapshot.debts}) > 1:
        return []  # both sites were lost: a person has to decide which serves
    epochs = {(reading.site, lock.epoch) for reading in snapshot.locks for lock in reading.documents}
    highest = max((epoch for _, epoch in epochs), default=0)
    newest = {site for site in snapshot.roles if not highest or (site, highest) in epochs}
    serving = {site for site in newest if snapshot.roles[site] is Role.SERVING}
    return [debt for debt in snapshot.debts if debt.kept_at in serving]


@dataclass
class Automatic:
    """Makes runs of one kind, for one purpose, and lists them in `runs`."""

    operation: ClassVar[str]
    purpose: ClassVar[str]

    caller: Caller
    runs: list[AutomaticRun] = field(default_factory=list)
    held: bool = False  # a maintenance holds back all runs
    _not_before: dict[str, float] = field(default_factory=dict)
    _announced: dict[str, str] = field(default_factory=dict)

    def act(self, snapshot: Snapshot) -> None:
        """Make a run if this reading shows that it is safe, unless such a run failed a moment ago; report its
        result."""
        raise NotImplementedError

    def _run(self, site: str, spec: Spec, reason: str, snapshot: Snapshot) -> None:
        """Make the run, unless another run has taken the lock since the reading. A signal during the run ends the
        monitor after the run: raises `Stopped`."""
        lock = newest_lock(snapshot)
        if self.held or system().monotonic() < self._not_before.get(site, 0.0):
            return
        if site not in self._announced:
            at = f"--to {site}" if spec.operation == FAILOVER else site
            self.caller.say(f"{reason}: `dr-ctl {spec.operation} {at}`")
        how = RunOptions(yes=True, after=lock.epoch if lock is not None else 0, expect_serving=spec.expect_serving)
        try:
            with restored_handlers():
                result = run(self.caller, spec, how)
        except DrCtlError as error:
            if isinstance(error, Stopped):
                raise
            result = of_error(error)
        has_run = result.run is not None and all(finding.id != "DR-RUN-003" for finding in result.findings)
        if has_run:  # and not the open run that a refusal names
            self.runs.append(AutomaticRun(result.run, result.code.outcome, int(result.code)))
        self._report(site, result, spec.operation)
        if result.code is ExitCode.OK and result.run is not None:
            self._announced.pop(site, None)
        else:
            self._not_before[site] = system().monotonic() + (RETRY_RUN_S if has_run else RETRY_REFUSED_S)
        if result.stop is not None and result.stop.signum is not None:
            raise Stopped(result.stop.signum)

    def _report(self, site: str, result: Result, operation: str) -> None:
        """Report a refusal once, as long as it is the same."""
        text = f"{result.code.outcome}: {result.summary}"
        if self._announced.get(site) != text:
            self._announced[site] = text
            self.caller.line(result.envelope(operation), text)


class AutoReinstate(Automatic):
    operation, purpose = REINSTATE, "reinstate a lost site"

    def act(self, snapshot: Snapshot) -> None:
        for site in reinstatable(snapshot):
            self._run(site, Spec(REINSTATE, site), f"{site} is back", snapshot)


class AutoQuarantine(Automatic):
    operation, purpose = FAILOVER, "keep a lost site out"

    def act(self, snapshot: Snapshot) -> None:
        for site in sites_let_in_again(snapshot):
            # A site that a person has closed meanwhile is not opened.
            spec = Spec(FAILOVER, site, expect_serving=site)
            self._run(site, spec, f"messages of the lost site can reach {site} again", snapshot)


@dataclass
class AutoUnfence(Automatic):
    """Opens the site that served last again, where its broker was restarted and keeps clients out."""

    operation, purpose = UNFENCE, "open a site again"

    _served: Served | None = None
    _stored: Served | None = None
    _seen_s: float | None = None
    _closed_s: float | None = None

    @property
    def _path(self) -> Path:
        return self.caller.state() / "served.json"

    def act(self, snapshot: Snapshot) -> None:
        served = self._update(snapshot)
        if served is None:
            return
        site, other = served.site, next(name for name in snapshot.roles if name != served.site)
        closed = [broker for broker in snapshot.brokers_at(site) if _is_closed(broker)]
        is_restarted = closed and not any(_not_restarted(broker, served) for broker in closed)
        if not is_restarted or not all(_is_closed(broker) or _serves(broker) for broker in snapshot.brokers_at(site)):
            return
        if (why := why_not_unfenced(snapshot, served)) is not None:
            text = f"{site} was restarted and is closed, and is not opened: {why}"
            self._report(site, Result(ExitCode.PRECHECK_FAILED, text), UNFENCE)
            return
        reason = f"{site} was restarted and is closed; it was seen serving last, and {other} is closed"
        self._run(site, Spec(UNFENCE, other, reason=reason), reason, snapshot)

    def _update(self, snapshot: Snapshot) -> Served | None:
        now, at_s = system().now(), system().monotonic()
        if self._seen_s is None:
            self._served = self._stored = self._read_stored(now)
        elif at_s - self._seen_s > UNWATCHED.total_seconds():
            self._served = None
        self._seen_s = at_s
        served = served_after(snapshot, self._served, now)
        if served is not None and self._is_by_hand(snapshot, served, at_s):
            served = None
        self._served = served
        self._store()
        return served

    def _is_by_hand(self, snapshot: Snapshot, served: Served, at_s: float) -> bool:
        """Say whether somebody closed the site while its broker ran."""
        closed = [broker for broker in snapshot.brokers_at(served.site) if _is_closed(broker)]
        if not any(_not_restarted(broker, served) for broker in closed):
            self._closed_s = None
            return False
        self._closed_s = at_s if self._closed_s is None else self._closed_s
        return at_s - self._closed_s >= CLOSED_S

    def _read_stored(self, now: datetime) -> Served | None:
        """Read the site that an earlier monitor saw serving; None if that is too old, or in the future."""
        served = read_file(Served, self._path)
        return served if served is not None and timedelta(0) <= now - served.seen <= UNWATCHED else None

    def _store(self) -> None:
        served, stored = self._served, self._stored
        if served is not None and stored is not None and served.seen - stored.seen < timedelta(minutes=1):
            stored = replace(stored, seen=served.seen)
        if served == stored:
            return
        with suppress(OSError):  # without this file the next monitor asks a person
            private(self._path.parent)
            write(self._path, document(served) if served is not None else {})
            self._stored = served


QUARANTINE_OPTION: Final = "--auto-quarantine"
AUTOMATIC: Final[Mapping[str, type[Automatic]]] = {
    "--auto-reinstate": AutoReinstate,
    "--auto-unfence": AutoUnfence,
    QUARANTINE_OPTION: AutoQuarantine,
}
"""The kinds of automatic runs by the options of the monitor."""
