"""The management beans of a broker with the continuity plugin. Beans of the plugin's queues, bridges and diverts have
names below those of the plugin."""

import json
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial
from typing import Any, Final

from dr_ctl_lab.twin.artemis import beans as common
from dr_ctl_lab.twin.artemis import listings, names
from dr_ctl_lab.twin.artemis.beans import TEXT
from dr_ctl_lab.twin.bean import Bean, Operations
from dr_ctl_lab.twin.bridge import Bridge
from dr_ctl_lab.twin.continuity import listings as plugin_queues
from dr_ctl_lab.twin.continuity.broker import ContinuityBroker
from dr_ctl_lab.twin.continuity.flow import COMMANDS, IN_ACKS, IN_MIRROR, OUT_ACKS, OUT_MIRROR, Flow
from dr_ctl_lab.twin.messages import Queue
from dr_ctl_lab.twin.names import quoted
from dr_ctl_lab.twin.parts import Acceptor, BrokerError

CREATE: Final = f"createQueue({TEXT},{TEXT},{TEXT},{TEXT},boolean,int,boolean,boolean)"
UPDATE: Final = (
    f"updateQueue({TEXT},{TEXT},{TEXT},java.lang.Integer,java.lang.Boolean,java.lang.Boolean,java.lang.Boolean,"
    f"java.lang.Integer,java.lang.Boolean,java.lang.Integer,java.lang.Long,{TEXT})"
)
_PAGED: Final = f"{TEXT},int,int"
INTERNAL: Final = "continuity-internal"
INTERVAL: Final = "500"


def beans(broker: ContinuityBroker) -> Iterator[Bean]:
    yield Bean(names.server(broker.name), partial(_server, broker), partial(_server_operations, broker))
    yield from common.common_beans(broker, _parameters)
    internal = {"Name": INTERNAL, "Started": True, "Parameters": {"serverId": "1"}}
    yield Bean(names.part(broker.name, "acceptors", INTERNAL), lambda: internal, dict)
    moved = dict(_moved(broker))
    for address in broker.addresses:
        if address not in moved:
            yield Bean(
                names.address(broker.name, address),
                partial(common.address, broker, address),
                partial(common.address_operations, broker, address),
            )
    for queue in broker.queues.values():
        place = moved.get(queue.name)
        bean = names.queue(broker.name, queue.address, queue.routing, queue.name)
        if place is not None:
            under, level = place
            at = f"{under},{level}component=addresses,address={quoted(queue.address)}"
            yield Bean(at, partial(common.address, broker, queue.address), dict)
            kind = f"routing-type={quoted(queue.routing)}"
            bean = f"{at},sub{level}component=queues,{kind},queue={quoted(queue.name)}"
        yield Bean(bean, partial(common.queue_attributes, queue), partial(_queue_operations, broker, queue))
    if broker.service.started:
        yield from _plugin(broker)


def _service_name(broker: ContinuityBroker) -> str:
    return f'{names.server(broker.name)},component=continuity,name="continuity.service"'


def _flow_name(broker: ContinuityBroker, flow: Flow) -> str:
    return f"{_service_name(broker)},subcomponent=flows,flow={quoted(flow.queue.name)}"


def _moved(broker: ContinuityBroker) -> Iterator[tuple[str, tuple[str, str]]]:
    """Each queue of the plugin, with the bean above it and its level."""
    for queue in (broker.service.out, broker.service.into):
        yield queue.name, (_service_name(broker), "sub")
    for flow in broker.flows.values():
        for queue in flow.queues:
            yield queue.name, (_flow_name(broker, flow), "subsub")


