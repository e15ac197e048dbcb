"""The management beans of a mirrored broker: which there are, its link, its outflow, what only its version has."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from dr_ctl.twin.artemis import beans as common
from dr_ctl.twin.artemis import listings, names
from dr_ctl.twin.artemis.beans import TEXT
from dr_ctl.twin.bean import ILLEGAL, Bean, Operations
from dr_ctl.twin.messages import Queue
from dr_ctl.twin.mirror import listings as own
from dr_ctl.twin.mirror.broker import MirrorBroker
from dr_ctl.twin.mirror.outflow import Outflow
from dr_ctl.twin.parts import Acceptor, BrokerSaysNo

SECURITY: Final = "hawtio:type=security,area=jmx,name=ArtemisJMXSecurity"
_PAGED: Final = f"{TEXT},int,int"


def beans(broker: MirrorBroker) -> Iterator[Bean]:
    """All beans of a broker, in no particular order."""
    yield Bean(names.server(broker.name), partial(server, broker), partial(server_operations, broker))
    yield from common.everywhere(broker, _parameters)
    yield Bean(SECURITY, dict, lambda: {f"canInvoke({TEXT},{TEXT},[L{TEXT};)": lambda *_: True})
    link = names.part(broker.name, "broker-connections", broker.link.name)
    yield Bean(link, partial(_link, broker), lambda: {"start()": broker.start_link, "stop()": broker.stop_link})
    for address in broker.addresses:
        yield Bean(names.address(broker.name, address), partial(_address, broker, address), dict)
    for queue in broker.queues.values():
        bean = names.queue(broker.name, queue.address, queue.routing, queue.name)
        yield Bean(bean, partial(_queue, queue), partial(common.queue_operations, broker, queue))
    out = broker.outflow
    yield Bean(names.address(broker.name, out.name), partial(_outflow_address, broker), dict)
    outflow = names.queue(broker.name, out.name, "anycast", out.name)
    yield Bean(outflow, partial(_outflow, broker), partial(_outflow_operations, out, broker))


def _parameters(acceptor: Acceptor) -> dict[str, str]:
    told = {"scheme": "tcp", "host": "127.0.0.1", "port": str(acceptor.port), "protocols": acceptor.protocols}
    return told if acceptor.opens_at_boot else {**told, "autoStart": "false"}


def _address(broker: MirrorBroker, name: str) -> dict[str, Any]:
    return {**common.address(broker, name), "Internal": False}


def _queue(queue: Queue) -> dict[str, Any]:
    return {
        **common.queue_attributes(queue),
        "PersistedPause": queue.lasting,
        "InternalQueue": queue.internal,
        "AutoDelete": bool(queue.options.get("auto-delete", False)),
        "Enabled": True,
    }


def _outflow_address(broker: MirrorBroker) -> dict[str, Any]:
    name = broker.outflow.name
    return {"Address": name, "Internal": True, "RolesAsJSON": broker.security.as_json(name)}


def server(broker: MirrorBroker) -> dict[str, Any]:
    told = common.server(broker)
    return {
        **told,
        "Active": True,
        "CurrentTimeMillis": broker.now_ms(),
        "PendingMirrorAcks": len(broker.pending),
        "ConnectionCount": len(own.connections(broker)),
        "QueueNames": [*told["QueueNames"], broker.outflow.name],
        "AddressNames": [*told["AddressNames"], broker.outflow.name],
    }


def server_operations(broker: MirrorBroker) -> Operations:
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

    def on_link(do: Callable[[], None]) -> Callable[[str], None]:
        def act(name: str) -> None:
            if name != broker.link.name:
                raise BrokerSaysNo(ILLEGAL, f"broker connection {name} not found", 400)
            do()

        return act

    return {
        **common.server_operations(broker),
        f"createQueue({TEXT})": create,
        f"createQueue({TEXT},boolean)": create,
        f"updateQueue({TEXT})": update,
        f"startBrokerConnection({TEXT})": on_link(broker.start_link),
        f"stopBrokerConnection({TEXT})": on_link(broker.stop_link),
        "listBrokerConnections()": lambda: json.dumps([_link_row(broker)]),
        f"listConnections({_PAGED})": lambda _, page, size: listings.listed(own.connections(broker), page, size),
        f"listConsumers({_PAGED})": lambda _, page, size: listings.listed(own.consumers(broker), page, size),
        "listLockCoordinatorsAsJSON()": lambda: "[]",
        f"addSecuritySettings({','.join([TEXT] * 13)})": broker.security.add,
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


def _link_row(broker: MirrorBroker) -> dict[str, Any]:
    link = broker.link
    uri = f"tcp://127.0.0.1:{link.port}"
    return {"name": link.name, "protocol": "AMQP", "started": link.started, "uri": uri, "connected": link.connected}


def _link(broker: MirrorBroker) -> dict[str, Any]:
    told = {key.capitalize(): value for key, value in _link_row(broker).items()}
    return {**told, "User": "admin", "RetryInterval": 500, "ReconnectAttempts": -1}


def _outflow(broker: MirrorBroker) -> dict[str, Any]:
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


def _pausing(out: Outflow, broker: MirrorBroker) -> Operations:
    def pause(lasting: bool = False) -> None:
        out.paused = True
        out.lasting = out.lasting or lasting

    def resume() -> None:
        out.paused = out.lasting = False
        broker.changed.notify_all()

    return {"pause()": pause, "pause(boolean)": pause, "resume()": resume}


def _outflow_operations(out: Outflow, broker: MirrorBroker) -> Operations:
    def count(text: str | None = None) -> int:
        if not text:
            return len(out.events)
        selects = common.filtering(text)
        waiting = list(out.events)[out.under_way :]
        return sum(selects(lambda name, each=each: own.annotation(each, name)) for each in waiting)  # type: ignore[misc]

    return {
        **_pausing(out, broker),
        "browse(int,int)": lambda page, size: own.browse(out, broker.node, page, size),
        "countMessages()": count,
        f"countMessages({TEXT})": count,
    }
