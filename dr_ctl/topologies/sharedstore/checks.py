"""The named checks of brokers that share a store. They report all obstacles to a move at once."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from dr_ctl.core.findings import found
from dr_ctl.core.model import Finding, Severity, brief
from dr_ctl.core.notation import duration
from dr_ctl.engine.operations import FAILBACK
from dr_ctl.engine.plan import Goal
from dr_ctl.topologies.classic.beans import STOPS
from dr_ctl.topologies.classic.broker import BY_CONSOLE, pausing_findings, policy_findings
from dr_ctl.topologies.common import checks, reasons
from dr_ctl.topologies.common.checks import Case, Checks, NamedCheck
from dr_ctl.topologies.common.gate import accepting
from dr_ctl.topologies.sharedstore.view import BrokerView, both_serve, ending

SKEW_S: Final = 2.0


def of_missing_in_store(count_missing: Mapping[str, int], accepted: Mapping[str, int]) -> list[Finding]:
    if not (not_accepted := {name: count for name, count in count_missing.items() if count > accepted.get(name, 0)}):
        return []
    items = brief([f"{name}: {count} message(s)" for name, count in not_accepted.items()])
    return [found("DR-STORE-008", items=items, words=accepting(not_accepted))]


def of_return(case: Case[BrokerView]) -> Iterator[Finding]:
    def of_one(view: BrokerView) -> Iterator[Finding]:
        if case.move.spec.operation == FAILBACK:
            return of_broker(view, case)
        return (row for row in _of_broker(view, case.move.spec.accept_difference) if row.id != "DR-STORE-008")

    return reasons.of_return(case, of_one, frozenset(), "DR-RETURN-001.sharedstore")


def of_broker(view: BrokerView, case: Case[BrokerView] | None = None) -> Iterator[Finding]:
    if case is None:
        yield from _of_broker(view, {})
        return
    # A broker that gave up the store has ended, and is started after the move.
    gave_up = case.move.activation_sent and view.site == case.move.source
    needed = view.site == case.move.target and not case.move.activation_sent
    for finding in _of_broker(view, case.move.spec.accept_difference):
        if needed and finding.id == "DR-STORE-007":  # a target whose process is not known to run cannot take the store
            yield replace(finding, severity=Severity.ERROR)
        elif not (gave_up and finding.id == "DR-STORE-004"):
            yield finding
    yield from pausing_findings(view, case)


def _of_broker(view: BrokerView, accepted: Mapping[str, int]) -> Iterator[Finding]:
    if view.answered:
        yield from checks.listener_findings(view)
        yield from policy_findings(view, () if Goal.STOP in view.store.commands else (STOPS,))
        yield from checks.queue_findings(view)
        yield from _of_lock(view)
        yield from of_missing_in_store(view.in_memory, accepted)
    else:
        if view.unknown_holder is not None and not view.peer_serves:
            yield _unknown_holder(view)
        yield from _of_process(view)


def _of_lock(view: BrokerView) -> Iterator[Finding]:
    if view.lock is None:
        yield found("DR-STORE-001.of_broker", broker=view, why=view.unread)
    elif view.other_holder is not None:
        if view.peer_serves:
            yield from both_serve(view)
        else:
            yield found("DR-STORE-002.taking", broker=view, lock=view.lock.text, peer=view.config.peer)
    elif view.unknown_holder is not None:
        yield _unknown_holder(view)
    elif not view.lock.written:
        yield found("DR-STORE-013", broker=view)
    elif not view.lock.held and view.lock.left_s is not None:
        yield found("DR-STORE-005.ran_out", broker=view, late=f"{-view.lock.left_s:.1f}")
    elif not view.lock.held:
        yield found("DR-STORE-003", broker=view, said=view.lock.text)
    yield from _of_clocks(view)
    renewed_s, lasts_s = (view.lock.renewed_s, view.lock.lasts_s) if view.lock is not None else (None, None)
    if renewed_s is not None and lasts_s is not None:
        if renewed_s >= lasts_s:
            yield found("DR-STORE-005.renewed_late", broker=view, renewed=f"{renewed_s:.1f}", lasts=f"{lasts_s:.1f}")
    elif view.store.lease_is_row and view.store.keep_alive_s >= view.store.lease_s:
        periods = f"{duration(view.store.keep_alive_s)}, the lease lasts {duration(view.store.lease_s)}"
        yield found("DR-STORE-005.by_settings", broker=view, periods=periods)


def _unknown_holder(view: BrokerView) -> Finding:
    whose, name = f"If activemq.xml of {view.site} has it as `leaseHolderId`: add", view.unknown_holder
    site, peer = view.site, view.config.peer
    return found("DR-STORE-014", broker=view, stranger=name, whose=whose, pair=view.pair, site=site, peer=peer)


def _of_clocks(view: BrokerView) -> Iterator[Finding]:
    """Report a lease whose end is implausible: the broker writes it by its own clock."""
    lock = view.lock
    if lock is None or lock.left_s is None or view.other_holder is not None:
        return
    excess_s = lock.left_s - view.store.lease_s
    if excess_s <= SKEW_S and lock.held:
        return
    wrong = f"{excess_s:.0f} s further away than a lease lasts" if excess_s > 0 else f"{-lock.left_s:.0f} s ago"
    machine = f"{abs(lock.ahead_s or 0):.1f} s {'ahead of' if (lock.ahead_s or 0) > 0 else 'behind'} this machine's"
    yield found("DR-STORE-006", broker=view, wrong=wrong, machine=machine, site=view.site)


def _of_process(view: BrokerView) -> Iterator[Finding]:
    if view.runs is False:
        yield found("DR-STORE-004.not_running", broker=view, start=view.store.start[0].upper() + view.store.start[1:])
    elif view.ending:
        yield ending(view)
    elif view.runs is None:
        yield found("DR-STORE-007", broker=view, pair=view.pair, site=view.site)


def _lock_text(view: BrokerView) -> str | None:
    return view.lock.text if view.lock is not None else None


def _of_holder(read: Callable[[BrokerView], str | None]) -> Callable[[BrokerView], str | None]:
    """Show the value only for a broker that answers."""
    return lambda view: read(view) if view.answered else "it waits"


def _clock_text(view: BrokerView) -> str | None:
    if view.lock is None:
        return None
    if view.lock.ahead_s is None:
        return "a file has no lease"
    return f"the database's clock is {view.lock.ahead_s:+.1f} s off this machine's"


def _process_text(view: BrokerView) -> str:
    return {True: "its process runs", False: "its process does not run", None: "its process is unknown"}[view.runs]


BY_BROKER: Final[Sequence[NamedCheck[BrokerView]]] = (
    *(replace(check, read=_of_holder(check.read)) for check in BY_CONSOLE),
    NamedCheck("DR-STORE-001", _lock_text),
    NamedCheck("DR-STORE-002", _of_holder(_lock_text)),
    NamedCheck("DR-STORE-014", _lock_text),
    NamedCheck("DR-STORE-003", _of_holder(_lock_text)),
    NamedCheck("DR-STORE-013", _of_holder(_lock_text)),
    NamedCheck("DR-STORE-008", _of_holder(lambda view: f"{sum(view.in_memory.values())} message(s) in memory only")),
    NamedCheck("DR-STORE-004", _process_text),
    NamedCheck(
        "DR-STORE-005", lambda view: f"every {duration(view.store.keep_alive_s)} of {duration(view.store.lease_s)}"
    ),
    NamedCheck("DR-STORE-006", _clock_text),
    NamedCheck("DR-STORE-007", _process_text),
)
CHECKS: Final = Checks(of_broker, lambda *_: (), of_return, reasons.is_settled, BY_BROKER, ())
