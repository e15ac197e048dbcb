"""Views of a mirrored pair as one reading gives them, without a reading: London serves, Paris waits, nothing is
wrong."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from dr_ctl.topologies.artemis import beans
from dr_ctl.topologies.common.calls import OUTFLOW_PREFIX
from dr_ctl.topologies.common.snapshot import Silent
from dr_ctl.topologies.common.view import Acceptor, Config, Connection, Consumer, Queue
from dr_ctl.topologies.mirror.view import BrokerConnection, BrokerView, MirrorSnapshot
from tests.topologies import made
from tests.topologies.made import PAIR, PEERS

LETTERS = {"dead_letter_address": "DLQ", "expiry_address": "ExpiryQueue"}
CLIENTS, MIRROR, ADMIN = 61616, 61617, 61700


def queue(name: str = "orders.in", depth: int = 0, *, site: str = "london", **more: Any) -> Queue:
    bean = beans.queue(f"broker-{site}", more.get("address", name), "anycast", name)
    return made.queue(name, bean, depth, **LETTERS | more)


def outflow(site: str, **more: Any) -> Queue:
    return queue(f"{OUTFLOW_PREFIX}{PEERS[site]}", site=site, **{"internal": True, "consumers": 1, **more})


def listener(name: str, port: int | None, *, site: str = "london", **more: Any) -> Acceptor:
    return made.listener(name, beans.acceptor(f"broker-{site}", name), port, "CORE AMQP STOMP", **more)


def listeners(site: str, *, serving: bool) -> tuple[Acceptor, ...]:
    return (
        listener("clients", CLIENTS, site=site, started=serving),
        listener("mirror", MIRROR, site=site, protocols=frozenset({"AMQP"})),
    )


def broker(site: str, *queues: Queue, serving: bool | None = None, **more: Any) -> BrokerView:
    """One healthy broker; it serves in London unless told otherwise."""
    usual = {
        "config": Config(("clients",), ("mirror",), None, stomp_port=CLIENTS),
        "broker": f"broker-{site}",
        "pending_acks": 0,
        "acceptors": listeners(site, serving=site == "london" if serving is None else serving),
        "links": (BrokerConnection(PEERS[site], started=True, connected=True, protocol="AMQP"),),
        "queues": (outflow(site), *queues),
    }
    return made.view(BrokerView, site, **{**usual, **more})


def connection(port: int | None = CLIENTS) -> Connection:
    return Connection("5f0c", port, "10.1.2.3:50412", "billing", "app", "STOMP")


def link_connection(site: str) -> Connection:
    peer = "paris" if site == "london" else "london"
    return Connection("5f0d", MIRROR, "10.1.2.4:50413", f"node-{peer}", "link", "AMQP")


def consumer(name: str = "orders.in", port: int | None = CLIENTS) -> Consumer:
    return Consumer(name, port, "billing", "10.1.2.3:50412", "app", 0)


def snapshot(london: BrokerView | Silent, paris: BrokerView | Silent, **more: Any) -> MirrorSnapshot:
    return MirrorSnapshot({"london": {PAIR: london}, "paris": {PAIR: paris}}, **more)


def at_both(*names: str, depth: int = 0) -> tuple[BrokerView, BrokerView]:
    """A pair whose brokers have the same queues, equally full."""
    london, paris = (broker(site, *(queue(name, depth, site=site) for name in names)) for site in ("london", "paris"))
    return london, paris


def with_queue(view: BrokerView, changed: Queue) -> BrokerView:
    others: Sequence[Queue] = [item for item in view.queues if item.name != changed.name]
    return replace(view, queues=(*others, changed))
