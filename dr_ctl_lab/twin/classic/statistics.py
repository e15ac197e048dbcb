"""The statistics plugin: it answers a message to one of its queues at the message's reply address."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from dr_ctl_lab.twin.classic.topics import matches
from dr_ctl_lab.twin.messages import Queue

if TYPE_CHECKING:
    from dr_ctl_lab.twin.classic.broker import ClassicBroker

PREFIX: Final = "/queue/ActiveMQ.Statistics."
_DESTINATION: Final = f"{PREFIX}Destination."


def answer(broker: ClassicBroker, destination: str, headers: Mapping[str, str]) -> None:
    """Answer; for a missing queue there is no reply."""
    if destination == f"{PREFIX}Broker":
        _reply(broker, headers, _of_broker(broker))
    elif destination.startswith(_DESTINATION):
        wanted = destination.removeprefix(_DESTINATION)
        for queue in [queue for queue in broker.queues.values() if matches(wanted, queue.name)]:
            _reply(broker, headers, _of_queue(broker, queue))


def _of_broker(broker: ClassicBroker) -> dict[str, Any]:
    rows = [_of_queue(broker, queue) for queue in broker.queues.values()]
    total = {key: sum(row[key] for row in rows) for key in ("size", "enqueueCount", "dequeueCount", "inflightCount")}
    usage = {f"{limit.lower()}PercentUsage": percent for limit, percent in broker.usage.items()}
    return {**total, **usage, "brokerName": broker.name, "brokerId": broker.ident}


def _of_queue(broker: ClassicBroker, queue: Queue) -> dict[str, Any]:
    counted = queue.counters
    return {
        "size": len(queue.messages),
        "enqueueCount": counted.added,
        "dequeueCount": counted.acknowledged + counted.killed + counted.expired,
        "dispatchCount": broker.dispatched[queue.name],
        "inflightCount": broker.held(queue),
        "expiredCount": counted.expired,
        "consumerCount": broker.consumers(queue),
        "producerCount": 0,
        "destinationName": f"queue://{queue.name}",
        "brokerName": broker.name,
        "brokerId": broker.ident,
    }


def _reply(broker: ClassicBroker, headers: Mapping[str, str], figures: dict[str, Any]) -> None:
    entries = [
        {"string": [key, value]} if isinstance(value, str) else {"string": key, "long": value}
        for key, value in figures.items()
    ]
    reply = {
        "correlation-id": headers.get("correlation-id", ""),
        "type": "Advisory",
        "transformation": "jms-map-json",
        "message-id": f"{broker.ident[:-4]}-3:1:0:0:{broker.next_number()}",
    }
    broker.topics.publish(headers.get("reply-to", ""), reply, json.dumps({"map": {"entry": entries}}).encode())
