"""The management beans of a mirrored broker, with its link and its outflow."""

import json
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import Any

from dr_ctl_lab.twin.artemis import beans as common
from dr_ctl_lab.twin.artemis import current, names
from dr_ctl_lab.twin.artemis.beans import TEXT
from dr_ctl_lab.twin.bean import ILLEGAL, Bean, Operations
from dr_ctl_lab.twin.messages import Queue
from dr_ctl_lab.twin.mirror import listings as own
from dr_ctl_lab.twin.mirror.broker import MirrorBroker
from dr_ctl_lab.twin.mirror.outflow import Outflow
from dr_ctl_lab.twin.parts import BrokerError


def beans(broker: MirrorBroker) -> Iterator[Bean]:
    yield Bean(names.server(broker.name), partial(server, broker), partial(server_operations, broker))
    yield from current.common_beans(broker)
    if broker.link.configured:
        yield from _link_beans(broker)
    for address in broker.addresses:
        yield Bean(
            names.address(broker.name, address),
            partial(current.address, broker, address),
            partial(current.address_operations, broker, address),
        )
    for queue in broker.queues.values():
        bean = names.queue(broker.name, queue.address, queue.routing, queue.name)
        yield Bean(bean, partial(current.queue, queue), partial(common.queue_operations, broker, queue))


def _link_beans(broker: MirrorBroker) -> Iterator[Bean]:
    link = names.part(broker.name, "broker-connections", broker.link.name)
    yield Bean(link, partial(_link, broker), lambda: {"start()": broker.start_link, "stop()": broker.stop_link})
    out = broker.outflow
    yield Bean(names.address(broker.name, out.name), partial(_outflow_address, broker), dict)
    outflow = names.queue(broker.name, out.name, "anycast", out.name)
    yield Bean(outflow, partial(_outflow, broker), partial(_outflow_operations, out, broker))


def _outflow_address(broker: MirrorBroker) -> dict[str, Any]:
    name = broker.outflow.name
    return {"Address": name, "Internal": True, "RolesAsJSON": broker.security.as_json(name)}


def server(broker: MirrorBroker) -> dict[str, Any]:
    row = current.server(broker)
    outflows = [broker.outflow.name] if broker.link.configured else []
    return {
        **row,
        "PendingMirrorAcks": len(broker.pending),
        "ConnectionCount": len(own.connections(broker)),
        "QueueNames": [*row["QueueNames"], *outflows],
        "AddressNames": [*row["AddressNames"], *outflows],
        "QueueCount": row["QueueCount"] + len(outflows),
    }


@lru_cache(maxsize=32)  # a broker is asked thousands of times
def server_operations(broker: MirrorBroker) -> Operations:
    def on_link(action: Callable[[], None]) -> Callable[[str], None]:
        def call(name: str) -> None:
            if name != broker.link.name:
                raise BrokerError(ILLEGAL, f"broker connection {name} not found", 400)
            action()

        return call

    return {
        **current.server_operations(broker),
        **current.paged_listings(partial(own.connections, broker), partial(own.consumers, broker)),
        f"startBrokerConnection({TEXT})": on_link(broker.start_link),
        f"stopBrokerConnection({TEXT})": on_link(broker.stop_link),
        "listBrokerConnections()": lambda: json.dumps([_link_row(broker)] if broker.link.configured else []),
    }


def _link_row(broker: MirrorBroker) -> dict[str, Any]:
    link = broker.link
    uri = "#".join(f"tcp://127.0.0.1:{port}" for port in (link.port, *link.alternates))
    return {"name": link.name, "protocol": "AMQP", "started": link.started, "uri": uri, "connected": link.connected}


def _link(broker: MirrorBroker) -> dict[str, Any]:
    row = {key.capitalize(): value for key, value in _link_row(broker).items()}
    return {**row, "User": "admin", "RetryInterval": 500, "ReconnectAttempts": -1}


def _outflow(broker: MirrorBroker) -> dict[str, Any]:
    out = broker.outflow
    plain = Queue(out.name, out.name, out.number, {}, internal=True)
    plain.paused, plain.lasting, plain.counters = out.paused, out.lasting, out.counters
    return {
        **current.queue(plain),
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
        selects = common.parsed_filter(text)
        waiting = list(out.events)[out.under_way :]
        return sum(selects(lambda name, options=waiter: own.annotation(options, name)) for waiter in waiting)  # type: ignore[misc]

    return {
        **_pausing(out, broker),
        "browse(int,int)": lambda page, size: own.browse(out, broker.node, page, size),
        "countMessages()": count,
        f"countMessages({TEXT})": count,
    }
