"""The named checks of brokers that share a store: everything that speaks against a move, all at once. Pure."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from shlex import quote
from typing import Final

from dr_ctl.core.model import Finding, Role, Severity, some
from dr_ctl.engine.goals import Goal
from dr_ctl.engine.operations import FAILBACK
from dr_ctl.engine.ports import Move
from dr_ctl.settings.durations import duration
from dr_ctl.topologies.classic import checks as classic
from dr_ctl.topologies.classic.checks import BY_CONSOLE
from dr_ctl.topologies.classic.operations import STOPS
from dr_ctl.topologies.common import checks as common
from dr_ctl.topologies.common import failover
from dr_ctl.topologies.common.checks import Named, of_doors, of_queues
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.seen import Seen
from dr_ctl.topologies.sharedstore.findings import (
    LEASE_ENDS_ODDLY,
    LEASE_TOO_SHORT,
    LOCK_NAMES_ANOTHER,
    LOCK_NAMES_STRANGER,
    LOCK_NOT_READ,
    NO_LEASE,
    NOBODY_WAITS,
    NOT_IN_STORE,
    PROCESS_NOT_KNOWN,
    SERVES_WITHOUT_LOCK,
)
from dr_ctl.topologies.sharedstore.view import BrokerView

SKEW_S: Final = 2.0
# Findings that a return itself mends.
_MENDED: Final = frozenset({NOBODY_WAITS.id})
_WAITS: Final = "A broker that finds the lock taken waits with its ports closed: it needs nothing to come back so."


def of_move(rules: Rules, seen: Seen[BrokerView], move: Move) -> list[Finding]:
    quiesces = not move.ask.cut_in_flight

    def of_one(view: BrokerView) -> Iterator[Finding]:
        # A broker that gave up the store by ending itself is started after the move.
        gave_up = move.sent and view.site == move.source
        needed = view.site == move.target and not move.sent
        for each in of_broker(view, move.ask.accept_difference):
            if not (gave_up and each.id in _MENDED):
                yield _in_a_move(each) if needed else each
        if view.role is Role.SERVING:
            yield from classic.of_pausing(view, needed=quiesces)

    return common.of_move(seen, move, of_one, lambda here, there: of_both(rules, seen, move, here, there))


def not_in_store(lacking: Mapping[str, int], accepted: Mapping[str, int]) -> list[Finding]:
    """Messages by queue that the store does not have, without those whose loss was accepted."""
    wrong = {name: count for name, count in lacking.items() if count > accepted.get(name, 0)}
    if not wrong:
        return []
    text = f"not in the store: {some([f'{name}: {count} message(s)' for name, count in wrong.items()])}"
    words = " ".join(f"--accept-difference {quote(f'{name}={count}')}" for name, count in wrong.items())
    remedy = (
        "They were sent as non-persistent and end with their broker: let them be consumed first. Where a holder was "
        "frozen and has gone on since, the broker may count one or two messages that the store holds no more. "
        f"{words} moves without them."
    )
    return [NOT_IN_STORE(text, remedy)]


def of_return(seen: Seen[BrokerView], move: Move) -> Iterator[Finding]:
    moves = move.ask.operation == FAILBACK

    def of_one(view: BrokerView) -> Iterator[Finding]:
        found = of_broker(view, move.ask.accept_difference)
        return found if moves else (each for each in found if each.id != NOT_IN_STORE.id)

    found = failover.of_return(seen, move, of_one, _MENDED, _WAITS)
    return map(_in_a_move, found) if moves else found


def _in_a_move(finding: Finding) -> Finding:
    """A target that cannot be shown to run gets no store: nobody would serve."""
    return replace(finding, severity=Severity.ERROR) if finding.id == PROCESS_NOT_KNOWN.id else finding


def nothing_owed(seen: Seen[BrokerView], move: Move) -> bool:
    """Say whether the target is taken in already: no debt is left, and its process is not seen to be down."""
    owed = any(move.target in (debt.about, debt.kept_at) for debt in seen.debts)
    return not owed and seen.roles[move.target] is Role.STANDBY


def of_broker(view: BrokerView, accepted: Mapping[str, int] | None = None) -> Iterator[Finding]:
    """Find what is wrong at one broker; a waiting broker is judged by what is known of it. `accepted`: by queue, what
    may be lost with its holder."""
    name = f"{view.site}/{view.pair}"
    if view.answered:
        yield from of_doors(name, view)
        yield from classic.of_permits(view, () if Goal.STOP in view.own.commands else (STOPS,))
        yield from of_queues(name, view)
        yield from _holder(name, view)
        yield from not_in_store(view.in_memory, accepted or {})
    else:
        if view.stranger is not None and not view.peer_serves:
            yield from _stranger(name, view, view.stranger)
        yield from _waiting(name, view)


def _holder(name: str, view: BrokerView) -> Iterator[Finding]:
    if view.lock is None:
        yield LOCK_NOT_READ(f"{name}: who holds the store cannot be told: {view.unread}", _READ)
    elif view.others is not None:
        yield LOCK_NAMES_ANOTHER(
            f"{name}: answers as if it held the store, but {view.lock.text}",
            f"{view.others} holds the store, and {view.config.peer} serves: keep clients away from {view.site}, and "
            "end the process of its broker."
            if view.peer_serves
            else f"Look again in a moment: {view.config.peer} may be taking the store. If it stays so, the names are "
            "the wrong way round: compare `broker:` and `lease_holder:` of both brokers with activemq.xml.",
        )
    elif view.stranger is not None:
        yield from _stranger(name, view, view.stranger)
    elif not view.lock.written:
        yield NO_LEASE(
            f"{name}: serves, and no broker ever wrote a lease into the row: its locker keeps a transaction open, as "
            "`database-locker` does, and nobody else can see who holds the store",
            "Set `lease-database-locker` in the persistence adapter of activemq.xml, at both sites.",
        )
    elif not view.lock.held and view.lock.left_s is not None:
        yield LEASE_TOO_SHORT(
            f"{name}: serves, and its lease ran out {-view.lock.left_s:.1f} s ago: it is renewed too rarely, or the "
            "clock of its host is behind",
            RENEW,
        )
    elif not view.lock.held:
        yield SERVES_WITHOUT_LOCK(
            f"{name}: serves, but {view.lock.text}",
            "See its log: it has lost the store, or the clocks differ. Look again in a moment.",
        )
    yield from _clocks(name, view)
    renewed_s, lasts_s = (view.lock.renewed_s, view.lock.lasts_s) if view.lock is not None else (None, None)
    if renewed_s is not None and lasts_s is not None:
        if renewed_s >= lasts_s:
            yield LEASE_TOO_SHORT(
                f"{name}: the lease was renewed after {renewed_s:.1f} s, and lasts {lasts_s:.1f} s: it runs out while "
                "its holder lives",
                RENEW,
            )
    elif view.own.by_row and view.own.keep_alive_s >= view.own.lease_s:
        periods = f"{duration(view.own.keep_alive_s)}, the lease lasts {duration(view.own.lease_s)}"
        yield LEASE_TOO_SHORT(
            f"{name}: by `store:` of the settings the lease is renewed every {periods}: it runs out while its holder "
            "lives",
            RENEW,
        )


def _stranger(name: str, view: BrokerView, stranger: str) -> Iterator[Finding]:
    text = f"{name}: the lock names {stranger}, which is no broker of the settings: who holds the store cannot be told"
    whose = f"If activemq.xml of {view.site} has it as `leaseHolderId`: add"
    yield LOCK_NAMES_STRANGER(
        text,
        f"{whose} `lease_holder: {stranger}` to broker {view.pair} of site {view.site} in the settings, and the one of "
        f"{view.config.peer} there. If it is no name of either, another installation uses this table.",
    )


RENEW: Final = (
    "Set lockKeepAlivePeriod in activemq.xml below lockAcquireSleepInterval, at both sites, and say so under `store:`."
)
_READ: Final = "See that this machine reaches what `store:` names, with a login that may read it."


def _clocks(name: str, view: BrokerView) -> Iterator[Finding]:
    """The lease is the broker's word, judged by the database's clock: where they differ, it lasts for too long or not
    at all."""
    lock = view.lock
    if lock is None or lock.left_s is None or view.others is not None:
        return
    off_s = lock.left_s - view.own.lease_s
    if off_s <= SKEW_S and lock.held:
        return
    wrong = f"{off_s:.0f} s further away than a lease lasts" if off_s > 0 else f"{-lock.left_s:.0f} s ago"
    machine = f"{abs(lock.ahead_s or 0):.1f} s {'ahead of' if (lock.ahead_s or 0) > 0 else 'behind'} this machine's"
    yield LEASE_ENDS_ODDLY(
        f"{name}: its lease ends {wrong} by the database's clock, which is {machine}: that broker's clock is wrong",
        f"Set the clocks of {view.site} and of the database (NTP), or maxAllowableDiffFromDBTime of the locker: until "
        "then the lease says little about who is alive.",
    )


def _waiting(name: str, view: BrokerView) -> Iterator[Finding]:
    if view.runs is False:
        yield NOBODY_WAITS(
            f"{name}: its process does not run: it cannot take the store",
            f"{view.own.start[0].upper()}{view.own.start[1:]}: it then waits.",
        )
    elif view.ending:
        yield NOBODY_WAITS(
            f"{name}: it was told to stop less than {duration(view.own.ends_s)} ago, and its process was not seen "
            "to end: a broker that ends takes no store",
            f"Run the command again in {duration(view.own.ends_s)}, once that process has ended and waits again.",
        )
    elif view.runs is None:
        yield PROCESS_NOT_KNOWN(
            f"{name}: its ports refuse, as those of a waiting broker do; whether its process lives cannot be seen",
            f"A planned move needs that: write at broker {view.pair} of site {view.site} in the settings which command "
            "tells whether it runs: `process: {state: [ssh, HOST, systemctl, is-active, --quiet, activemq]}`. Where it "
            "does not run, nobody takes what the other site gives up.",
        )


def of_both(rules: Rules, seen: Seen[BrokerView], move: Move, source: BrokerView, target: BrokerView) -> list[Finding]:
    """Of a broker that waits there is nothing to compare."""
    del rules, seen, move, source, target
    return []


def _lock(view: BrokerView) -> str | None:
    return view.lock.text if view.lock is not None else None


def _of_holder(read: Callable[[BrokerView], str | None]) -> Callable[[BrokerView], str | None]:
    """Of a broker that answers only."""
    return lambda view: read(view) if view.answered else "it waits"


def _clock(view: BrokerView) -> str | None:
    if view.lock is None:
        return None
    if view.lock.ahead_s is None:
        return "a file has no lease"
    return f"the database's clock is {view.lock.ahead_s:+.1f} s off this machine's"


def _process(view: BrokerView) -> str:
    return {True: "its process runs", False: "its process does not run", None: "nothing says"}[view.runs]


BY_BROKER: Final[Sequence[Named[BrokerView]]] = (
    *(replace(each, read=_of_holder(each.read)) for each in BY_CONSOLE),
    Named(LOCK_NOT_READ, _lock),
    Named(LOCK_NAMES_ANOTHER, _of_holder(_lock)),
    Named(LOCK_NAMES_STRANGER, _lock),
    Named(SERVES_WITHOUT_LOCK, _of_holder(_lock)),
    Named(NO_LEASE, _of_holder(_lock)),
    Named(NOT_IN_STORE, _of_holder(lambda view: f"{sum(view.in_memory.values())} message(s) in memory alone")),
    Named(NOBODY_WAITS, _process),
    Named(
        LEASE_TOO_SHORT,
        lambda view: f"every {duration(view.own.keep_alive_s)} of {duration(view.own.lease_s)}",
    ),
    Named(LEASE_ENDS_ODDLY, _clock),
    Named(PROCESS_NOT_KNOWN, _process),
)
