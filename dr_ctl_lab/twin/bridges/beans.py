"""The management beans of a broker with diverts and bridges."""

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache, partial
from typing import Any, Final

from dr_ctl_lab.twin.artemis import beans as common
from dr_ctl_lab.twin.artemis import current, names
from dr_ctl_lab.twin.artemis.beans import TEXT
from dr_ctl_lab.twin.artemis.listings import clients_consumers
from dr_ctl_lab.twin.bean import Bean, Operations
from dr_ctl_lab.twin.bridges.broker import BridgesBroker
from dr_ctl_lab.twin.bridges.divert import TRANSFORMER, Config, CoreBridge, Divert, properties
from dr_ctl_lab.twin.bridges.listings import connections
from dr_ctl_lab.twin.messages import Queue
from dr_ctl_lab.twin.names import quoted

# Attributes of a bridge by its configuration: key and default.
_CONFIGURED: Final[Mapping[str, tuple[str, Any]]] = {
    "Name": ("name", None),
    "QueueName": ("queue-name", None),
    "ForwardingAddress": ("forwarding-address", None),
    "FilterString": ("filter-string", None),
    "StaticConnectors": ("static-connectors", []),
    "DiscoveryGroupName": ("discovery-group-name", None),
    "HA": ("ha", False),
    "RetryInterval": ("retry-interval", 2000),
    "RetryIntervalMultiplier": ("retry-interval-multiplier", 1.0),
    "MaxRetryInterval": ("max-retry-interval", 2000),
    "ReconnectAttempts": ("reconnect-attempts", -1),
    "UseDuplicateDetection": ("use-duplicate-detection", True),
}


def beans(broker: BridgesBroker) -> Iterator[Bean]:
    yield Bean(names.server(broker.name), partial(_server, broker), partial(_server_operations, broker))
    yield from current.common_beans(broker)
    for address in broker.addresses:
        yield Bean(
            names.address(broker.name, address),
            partial(_address, broker, address),
            partial(current.address_operations, broker, address),
        )
    for queue in broker.queues.values():
        name = names.queue(broker.name, queue.address, queue.routing, queue.name)
        yield Bean(name, partial(_queue, queue), partial(common.queue_operations, broker, queue))
    for divert in broker.diverts.values():
        at = names.address(broker.name, divert.address)
        yield Bean(f"{at},subcomponent=diverts,divert={quoted(divert.name)}", partial(_divert, divert), dict)
    for bridge in broker.bridges.values():
        name = names.part(broker.name, "bridges", bridge.name)
        yield Bean(name, partial(_bridge, bridge), partial(_bridge_operations, broker, bridge))


def _server(broker: BridgesBroker) -> dict[str, Any]:
    return {
        **current.server(broker),
        "ConnectorsAsJSON": json.dumps([{"name": broker.peer, "params": {}}]),
        "ConnectionCount": len(connections(broker)),
        "BridgeNames": [*broker.bridges],
        "DivertNames": [*broker.diverts],
    }


@lru_cache(maxsize=32)  # a broker is asked thousands of times
def _server_operations(broker: BridgesBroker) -> Operations:
    return {
        **current.server_operations(broker),
        **current.paged_listings(partial(connections, broker), partial(clients_consumers, broker)),
        f"createDivert({TEXT})": lambda text: broker.create_divert(current.configuration(text)),
        f"destroyDivert({TEXT})": broker.destroy_divert,
        f"createBridge({TEXT})": lambda text: broker.create_bridge(current.configuration(text)),
        f"destroyBridge({TEXT})": broker.destroy_bridge,
    }


def _address(broker: BridgesBroker, name: str) -> dict[str, Any]:
    counted = {"RoutedMessageCount": broker.routed_counts[name], "UnRoutedMessageCount": broker.unrouted_counts[name]}
    return {**current.address(broker, name), **counted}


def _queue(queue: Queue) -> dict[str, Any]:
    return {**common.queue_attributes(queue), **current.queue(queue)}


def _transformer(config: Config) -> dict[str, Any]:
    pairs = dict(properties(config))
    return {
        "TransformerClassName": (config.get(TRANSFORMER) or {}).get("class-name"),
        "TransformerProperties": pairs,
        "TransformerPropertiesAsJSON": json.dumps(pairs, separators=(",", ":")),
    }


def _divert(divert: Divert) -> dict[str, Any]:
    return {
        "UniqueName": divert.name,
        "RoutingName": divert.routing_name,
        "Address": divert.address,
        "ForwardingAddress": divert.forwarding,
        "Filter": divert.config.get("filter-string"),
        "Exclusive": divert.exclusive,
        "RoutingType": divert.config.get("routing-type", "STRIP"),
        "RetroactiveResource": False,
        **_transformer(divert.config),
    }


def _bridge(bridge: CoreBridge) -> dict[str, Any]:
    pending, acknowledged = bridge.forwarded, bridge.acked
    return {
        **{name: bridge.config.get(key, default) for name, (key, default) in _CONFIGURED.items()},
        "Started": bridge.started,
        "Connected": bridge.connected,
        "MessagesPendingAcknowledgement": pending,
        "MessagesAcknowledged": acknowledged,
        "Metrics": {"messagesPendingAcknowledgement": pending, "messagesAcknowledged": acknowledged},
        **_transformer(bridge.config),
    }


def _bridge_operations(broker: BridgesBroker, bridge: CoreBridge) -> Operations:
    def start() -> None:
        bridge.started = True
        broker.changed.notify_all()

    def stop() -> None:
        bridge.stop()
        broker.changed.notify_all()

    return {"start()": start, "stop()": stop}
