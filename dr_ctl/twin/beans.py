"""The management beans of one broker: which there are, their attributes, and what can be called on each."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from dr_ctl.twin import listings, names
from dr_ctl.twin.broker import VERSION, Broker
from dr_ctl.twin.filters import compiled
from dr_ctl.twin.messages import Message, Outflow, Queue, Reason
from dr_ctl.twin.parts import Acceptor, BrokerSaysNo

RUNTIME: Final = "java.lang:type=Runtime"
SECURITY: Final = "hawtio:type=security,area=jmx,name=ArtemisJMXSecurity"
ILLEGAL: Final = "java.lang.IllegalArgumentException"
TEXT: Final = "java.lang.String"
_SEND: Final = f"java.util.Map,int,{TEXT},boolean,{TEXT},{TEXT}"
_PAGED: Final = f"{TEXT},int,int"

Operations = Mapping[str, Callable[..., Any]]


@dataclass(frozen=True, slots=True)
class Bean:
    """One bean: its attributes now, and its operations by `name(types)`; neither is made before it is asked for."""

    name: str
    read: Callable[[], Mapping[str, Any]]
    offer: Callable[[], Operations]


def beans(broker: Broker) -> Iterator[Bean]:
    """All beans of a broker, in no particular order."""
    yield Bean(names.server(broker.name), partial(server, broker), partial(server_operations, broker))
    uptime = partial(_runtime, broker)
    yield Bean(RUNTIME, uptime, dict)
    yield Bean(SECURITY, dict, lambda: {f"canInvoke({TEXT},{TEXT},[L{TEXT};)": lambda *_: True})
    for acceptor in broker.acceptors.values():
        name = names.part(broker.name, "acceptors", acceptor.name)
        yield Bean(name, partial(_acceptor, acceptor), partial(_doors, broker, acceptor))
    link = names.part(broker.name, "broker-connections", broker.link.name)
    yield Bean(link, partial(_link, broker), lambda: {"start()": broker.start_link, "stop()": broker.stop_link})
    for address in broker.addresses:
        yield Bean(names.address(broker.name, address), partial(_address, broker, address), dict)
    for queue in broker.queues.values():
        bean = names.queue(broker.name, queue.address, queue.routing, queue.name)
        yield Bean(bean, partial(_queue, queue), partial(_queue_operations, broker, queue))
    out = broker.outflow
    yield Bean(names.address(broker.name, out.name), partial(_outflow_address, broker), dict)
    outflow = names.queue(broker.name, out.name, "anycast", out.name)
    yield Bean(outflow, partial(_outflow, broker), partial(_outflow_operations, out, broker))


def _runtime(broker: Broker) -> dict[str, Any]:
    return {"StartTime": broker.start_ms, "Uptime": broker.now_ms() - broker.start_ms}


def _address(broker: Broker, name: str) -> dict[str, Any]:
    mine = [queue.name for queue in broker.queues.values() if queue.address == name]
    routing = sorted(broker.addresses[name])
    return {
        "Address": name,
        "QueueNames": mine,
        "RoutingTypes": routing,
        "Internal": False,
        "Paused": False,
        "RolesAsJSON": broker.security.as_json(name),
    }


def _outflow_address(broker: Broker) -> dict[str, Any]:
    name = broker.outflow.name
    return {"Address": name, "Internal": True, "RolesAsJSON": broker.security.as_json(name)}


def server(broker: Broker) -> dict[str, Any]:
    return {
        "Name": broker.name,
        "Active": True,
        "Started": True,
        "Backup": False,
        "Version": VERSION,
        "NodeID": broker.node,
        "CurrentTimeMillis": broker.now_ms(),
        "UptimeMillis": broker.now_ms() - broker.start_ms,
        "PendingMirrorAcks": len(broker.pending),
        "ConnectionCount": len(listings.connections(broker)),
        "DiskStoreUsage": 0.1,
        "QueueNames": [*broker.queues, broker.outflow.name],
        "AddressNames": [*broker.addresses, broker.outflow.name],
    }


def server_operations(broker: Broker) -> Operations:
    def create(text: str, ignore: bool = False) -> str:
        told = _configuration(text)
        if ignore and told["name"] in broker.queues:
            return json.dumps(told)
        queue = broker.create_queue(told)
        return json.dumps({"id": queue.number, **_settled(queue)})

    def update(text: str) -> str:
        told = _configuration(text)
        queue = broker.queue(str(told["name"]))
        # What is left out becomes what it is by default.
        queue.user, queue.filter = told.get("user"), told.get("filter")
        queue.options |= told
        return json.dumps({"id": queue.number, **_settled(queue)})

    def destroy(name: str, with_takers: bool = False, with_address: bool = False) -> None:
        address = broker.queue(name).address
        broker.destroy_queue(name, with_takers=with_takers)
        if with_address and not any(queue.address == address for queue in broker.queues.values()):
            broker.addresses.pop(address, None)

    def on_link(do: Callable[[], None]) -> Callable[[str], None]:
        def act(name: str) -> None:
            if name != broker.link.name:
                raise BrokerSaysNo(ILLEGAL, f"broker connection {name} not found", 400)
            do()

        return act

    def hang_up(ident: str) -> bool:
        session = broker.sessions.get(ident)
        if session is not None:
            broker.hang_up(session)
        return session is not None

    return {
        f"createQueue({TEXT})": create,
        f"createQueue({TEXT},boolean)": create,
        f"updateQueue({TEXT})": update,
        f"destroyQueue({TEXT})": destroy,
        f"destroyQueue({TEXT},boolean)": destroy,
        f"destroyQueue({TEXT},boolean,boolean)": destroy,
        f"startBrokerConnection({TEXT})": on_link(broker.start_link),
        f"stopBrokerConnection({TEXT})": on_link(broker.stop_link),
        "listBrokerConnections()": lambda: json.dumps([_link_row(broker)]),
        f"listConnections({_PAGED})": lambda *told: listings.list_connections(broker, *told),
        f"listConsumers({_PAGED})": lambda *told: listings.list_consumers(broker, *told),
        "listPreparedTransactionDetailsAsJSON()": lambda: "",
        "listLockCoordinatorsAsJSON()": lambda: "[]",
        f"closeConnectionWithID({TEXT})": hang_up,
        f"getRolesAsJSON({TEXT})": broker.security.as_json,
        f"listUser({TEXT})": broker.security.users,
        f"addSecuritySettings({','.join([TEXT] * 11)})": broker.security.add,
        f"addSecuritySettings({','.join([TEXT] * 13)})": broker.security.add,
        f"removeSecuritySettings({TEXT})": broker.security.remove,
        "reloadConfigurationFile()": broker.security.reload,
    }


def _configuration(text: str) -> dict[str, Any]:
    try:
        told = json.loads(text)
    except ValueError as error:
        kind = "org.apache.activemq.artemis.commons.shaded.json.stream.JsonParsingException"
        raise BrokerSaysNo(kind, str(error)) from error
    if not isinstance(told, dict) or "name" not in told:
        raise BrokerSaysNo(ILLEGAL, f"AMQ229229: Failed to parse JSON queue configuration: {text}", 400)
    return told


def _settled(queue: Queue) -> dict[str, Any]:
    return {
        "name": queue.name,
        "address": queue.address,
        "routing-type": queue.routing.upper(),
        "durable": queue.durable,
        **({"user": queue.user} if queue.user is not None else {}),
        "internal": queue.internal,
        "temporary": queue.temporary,
        "auto-created": queue.auto_created,
    }


def _acceptor(acceptor: Acceptor) -> dict[str, Any]:
    parameters = {
        "scheme": "tcp",
        "host": "127.0.0.1",
        "port": str(acceptor.port),
        "protocols": acceptor.protocols,
        **({} if acceptor.opens_at_boot else {"autoStart": "false"}),
    }
    factory = "org.apache.activemq.artemis.core.remoting.impl.netty.NettyAcceptorFactory"
    return {
        "Name": acceptor.name,
        "Started": acceptor.started,
        "Parameters": parameters,
        "FactoryClassName": factory,
    }


def _doors(broker: Broker, acceptor: Acceptor) -> Operations:
    return {"start()": lambda: broker.open_door(acceptor), "stop()": lambda: broker.close_door(acceptor)}


def _link_row(broker: Broker) -> dict[str, Any]:
    link = broker.link
    uri = f"tcp://127.0.0.1:{link.port}"
    return {"name": link.name, "protocol": "AMQP", "started": link.started, "uri": uri, "connected": link.connected}


def _link(broker: Broker) -> dict[str, Any]:
    told = {key.capitalize(): value for key, value in _link_row(broker).items()}
    return {**told, "User": "admin", "RetryInterval": 500, "ReconnectAttempts": -1}


def _queue(queue: Queue) -> dict[str, Any]:
    options = queue.options
    first = next(queue.live(), None)
    return {
        "Name": queue.name,
        "Address": queue.address,
        "ID": queue.number,
        "RoutingType": queue.routing.upper(),
        "MessageCount": len(queue.messages),
        "DeliveringCount": len(queue.delivering),
        "ScheduledCount": 0,
        "ConsumerCount": len(queue.takers),
        "MessagesAdded": queue.counters.added,
        "MessagesAcknowledged": queue.counters.acknowledged,
        "MessagesExpired": queue.counters.expired,
        "MessagesKilled": queue.counters.killed,
        "Paused": queue.paused,
        "PersistedPause": queue.lasting,
        "Durable": queue.durable,
        "Temporary": queue.temporary,
        "InternalQueue": queue.internal,
        "RingSize": options.get("ring-size", -1),
        "LastValue": bool(options.get("last-value", False)),
        "MaxConsumers": options.get("max-consumers", -1),
        "PurgeOnNoConsumers": bool(options.get("purge-on-no-consumers", False)),
        "Exclusive": bool(options.get("exclusive", False)),
        "AutoDelete": bool(options.get("auto-delete", False)),
        "Enabled": True,
        "DeadLetterAddress": "DLQ",
        "ExpiryAddress": "ExpiryQueue",
        "User": queue.user,
        "Filter": queue.filter,
        "FirstMessageTimestamp": first.timestamp_ms if first is not None else None,
    }


def _pausing(queue: Queue | Outflow, broker: Broker) -> Operations:
    def pause(lasting: bool = False) -> None:
        queue.paused = True
        queue.lasting = queue.lasting or (lasting and (not isinstance(queue, Queue) or queue.durable))

    def resume() -> None:
        queue.paused = queue.lasting = False
        if isinstance(queue, Queue):
            queue.dispatch()
        broker.changed.notify_all()

    return {"pause()": pause, "pause(boolean)": pause, "resume()": resume}


def _queue_operations(broker: Broker, queue: Queue) -> Operations:
    def matching(text: str | None) -> list[Message]:
        selects = compiled(text)
        return [each for each in queue.live() if selects(each.headers.get)]

    def count(text: str | None = None) -> int:
        return len(matching(text)) if text else len(queue.messages)

    def remove(text: str | None = None) -> int:
        found = matching(text)
        for message in found:
            broker.remove(queue, message, Reason.KILLED)
        return len(found)

    def send(headers: Mapping[str, Any], kind: int, body: str, durable: bool, user: str, password: str) -> str:
        if broker.users.get(user) != password:
            kinds = "org.apache.activemq.artemis.api.core.ActiveMQSecurityException"
            raise BrokerSaysNo(kinds, "AMQ229031: Unable to validate user from invm")
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
        **_pausing(queue, broker),
        "browse(int,int)": lambda page, size: listings.browse(queue, broker.node, page, size),
        "countMessages()": count,
        f"countMessages({TEXT})": count,
        "listConsumersAsJSON()": lambda: listings.consumers_of(broker, queue.name),
        "removeAllMessages()": remove,
        f"removeMessages({TEXT})": remove,
        f"moveMessage(long,{TEXT})": lambda number, to: broker.move(queue, number, to),
        f"sendMessage({_SEND})": send,
    }


def _outflow(broker: Broker) -> dict[str, Any]:
    out = broker.outflow
    plain = Queue(out.name, out.name, out.number, {}, internal=True)
    plain.paused, plain.lasting, plain.counters = out.paused, out.lasting, out.counters
    # The first that is not with the link; what is no message has no time of its own.
    first = out.events[out.under_way] if out.under_way < len(out.events) else None
    since_ms = first.message.timestamp_ms if first is not None and first.message is not None else 0
    return {
        **_queue(plain),
        "FirstMessageTimestamp": None if first is None else since_ms,
        "MessageCount": len(out.events),
        "DeliveringCount": out.under_way,
        "ConsumerCount": int(broker.link.attached),
    }


def _outflow_operations(out: Outflow, broker: Broker) -> Operations:
    def count(text: str | None = None) -> int:
        if not text:
            return len(out.events)
        selects = compiled(text)
        waiting = list(out.events)[out.under_way :]
        return sum(selects(lambda name, each=each: listings.annotation(each, name)) for each in waiting)  # type: ignore[misc]

    return {
        **_pausing(out, broker),
        "browse(int,int)": lambda page, size: listings.browse(out, broker.node, page, size),
        "countMessages()": count,
        f"countMessages({TEXT})": count,
    }


def signatures(operations: Operations, name: str) -> Sequence[str]:
    """The signatures of an operation, in brackets, as an error tells them."""
    return [each.removeprefix(name) for each in operations if each.partition("(")[0] == name]
