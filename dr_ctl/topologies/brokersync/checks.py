"""The named checks of a BrokerSync pair: everything that speaks against a move, all at once. Pure."""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from dr_ctl.core.findings import found
from dr_ctl.core.model import Finding, Role, Weight, some
from dr_ctl.engine.debts import DebtKind
from dr_ctl.engine.operations import ACTIVATE, SWAPOVER, UNFENCE
from dr_ctl.engine.ports import Move
from dr_ctl.topologies.brokersync import listing, parity
from dr_ctl.topologies.brokersync.view import BrokerView, SyncSnapshot
from dr_ctl.topologies.classic import checks as classic
from dr_ctl.topologies.classic.checks import BY_CONSOLE
from dr_ctl.topologies.classic.operations import LINKS_DOWN, LINKS_UP, REMOVES
from dr_ctl.topologies.common import checks as common
from dr_ctl.topologies.common import failover, receipts
from dr_ctl.topologies.common.checks import Named, listeners, of_listeners, of_pair, of_queues
from dr_ctl.topologies.common.rules import Rules

# Findings that a return itself mends.
_MENDED: Final = frozenset({"DR-DOOR-004", "DR-LINK-004"})


def of_move(rules: Rules, snapshot: SyncSnapshot, move: Move) -> list[Finding]:
    kept_out = {debt.about for debt in snapshot.debts if debt.kind is DebtKind.QUARANTINE}
    quiesces = not move.ask.cut_in_flight

    def of_one(view: BrokerView) -> Iterator[Finding]:
        yield from of_broker(view, kept_out=view.site in kept_out)
        if view.role is Role.SERVING:
            yield from classic.of_pausing(view, needed=quiesces)

    return common.of_move(snapshot, move, of_one, lambda here, there: of_both(rules, snapshot, move, here, there))


def of_return(snapshot: SyncSnapshot, move: Move) -> Iterator[Finding]:
    return failover.of_return(snapshot, move, of_broker, _MENDED, classic.BOOTS_OPEN)


def nothing_owed(snapshot: SyncSnapshot, move: Move) -> bool:
    """Say whether the target is taken in already: no debt is left, existing links ship, and no message is under way. A
    serving site need not copy back."""
    here, there = snapshot.views(move.source), snapshot.views(move.target)
    owed = any(move.target in (debt.about, debt.kept_at) for debt in snapshot.debts)
    ship = all(view.link.attached is not False for view in (*here, *there))
    listeners = all(listener.started for view in (*here, *there) for listener in view.link.listeners)
    settled = all(view.link.to_ship == 0 for view in there)
    return not owed and ship and listeners and settled and snapshot.roles[move.target] is Role.STANDBY


def of_broker(view: BrokerView, *, kept_out: bool = False) -> Iterator[Finding]:
    """Find what is wrong at one broker of any role. A broker `kept_out` of its peer is not attached on purpose."""
    name = f"{view.site}/{view.pair}"
    yield from of_listeners(name, view)
    yield from _link_listener(name, view)
    yield from classic.of_permits(view, (LINKS_UP, LINKS_DOWN, REMOVES))
    yield from _link(name, view, kept_out=kept_out)
    yield from of_queues(name, view)


def _link(name: str, view: BrokerView, *, kept_out: bool) -> Iterator[Finding]:
    if view.network is None and len(view.networks) > 1:
        there = ", ".join(each.name for each in view.networks)
        yield found(
            "DR-LINK-001",
            f"{name}: cannot tell the network connector to the peer; there are {there}",
            "Name it under `network:`, as activemq.xml does in <networkConnector name=…>.",
        )
    elif view.network is not None and not view.link.attached:
        yield found(
            "DR-LINK-004",
            f"{name}: network connector {view.network.name} is not connected",
            f"The peer keeps out what {view.site} holds; `dr-ctl reinstate {view.site}` lets it in, no restart does."
            if kept_out
            else f"`dr-ctl link restart {view.site}`; if that does not help, look at what stands between the sites.",
        )


