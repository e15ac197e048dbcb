"""Brokers of a BrokerSync pair as one look tells them, for tests that ask none."""

from typing import Any

from dr_ctl.topologies.brokersync.view import BrokerView, SyncConfig
from dr_ctl.topologies.classic.broker import Network
from dr_ctl.topologies.common.seen import Seen
from dr_ctl.topologies.common.view import Acceptor, Config, Connection, Queue
from tests.topologies import made
from tests.topologies.made import PEERS

BROKER = "org.apache.activemq:type=Broker,brokerName"


def queue(name: str, depth: int = 0, **more: Any) -> Queue:
    bean = f"{BROKER}=b,destinationType=Queue,destinationName={name}"
    return made.queue(name, bean, depth, **{"routing": "queue", **more})


def door(name: str, port: int, *, started: bool = True, protocol: str = "STOMP") -> Acceptor:
    bean = f"{BROKER}=b,connector=clientConnectors,connectorName={name}"
    return made.door(name, bean, port, protocol, started=started, opens_at_boot=True)


def connection(client: str, port: int, connector: str) -> Connection:
    return Connection(client, port, "tcp://127.0.0.1:5", client, "", connector)


def broker(site: str, *, serves: bool, depth: int = 0, to_ship: int = 0, **more: Any) -> BrokerView:
    """One queue, `orders`, with its copy queue, and a connected network connector."""
    peer = PEERS[site]
    copies = queue(f"orders.to-{peer}", to_ship, internal=True, consumers=1)
    told = {
        "pair": "b",
        "config": Config(("stomp",), ("openwire",), None, greets_at=1),
        "own": SyncConfig(f"{{queue}}.to-{peer}", f"{{queue}}.to-{site}", "sync"),
        "version": "5.18.3",
        "start": f"ID:{site}-1",
        "now_ms": 0,
        "acceptors": (door("stomp", 1, started=serves), door("openwire", 2, protocol="OPENWIRE"), door("sync", 3)),
        "queues": (queue("orders", depth), copies),
        "networks": (Network(f"to-{peer}", f"{BROKER}={site},connector=networkConnectors", peer),),
        "copying": {"orders": copies},
    }
    return made.view(BrokerView, site, **{**told, **more})


def seen(*views: BrokerView) -> Seen[BrokerView]:
    return Seen({view.site: {view.pair: view} for view in views})