def _plugin(broker: ContinuityBroker) -> Iterator[Bean]:
    service = broker.service
    name = _service_name(broker)
    yield Bean(name, partial(_service, broker), partial(_service_operations, broker))
    bridge = service.bridge
    at = f"{name},subcomponent=bridges,bridge={quoted(bridge.name)}"
    yield Bean(at, partial(_bridge, bridge), partial(_bridge_operations, broker, bridge))
    for flow in broker.flows.values():
        under = _flow_name(broker, flow)
        yield Bean(under, partial(_flow, flow), dict)
        divert = f"{under},subsubcomponent=diverts,divert={quoted(flow.divert)}"
        yield Bean(divert, partial(_divert, broker, flow), dict)
        for item in flow.bridges:
            at = f"{under},subsubcomponent=bridges,bridge={quoted(item.name)}"
            yield Bean(at, partial(_bridge, item), partial(_bridge_operations, broker, item))


def _parameters(acceptor: Acceptor) -> dict[str, str]:
    return {"host": "127.0.0.1", "port": str(acceptor.port), "protocols": acceptor.protocols}


def _server(broker: ContinuityBroker) -> dict[str, Any]:
    bridges = [bridge for flow in broker.flows.values() for bridge in flow.bridges]
    return {
        **common.server(broker),
        "ConnectionCount": len(plugin_queues.connections(broker)),
        "BridgeNames": [bridge.name for bridge in (*bridges, broker.service.bridge)],
        "DivertNames": [flow.divert for flow in broker.flows.values()],
    }


@lru_cache(maxsize=32)  # a broker is asked thousands of times
def _server_operations(broker: ContinuityBroker) -> Operations:
    def create(
        address: str, routing: str, name: str, filter_: str | None, durable: bool, most: int, purge: bool, make: bool
    ) -> str:
        del make
        queue = broker.create_queue(
            {
                "name": name,
                "address": address,
                "routing-type": routing,
                "durable": durable,
                "filter": filter_,
                "max-consumers": most,
                "purge-on-no-consumers": purge,
            }
        )
        return _settled(queue)

    def update(name: str, routing: str, filter_: str | None, most: int | None, *rest: Any) -> str:
        del routing, rest
        queue = broker.queue(name)
        queue.filter = filter_
        queue.options |= {"max-consumers": most} if most is not None else {}
        return _settled(queue)

    def settings(address: str) -> str:
        policy = broker.when_full if address in broker.full else "PAGE"
        return json.dumps({"DLA": "DLQ", "expiryAddress": "ExpiryQueue", "addressFullMessagePolicy": policy})

    return {
        **common.server_operations(broker),
        common.SETTINGS: settings,
        CREATE: create,
        f"createQueue({TEXT},{TEXT})": lambda address, name: broker.create_queue({"name": name, "address": address}),
        UPDATE: update,
        f"listConnections({_PAGED})": _listing(partial(plugin_queues.connections, broker)),
        f"listConsumers({_PAGED})": _listing(partial(plugin_queues.consumers, broker)),
    }


def _listing(rows: Callable[[], list[dict[str, Any]]]) -> Callable[[str, int, int], str]:
    def listed(options: str, page: int, size: int) -> str:
        try:
            json.loads(options)
        except ValueError as error:
            kind = "javax.json.stream.JsonParsingException"
            raise BrokerError(kind, f"Unexpected character: {error}") from error
        return listings.listed(rows(), page, size)

    return listed


def _settled(queue: Queue) -> str:
    row = {
        "name": queue.name,
        "address": queue.address,
        "routingType": queue.routing.upper(),
        "filter": queue.filter,
        "durable": str(queue.durable).lower(),
        "maxConsumers": queue.options.get("max-consumers", -1),
    }
    return f"Queue [{', '.join(f'{key}={text}' for key, text in row.items())}]"