def _link_listener(name: str, view: BrokerView) -> Iterator[Finding]:
    """Whether the connector of the peer's network connector is known, and is not the clients'."""
    shared = sorted({each.protocol for each in view.bridges} & {*view.config.clients})
    if shared:
        yield found(
            "DR-DOOR-003",
            f"{name}: the peer's network connector comes in by {', '.join(shared)}, which clients use too: closing it "
            "to them would cut the copies",
            "Give it a transport connector of its own, named under `bridge:`, and point the peer's uri at that.",
        )
    elif not view.link.listeners and view.config.mirror is None:
        others = [each.name for each in view.acceptors if each.name not in view.config.clients]
        there = f"{', '.join(others)} could be it" if others else "clients use all of them"
        finding = found(
            "DR-DOOR-003",
            f"{name}: cannot tell which transport connector the peer's network connector uses: {there}",
            "Give it one of its own, named under `bridge:`; closing the clients' would cut the copies.",
        )
        # Where nothing can be named, nobody waits for a restart while no site serves.
        yield finding if others else replace(finding, weighs=finding.weighs & ~Weight.FAILOVER)


def of_both(
    rules: Rules, snapshot: SyncSnapshot, move: Move, source: BrokerView, target: BrokerView
) -> Iterator[Finding]:
    yield from of_pair(source, target)
    yield from _copies(source, target)
    if source.role is Role.SERVING and move.ask.operation == SWAPOVER:
        yield from _residue(rules, snapshot, move, source, target)
        deep = listing.too_deep(rules, source, target, move)
        for each in parity.counts(source, target, rules.queues):
            if each.queue in deep:
                yield not_compared(each, source.site, target.site)
    if source.role is not Role.SERVING:
        return  # both closed: the gate of the run itself judges, over time; or clients of the target have worked since
    wrong = [
        each
        for each in parity.lacking(source, target, rules.queues, snapshot.moved.get(source.pair, {}))
        if move.ask.accept_difference.get(each.queue) != abs(each.source - each.target)
    ]
    if wrong:
        yield found(
            "DR-PARITY-001",
            "the waiting site lacks more than what is to be shipped: "
            + some([each.told(source.site, target.site) for each in wrong]),
            "Find out why before moving; --accept-difference QUEUE=N moves with exactly that difference.",
        )


def of_opening(rules: Rules, snapshot: SyncSnapshot, move: Move) -> Iterator[Finding]:
    """Find copies at the site to be opened whose messages clients of the other site, which is closed now, may have
    consumed."""
    unfence = move.ask.operation == UNFENCE
    if not unfence and move.ask.operation != ACTIVATE:
        return
    opened, other = (move.source, move.target) if unfence else (move.target, move.source)
    for pair in snapshot.sites[opened]:
        here, there = snapshot.view(opened, pair), snapshot.view(other, pair)
        if here is None or there is None or here.open or there.open or receipts.held_at(here) is not None:
            continue
        for each in parity.counts(here, there, rules.queues):
            if each.lacks and unfence:
                text = f"{each.lacks} message(s) of {each.queue} lie at {opened} and not at {other}"
                remedy = (
                    f"If {other} served last, `dr-ctl unfence {other}`; else `dr-ctl drain --to {opened}` compares "
                    f"both, then `dr-ctl activate {opened}`."
                )
                yield found("DR-SYNC-004", f"{text}, whose clients may have consumed them", remedy)
            elif each.lacks:
                text = f"{each.lacks} message(s) of {each.queue} lie at {opened} alone: so many may come twice"
                yield found(
                    "DR-SYNC-005", text, f"If {other} served last: `dr-ctl unfence {other}` opens that instead."
                )


def _residue(
    rules: Rules, snapshot: SyncSnapshot, move: Move, source: BrokerView, target: BrokerView
) -> Iterator[Finding]:
    """Copies at the waiting site that the run would have to remove, and may not."""
    for each, copies, why in parity.unproven(source, target, rules.queues, snapshot.moved.get(source.pair, {})):
        if move.ask.accept_difference.get(each.queue) == each.target - each.source:
            yield possible_duplicates(each.queue, each.target - each.source, target.site)
        else:
            yield unproven(each, copies, why, source, target)


