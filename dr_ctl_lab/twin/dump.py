"""The settable state and the messages of a broker, as plain values to compare."""

from typing import Any

from dr_ctl_lab.twin.broker import Broker
from dr_ctl_lab.twin.messages import Message


def settable(broker: Broker) -> dict[str, Any]:
    """The state that a tool can change: listeners, link, pauses, queues, addresses, rights."""
    return {
        "alive": broker.alive,
        "listeners": {acceptor.name: acceptor.started for acceptor in broker.acceptors.values()},
        "queues": {
            queue.name: {
                "address": queue.address,
                "routing": queue.routing,
                "paused": queue.paused,
                "lasting": queue.lasting,
                "user": queue.user,
                "filter": queue.filter,
            }
            for queue in broker.queues.values()
        },
        **broker.settable,
        "addresses": sorted(broker.addresses),
        "security": {
            match: {role: sorted(words) for role, words in grants.items()}
            for match, grants in broker.security.stored.items()
        },
    }


def messages(broker: Broker) -> dict[str, list[dict[str, Any]]]:
    """The messages of every queue, in order of arrival, each with its origin."""
    return {
        queue.name: [_message(broker, message) for message in queue.messages.values()]
        for queue in broker.queues.values()
    }


def _message(broker: Broker, message: Message) -> dict[str, Any]:
    return {
        "origin": message.origin or (broker.node, message.number),
        "body": message.body,
        "headers": dict(message.headers),
        "durable": message.durable,
    }
