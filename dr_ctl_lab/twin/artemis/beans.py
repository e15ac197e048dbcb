"""The management beans of every Artemis broker; each kind adds the beans of its link."""

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from dr_ctl.core.notation import if_known
from dr_ctl_lab.twin.artemis import listings, locks, names
from dr_ctl_lab.twin.artemis.broker import ArtemisBroker
from dr_ctl_lab.twin.bean import Bean, Operations
from dr_ctl_lab.twin.broker import Broker
from dr_ctl_lab.twin.filters import BadFilter, ValueOf, compiled
from dr_ctl_lab.twin.messages import Message, Queue, Reason
from dr_ctl_lab.twin.parts import Acceptor, BrokerError

RUNTIME: Final = "java.lang:type=Runtime"
TEXT: Final = "java.lang.String"
SETTINGS: Final = f"getAddressSettingsAsJSON({TEXT})"
_SEND: Final = f"java.util.Map,int,{TEXT},boolean,{TEXT},{TEXT}"


def common_beans(broker: ArtemisBroker, parameters: Callable[[Acceptor], Mapping[str, str]]) -> Iterator[Bean]:
    """The beans that every kind of broker has. `parameters` returns an acceptor's parameters."""
    yield Bean(RUNTIME, partial(runtime, broker), dict)
    for acceptor in broker.acceptors.values():
        name = names.part(broker.name, "acceptors", acceptor.name)
        yield Bean(name, partial(_acceptor, acceptor, parameters), partial(_listeners, broker, acceptor))
    yield from cluster(broker, broker.name)


def cluster(broker: ArtemisBroker, name: str) -> Iterator[Bean]:
    """The cluster connection of the nodes; a passive node shows it under its own name."""
    if broker.group.listener:
        row = {"Name": "site", "NodeID": broker.node, "Started": True, "StaticConnectors": ["other"]}
        yield Bean(names.part(name, "cluster-connections", "site"), lambda: row, dict)


def runtime(broker: Broker) -> dict[str, Any]:
    return {"StartTime": broker.process_ms, "Uptime": broker.now_ms() - broker.process_ms}


def address(broker: ArtemisBroker, name: str) -> dict[str, Any]:
    rows = [queue.name for queue in broker.queues.values() if queue.address == name]
    routing = sorted(broker.addresses[name])
    return {
        "Address": name,
        "QueueNames": rows,
        "RoutingTypes": routing,
        "Paused": name in broker.limits.paused,
        "Paging": broker.is_paging(name),
        "RolesAsJSON": broker.security.as_json(name),
    }


def address_operations(broker: ArtemisBroker, name: str) -> Operations:
    return {
        "pause()": lambda: broker.pause_address(name, on=True),
        "resume()": lambda: broker.pause_address(name, on=False),
    }


def server(broker: ArtemisBroker) -> dict[str, Any]:
    return {
        "Name": broker.name,
        "Started": True,
        "Backup": False,
        "Version": broker.version,
        "NodeID": broker.node,
        "UptimeMillis": broker.now_ms() - broker.start_ms,
        "Clustered": bool(broker.group.listener),
        "SharedStore": broker.group.shares_store,
        "MaxDiskUsage": broker.limits.max_disk,
        "GlobalMaxSize": broker.limits.memory,
        "AddressMemoryUsage": broker.size(),
        "QueueNames": [*broker.queues],
        "AddressNames": [*broker.addresses],
        "QueueCount": len(broker.queues),
        "IDCacheSize": 20_000,
        "PersistIDCache": broker.persists_ids,
    }


def server_operations(broker: ArtemisBroker) -> Operations:
    def destroy(name: str, with_consumers: bool = False, with_address: bool = False) -> None:
        address = broker.queue(name).address
        broker.destroy_queue(name, with_consumers=with_consumers)
        if with_address and not any(queue.address == address for queue in broker.queues.values()):
            broker.addresses.pop(address, None)

    def disconnect(ident: str) -> bool:
        session = broker.sessions.get(ident)
        if session is not None:
            broker.disconnect(session)
        return session is not None

    def settings(name: str) -> str:
        address_settings = broker.limits.settings_of(name)
        return json.dumps(
            {"addressFullMessagePolicy": address_settings.policy, "maxSizeBytes": address_settings.max_bytes}
        )

    return {
        SETTINGS: settings,
        "listNetworkTopology()": lambda: json.dumps(broker.group.topology(broker.node, broker.acceptors)),
        f"destroyQueue({TEXT})": destroy,
        f"destroyQueue({TEXT},boolean)": destroy,
        f"destroyQueue({TEXT},boolean,boolean)": destroy,
        "listPreparedTransactionDetailsAsJSON()": lambda: "",
        f"closeConnectionWithID({TEXT})": disconnect,
        f"closeConsumerConnectionsForAddress({TEXT})": broker.cut_consumers,
        f"getRolesAsJSON({TEXT})": broker.security.as_json,
        f"listUser({TEXT})": broker.security.users,
        f"addSecuritySettings({','.join([TEXT] * 11)})": broker.security.add,
        f"removeSecuritySettings({TEXT})": broker.security.remove,
    }


