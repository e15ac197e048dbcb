"""Takes the lock at the brokers and holds it for one run: checks the lock before each call, renews it, releases it.

Sites are locked in the order of their names, and a conflict releases all locks taken so far: of two runs that start
together one gets the lock, and none waits. A broker that does not answer then is locked later,
before the first call to it.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.findings import found
from dr_ctl.core.model import Finding
from dr_ctl.core.system import Event, Mutex, in_background, system
from dr_ctl.engine import lease
from dr_ctl.engine.runs import Locked

LEASE_S: Final = 60.0
RENEW_BELOW_S: Final = 50.0
FRESH_S: Final = 1.0
REUSABLE_S: Final = 0.6  # a reading no older than this is still fresh at the next renewal
SILENT_S: Final = 5.0  # calls to other brokers skip the lock of a silent one for so long
TRIES: Final = 3
# A call needs a reading that is at most `FRESH_S` old; this is shorter, so that no call waits for one.
READ_EVERY_S: Final = 0.7
MIN_WAIT_S: Final = 0.1


@dataclass
class BrokerLock:
    store: lease.Store
    mutex: Mutex = field(default_factory=lambda: system().mutex())
    held: lease.LockDocument | None = None
    forbidden: str | None = None
    read_at: float = float("-inf")
    silent_at: float = float("-inf")
    runs_out_at: float = float("-inf")
    paused_before: tuple[str, ...] = ()
    paused_by_run: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[str, str]:
        return self.store.site, self.store.pair

    @property
    def name(self) -> str:
        return f"{self.store.site}/{self.store.pair}"


class Lease:
    """The lock of one run at all brokers that answer. Safe to use from several threads."""

    def __init__(self, stores: Iterable[lease.Store], who: lease.LockDocument) -> None:
        """`who` is the lock document without its times and its epoch."""
        self.locks = [BrokerLock(store) for store in sorted(stores, key=lambda store: (store.site, store.pair))]
        self._who = who
        self.facts: Callable[[], tuple[str, int]] = lambda: ("", 0)  # the journal's last hash and count
        self._lost: tuple[str, lease.LockDocument] | None = None
        self._taken_over_by: lease.LockDocument | None = None
        self.broken: list[lease.LockDocument] = []

    @property
    def epoch(self) -> int:
        return self._who.epoch

    def _at(self, site: str, pair: str) -> BrokerLock:
        return next(broker for broker in self.locks if broker.key == (site, pair))

    def findings(self) -> list[Finding]:
        """Name the brokers that do not let this user create the lock."""
        return [found("DR-LOCK-001", name=at.name, why=at.forbidden) for at in self.locks if at.forbidden is not None]

    def held_at(self) -> list[str]:
        return [broker.name for broker in self.locks if broker.held is not None]

    def take(self, among: Collection[tuple[str, str]] | None = None, *, break_lock: bool = False) -> None:
        """Take the lock at every broker that answers, or those in `among`; raises `Locked`, with no lock taken."""
        before, self._lost = self._lost, None
        for attempt in range(TRIES):
            rival = self._try(among, break_lock=break_lock)
            if rival is None:
                return
            name, other, live = rival
            if live or attempt == TRIES - 1:
                self._lost = before
                raise lease.locked_error(name, other)

    def _try(
        self, among: Collection[tuple[str, str]] | None, *, break_lock: bool
    ) -> tuple[str, lease.LockDocument, bool] | None:
        """Make one attempt; returns a rival's broker and lock, and whether that lock is live, or None."""
        readings = self._readings(among)
        broken: list[lease.LockDocument] = []
        for broker, reading in readings:
            if (other := lease.rival_lock(reading, self._who)) is not None:
                if not break_lock:
                    return broker.name, other, True
                live = [document for document in reading.documents if document.live(reading.now_ms)]
                broken += [lock for lock in live if not any(lock.same(known) for known in broken)]
        self.broken += [lock for lock in broken if not any(lock.same(known) for known in self.broken)]
        self._who = replace(self._who, epoch=lease.next_epoch(reading for _, reading in readings))
        taken: list[BrokerLock] = []
        done = False
        try:
            for broker, reading in readings:
                with broker.mutex:
                    rival = self._create(broker, reading, broken)
                if rival is not None:
                    return broker.name, *rival
                taken.append(broker)
            done = True
        finally:
            # No call was sent under these locks; another run may use the same epoch.
            for broker in taken if not done else ():
                with broker.mutex:
                    if (held := broker.held) is not None:
                        broker.held = None
                        _remove(broker, held.epoch)
        for broker, reading in readings:
            with broker.mutex:
                for document in reading.documents:  # of older epochs, never the highest
                    if broker.held is not None and document.epoch < broker.held.epoch:
                        _remove(broker, document.epoch)
        return None

    def _readings(self, among: Collection[tuple[str, str]] | None) -> list[tuple[BrokerLock, lease.LockReading]]:
        readings = []
        for broker in self.locks:
            with broker.mutex:
                broker.held, broker.read_at = None, float("-inf")
                if among is not None and broker.key not in among:
                    continue
                try:
                    readings.append((broker, lease.read_locks(broker.store)))
                except BrokerError:
                    continue  # locked before the first call to it
        return readings

    def _create(
        self, broker: BrokerLock, reading: lease.LockReading, broken: Collection[lease.LockDocument]
    ) -> tuple[lease.LockDocument, bool] | None:
        """Create the lock at one broker and read it back; returns a rival's lock and whether that is live, or None."""
        at = system().monotonic()
        me = self._document(broker, reading)
        try:
            broker.store.create(lease.LOCK, me.epoch, me.to_text())
        except lease.Forbidden as error:
            broker.forbidden = str(error)
            return None
        except BrokerError:
            pass  # the reading shows whether the lock was created
        try:
            now = lease.read_locks(broker.store)
        except BrokerError:
            return None  # the broker is silent now; a call to it checks first
        other = lease.replaced_by(now, me) or lease.rival_lock(now, me, broken)  # another run won
        if other is None:
            broker.held = me
            self._note_reading(broker, me, now, at)
            return None
        if any(document.same(me) for document in now.documents):
            _remove(broker, me.epoch)
        return other, other.live(now.now_ms) and not lease.has_ended(other, me)

    def why_not(self, site: str, pair: str, timeout_s: float) -> str | None:
        """Renew an old lock, and say why no call of `timeout_s` may be sent to that broker now; None if it may."""
        broker = self._at(site, pair)
        try:
            if broker.forbidden is None and (self._is_outdated(broker) or self._left_s(broker) < timeout_s):
                with broker.mutex:
                    if broker.held is None:
                        if self._lost is None:
                            self._join(broker)
                    elif self._is_outdated(broker) or self._left_s(broker) < timeout_s:
                        self._renew_if_due(broker)
        except BrokerError as error:
            return f"the lock at {broker.name} could not be read: {error}"
        for other in self.locks:
            if other is not broker and other.held is not None and self._is_outdated(other):
                self._check_without_waiting(other)
        if (lost := self.lost()) is not None:
            return lost
        left_s = self._left_s(broker)
        if broker.forbidden is None and left_s < timeout_s:
            return f"the lock at {broker.name} runs out in {max(left_s, 0):.0f} s, before an answer may come"
        return None

    def lost(self) -> str | None:
        if self._lost is None:
            return None
        name, holder = self._lost
        return f"the lock at {name} is not this run's any more: {holder.described}"

    def _check_without_waiting(self, broker: BrokerLock) -> None:
        """Check the lock at another broker than that of the call, without a delay by a silent one."""
        if system().monotonic() - broker.silent_at > SILENT_S and broker.mutex.acquire(blocking=False):
            try:
                if broker.held is not None:
                    self._renew_if_due(broker)
            except BrokerError:
                broker.silent_at = system().monotonic()
            finally:
                broker.mutex.release()

    def renew_if_due(self, broker: BrokerLock) -> None:
        """Check the lock at one broker, and renew it if it is due. Raises `BrokerError`."""
        with broker.mutex:
            if broker.held is not None:
                self._renew_if_due(broker, no_older_s=REUSABLE_S)

    def age_s(self, broker: BrokerLock) -> float:
        """Return the seconds since the last reading of this broker's lock; 0 where the lock is not held."""
        return system().monotonic() - broker.read_at if broker.held is not None else 0.0

    def record_pauses(self, site: str, pair: str, names: Iterable[str]) -> str | None:
        """Record in the lock the queues that will be paused; return why that failed, or None."""
        broker = self._at(site, pair)
        with broker.mutex:
            broker.paused_by_run = tuple(sorted({*broker.paused_by_run, *names}))
            if broker.held is None:
                return None
            try:
                self._write(broker, broker.held)
            except BrokerError as error:
                return f"the queues to pause could not be recorded in the lock at {broker.name}: {error}"
        return None

    def keep_pauses(self, site: str, pair: str, names: Collection[str]) -> None:
        """Keep in the lock only the queues that are still paused at the end."""
        broker = self._at(site, pair)
        with broker.mutex:
            broker.paused_by_run = tuple(name for name in broker.paused_by_run if name in names)
            if broker.held is not None:
                left = {run: tuple(name for name in of if name in names) for run, of in broker.held.paused.items()}
                broker.held = replace(broker.held, paused={run: queues for run, queues in left.items() if queues})

    def note_paused_before(self, site: str, pair: str, names: Iterable[str]) -> None:
        """Note the queues that were paused before the run, for the next change of the lock."""
        for broker in self.locks:
            if broker.key == (site, pair):
                broker.paused_before = tuple(sorted(names))

    def reacquire(self) -> str | None:
        """Take a lock again that ran out, because an undo needs it too; return why that failed, or None. If another run
        held the lock meanwhile, this run must not act."""
        if self._lost is None:
            return None
        if self._taken_over_by is not None:
            return f"the lock at {self._lost[0]} was taken over by {self._taken_over_by.described}"
        try:
            self.take()
        except Locked as locked:
            return str(locked)
        return None

    def release(self) -> None:
        """Mark the lock as released at every broker; it expires at a broker that does not answer."""
        for broker in self.locks:
            with broker.mutex:
                held, broker.held = broker.held, None
                if held is not None:
                    with suppress(BrokerError):
                        self._write(broker, replace(held, released=True))

    def _join(self, broker: BrokerLock) -> None:
        """Take the lock, with the run's epoch, at a broker that was silent before."""
        reading, at = lease.read_locks(broker.store), system().monotonic()
        me, highest = self._document(broker, reading), reading.highest
        if highest is not None and highest.same(me):  # an earlier call created the lock, and its answer was lost
            broker.held = me
            self._note_reading(broker, me, reading, at)
            return
        other = lease.rival_lock(reading, me) or (
            highest if highest is not None and highest.epoch >= me.epoch else None
        )
        if other is None and (rival := self._create(broker, reading, ())) is not None:
            other = rival[0]
        if other is not None:
            self._lost = self._lost or (broker.name, other)

    def _document(self, broker: BrokerLock, reading: lease.LockReading) -> lease.LockDocument:
        """Make the lock document, with the queues that dead runs left paused there."""
        paused = lease.inherited_pauses(reading)
        broker.paused_by_run = tuple(sorted({*broker.paused_by_run, *paused.get(self._who.run, ())}))
        return replace(
            self._who,
            start_ms=reading.now_ms,
            expires_ms=reading.now_ms + int(LEASE_S * 1000),
            paused_before=broker.paused_before,
            paused=paused | self._own_pauses(broker),
        )

    def _own_pauses(self, broker: BrokerLock) -> dict[str, tuple[str, ...]]:
        return {self._who.run: broker.paused_by_run} if broker.paused_by_run else {}

    def _renew_if_due(self, broker: BrokerLock, *, no_older_s: float | None = None) -> None:
        assert broker.held is not None
        if self._is_known_valid(broker, broker.held, FRESH_S if no_older_s is None else no_older_s):
            return
        reading = self._read(broker, broker.held)
        if reading is not None and self._left_s(broker) < RENEW_BELOW_S:
            # A late renewal may overwrite another run's lock: the reading after it shows that.
            broker.held = replace(broker.held, expires_ms=reading.now_ms + int(LEASE_S * 1000))
            self._write(broker, broker.held)
            self._read(broker, broker.held)

    def _is_known_valid(self, broker: BrokerLock, me: lease.LockDocument, no_older_s: float) -> bool:
        """Say whether a recent reading for another purpose shows this run's lock, and no renewal is due."""
        recent = lease.recent_reading(broker.store)
        if recent is None or recent[0] > no_older_s or lease.replaced_by(recent[1], me) is not None:
            return False
        if (at := system().monotonic() - recent[0]) > broker.read_at:
            self._note_reading(broker, me, recent[1], at)
        return self._left_s(broker) >= RENEW_BELOW_S

    def _read(self, broker: BrokerLock, me: lease.LockDocument) -> lease.LockReading | None:
        """Read the lock; returns None if another run has taken the lock over."""
        at = system().monotonic()
        reading = lease.read_locks(broker.store)
        if (other := lease.replaced_by(reading, me)) is not None:
            self._lost = self._lost or (broker.name, other)
            self._taken_over_by = self._taken_over_by or (other if other.holder else None)
            return None
        self._note_reading(broker, me, reading, at)
        return reading

    def _note_reading(self, broker: BrokerLock, me: lease.LockDocument, reading: lease.LockReading, at: float) -> None:
        """Count the time left from before the request, because the broker answered later."""
        written = next(document for document in reading.documents if document.same(me))
        broker.read_at, broker.runs_out_at = at, at + (written.expires_ms - reading.now_ms) / 1000

    def _write(self, broker: BrokerLock, me: lease.LockDocument) -> None:
        last_hash, count = self.facts()
        paused = {run: queues for run, queues in me.paused.items() if run != me.run} | self._own_pauses(broker)
        written = replace(me, paused_before=broker.paused_before, paused=paused, last_hash=last_hash, count=count)
        broker.store.update(lease.LOCK, me.epoch, written.to_text())
        broker.held = written if not written.released else None

    def _is_outdated(self, broker: BrokerLock) -> bool:
        return system().monotonic() - broker.read_at > FRESH_S

    def _left_s(self, broker: BrokerLock) -> float:
        return broker.runs_out_at - system().monotonic()


def _remove(broker: BrokerLock, epoch: int) -> None:
    """Remove a lock document; if this fails, the lock expires."""
    with suppress(BrokerError):
        broker.store.delete(lease.LOCK, epoch)


@contextmanager
def auto_renewed(stores: Sequence[lease.Store], who: lease.LockDocument) -> Iterator[Lease]:
    """Return a lock that can be taken. It is renewed in the background until the block ends, which closes the
    stores."""
    held = Lease(stores, who)
    ended = system().event()
    tasks = [in_background(partial(_renew, held, broker, ended), f"lock at {broker.name}") for broker in held.locks]
    try:
        yield held
    finally:
        ended.set()
        for task in tasks:
            task.wait()
        for store in stores:
            store.close()


def _renew(held: Lease, broker: BrokerLock, ended: Event) -> None:
    wait_s = READ_EVERY_S
    while not ended.wait(wait_s):
        wait_s = READ_EVERY_S
        with suppress(BrokerError):  # the next call reports a lasting error
            held.renew_if_due(broker)
            age_s = held.age_s(broker)  # the run's own readings count too
            wait_s = max(READ_EVERY_S - age_s, MIN_WAIT_S) if age_s < READ_EVERY_S else READ_EVERY_S
