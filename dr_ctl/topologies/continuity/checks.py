"""The named checks of a pair that the continuity plugin joins: everything that speaks against a move, at once. Pure."""

from collections.abc import Iterator, Sequence
from typing import Final

from dr_ctl.core.model import Finding, some
from dr_ctl.engine.ports import Move
from dr_ctl.topologies.artemis import checks as artemis
from dr_ctl.topologies.artemis.findings import MQTT_STAYS
from dr_ctl.topologies.common import checks as common
from dr_ctl.topologies.common import single
from dr_ctl.topologies.common.checks import Named, doors, of_doors, of_pair, of_queues
from dr_ctl.topologies.common.figures import total
from dr_ctl.topologies.common.findings import PLUGIN_BRIDGE_AWAY, PLUGIN_NOT_STARTED
from dr_ctl.topologies.common.rules import Rules, selected
from dr_ctl.topologies.continuity import copies
from dr_ctl.topologies.continuity.findings import (
    ACKS_NOT_APPLIED,
    CLOCKS_BEYOND_STAGING,
    COMMANDS_WAITING,
    COUNTED_NOT_NAMED,
    DEEPER_THAN_ID_CACHE,
    FLOWS_DIFFER,
    NOT_DELIVERING,
    OPEN_BUT_NOT_ACTIVE,
    PLUGIN_BRIDGE_STOPPED,
    SAME_SITE_ID,
    SEVERAL_QUEUES_ON_ADDRESS,
    STAGING_PAUSED,
)
from dr_ctl.topologies.continuity.view import ContinuitySeen, SiteView


def of_move(rules: Rules, seen: ContinuitySeen, move: Move) -> list[Finding]:
    return common.of_move(seen, move, of_broker, lambda here, there: of_moved(rules, seen, move, here, there))


def of_moved(rules: Rules, seen: ContinuitySeen, move: Move, here: SiteView, there: SiteView) -> Iterator[Finding]:
    """Find what the two brokers of a pair show together about a move."""
    del rules, seen
    yield from of_both(here, there)
    yield from _too_deep(here, there, move)


def of_opening(rules: Rules, seen: ContinuitySeen, move: Move) -> Iterator[Finding]:
    def surplus(here: SiteView, there: SiteView) -> dict[str, int]:
        under_way = total(figure for view in (here, there) for figure in (view.link.to_ship, view.link.unapplied)) or 0
        more = {name: here.lies(name) - there.lies(name) for name in selected(here, rules.queues)}
        return {name: count for name, count in more.items() if count > under_way}

    return single.lies_here_alone(seen, move, surplus)


def _too_deep(source: SiteView, target: SiteView, move: Move) -> Iterator[Finding]:
    """Find queues that are too deep to be compared by id behind the fence: refuse them before it."""
    depths = {flow.queue: max(source.lies(flow.queue), target.lies(flow.queue)) for flow in source.flows}
    deep = [f"{name}: {depth}" for name, depth in depths.items() if depth > copies.IDS_UP_TO]
    if deep := [each for each in deep if each.rpartition(":")[0] not in move.ask.accept_difference]:
        text = f"{source.pair}: deeper than the {copies.IDS_UP_TO} messages that are compared by id: {some(deep)}"
        yield COUNTED_NOT_NAMED(text, copies.BY_COUNT)


def of_broker(view: SiteView) -> Iterator[Finding]:
    name = f"{view.site}/{view.pair}"
    service = view.service
    yield from of_doors(name, view)
    if service is None or not service.started:
        yield PLUGIN_NOT_STARTED(
            f"{name}: the continuity plugin has not started",
            "Look at the broker's log: the plugin is not there, is still starting, or its local user is refused "
            "(AMQ229031). Only a restart of the broker starts it again.",
        )
        return
    if service.activated and not service.delivering:
        yield NOT_DELIVERING(
            f"{name}: activated, and does not deliver: clients may connect and get nothing that is staged",
            f"`dr-ctl activate {view.site}` activates it again; see that its client port is free.",
        )
    if not service.activated and (opened := [door.name for door in view.doors if door.started]):
        yield OPEN_BUT_NOT_ACTIVE(
            f"{name}: acceptor {', '.join(opened)} is open although the site is not active",
            "Name it under serving-acceptors of the plugin in broker.xml: the plugin opens and closes only those.",
        )
    yield from _flows(name, view)
    yield from of_queues(name, view)


