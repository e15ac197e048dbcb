"""Views of a pair that diverts and bridges join: London serves two queues, Paris holds closed copies of them."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from dr_ctl.topologies.artemis import beans
from dr_ctl.topologies.bridges.access import Roles
from dr_ctl.topologies.bridges.seen import BridgesSeen
from dr_ctl.topologies.bridges.view import ORIGIN, Bridge, BrokerView, Divert, Flow
from dr_ctl.topologies.common.seen import Silent
from dr_ctl.topologies.common.view import Acceptor, Config, Connection, Grants, Queue
from tests.topologies import made
from tests.topologies.made import PAIR, PEERS

LETTERS = {"dead_letter_address": "DLQ", "expiry_address": "ExpiryQueue"}
IDS = "notification.ids"
UNITS = ("orders", "audit")
CLIENTS, BRIDGES = 61616, 61617
OPEN: Grants = {"amq": ("send", "consume"), "app": ("send", "consume"), "bridge": ("send",)}
CLOSED: Grants = {"amq": ("send", "consume"), "app": (), "bridge": ("send",)}


def queue(name: str, depth: int = 0, *, site: str = "london", **more: Any) -> Queue:
    bean = beans.queue(site, more.get("address", name), more.get("routing", "anycast"), name)
    return made.queue(name, bean, depth, **LETTERS | more)


def buffer(site: str, unit: str, depth: int = 0, **more: Any) -> Queue:
    usual = {"address": f"mirror.{unit}", "routing": "anycast", "internal": True, "consumers": 1}
    return queue(f"mirror.{PEERS[site]}.{unit}", depth, site=site, **{**usual, **more})


def bridge(site: str, unit: str, **more: Any) -> Bridge:
    name = f"bridge.mirror.{PEERS[site]}.{unit}"
    bean = f'{beans.server(site)},component=bridges,name="{name}"'
    usual = Bridge(name, bean, f"mirror.{PEERS[site]}.{unit}", unit, True, True, site)
    return replace(usual, **more)


def flow(site: str, unit: str, depth: int = 0, **more: Any) -> Flow:
    mine = f"{ORIGIN} = '{site}' OR {ORIGIN} IS NULL"
    divert = Divert(f"divert.{unit}", unit, f"mirror.{unit}", mine, exclusive=unit == IDS)
    return replace(Flow(divert, buffer(site, unit, depth), (bridge(site, unit),)), **more)


def arrived(site: str, depth: int = 0, **more: Any) -> Queue:
    """The peer's ids that wait for the processor, which is attached."""
    return queue(IDS, depth, site=site, **{"internal": True, "consumers": 1, **more})


def door(name: str, port: int, site: str, **more: Any) -> Acceptor:
    return made.door(name, beans.acceptor(site, name), port, "CORE", **more)


def broker(site: str, *, closed: bool | None = None, **more: Any) -> BrokerView:
    """One healthy broker; its queues are closed at Paris unless told otherwise: by role, and by their pauses."""
    shut = site == "paris" if closed is None else closed
    units = more.pop("among", UNITS)
    usual = {
        "config": Config(("clients",), ("bridge",), None, lasting=Roles(("app",))),
        "acceptors": (door("clients", CLIENTS, site), door("bridge", BRIDGES, site)),
        "queues": tuple(queue(unit, site=site, paused=shut) for unit in units),
        "connections": (connection("bridge", BRIDGES),),
        "flows": tuple(flow(site, unit) for unit in units),
        "ids": flow(site, IDS),
        "arrived": (arrived(site),),
        "unrouted": {},
        "grants": {**dict.fromkeys(units, CLOSED if shut else OPEN), IDS: OPEN},
        "users": {"app": frozenset({"app"}), "bridge": frozenset({"bridge"})},
    }
    return made.view(BrokerView, site, **{**usual, **more})


def connection(user: str, port: int) -> Connection:
    return Connection("5f0c", port, "10.1.2.3:50412", "", user, "CORE")


def with_queue(view: BrokerView, name: str, **changed: Any) -> BrokerView:
    return replace(view, queues=tuple(replace(each, **changed) if each.name == name else each for each in view.queues))


def with_flow(view: BrokerView, unit: str, change: Callable[[Flow], Flow]) -> BrokerView:
    return replace(view, flows=tuple(change(each) if each.unit == unit else each for each in view.flows))


def with_role(view: BrokerView, unit: str, grants: Grants) -> BrokerView:
    return replace(view, grants={**view.grants, unit: grants})


def shut(view: BrokerView, unit: str, *, by_role: bool = True, by_pause: bool = True) -> BrokerView:
    """One of its queues closed by one of the two, or both, or neither."""
    return with_queue(with_role(view, unit, CLOSED if by_role else OPEN), unit, paused=by_pause)


def seen(london: BrokerView | Silent, paris: BrokerView | Silent) -> BridgesSeen:
    return BridgesSeen({"london": {PAIR: london}, "paris": {PAIR: paris}})
