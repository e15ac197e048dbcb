"""The management beans that every Classic broker has."""

from collections.abc import Iterator
from functools import lru_cache, partial
from typing import Any, Final

from dr_ctl_lab.twin.bean import Bean, Fails, Operations
from dr_ctl_lab.twin.broker import ANYCAST, Refusal
from dr_ctl_lab.twin.classic import names, queues
from dr_ctl_lab.twin.classic.broker import ClassicBroker
from dr_ctl_lab.twin.classic.queues import TEXT
from dr_ctl_lab.twin.classic.session import ClassicSession
from dr_ctl_lab.twin.classic.subscription import QueueSubscription
from dr_ctl_lab.twin.parts import Acceptor, BrokerError

_ASKS_ITS_SERVER: Final = "org.apache.activemq.transport.TransportServer.isAllowLinkStealing()"
_STOPPED: Final = Fails(
    BrokerError("java.lang.NullPointerException", f'Cannot invoke "{_ASKS_ITS_SERVER}" because "this.server" is null')
)


def beans(broker: ClassicBroker) -> Iterator[Bean]:
    """The beans of every Classic broker."""
    yield Bean(names.server(broker.name), partial(_server, broker), partial(_server_operations, broker))
    yield Bean(f"{names.server(broker.name)},service=Health", lambda: {"CurrentStatus": "Good"}, dict)
    yield Bean(names.RUNTIME, partial(_runtime, broker), dict)
    for acceptor in broker.acceptors.values():
        name = names.connector(broker.name, acceptor.name)
        yield Bean(name, partial(_connector, acceptor), partial(_connector_operations, broker, acceptor))
    for session in broker.sessions.values():
        name = names.connection(broker.name, session.acceptor, session.client)
        row = connection(session.client, session.remote, session.user, network=False)
        yield Bean(name, partial(dict, row), dict)
    for client in broker.stopped:
        name = names.connection(broker.name, broker.clients_listener, client)
        row = connection(None, "127.0.0.1:1", None, network=False) | {"Active": False}
        yield Bean(name, partial(dict, row), dict)
    for queue in broker.queues.values():
        name = names.queue(broker.name, queue.name)
        yield Bean(name, partial(queues.attributes, broker, queue), partial(queues.operations, broker, queue))
    for session in broker.sessions.values():
        for hold in session.subscriptions() if isinstance(session, ClassicSession) else ():
            name = names.consumer(
                broker.name, "Queue", hold.queue.name, session.client, f"{session.client}:-1:{hold.number}"
            )
            yield Bean(name, partial(_consumer, hold), dict)


def _runtime(broker: ClassicBroker) -> dict[str, Any]:
    number = broker.acceptors[broker.peers_listener].port  # an arbitrary number
    return {
        "StartTime": broker.process_ms,
        "Name": f"{number}@{broker.name}",
        "Uptime": broker.now_ms() - broker.process_ms,
        "SystemProperties": {},
        "InputArguments": [],
        "ClassPath": "",
    }


def _server(broker: ClassicBroker) -> dict[str, Any]:
    rows = [queues.attributes(broker, queue) for queue in broker.queues.values()]
    totals = {"Message": "QueueSize", "Enqueue": "EnqueueCount", "Dequeue": "DequeueCount", "Consumer": "ConsumerCount"}
    return {
        "BrokerName": broker.name,
        "BrokerId": broker.ident,
        "BrokerVersion": broker.version,
        "UptimeMillis": broker.now_ms() - broker.start_ms,
        "Slave": False,
        "Persistent": True,
        "CurrentConnectionsCount": len(broker.sessions),
        **{f"{limit}PercentUsage": percent for limit, percent in broker.usage.items()},
        "TotalProducerCount": 0,
        **{f"Total{name}Count": sum(row[attribute] for row in rows) for name, attribute in totals.items()},
        "Queues": [{"objectName": names.queue(broker.name, queue)} for queue in broker.queues],
        "TransportConnectors": {acceptor.name: _address(acceptor) for acceptor in broker.acceptors.values()},
    }


@lru_cache(maxsize=32)  # a broker is asked thousands of times
def _server_operations(broker: ClassicBroker) -> Operations:
    def add(name: str) -> None:
        if name not in broker.queues:
            broker.create_queue({"name": name, "routing-type": ANYCAST})

    def remove(name: str) -> None:
        if name in broker.queues and broker.queues[name].consumers:
            raise broker.refusal(Refusal.IN_USE, name)
        broker.queues.pop(name, None)

    return {
        "stop()": broker.stop,
        f"addQueue({TEXT})": add,
        f"removeQueue({TEXT})": remove,
        "resetStatistics()": lambda: None,
    }


def _address(acceptor: Acceptor) -> str:
    return f"{'stomp' if 'STOMP' in acceptor.protocols else 'tcp'}://localhost:{acceptor.port}"


def connection(client: str | None, remote: str, user: str | None, *, network: bool) -> dict[str, Any]:
    return {
        "ClientId": client,
        "RemoteAddress": f"tcp://{remote}",
        "UserName": user,
        "NetworkConnection": network,
        "Connected": True,
        "Active": True,
        "Blocked": False,
        "Slow": False,
    }


def _connector(acceptor: Acceptor) -> dict[str, Any]:
    return {
        "Started": acceptor.started,
        "AllowLinkStealingEnabled": False if acceptor.started else _STOPPED,
        "MaxConnectionExceededCount": 0,
        "RebalanceClusterClients": False,
        "StatisticsEnabled": True,
        "UpdateClusterClients": False,
        "UpdateClusterClientsOnRemove": False,
        "UpdateClusterFilter": None,
    }


def _connector_operations(broker: ClassicBroker, acceptor: Acceptor) -> Operations:
    return {
        "start()": partial(broker.open_listener, acceptor),
        "stop()": partial(broker.close_listener, acceptor),
        "connectionCount()": lambda: sum(session.acceptor == acceptor.name for session in broker.sessions.values()),
    }


def _consumer(subscription: QueueSubscription) -> dict[str, Any]:
    waiting = len(subscription.in_hand)
    return consumer(subscription.session.client, subscription.queue.name, network=False) | {
        "Selector": subscription.selector or None,
        "SubscriptionId": subscription.number,
        "PrefetchSize": subscription.prefetch,
        "DispatchedCounter": subscription.delivered,
        "EnqueueCounter": subscription.delivered,
        "DequeueCounter": subscription.acknowledged,
        "DispatchedQueueSize": waiting,
        "MessageCountAwaitingAcknowledge": waiting,
    }


def consumer(client: str, queue: str, *, network: bool) -> dict[str, Any]:
    """Attributes of a consumer that got no message yet."""
    counters = ("Dispatched", "Enqueue", "Dequeue")
    return {
        "ClientId": client,
        "DestinationName": queue,
        "DestinationQueue": True,
        "Active": True,
        "Network": network,
        "Durable": False,
        "UserName": None,
        "PendingQueueSize": 0,
        **{f"{name}Counter": 0 for name in counters},
    }