def _flows(name: str, view: SiteView) -> Iterator[Finding]:
    addresses: dict[str, list[str]] = {}
    for flow in view.flows:
        addresses.setdefault(flow.address, []).append(flow.queue)
    if shared := [f"{address}: {', '.join(names)}" for address, names in addresses.items() if len(names) > 1]:
        yield SEVERAL_QUEUES_ON_ADDRESS(
            f"{name}: several queues on one address: {some(shared)}",
            "The plugin ships every message of the address once for each queue: give each queue an address of its own.",
        )
    remembered = view.config.id_cache
    depths = {flow.queue: view.lies(flow.queue) for flow in view.flows}
    if remembered is not None and (deep := [f"{queue}: {n}" for queue, n in depths.items() if n > remembered]):
        yield DEEPER_THAN_ID_CACHE(
            f"{name}: deeper than the {remembered} ids that the settings say the broker remembers: {some(deep)}",
            "Set id-cache-size in broker.xml above the deepest backlog, at both sites: what is not remembered comes "
            "twice. No broker tells its own; say it under `id_cache_size:` of the broker (20000 unless broker.xml "
            "says otherwise).",
        )
    if stopped := [bridge for bridge, started in view.link.ships.items() if not started]:
        yield PLUGIN_BRIDGE_STOPPED(
            f"{name}: bridge {some(stopped)} is stopped: nothing of it is shipped",
            "Start it in the console, then look at how much has gathered before it: `dr-ctl status`.",
        )
    elif not view.link.attached:
        yield PLUGIN_BRIDGE_AWAY(
            f"{name}: a bridge is not connected to the other site",
            "It tries again by itself. If it stays so: the other site's acceptor, what stands between the sites, or "
            "the plugin's remote user and password (a wrong one shows only in the logs: AMQ229031).",
        )
    if unread := [flow.in_acks.name for flow in view.flows if not flow.in_acks.consumers]:
        yield ACKS_NOT_APPLIED(
            f"{name}: nobody applies the acknowledgements in {some(unread)}",
            "Restart the broker: the plugin's receiver is gone.",
        )
    if held := [flow.in_mirror.name for flow in view.flows if flow.in_mirror.paused]:
        yield STAGING_PAUSED(
            f"{name}: delivery of what is staged is paused: {some(held)}",
            "A return that did not come to its end holds it: `dr-ctl resume`, or take the other site in once more.",
        )
    commands = view.commands
    if commands is not None and (waiting := commands.out.depth + commands.into.depth):
        yield COMMANDS_WAITING(
            f"{name}: {waiting} command(s) of the plugin wait for the other site",
            "While both sites are up this is a matter of seconds. Commands of an outage would be obeyed when the other "
            "site is back, and could leave both inactive: a failover keeps them, taking it in again removes them.",
        )


def of_both(source: SiteView, target: SiteView) -> Iterator[Finding]:
    here, there = source.service, target.service
    yield from of_pair(source, target)
    yield from artemis.of_both(source, target)
    if here is None or there is None:
        return
    if here.site_id == there.site_id:
        yield SAME_SITE_ID(
            f"both sites of {source.pair} call themselves {here.site_id}: neither ships what the other wrote",
            "Give each its own site-id in broker.xml.",
        )
    if (here.suffixes, here.prefix) != (there.suffixes, there.prefix):
        yield FLOWS_DIFFER(
            f"{source.pair}: the plugin's queues have other names at {source.site} than at {target.site}",
            "Set the same suffixes and command-destination-prefix at both sites.",
        )
    names = {flow.queue for flow in source.flows} ^ {flow.queue for flow in target.flows}
    if names:
        yield FLOWS_DIFFER(
            f"{source.pair}: flows that only one site has: {some(sorted(names))}",
            "The plugin makes them when both sites talk; if that does not help, create the queue at the other site.",
        )
    skew_ms = abs(source.now_ms - target.now_ms)
    if skew_ms > min(here.staging_ms, there.staging_ms):
        yield CLOCKS_BEYOND_STAGING(
            f"{source.pair}: the clocks differ by {skew_ms / 1000:.1f} s, more than the staging delay of "
            f"{min(here.staging_ms, there.staging_ms) / 1000:g} s",
            "Let both hosts take their time from the same source: the delay is counted from the producer's clock.",
        )


def _started(view: SiteView) -> bool:
    """Where the plugin has not, nothing of it was judged."""
    return view.service is not None and view.service.started


def _of_doors(view: SiteView) -> str | None:
    return doors(view.doors) if _started(view) else None


def _service(view: SiteView) -> str | None:
    if view.service is None or not view.service.started:
        return None
    active = "active" if view.service.activated else "not active"
    return f"{active}, {'delivering' if view.service.delivering else 'not delivering'}"


def _flows_read(view: SiteView) -> str | None:
    return f"{view.site} {len(view.flows)} flow(s)" if _started(view) else None


def _remembered(view: SiteView) -> str | None:
    size = "as many as broker.xml says" if view.config.id_cache is None else str(view.config.id_cache)
    return f"{size} remembered" if _started(view) else None


def _bridges(view: SiteView) -> str | None:
    return (
        f"{len(view.link.ships)} bridge(s), {'' if view.link.attached else 'not '}connected" if _started(view) else None
    )


def _commands(view: SiteView) -> str | None:
    return f"{view.commands.out.depth + view.commands.into.depth} waiting" if view.commands is not None else None


def _named(view: SiteView) -> str | None:
    return f"{view.site} is {view.service.site_id}" if view.service is not None else None


BY_BROKER: Final[Sequence[Named[SiteView]]] = (
    Named(PLUGIN_NOT_STARTED, lambda view: "read" if view.service is not None else "not there"),
    Named(OPEN_BUT_NOT_ACTIVE, _of_doors),
    Named(NOT_DELIVERING, _service),
    Named(SEVERAL_QUEUES_ON_ADDRESS, _flows_read),
    Named(DEEPER_THAN_ID_CACHE, _remembered),
    Named(PLUGIN_BRIDGE_STOPPED, _bridges),
    Named(PLUGIN_BRIDGE_AWAY, _bridges),
    Named(ACKS_NOT_APPLIED, _flows_read),
    Named(STAGING_PAUSED, _flows_read),
    Named(COMMANDS_WAITING, _commands),
)
BY_PAIR: Final[Sequence[Named[SiteView]]] = (
    Named(SAME_SITE_ID, _named),
    Named(FLOWS_DIFFER, _flows_read),
    Named(COUNTED_NOT_NAMED, _flows_read),
    Named(CLOCKS_BEYOND_STAGING, lambda view: f"{view.site} {view.now_ms}"),
    Named(MQTT_STAYS, lambda view: f"{view.site} {some(view.stays) or 'nothing'}"),
)