def _acceptor(acceptor: Acceptor, parameters: Callable[[Acceptor], Mapping[str, str]]) -> dict[str, Any]:
    return {
        "Name": acceptor.name,
        "Started": acceptor.started,
        "Parameters": dict(parameters(acceptor)),
        "FactoryClassName": "org.apache.activemq.artemis.core.remoting.impl.netty.NettyAcceptorFactory",
    }


def _listeners(broker: ArtemisBroker, acceptor: Acceptor) -> Operations:
    if (coordinator := locks.coordinator_of(broker, acceptor.name)) is not None:
        return {"start()": coordinator.lock.settle, "stop()": coordinator.stop}
    return {"start()": lambda: broker.open_listener(acceptor), "stop()": lambda: broker.close_listener(acceptor)}


def queue_attributes(queue: Queue) -> dict[str, Any]:
    options = queue.options
    return {
        "Name": queue.name,
        "Address": queue.address,
        "ID": queue.number,
        "RoutingType": queue.routing.upper(),
        "MessageCount": len(queue.messages),
        "DeliveringCount": len(queue.delivering),
        "ScheduledCount": len(queue.scheduled),
        "ConsumerCount": len(queue.consumers),
        "MessagesAdded": queue.counters.added,
        "MessagesAcknowledged": queue.counters.acknowledged,
        "MessagesExpired": queue.counters.expired,
        "MessagesKilled": queue.counters.killed,
        "Paused": queue.paused,
        "Durable": queue.durable,
        "Temporary": queue.temporary,
        "RingSize": options.get("ring-size", -1),
        "LastValue": bool(options.get("last-value", False)),
        "MaxConsumers": options.get("max-consumers", -1),
        "PurgeOnNoConsumers": bool(options.get("purge-on-no-consumers", False)),
        "Exclusive": bool(options.get("exclusive", False)),
        "DeadLetterAddress": "DLQ",
        "ExpiryAddress": "ExpiryQueue",
        "User": queue.user,
        "Filter": queue.filter,
    }


def pause_operations(queue: Queue, broker: Broker) -> Operations:
    def pause(lasting: bool = False) -> None:
        queue.paused = True
        queue.lasting = queue.lasting or (lasting and queue.durable)

    def resume() -> None:
        queue.paused = queue.lasting = False
        queue.dispatch()
        broker.changed.notify_all()

    return {
        "pause()": pause,
        "pause(boolean)": pause,
        "resume()": resume,
        "disable()": lambda: setattr(queue, "enabled", False),
        "enable()": lambda: setattr(queue, "enabled", True),
    }


def parsed_filter(text: str | None) -> Callable[[ValueOf], bool]:
    """Compile a filter. BrokerError where it is none."""
    try:
        return compiled(text)
    except BadFilter as error:
        kind = "org.apache.activemq.artemis.api.core.ActiveMQInvalidFilterExpressionException"
        raise BrokerError(kind, f"AMQ229020: Invalid filter: {if_known(text)}") from error


def matching(queue: Queue, text: str | None) -> list[Message]:
    """The messages that match a filter and are neither in delivery nor scheduled."""
    selects = parsed_filter(text)
    return [
        message
        for message in queue.available()
        if selects({**message.headers, **{name: str(n) for name, n in message.longs.items()}}.get)
    ]


def queue_operations(broker: Broker, queue: Queue) -> Operations:
    def count(text: str | None = None) -> int:
        return len(matching(queue, text)) if text else len(queue.messages)

    def remove(text: str | None = None) -> int:
        messages = matching(queue, text)
        for message in messages:
            broker.remove(queue, message, Reason.KILLED)
        return len(messages)

    def send(headers: Mapping[str, Any], kind: int, body: str, durable: bool, user: str, password: str) -> str:
        if broker.users.get(user) != password:
            kind_of_error = "org.apache.activemq.artemis.api.core.ActiveMQSecurityException"
            raise BrokerError(kind_of_error, "AMQ229031: Unable to validate user from invm")
        number = broker.next_number()
        broker.route(
            Message(
                number=number,
                address=queue.address,
                body=body.encode(),
                text=kind == 3,  # noqa: PLR2004 - the number of a text message
                headers={name: str(value) for name, value in headers.items()},
                durable=bool(durable),
                priority=0,
                timestamp_ms=broker.now_ms(),
                anycast=queue.routing == "anycast",
            ),
            only=(queue.name,),
        )
        return str(number)

    return {
        **pause_operations(queue, broker),
        "browse(int,int)": lambda page, size: listings.browse(queue, page, size),
        "countMessages()": count,
        f"countMessages({TEXT})": count,
        "listConsumersAsJSON()": lambda: listings.consumers_of(broker, queue.name),
        "listDeliveringMessagesAsJSON()": lambda: listings.delivering(queue, listings.delivering_row),
        "removeAllMessages()": remove,
        f"removeMessages({TEXT})": remove,
        f"moveMessage(long,{TEXT})": lambda number, to: broker.move(queue, number, to),
        f"sendMessage({_SEND})": send,
    }