def unproven(each: parity.Counts, copies: int, why: str, source: BrokerView, target: BrokerView) -> Finding:
    text = (
        f"{copies} message(s) of {each.queue} lie at {target.site} and not at {source.site}, and nothing shows that "
        f"they were consumed: {why}"
    )
    remedy = (
        f"`dr-ctl swapover --to {target.site} --accept-difference {shlex.quote(each.queue)}={copies}` leaves exactly "
        "so many there: clients get them there, and those that were consumed come twice. Where somebody knows that "
        f"they were consumed: `dr-ctl sync --settle --site {target.site} --reason TEXT` keeps them aside first."
    )
    return found("DR-SYNC-004", text, remedy)


def not_compared(each: parity.Counts, source: str, target: str) -> Finding:
    most = max(each.source, each.target)
    return found("DR-SYNC-006", told=each.told(source, target), most=most)


def possible_duplicates(queue: str, copies: int, site: str) -> Finding:
    text = f"{copies} message(s) of {queue} that lay at {site} alone were left there: so many may come twice"
    return found("DR-SYNC-005", text, "Nothing: that was accepted. What clients of both sites got is in their ids.")


def _copies(source: BrokerView, target: BrokerView) -> Iterator[Finding]:
    name = f"{source.site}/{source.pair}"
    if not source.copying:
        yield found(
            "DR-SYNC-001",
            f"{name}: no queue holds copies for {target.site}: nothing is copied there",
            f"Give each queue a composite queue in activemq.xml of {source.site}, with a copy queue that its network "
            "connector includes, or name these under `copies:`; docs/classic-brokersync.md shows both.",
        )
    elif source.network is None and not source.networks:
        yield found(
            "DR-SYNC-001",
            f"{name}: no network connector: what lies in its copy queues is never shipped",
            f"Add one to {target.site} in activemq.xml of {source.site} that includes the copy queues.",
        )
    left_out = [
        queue.name
        for queue in source.business.values()
        if queue.name not in source.copying and queue.dead_letter_address is None and source.copying
    ]
    if left_out:
        yield found("DR-SYNC-002", broker=name, site=target.site, left_out=some(sorted(left_out)))
    if not target.networks or (not target.copying and target.network is not None and target.network.to is None):
        yield found("DR-SYNC-003", site=target.site, pair=target.pair, other_site=source.site)


def _shown_link(view: BrokerView) -> str:
    return f"{view.site} {', '.join(each.name for each in view.networks) or 'no network connector'}"


def _shown_copies(view: BrokerView) -> str:
    return f"{view.site} {some([f'{name} {queue.depth} to ship' for name, queue in view.copying.items()]) or 'none'}"


def _attached(view: BrokerView) -> str:
    return f"{'' if view.link.attached else 'not '}connected"


BY_BROKER: Final[Sequence[Named[BrokerView]]] = (
    *BY_CONSOLE,
    Named("DR-DOOR-003", lambda view: listeners(view.link.listeners)),
    Named("DR-LINK-001", _shown_link),
    Named("DR-LINK-004", _attached, "it is connected"),
)
BY_PAIR: Final[Sequence[Named[BrokerView]]] = (
    Named("DR-SYNC-001", _shown_copies),
    Named("DR-SYNC-002", _shown_copies),
    Named("DR-SYNC-003", _shown_copies),
    Named(
        "DR-SYNC-004",
        lambda view: f"{view.site} {sum(view.consumed.values())} consumed since its start",
    ),
    Named("DR-SYNC-005", _shown_copies),
    Named(
        "DR-SYNC-006",
        lambda view: f"{view.site} {max((each.depth for each in view.business.values()), default=0)} in one queue",
    ),
    Named(
        "DR-PARITY-001",
        lambda view: f"{view.site} {sum(each.depth for each in view.business.values())} message(s)",
    ),
)