def _queue_operations(broker: ContinuityBroker, queue: Queue) -> Operations:
    def count_by(text: str | None, header: str) -> str:
        counts: dict[str, int] = {}
        for message in common.matching(queue, text):
            key = message.headers.get(header, "null")
            counts[key] = counts.get(key, 0) + 1
        return json.dumps(counts)

    def move(text: str | None, to: str) -> int:
        messages = common.matching(queue, text)
        return sum(broker.move(queue, message.number, to) for message in messages)

    operations = common.queue_operations(broker, queue)
    return {
        **operations,
        "browse()": lambda: listings.browse(queue, 0, 0),
        f"countMessages({TEXT},{TEXT})": count_by,
        f"moveMessages({TEXT},{TEXT})": move,
        "listScheduledMessagesAsJSON()": lambda: json.dumps(
            [plugin_queues.row(queue.messages[item]) for item in queue.scheduled]
        ),
        "listDeliveringMessagesAsJSON()": lambda: listings.delivering(queue, plugin_queues.row),
    }


def _service(broker: ContinuityBroker) -> dict[str, Any]:
    service = broker.service
    return {
        "SiteId": broker.site,
        "SiteActivated": service.activated,
        "Delivering": service.delivering,
        "ServiceInitialized": "true",
        "ServiceStarted": "true",
        "CommandManagerInitialized": "true",
        "CommandManagerStarted": "true",
        "InflowStagingDelay": str(broker.staging_ms),
        "BridgeInterval": INTERVAL,
        "BridgeIntervalMultiplier": "1.0",
        "OutflowMirrorSuffix": OUT_MIRROR,
        "OutflowAcksSuffix": OUT_ACKS,
        "InflowMirrorSuffix": IN_MIRROR,
        "InflowAcksSuffix": IN_ACKS,
        "CommandDestinationPrefix": COMMANDS,
        "LocalConnector": "local",
        "RemoteConnectors": service.connectors,
        "LocalUsername": "admin",
        "RemoteUsername": "admin",
    }


def _service_operations(broker: ContinuityBroker) -> Operations:
    service = broker.service
    return {
        "activateSite(java.lang.Long)": service.activate,
        "deactivateSite()": service.deactivate,
        f"sendCommand({TEXT},{TEXT},{TEXT})": lambda action, address, queue: service.send_command(
            action, address=address, queue=queue
        ),
    }


def _flow(flow: Flow) -> Mapping[str, Any]:
    return {
        "FlowInitialized": "true",
        "FlowStarted": "true",
        "SubjectAddressName": flow.queue.address,
        "SubjectQueueName": flow.queue.name,
        "OutflowMirrorName": flow.out_mirror.name,
        "OutflowMirrorBridgeName": flow.mirror_bridge.name,
        "OutflowAcksName": flow.out_acks.name,
        "OutflowAcksBridgeName": flow.acks_bridge.name,
        "InflowMirrorName": flow.staging.name,
        "InflowAcksName": flow.in_acks.name,
        "TargetBridgeName": flow.target_bridge.name,
        "AddDuplicatesToTarget": True,
        "RemoveMessageFromMirror": True,
        "DelayMessageOnInflow": True,
        "AverageAckDuration": "",
        "MaxAckDuration": "",
        "MinAckDuration": "",
    }


def _divert(broker: ContinuityBroker, flow: Flow) -> Mapping[str, Any]:
    return {
        "UniqueName": flow.divert,
        "Address": flow.queue.address,
        "ForwardingAddress": flow.out_mirror.address,
        "Exclusive": False,
        "Filter": f"_CTY_ORIGIN <> '{broker.site}' OR _CTY_ORIGIN IS NULL",
    }


def _bridge(bridge: Bridge) -> dict[str, Any]:
    return {
        "Name": bridge.name,
        "Started": bridge.started,
        "QueueName": bridge.queue.name,
        "ForwardingAddress": bridge.address,
        "MessagesPendingAcknowledgement": bridge.forwarded,
        "MessagesAcknowledged": bridge.acked,
        "RetryInterval": int(INTERVAL),
        "ReconnectAttempts": -1,
        "UseDuplicateDetection": True,
        "HA": True,
    }


def _bridge_operations(broker: ContinuityBroker, bridge: Bridge) -> Operations:
    def start() -> None:
        bridge.started = True
        broker.changed.notify_all()

    def stop() -> None:
        bridge.stop()
        broker.changed.notify_all()

    return {"start()": start, "stop()": stop}
