"""The management beans of a network connector: connector, and while it is up its bridge and subscriptions."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from dr_ctl_lab.twin.bean import Bean
from dr_ctl_lab.twin.classic import beans as common
from dr_ctl_lab.twin.classic import names
from dr_ctl_lab.twin.classic.brokersync.broker import BRIDGE, BrokerSyncBroker
from dr_ctl_lab.twin.classic.network import Forwarding, NetworkConnector


def beans(broker: BrokerSyncBroker) -> Iterator[Bean]:
    yield from common.beans(broker)
    connector = broker.network
    if broker.incoming:
        client = f"to-{broker.site}_{broker.peer}_outbound"
        row = common.connection(client, "127.0.0.1:1", BRIDGE, network=True)
        yield Bean(names.connection(broker.name, broker.peers_listener, client), partial(dict, row), dict)
    name = names.network(broker.name, connector.name)
    doing = {"start()": connector.start, "stop()": connector.stop}
    yield Bean(name, partial(_connector, connector), lambda: doing)
    if not connector.up:
        return
    remote = _remote_address(broker)
    bridge = f"{name},networkBridge={names.encoded(remote)}"
    yield Bean(bridge, partial(_bridge, broker, remote), lambda: doing)
    client = f"{connector.name}_{connector.peer}_inbound_{broker.name}"
    for number, forwarding in enumerate(connector.forwardings, start=1):
        ident = f"{broker.name}->{connector.peer}-{broker.start_ms}-6:1:1:{number}"
        subscription = names.consumer(broker.name, "Queue", forwarding.queue.name, client, ident)
        yield Bean(subscription, partial(_subscription, client, forwarding), dict)


def _remote_address(broker: BrokerSyncBroker) -> str:
    return f"tcp://{broker.peer}:61616"


def _connector(connector: NetworkConnector) -> dict[str, Any]:
    return {
        "Name": connector.name,
        "Duplex": False,
        "DynamicOnly": False,
        "ConduitSubscriptions": True,
        "ConsumerTTL": 1,
        "MessageTTL": 1,
        "PrefetchSize": 1000,
        "UserName": BRIDGE,
        "Password": "****",
        "RemoteUserName": None,
        "RemotePassword": "****",
    }


def _bridge(broker: BrokerSyncBroker, remote: str) -> dict[str, Any]:
    forwardings = broker.network.forwardings
    return {
        "RemoteBrokerName": broker.network.peer,
        "RemoteAddress": remote,
        "LocalAddress": f"vm://{broker.name}#1",
        "LocalBrokerName": broker.name,
        "EnqueueCounter": sum(item.forwarded for item in forwardings),
        "DequeueCounter": sum(item.acked for item in forwardings),
        "ReceivedCounter": 0,
        "CreatedByDuplex": False,
    }


def _subscription(client: str, forwarding: Forwarding) -> dict[str, Any]:
    held = len(forwarding.outbound) + len(forwarding.confirmations)
    return common.consumer(client, forwarding.queue.name, network=True) | {
        "Selector": None,
        "PrefetchSize": 1000,
        "DispatchedCounter": forwarding.forwarded,
        "EnqueueCounter": forwarding.forwarded,
        "DequeueCounter": forwarding.acked,
        "DispatchedQueueSize": held,
        "MessageCountAwaitingAcknowledge": held,
    }
