"""The named checks of a pair with the replication plugin: everything that speaks against a move, all at once. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dr_ctl.core.model import Finding, Role, Severity, some
from dr_ctl.engine.ports import Move
from dr_ctl.settings.durations import duration
from dr_ctl.topologies.classic import checks as classic
from dr_ctl.topologies.classic.operations import SETS_ROLE
from dr_ctl.topologies.common import checks as common
from dr_ctl.topologies.common import failover
from dr_ctl.topologies.common.checks import errors_first, of_doors, of_pair, of_queues
from dr_ctl.topologies.common.findings import COUNTS_DIFFER, LINK_DOOR_UNKNOWN, LINK_NOT_ATTACHED
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.seen import Seen
from dr_ctl.topologies.replica import beans, parity
from dr_ctl.topologies.replica.findings import NEVER_TRIED, NO_REPLICATION_PLUGIN, NO_SOURCE_AND_REPLICA, REPLICA_BEHIND
from dr_ctl.topologies.replica.seen import shut
from dr_ctl.topologies.replica.view import BrokerView

# Findings that a return itself mends: no replica fetches from a source beside another source.
_MENDED: Final = frozenset({LINK_NOT_ATTACHED.id})
BOOTS_OPEN: Final = (
    "A source comes back as a source, and opens its connectors: keep clients off its host until it is taken in, by a "
    "hook `fence-host` for example."
)


def of_move(rules: Rules, seen: Seen[BrokerView], move: Move) -> list[Finding]:
    quiesces = not move.ask.cut_in_flight

    def of_one(view: BrokerView) -> Iterator[Finding]:
        yield from of_broker(view)
        if view.role is Role.SERVING:
            yield from classic.of_pausing(view, needed=quiesces)

    found = common.of_move(seen, move, of_one, lambda here, there: of_both(rules, seen, move, here, there))
    return errors_first([*found, *(each for _, each in shut(seen))])


def of_return(seen: Seen[BrokerView], move: Move) -> Iterator[Finding]:
    yield from failover.of_return(seen, move, of_broker, _MENDED, BOOTS_OPEN)
    yield from (each for _, each in shut(seen))


def nothing_owed(seen: Seen[BrokerView], move: Move) -> bool:
    """Say whether the target is taken in already: no debt is left, and it is the serving site's replica."""
    here, there = seen.views(move.source), seen.views(move.target)
    owed = any(move.target in (debt.about, debt.kept_at) for debt in seen.debts)
    fetches = all(view.is_source and view.link.attached for view in here) and all(view.is_replica for view in there)
    return not owed and fetches and seen.roles[move.target] is Role.STANDBY


def of_broker(view: BrokerView) -> Iterator[Finding]:
    name = f"{view.site}/{view.pair}"
    yield NEVER_TRIED(
        f"{name}: what dr-ctl knows of the replication plugin is from its published names and states; it never ran on "
        "the plugin itself",
        "Rehearse each operation on a pair of your own before you rely on it.",
    )
    if view.plugin is None:
        yield NO_REPLICATION_PLUGIN(
            f"{name}: no replication plugin tells its part there",
            "Is there a <replicaPlugin> in activemq.xml, and may this user read its bean?",
        )
    yield from of_doors(name, view)
    if beans.DOOR not in {each.name for each in view.acceptors}:
        yield LINK_DOOR_UNKNOWN(
            f"{name}: it has no transport connector {beans.DOOR}, which a replica fetches by",
            "Add one of that name, which the plugin leaves open, to activemq.xml.",
            severity=Severity.WARNING,
        )
    yield from classic.of_permits(view, (SETS_ROLE,))
    if view.is_source and not view.link.attached:
        yield LINK_NOT_ATTACHED(
            f"{name}: it is the source, and no replica fetches from it",
            "Look at the other broker, and at what stands between the sites; a replica connects by itself. Beside "
            f"another source: `dr-ctl reinstate {view.site}`.",
        )
    yield from of_queues(name, view)


def of_both(
    rules: Rules, seen: Seen[BrokerView], move: Move, source: BrokerView, target: BrokerView
) -> Iterator[Finding]:
    yield from of_pair(source, target)
    yield from _parts(source, target)
    lag_ms, most_s = source.plugin.lag_ms if source.plugin is not None else None, source.own.lag_s
    if source.open and source.link.to_ship and lag_ms is not None and lag_ms > most_s * 1000:
        yield REPLICA_BEHIND(
            f"{target.site} is {duration(lag_ms / 1000)} behind, more than `lag:` allows ({duration(most_s)})",
            "A move waits for it to catch up before it keeps clients out.",
        )
    if Role.SERVING not in (source.role, target.role):
        return  # both closed: the gate of the run itself judges, over time
    found = parity.unexplained(source, target, rules.queues, seen.moved.get(source.pair, {}))
    if wrong := parity.not_accepted(found, move.ask.accept_difference):
        yield COUNTS_DIFFER(
            "the sites differ by more than what is under way: "
            + some([each.told(source.site, target.site) for each in wrong]),
            "Find out why before moving; --accept-difference QUEUE=N moves with exactly that difference.",
        )


def _parts(source: BrokerView, target: BrokerView) -> Iterator[Finding]:
    """A source hands over to its replica, and no other two can move anything. A target that serves has taken over."""
    if source.plugin is None or target.plugin is None or target.open:
        return
    if source.is_source and target.is_replica:
        return
    text = f"{source.site} is {source.plugin.part} and {target.site} is {target.plugin.part}"
    if source.is_source and target.is_source:
        remedy = f"Nothing is replicated between two sources: `dr-ctl reinstate {target.site}` makes it the replica."
    elif source.is_replica and target.is_replica:
        remedy = "Neither ships: look which one has everything; setReplicationRole(source, true) in its console."
    else:
        remedy = f"{target.site} is the source already; `dr-ctl unfence {target.site}` opens it."
    yield NO_SOURCE_AND_REPLICA(f"{source.pair}: {text}: it cannot be handed over", remedy)
